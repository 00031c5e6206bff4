"""Leakage: what of held-out documents stands in training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.metrics.documents import listed
from dataaudit.metrics.family import (
    SOURCES,
    Broken,
    Counted,
    Family,
    MetricDefinition,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.overlap.evidence import documents_with_text_of, lists_all_documents, matches_of, near_copies
from dataaudit.metrics.recomputed import IS_DOCUMENT, Check, Follows, Number, of_shard, unlimited

METRIC = "train_val_overlap"


def _evidence(case: Broken, tables: Tables) -> tuple[str, Mapping[int, int]]:
    if case.stat.startswith("near_dup"):
        shards, counts = np.unique(near_copies(case, tables)[:, 0], return_counts=True)
        return "near-duplicates of held-out documents", dict(zip(shards.tolist(), counts.tolist(), strict=True))
    return "documents with text of it", documents_with_text_of(case, tables, tables.splits("held_out"))


def _documents(case: Broken, tables: Tables) -> pa.Table:
    if case.stat.startswith("near_dup"):
        copies = near_copies(case, tables)
        return listed(copies[:, 0], copies[:, 1], "near_duplicate")
    found = matches_of(case, tables, tables.splits("held_out"))
    return listed(found["shard"], found["row"], found["rule"])


_HELD_OUT = {"population": "held_out", "sources_of": "training"}
_WITH_SOURCES = _HELD_OUT | {"headline": True, "absent_is_zero": frozenset({"source"})}


def _checks() -> Iterator[Check]:
    own, by = pc.field("score_without_common") > 0, pc.field("found_by")
    seen = Number("shards", "documents", pc.field("held_out_copies").is_valid())
    yield Follows(METRIC, "train_documents", Number("shards", "held_out_copies"), seen)
    copies = Number("overlap", "", IS_DOCUMENT & own & by.isin(["span", "whole", "edited"]), ("shard", "row"))
    yield of_shard("held_out_copies", copies, most_when=lists_all_documents)
    held_out = Number("shards", "documents", pc.field("held_out"))
    yield Follows(METRIC, "documents", held_out, held_out, "all, set", when=_all_looked_for)
    for suffix, rows in (("", IS_DOCUMENT), ("_without_common", IS_DOCUMENT & own)):
        leaked = (by == "whole") | ((by == "ngram") & (pc.field(f"score{suffix}") >= 0.5))
        whole, edited, passages = (_items(rows & rule) for rule in (leaked, by == "edited", by == "span"))
        words, most = _items(rows & (by == "span"), _passage_words), None if suffix else unlimited(passages)
        yield Follows(METRIC, f"ngram{suffix}", shapes="all, set", least=whole)
        for stat, least, limit in (("span", words, most), ("edited", edited, edited)):
            bound = Follows(METRIC, f"{stat}{suffix}", shapes="all, set", least=least, most=limit)
            yield replace(bound, most_when=lists_all_documents)


def _items(rows: pc.Expression, column: str | Callable[[pa.Table], pa.ChunkedArray] = "") -> Number:
    return Number("overlap", column, rows, ("set", "item"))


def _passage_words(rows: pa.Table) -> pa.ChunkedArray:
    """A copied passage has 50 words at least."""
    return pa.chunked_array([np.full(len(rows), 50)])


def _all_looked_for(manifest: Manifest) -> bool:
    """Return whether every held-out document was looked for in training data, of which some was read."""
    copies = manifest.table("shards", ["held_out_copies"])["held_out_copies"]
    return copies.null_count < len(copies) and all(record.method != "sampled" for record in manifest.metrics(METRIC))


FAMILY = Family(
    name="overlap",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *statistics(METRIC, "ngram span", "ratio", "all, set, source and set", **_WITH_SOURCES),
                *statistics(
                    METRIC,
                    "near_dup ngram_without_common span_without_common edited edited_without_common",
                    "ratio",
                    "all, set",
                    **_HELD_OUT,
                ),
                *statistics(METRIC, "common_grams", "13-grams", "all, set", **_HELD_OUT),
                *statistics(METRIC, "documents too_short no_words", "documents", "all, set", **_HELD_OUT),
                *statistics(METRIC, "train_documents", "ratio", SOURCES, population="training", sources_of="training"),
            ),
            reading=0,
            first_rows=3,
            evidence=Counted(count=_evidence),
            documents=_documents,
            sets="held_out",
            area="leakage",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="train_documents",
            column="held_out_copies",
            per_document=True,
            population="training",
            head="copies of held-out",
            shown_as="count",
            compared=True,
        ),
    ),
    stage="dataaudit.metrics.overlap.stage:Overlap",
    stage_name="overlap",
    link="dataaudit.metrics.protected:leaks",
    by_shard=("documents",),
    by_split=("documents", "sets"),
    harmless=frozenset({"max_rows", "max_grams"}),
    shown="dataaudit.metrics.overlap.facts:SHOWN",
    checked_with=("shards", "overlap"),
    checks=tuple(_checks()),
    looked_for=True,
)
