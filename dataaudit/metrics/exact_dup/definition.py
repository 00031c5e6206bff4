"""Exact duplicates: documents whose text, white space aside, was seen before."""

from __future__ import annotations

import pyarrow.compute as pc

from dataaudit.metrics.documents import of_clusters
from dataaudit.metrics.family import (
    SOURCES,
    Family,
    MetricDefinition,
    ShardColumn,
    ShardStatistic,
    statistics,
)
from dataaudit.metrics.recomputed import Follows, Number, keeps, of_shard, quotient, total

_IS_EXACT = pc.field("kind") == "exact"
_MEMBERS, _COPIES = Number("clusters", "", _IS_EXACT), Number("clusters", "", _IS_EXACT & ~pc.field("kept"))
_CLUSTERS, _DOCUMENTS = Number("clusters", "", _IS_EXACT, ("cluster",)), Number("shards", "documents")

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
    checked_with=("clusters", "shards"),
    checks=(
        *(Follows("exact_dup_rate", stat, _COPIES, _DOCUMENTS) for stat in ("rate", "documents")),
        Follows("exact_dup_rate", "within_split_rate", total(_MEMBERS, _CLUSTERS, -1), _DOCUMENTS, "split"),
        of_shard("exact_dup_rate", quotient(_COPIES, _DOCUMENTS)),
        *keeps("exact"),
    ),
    looked_for=True,
)
