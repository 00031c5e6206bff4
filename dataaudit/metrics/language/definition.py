"""Languages: which share of tokens each has, and how far two detectors agree."""

from __future__ import annotations

from collections.abc import Collection

from dataaudit.metrics import recomputed
from dataaudit.metrics.family import (
    LANGUAGE_DETECTION,
    Family,
    MetricDefinition,
    Relation,
    ShardStatistic,
    statistics,
)

METRIC = "language_share"
_DETECTORS = ("combined", "pycld2", "fasttext")


def _decided_by(stat: str) -> Collection[str]:
    return (LANGUAGE_DETECTION, *_DETECTORS) if stat == "detector_agreement" else (LANGUAGE_DETECTION,)


FAMILY = Family(
    name="language",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=(
                *statistics(
                    METRIC,
                    "share",
                    "ratio",
                    "language, split and language, source and language, split and source and language",
                    is_amount=True,
                    draws="language",
                    over_tokens=True,
                ),
                *statistics(METRIC, "detector_agreement", "ratio", "all, split", over_tokens=True),
                *statistics(METRIC, "unusual", "ratio", "shard"),
            ),
            reading=5,
            decided_by=_decided_by,
            area="languages",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="unusual",
            column="unusual_language_share",
            by_chance=True,
            noun="documents in an unusual language",
            absent="no_words",
        ),
    ),
    stage="dataaudit.metrics.language.stage:Language",
    stage_name="language",
    tables={"languages": "languages"},
    shown="dataaudit.metrics.language.facts:SHOWN",
    relations=(
        Relation(
            tables=("languages", "sources", "shards"),
            metrics=("language_share", "documents", "bytes", "tokens", "bytes_per_token"),
            recompute=recomputed.languages,
        ),
    ),
    looked_for=True,
)
