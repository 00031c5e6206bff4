"""Contamination: items of evaluation sets that stand in training data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.metrics.documents import listed
from dataaudit.metrics.family import (
    Broken,
    Counted,
    Family,
    MetricDefinition,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.overlap.evidence import documents_with_text_of, lists_all_items, matches_of
from dataaudit.metrics.recomputed import (
    IS_DOCUMENT,
    Check,
    Follows,
    ManifestTables,
    Number,
    Numbers,
    Shape,
    of_shard,
    recorded,
    unlimited,
)

METRIC = "benchmark_contamination"
_PARTS = "set and entity"
_ITEMS = f"{_PARTS} and rule"
_TRAINING = {"population": "training", "sources_of": "training"}


def _evidence(case: Broken, tables: Tables) -> tuple[str, Mapping[int, int]]:
    return "documents that hold an item", documents_with_text_of(case, tables, tables.sets)


def _documents(case: Broken, tables: Tables) -> pa.Table:
    found = matches_of(case, tables, tables.sets)
    return listed(found["shard"], found["row"], found["tier"])


def _checks() -> Iterator[Check]:
    is_item = ~IS_DOCUMENT
    seen = Number("shards", "documents", pc.field("contaminated").is_valid())
    yield Follows(METRIC, "train_documents", Number("shards", "contaminated"), seen, scope={"rule": "similar"})
    yield of_shard("contaminated", Number("overlap", "", is_item, ("shard", "row")), most_when=lists_all_items)
    yield Follows(METRIC, "items", _items, _items, "set")
    matches = Number("overlap", "", is_item, ("item", "entity", "shard", "row"))
    yield Follows(METRIC, "matches", least=matches, most=unlimited(matches), shapes="set")
    alone, beside = pc.field("found_by") == "alone", pc.field("found_by") == "context"
    counted = ~(alone | ((pc.field("entity") == "question") & beside))
    for tier, rows in {"verbatim": is_item & (pc.field("tier") == "verbatim"), "similar": is_item}.items():
        found, items = Number("overlap", "", rows, ("shard", "row")), Number("overlap", "", rows & counted, ("item",))
        shapes = "all, split, set" if tier == "verbatim" else "set"
        for bound in (
            Follows(METRIC, "train_documents", shapes=shapes, least=found, most=found),
            Follows(METRIC, "rate", shapes="set and entity", least=items, most=unlimited(found)),
        ):
            yield replace(bound, scope={"rule": tier}, most_when=lists_all_items)


def _items(tables: ManifestTables, shape: Shape) -> Numbers:
    items = {(one.name,): one.items for one in tables.manifest.core.protected}
    return {key: items.get(key, 0) for key in recorded(METRIC, "items")(tables, shape)}


FAMILY = Family(
    name="contamination",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *statistics(
                    METRIC,
                    "rate",
                    "ratio",
                    f"{_ITEMS}, source and {_ITEMS}",
                    absent_is_zero=frozenset({"source"}),
                    **_TRAINING,
                ),
                *statistics(METRIC, "rate_without_common", "ratio", _ITEMS, **_TRAINING),
                *statistics(METRIC, "items repeated", "items", "set", **_TRAINING),
                *statistics(METRIC, "lost", "items", "set, set and rule", **_TRAINING),
                *statistics(METRIC, "common context_found", "items", _PARTS, **_TRAINING),
                *statistics(METRIC, "indexed short context too_short boilerplate absent", "items", _PARTS, **_TRAINING),
                *statistics(METRIC, "matches", "matches", "set", **_TRAINING),
                *statistics(
                    METRIC,
                    "train_documents",
                    "ratio",
                    "rule, split and rule, source and rule, split and source and rule, set and rule",
                    **_TRAINING,
                ),
            ),
            reading=1,
            evidence=Counted(count=_evidence),
            documents=_documents,
            sets="evaluation",
            entities=frozenset({"question", "answer", "both"}),
            area="leakage",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="train_documents",
            column="contaminated",
            per_document=True,
            population="training",
            head="with evaluation items",
            shown_as="count",
            compared=True,
        ),
    ),
    stage_name="overlap",
    checked_with=("overlap", "shards"),
    checks=tuple(_checks()),
    shown="dataaudit.metrics.contamination.facts:SHOWN",
)
