"""Repeats: spans of 50 words and more that stand in many training documents."""

from __future__ import annotations

from dataaudit.metrics import recomputed_copies
from dataaudit.metrics.documents import repeated_spans
from dataaudit.metrics.family import (
    SOURCES,
    Family,
    MetricDefinition,
    Relation,
    ShardColumn,
    ShardStatistic,
    statistics,
)

METRIC = "doc_repeat_hotspots"
_TRAINING = {"population": "training", "sources_of": "training"}

FAMILY = Family(
    name="repeats",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *(
                    one
                    for unit in ("hotspots", "documents", "occurrences", "tokens")
                    for one in statistics(METRIC, unit, unit, SOURCES, **_TRAINING)
                ),
                *statistics(METRIC, "token_share", "ratio", SOURCES, over_tokens=True, **_TRAINING),
                *statistics(METRIC, "largest_share", "ratio", SOURCES, **_TRAINING),
                *statistics(METRIC, "largest", "documents", SOURCES, **_TRAINING),
                *statistics(METRIC, "floor", "documents", "all", **_TRAINING),
                *statistics(METRIC, "below_floor", "windows", "all", **_TRAINING),
            ),
            reading=6,
            evidence=ShardColumn(column="repeat_token_share", noun="tokens in repeated spans", share_of="tokens"),
            documents=repeated_spans,
            area="duplicates",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="token_share",
            column="repeat_token_share",
            of="tokens",
            population="training",
            head="repeated spans",
            spare=True,
            compared=True,
        ),
    ),
    stage="dataaudit.metrics.repeats.stage:Repeats",
    stage_name="repeats",
    link="dataaudit.metrics.repeats.link:repeated_spans",
    by_split=("repeats",),
    harmless=frozenset({"index", "max_memory_bytes"}),
    shown="dataaudit.metrics.repeats.facts:SHOWN",
    relations=(
        Relation(
            tables=("hotspots", "hotspot_members", "shards"),
            metrics=(METRIC,),
            recompute=recomputed_copies.repeated_spans,
        ),
    ),
    looked_for=True,
)
