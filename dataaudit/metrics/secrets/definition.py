"""Secrets: keys, tokens and passwords that patterns find in every document."""

from __future__ import annotations

from dataaudit.metrics.family import Family, MetricDefinition, ShardColumn, ShardStatistic
from dataaudit.metrics.findings import pattern_statistics

METRIC = "secret_hit_rate"
DETECTOR = "secrets"

FAMILY = Family(
    name="secrets",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=pattern_statistics(METRIC, hits="hits", documents="documents"),
            reading=2,
            evidence=ShardColumn(column="secrets_validated", noun="validated secrets", share_of=""),
            decided_by=lambda _: (DETECTOR,),
            searches_with=DETECTOR,
            area="secrets",
        ),
    ),
    shard_statistics=(
        ShardStatistic(metric=METRIC, stat="hits", column="secret_hits", head="secrets", shown_as="count"),
        ShardStatistic(metric=METRIC, stat="validated_hits", column="secrets_validated"),
    ),
    stage="dataaudit.metrics.secrets.stage:Secrets",
    stage_name="secrets",
    link="dataaudit.metrics.secrets.link:secret_findings",
    shown="dataaudit.metrics.secrets.facts:SHOWN",
    looked_for=True,
)
