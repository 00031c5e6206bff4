"""Near-duplicates: documents whose words are nearly those of an earlier one."""

from __future__ import annotations

from dataaudit.metrics import recomputed_copies, recomputed_leaks
from dataaudit.metrics.documents import near_duplicates, of_clusters
from dataaudit.metrics.family import (
    SOURCES,
    Family,
    MetricDefinition,
    Relation,
    ShardColumn,
    ShardStatistic,
    statistics,
)

_RATE, _COMPONENT = "near_dup_rate", "near_dup_component_rate"
_EVIDENCE = ShardColumn(column="near_dup_rate", noun="near-duplicates", but="no_words")

FAMILY = Family(
    name="near_dup",
    metrics=(
        MetricDefinition(
            name=_RATE,
            in_words=True,
            statistics=(
                *statistics(_RATE, "rate", "ratio", SOURCES, headline=True, draws="documents"),
                *statistics(_RATE, "documents undecided no_words", "documents", SOURCES),
                *statistics(_RATE, "same_words largest_cluster", "documents", "all"),
                *statistics(_RATE, "candidate_pairs verified_pairs truncated_pairs", "pairs", "all"),
                *statistics(_RATE, "clusters", "clusters", "all"),
                *statistics(_RATE, "clusters_by_size", "clusters", "rule"),
                *statistics(_RATE, "weakest_link precision", "ratio", "all"),
                *statistics(_RATE, "bands band_rows", "count", "all"),
                *statistics(_RATE, "chance_to_meet", "ratio", "rule"),
                *statistics(_RATE, "recall", "ratio", "all, rule"),
                *statistics(_RATE, "in_reference", "ratio", "all, split", against_reference=True),
            ),
            reading=6,
            evidence=_EVIDENCE,
            documents=near_duplicates,
            finds_copies=True,
            area="duplicates",
        ),
        MetricDefinition(
            name=_COMPONENT,
            in_words=True,
            statistics=statistics(_COMPONENT, "rate", "ratio", SOURCES, draws="documents"),
            reading=6,
            evidence=_EVIDENCE,
            documents=of_clusters("near"),
            area="duplicates",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=_RATE,
            stat="rate",
            column="near_dup_rate",
            but="no_words",
            undecided="near_dup_undecided",
            head="near-duplicates",
            spare=True,
            compared=True,
        ),
    ),
    stage="dataaudit.metrics.near_dup.stage:NearDup",
    stage_name="near_dup",
    link="dataaudit.metrics.near_dup.link:near_duplicates",
    by_shard=("near_dup",),
    by_split=("near_dup",),
    harmless=frozenset({"signatures", "checked_pairs", "recall_documents"}),
    shown="dataaudit.metrics.near_dup.facts:SHOWN",
    relations=(
        Relation(
            tables=("near_sources", "clusters", "pairs", "sources", "shards"),
            metrics=(_RATE, _COMPONENT),
            recompute=recomputed_copies.near_duplicates,
        ),
        Relation(
            tables=("pairs", "clusters", "shards"),
            metrics=("train_val_overlap",),
            recompute=recomputed_leaks.near_leaks,
        ),
    ),
    looked_for=True,
)
