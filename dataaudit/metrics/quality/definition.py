"""Quality: documents that published rules would reject, and what filters before this build rejected."""

from __future__ import annotations

from dataaudit.metrics import recomputed
from dataaudit.metrics.family import RULES, Family, MetricDefinition, Relation, ShardColumn, ShardStatistic, statistics

METRIC = "filter_reject_rate"
_RUNS = "repeated_ngrams"
"""The rule set that looks at tokens; a record without a rule is of any rule, this one too."""


def _counts_tokens(rule: str | None) -> bool:
    return rule is None or rule.startswith(_RUNS)


FAMILY = Family(
    name="quality",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=statistics(METRIC, "rate", "ratio", RULES, draws="documents"),
            reading=8,
            evidence=ShardColumn(column="filter_reject_rate", noun="documents that a quality rule rejects"),
            counts_tokens=_counts_tokens,
            area="quality",
        ),
        MetricDefinition(
            name="filter_upstream",
            statistics=statistics("filter_upstream", "reject_rate", "ratio", "rule"),
            by_stage=False,
        ),
    ),
    shard_statistics=(
        ShardStatistic(metric=METRIC, stat="rate", column="filter_reject_rate", head="would reject", spare=True),
    ),
    stage="dataaudit.metrics.quality.stage:Filters",
    stage_name="filters",
    shown="dataaudit.metrics.quality.facts:SHOWN",
    relations=(
        Relation(
            tables=("shards",),
            metrics=(METRIC,),
            recompute=recomputed.rejections,
        ),
    ),
    looked_for=True,
)
