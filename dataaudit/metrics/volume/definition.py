"""How much there is: documents, bytes, tokens, and the mixture of sources."""

from __future__ import annotations

from dataaudit.metrics.family import LANGUAGES, SOURCES, Family, MetricDefinition, ShardStatistic, statistics
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

_DOCUMENTS, _TOKENS = Number("sources", "documents"), Number("sources", "tokens")
_SOURCE = frozenset({"source"})


def _listed(name: str) -> Number:
    return Number("shards.sources", name)


def _declared(tables: ManifestTables, _: Shape) -> Numbers:
    """Return the declared shares of the sources of each training split."""
    core = tables.manifest.core
    weights = {source: entry["weight"] for source, entry in core.mixture.items() if "weight" in entry}
    whole = sum(weights.values())
    splits = [split.name for split in core.splits if whole and not split.held_out]
    return {(split, source): weight / whole for split in splits for source, weight in weights.items()}


FAMILY = Family(
    name="volume",
    metrics=(
        MetricDefinition(
            name="documents",
            statistics=(
                *statistics("documents", "count", "documents", LANGUAGES, is_amount=True, headline=True),
                *statistics("documents", "empty with_nul", "documents", SOURCES),
            ),
        ),
        MetricDefinition(
            name="bytes",
            statistics=statistics("bytes", "count", "bytes", LANGUAGES, is_amount=True, headline=True),
        ),
        MetricDefinition(
            name="tokens",
            statistics=statistics("tokens", "count", "tokens", LANGUAGES, is_amount=True, headline=True),
        ),
        MetricDefinition(
            name="source_mix_share",
            statistics=(
                *statistics(
                    "source_mix_share",
                    "share",
                    "ratio",
                    "source, split and source",
                    is_amount=True,
                    draws="source",
                    over_tokens=True,
                ),
                *statistics(
                    "source_mix_share",
                    "declared",
                    "ratio",
                    "split and source",
                    population="training",
                    sources_of="training",
                    over_tokens=True,
                ),
            ),
            reading=5,
            first_rows=3,
            area="mixture",
        ),
    ),
    shard_statistics=(
        ShardStatistic(metric="documents", stat="count", column="documents", head="documents", shown_as="count"),
        ShardStatistic(metric="bytes", stat="count", column="bytes"),
        ShardStatistic(metric="tokens", stat="count", column="tokens", head="tokens", shown_as="count"),
    ),
    stage="dataaudit.metrics.volume.stage:Volume",
    stage_name="volume",
    by_split=("volume", "encoding"),
    tables={"sources": "volume"},
    shown="dataaudit.metrics.volume.facts:SHOWN",
    checked_with=("sources", "shards"),
    checks=(
        *(Follows(name, "count", Number("sources", name), _DOCUMENTS, BY_SOURCE) for name in COUNTS),
        Follows("source_mix_share", "share", _TOKENS, _TOKENS, "source, split and source", drops=_SOURCE),
        Follows("source_mix_share", "declared", _declared, shapes="split and source"),
        *(
            Agrees(f"{name} of sources and of shards", Number("sources", name), _listed(name), BY_SOURCE)
            for name in COUNTS
        ),
        *(of_shard(name, _listed(name)) for name in COUNTS),
    ),
)
