"""Exact duplicates: documents whose text, white space aside, was seen before."""

from __future__ import annotations

from dataaudit.metrics import recomputed_copies
from dataaudit.metrics.documents import of_clusters
from dataaudit.metrics.family import (
    SOURCES,
    Family,
    MetricDefinition,
    Relation,
    ShardColumn,
    ShardStatistic,
    statistics,
)

FAMILY = Family(
    name="exact_dup",
    metrics=(
        MetricDefinition(
            name="exact_dup_rate",
            statistics=(
                *statistics("exact_dup_rate", "rate", "ratio", SOURCES, headline=True, draws="documents"),
                *statistics("exact_dup_rate", "documents", "documents", SOURCES),
                *statistics(
                    "exact_dup_rate", "within_split_rate", "ratio", "split, split and source", draws="documents"
                ),
            ),
            reading=6,
            evidence=ShardColumn(column="exact_dup_rate", noun="documents seen before"),
            documents=of_clusters("exact"),
            finds_copies=True,
            area="duplicates",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric="exact_dup_rate", stat="rate", column="exact_dup_rate", head="exact copies", compared=True
        ),
    ),
    stage="dataaudit.metrics.exact_dup.stage:ExactDup",
    stage_name="exact_dup",
    link="dataaudit.metrics.exact_dup.link:exact_duplicates",
    by_split=("exact_dup",),
    shown="dataaudit.metrics.exact_dup.facts:SHOWN",
    relations=(
        Relation(
            tables=("clusters", "shards"),
            metrics=("exact_dup_rate",),
            recompute=recomputed_copies.exact_duplicates,
        ),
    ),
    looked_for=True,
)
