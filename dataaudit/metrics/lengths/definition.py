"""How long documents are: percentiles of tokens, and of bytes per token."""

from __future__ import annotations

from dataaudit.metrics import recomputed
from dataaudit.metrics.family import LANGUAGES, SOURCES, Family, MetricDefinition, Relation, ShardStatistic, statistics

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
    relations=(
        Relation(
            tables=("lengths", "sources"),
            metrics=("seq_len_p50_p95",),
            recompute=recomputed.lengths,
        ),
        Relation(tables=("sources", "shards"), metrics=("bytes_per_token",), recompute=recomputed.densities),
    ),
)
