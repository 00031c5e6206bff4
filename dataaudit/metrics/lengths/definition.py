"""How long documents are: percentiles of tokens, and of bytes per token."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from dataaudit.metrics.family import LANGUAGES, SOURCES, Family, MetricDefinition, ShardStatistic, statistics
from dataaudit.metrics.recomputed import (
    BY_SOURCE,
    Agrees,
    Follows,
    ManifestTables,
    Number,
    Numbers,
    Quantity,
    Shape,
    of_shard,
    quotient,
)

_DOCUMENTS = Number("lengths", "documents")


def _quantile(stat: str, percent: int) -> Follows:
    low, high = _at_rank(percent, "low"), _at_rank(percent, "high")
    return Follows("seq_len_p50_p95", stat, low, _DOCUMENTS, BY_SOURCE, most=high, adds_up=False)


def _at_rank(percent: int, edge: str) -> Quantity:
    """Return an edge of the bucket that the document of a rank is in."""

    def found(tables: ManifestTables, shape: Shape) -> Numbers:
        groups: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        rows = tables.rows("lengths").sort_by("low")
        columns = (rows[name].to_pylist() for name in (edge, "documents", *shape))
        for value, documents, *key in zip(*columns, strict=True):
            groups.setdefault(tuple(key), []).append((value, documents))
        return {key: _value_at(own, percent) for key, own in groups.items()}

    return found


def _value_at(rows: list[tuple[int, int]], percent: int) -> int:
    sums = [*accumulate(documents for _, documents in rows)]
    return rows[bisect_left(sums, max(1, -(-percent * sums[-1] // 100)))][0]


FAMILY = Family(
    name="lengths",
    metrics=(
        MetricDefinition(
            name="bytes_per_token",
            statistics=(
                *statistics("bytes_per_token", "ratio", "bytes/token", LANGUAGES, headline=True),
                *statistics("bytes_per_token", "p1 p50 p99", "bytes/token", SOURCES),
            ),
            area="shards",
        ),
        MetricDefinition(
            name="seq_len_p50_p95",
            statistics=(
                *statistics("seq_len_p50_p95", "p1 p5 p25", "tokens", SOURCES),
                *statistics("seq_len_p50_p95", "p50", "tokens", SOURCES, headline=True),
                *statistics("seq_len_p50_p95", "p75", "tokens", SOURCES),
                *statistics("seq_len_p50_p95", "p95", "tokens", SOURCES, headline=True),
                *statistics("seq_len_p50_p95", "p99 max", "tokens", SOURCES),
            ),
            reading=9,
            area="lengths",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric="bytes_per_token",
            stat="ratio",
            column="bytes_per_token",
            of="tokens",
            head="bytes per token",
            shown_as="number",
        ),
        ShardStatistic(metric="bytes_per_token", stat="p50", column="bytes_per_token_p50", of="tokens"),
        ShardStatistic(
            metric="seq_len_p50_p95",
            stat="p50",
            column="seq_len_p50",
            head="median length",
            shown_as="count",
            spare=True,
        ),
        ShardStatistic(metric="seq_len_p50_p95", stat="p95", column="seq_len_p95"),
        ShardStatistic(metric="seq_len_p50_p95", stat="max", column="seq_len_max"),
    ),
    stage="dataaudit.metrics.lengths.stage:Lengths",
    stage_name="lengths",
    tables={"lengths": "lengths"},
    harmless=frozenset({"max_distinct"}),
    shown="dataaudit.metrics.lengths.facts:SHOWN",
    checked_with=("lengths", "sources", "shards"),
    checks=(
        *(_quantile(f"p{percent}", percent) for percent in (1, 5, 25, 50, 75, 95, 99)),
        _quantile("max", 100),
        Agrees("documents of lengths and sources", _DOCUMENTS, Number("sources", "documents"), BY_SOURCE),
        Follows("bytes_per_token", "ratio", Number("sources", "bytes"), Number("sources", "tokens"), BY_SOURCE),
        of_shard("bytes_per_token", quotient(Number("shards", "bytes"), Number("shards", "tokens"))),
    ),
)
