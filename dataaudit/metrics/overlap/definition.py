"""Leakage: what of held-out documents stands in training data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dataaudit.metrics import recomputed_leaks
from dataaudit.metrics.documents import listed
from dataaudit.metrics.family import (
    SOURCES,
    Broken,
    Counted,
    Family,
    MetricDefinition,
    Relation,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.overlap.evidence import documents_with_text_of, matches_of, near_copies

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
    relations=(
        Relation(
            tables=("shards", "overlap"),
            metrics=(METRIC,),
            recompute=recomputed_leaks.held_out_leaks,
        ),
    ),
    looked_for=True,
)
