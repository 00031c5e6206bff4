"""Languages: which share of tokens each has, and how far two detectors agree."""

from __future__ import annotations

import math
from collections.abc import Collection

from dataaudit.metrics.family import (
    LANGUAGE_DETECTION,
    Family,
    MetricDefinition,
    ShardStatistic,
    statistics,
)
from dataaudit.metrics.recomputed import (
    BY_SOURCE,
    COUNTS,
    Agrees,
    Follows,
    ManifestTables,
    Number,
    Numbers,
    Shape,
    of_shard,
)
from dataaudit.metrics.unusual_language import COLUMN, unusual_language_shares

METRIC = "language_share"
_DETECTORS = ("combined", "pycld2", "fasttext")


def _decided_by(stat: str) -> Collection[str]:
    return (LANGUAGE_DETECTION, *_DETECTORS) if stat == "detector_agreement" else (LANGUAGE_DETECTION,)


_BY_LANGUAGE = "language, split and language"
_SHARES = f"{_BY_LANGUAGE}, source and language, split and source and language"


def _of(name: str) -> Number:
    return Number("languages", name)


def _unusual(tables: ManifestTables, _: Shape) -> Numbers:
    shares = unusual_language_shares(tables.rows("planned"))
    return {(shard,): share for shard, share in enumerate(shares.tolist()) if not math.isnan(share)}


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
    checked_with=("languages", "sources", "shards"),
    checks=(
        *(Follows(name, "count", _of(name), _of("documents"), _BY_LANGUAGE) for name in COUNTS),
        Follows("bytes_per_token", "ratio", _of("bytes"), _of("tokens"), _BY_LANGUAGE),
        Follows(METRIC, "share", _of("tokens"), _of("tokens"), _SHARES, drops=frozenset({"language"})),
        *(
            Agrees(f"{name} of languages and {table}", _of(name), Number(table, name), shapes)
            for name in COUNTS
            for table, shapes in (("sources", BY_SOURCE), ("shards.languages", f"all, split, {_BY_LANGUAGE}"))
        ),
        of_shard(COLUMN, _unusual),
    ),
    looked_for=True,
)
