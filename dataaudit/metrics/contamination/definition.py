"""Contamination: items of evaluation sets that stand in training data."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dataaudit.metrics import recomputed_leaks
from dataaudit.metrics.documents import listed
from dataaudit.metrics.family import (
    Broken,
    Counted,
    Family,
    MetricDefinition,
    Relation,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.overlap.evidence import documents_with_text_of, matches_of

METRIC = "benchmark_contamination"
_PARTS = "set and entity"
_ITEMS = f"{_PARTS} and rule"
_TRAINING = {"population": "training", "sources_of": "training"}


def _evidence(case: Broken, tables: Tables) -> tuple[str, Mapping[int, int]]:
    return "documents that hold an item", documents_with_text_of(case, tables, tables.sets)


def _documents(case: Broken, tables: Tables) -> pa.Table:
    found = matches_of(case, tables, tables.sets)
    return listed(found["shard"], found["row"], found["tier"])


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
    relations=(
        Relation(
            tables=("overlap", "shards"),
            metrics=(METRIC,),
            recompute=recomputed_leaks.evaluation_items,
        ),
    ),
    shown="dataaudit.metrics.contamination.facts:SHOWN",
)
