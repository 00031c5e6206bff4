"""Coverage: bytes that were planned and not read. The engine counts them, no stage does."""

from __future__ import annotations

from dataaudit.metrics import recomputed
from dataaudit.metrics.family import Family, MetricDefinition, Relation, ShardColumn, ShardStatistic, statistics

METRIC = "coverage_unread_bytes"
_BY_REASON = frozenset({"rule"})

FAMILY = Family(
    name="coverage",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=(
                *statistics(METRIC, "bytes", "bytes", "all, rule", absent_is_zero=_BY_REASON, headline=True),
                *statistics(METRIC, "shard_bytes", "bytes", "all, split", absent_is_zero=_BY_REASON),
            ),
            evidence=ShardColumn(column="size", noun="bytes not read", share_of="", unread=True),
            area="coverage",
            by_stage=False,
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC, stat="shard_bytes", column="size", head="stored size", shown_as="size", spare=True
        ),
    ),
    shown="dataaudit.metrics.coverage.facts:SHOWN",
    relations=(
        Relation(
            tables=("ledger", "shards"),
            metrics=(METRIC,),
            recompute=recomputed.unread,
        ),
    ),
)
