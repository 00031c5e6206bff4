"""Coverage: bytes that were planned and not read, and what a list held back. The engine counts them, no stage does."""

from __future__ import annotations

from dataaudit.metrics import recomputed
from dataaudit.metrics.family import (
    Broken,
    Counted,
    Family,
    MetricDefinition,
    Relation,
    ShardColumn,
    ShardStatistic,
    Tables,
    statistics,
)

METRIC = "coverage_unread_bytes"
HELD = "held_back_shards"
_BY_REASON = frozenset({"rule"})


def _held_back(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Return the shards that the list of the build held back, or held documents of back."""
    rows = [row for row in tables.table("shards").to_pylist() if case.scope.split in {None, row["split"]}]
    counts = {row["shard"]: recomputed.held_back(row)[case.stat] for row in rows}
    noun = "held back" if case.stat == "shards" else "documents held back"
    return noun, {shard: number for shard, number in counts.items() if number}


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
        MetricDefinition(
            name=HELD,
            statistics=tuple(
                one
                for stat in ("shards", "documents")
                for one in statistics(HELD, stat, stat, "all, split", zero_version="1")
            ),
            evidence=Counted(count=_held_back),
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
        Relation(tables=("shards",), metrics=(HELD,), recompute=recomputed.held_back_shards),
    ),
)
