"""Questions: the share of documents that hold a question mark."""

from __future__ import annotations

from dataaudit.metrics.family import SOURCES, Family, MetricDefinition, statistics

METRIC = "question_rate"

FAMILY = Family(
    name="questions",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=statistics(METRIC, "rate", "ratio", SOURCES, draws="documents"),
            reading=8,
            area="questions",
        ),
    ),
    stage="dataaudit.metrics.questions.stage:Questions",
    stage_name="questions",
    shown="dataaudit.metrics.questions.facts:SHOWN",
)
