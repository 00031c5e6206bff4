"""Toxicity: what a screen estimates of every document, and a judge of a sample."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from dataaudit.metrics.documents import of_judge
from dataaudit.metrics.family import (
    CLASSES,
    JUDGE,
    LANGUAGE_DETECTION,
    SOURCES,
    Broken,
    Family,
    MetricDefinition,
    ShardColumn,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.recomputed import Follows, Number, product

METRIC = "data_toxicity_rate"
SCREEN = "dataaudit-screen"
_OTHERS = frozenset({"pii", "secrets", "presidio"})
"""Detectors of other families."""
_SCREENED = frozenset({"screen", "screen_positive", "screened_share"})


def _decided_by(stat: str) -> Collection[str]:
    """The screen looks at documents of the languages that it knows."""
    return (SCREEN, LANGUAGE_DETECTION) if stat in _SCREENED else (JUDGE,)


def _documents(case: Broken, tables: Tables) -> pa.Table | None:
    """The screen keeps no rows, only a mean of each shard."""
    return None if case.stat in _SCREENED else of_judge(case, tables, patterns=_OTHERS)


_JUDGED = Number("shards", "toxicity_screened")
_ESTIMATE = Number("shards", product("toxicity_screen", "toxicity_screened", scale=1e6))

FAMILY = Family(
    name="toxicity",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *statistics(METRIC, "screened_share screen_positive", "ratio", SOURCES, draws="documents"),
                *statistics(METRIC, "screen", "ratio", SOURCES),
                *statistics(METRIC, "rate", "ratio", CLASSES),
                *statistics(
                    METRIC, "rate_at_0.1 rate_at_0.25 rate_at_0.75 rate_at_0.9", "ratio", f"{SOURCES}, language"
                ),
                *statistics(METRIC, "judge_reads judged_share", "ratio", "all"),
                *statistics(METRIC, "judge_failed judge_partly", "documents", "all"),
            ),
            reading=4,
            evidence=ShardColumn(column="toxicity_screen", noun="documents that the screen classifies as toxic"),
            documents=_documents,
            decided_by=_decided_by,
            area="toxicity",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="screen",
            column="toxicity_screen",
            of="toxicity_screened",
            estimated=True,
            head="toxic, screen",
            spare=True,
            compared=True,
        ),
    ),
    stage="dataaudit.metrics.toxicity.stage:Toxicity",
    stage_name="toxicity",
    link="dataaudit.metrics.toxicity.link:toxic_documents",
    by_split=("strata", "scores"),
    config="toxicity",
    shown="dataaudit.metrics.toxicity.facts:SHOWN",
    checked_with=("shards",),
    checks=(
        Follows(METRIC, "screened_share", _JUDGED, Number("shards", "documents")),
        Follows(METRIC, "screen", _ESTIMATE, _JUDGED, adds_up=False),
    ),
    looked_for=True,
)
