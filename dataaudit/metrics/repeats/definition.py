"""Repeats: spans of 50 words and more that stand in many training documents."""

from __future__ import annotations

import pyarrow.compute as pc

from dataaudit.metrics.documents import repeated_spans
from dataaudit.metrics.family import (
    SOURCES,
    Family,
    MetricDefinition,
    ShardColumn,
    ShardStatistic,
    statistics,
)
from dataaudit.metrics.recomputed import Agrees, Follows, ManifestTables, Number, Numbers, Shape, product

METRIC = "doc_repeat_hotspots"
_TRAINING = {"population": "training", "sources_of": "training"}

_MEMBERS = Number("hotspot_members", "", None, ("shard", "row"))
_TRAINED, _TRAINED_TOKENS = (Number("shards", name, ~pc.field("held_out")) for name in ("documents", "tokens"))
_REPEATED = Number("shards", product("repeat_token_share", "tokens"), ~pc.field("held_out"))


def _largest(tables: ManifestTables, shape: Shape) -> Numbers:
    """Return of how many documents the members of the hotspot with most are."""
    found: dict[tuple[str, ...], float] = {}
    for (*key, _), number in _MEMBERS(tables, (*shape, "hotspot")).items():
        found[tuple(key)] = max(found.get(tuple(key), 0), number)
    return found


FAMILY = Family(
    name="repeats",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *(
                    one
                    for unit in ("hotspots", "documents", "occurrences", "tokens")
                    for one in statistics(METRIC, unit, unit, SOURCES, **_TRAINING)
                ),
                *statistics(METRIC, "token_share", "ratio", SOURCES, over_tokens=True, **_TRAINING),
                *statistics(METRIC, "largest_share", "ratio", SOURCES, **_TRAINING),
                *statistics(METRIC, "largest", "documents", SOURCES, **_TRAINING),
                *statistics(METRIC, "floor", "documents", "all", **_TRAINING),
                *statistics(METRIC, "below_floor", "windows", "all", **_TRAINING),
            ),
            reading=6,
            evidence=ShardColumn(column="repeat_token_share", noun="tokens in repeated spans", share_of="tokens"),
            documents=repeated_spans,
            area="duplicates",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="token_share",
            column="repeat_token_share",
            of="tokens",
            population="training",
            head="repeated spans",
            spare=True,
            compared=True,
        ),
    ),
    stage="dataaudit.metrics.repeats.stage:Repeats",
    stage_name="repeats",
    link="dataaudit.metrics.repeats.link:repeated_spans",
    by_split=("repeats",),
    harmless=frozenset({"index", "max_memory_bytes"}),
    shown="dataaudit.metrics.repeats.facts:SHOWN",
    checked_with=("hotspots", "hotspot_members", "shards"),
    checks=(
        Follows(METRIC, "hotspots", Number("hotspot_members", "", None, ("hotspot",)), _TRAINED, adds_up=False),
        Follows(METRIC, "occurrences", Number("hotspot_members"), _TRAINED),
        *(Follows(METRIC, stat, _largest, _TRAINED, adds_up=False) for stat in ("largest", "largest_share")),
        *(Follows(METRIC, stat, _REPEATED, _TRAINED_TOKENS) for stat in ("tokens", "token_share")),
        Follows(METRIC, "documents", least=_MEMBERS),
        Agrees("documents", Number("hotspots", "documents"), _MEMBERS, "hotspot"),
        Agrees("occurrences", Number("hotspots", "occurrences"), Number("hotspot_members"), "hotspot"),
    ),
    looked_for=True,
)
