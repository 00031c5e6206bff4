"""Coverage: bytes that were planned and not read, and what a list held back. The engine counts them, no stage does."""

from __future__ import annotations

import pyarrow.compute as pc

from dataaudit.manifest.tables import HELD_BACK
from dataaudit.metrics.family import (
    Broken,
    Counted,
    Family,
    MetricDefinition,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.recomputed import LOST, Follows, Number, held_back, of_shard, total

METRIC = "coverage_unread_bytes"
HELD = "held_back_shards"
_BY_REASON = frozenset({"rule"})


def bad_share(bad: int, records: int, bad_bytes: int, text_bytes: int) -> float:
    """Return which share of a shard is bad: that of its records or that of its bytes, the larger; 0 without bad ones.

    A few long records hold most of a text as well as many short ones do. What of a bad record is text is not known, so
    all of it is compared with the text of the good ones: other columns, however large, make its share no smaller.

    Args:
        bad: Bad records.
        records: All records.
        bad_bytes: Decoded bytes of the bad ones; 0 for one without a text.
        text_bytes: UTF-8 bytes of the texts of the good ones.
    """
    if not bad:
        return 0.0
    return max(bad / max(1, records), bad_bytes / max(1, bad_bytes + text_bytes))


def _unread(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Count the bytes of each shard that were not read; of ``bytes`` also those of bad records in shards that were."""
    names = ("split", "size", "status", "reason")
    splits, sizes, statuses, reasons = (tables.shards[name].to_pylist() for name in names)
    lost = [status in LOST and reasons[shard] != HELD_BACK for shard, status in enumerate(statuses)]
    counts = {shard: sizes[shard] for shard, is_lost in enumerate(lost) if is_lost}
    if case.stat == "bytes":
        for row in tables.table("ledger").to_pylist():
            shard, reason = row["shard"], row["reason"]
            if statuses[shard] not in LOST and case.scope.rule in {None, reason}:
                counts[shard] = counts.get(shard, 0) + row["bytes"]
    kept = (shard for shard in counts if not lost[shard] or case.scope.rule in {None, reasons[shard]})
    own = {shard: counts[shard] for shard in kept if case.scope.split in {None, splits[shard]} and counts[shard] > 0}
    return "bytes not read", own


def _held_back(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Return the shards that the list of the build held back, or held documents of back."""
    rows = [row for row in tables.table("shards").to_pylist() if case.scope.split in {None, row["split"]}]
    counts = {row["shard"]: held_back(row)[case.stat] for row in rows}
    noun = "held back" if case.stat == "shards" else "documents held back"
    return noun, {shard: number for shard, number in counts.items() if number}


_IS_READ, _IS_LISTED = ~pc.field("status").isin(LOST), pc.field("rule") == HELD_BACK
_LOST_BYTES = Number("planned", "size", ~_IS_READ & ~_IS_LISTED)
_PLANNED = Number("planned", "size", ~_IS_LISTED)
_UNREAD = total(_LOST_BYTES, Number("ledger", "bytes", _IS_READ))
_ACCOUNTED = total(Number("shards", "documents"), Number("shards", "bad_records"))

FAMILY = Family(
    name="coverage",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=(
                *statistics(METRIC, "bytes", "bytes", "all, rule", absent_is_zero=_BY_REASON, headline=True),
                *statistics(METRIC, "shard_bytes", "bytes", "all, split", absent_is_zero=_BY_REASON),
            ),
            evidence=Counted(count=_unread, columns=("size",)),
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
    checked_with=("ledger", "shards"),
    checks=(
        Follows(METRIC, "bytes", _UNREAD, _PLANNED, "all, rule"),
        Follows(METRIC, "shard_bytes", _LOST_BYTES, _PLANNED, drops=frozenset({"split"})),
        of_shard("bad_records", Number("ledger", "records", _IS_READ)),
        Follows(HELD, "shards", Number("planned", "", ~_IS_READ & _IS_LISTED)),
        Follows(HELD, "documents", total(Number("shards", "rows"), _ACCOUNTED, -1)),
    ),
)
