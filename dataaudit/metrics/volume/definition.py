"""How much there is: documents, bytes, tokens, and the mixture of sources."""

from __future__ import annotations

from dataaudit.metrics import recomputed
from dataaudit.metrics.family import LANGUAGES, SOURCES, Family, MetricDefinition, Relation, ShardStatistic, statistics

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
    relations=(
        Relation(
            tables=("sources", "shards"),
            metrics=("documents", "bytes", "tokens", "source_mix_share"),
            recompute=recomputed.volumes,
        ),
    ),
)
