"""Drift: how far the frequencies of tokens are from those of the reference manifest."""

from __future__ import annotations

from dataaudit.metrics.family import SOURCES, Family, MetricDefinition, ShardStatistic, statistics
from dataaudit.metrics.recomputed import Agrees, Number

METRIC = "token_kl_drift"

FAMILY = Family(
    name="drift",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=statistics(METRIC, "kl js kl_bias kl_excess", "nats", SOURCES, against_reference=True),
            reading=7,
            area="tokens",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC, stat="kl", column="token_kl_drift", of="tokens", head="drift, nats", shown_as="number"
        ),
        ShardStatistic(metric=METRIC, stat="js", column="token_js_drift", of="tokens"),
        ShardStatistic(metric=METRIC, stat="kl_bias", column="token_kl_bias", of="tokens", estimated=True),
    ),
    stage="dataaudit.metrics.drift.stage:Histogram",
    stage_name="histogram",
    finish="dataaudit.metrics.drift.top_tokens:drift_table",
    tables={"histogram": "histogram"},
    harmless=frozenset({"max_sources"}),
    shown="dataaudit.metrics.drift.facts:SHOWN",
    checked_with=("histogram", "sources"),
    checks=(Agrees("tokens of histogram", Number("histogram", "count"), Number("sources", "tokens")),),
)
