"""Near-duplicates: documents whose words are nearly those of an earlier one."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.metrics.family import (
    SOURCES,
    Family,
    MetricDefinition,
    ShardColumn,
    ShardStatistic,
    statistics,
)
from dataaudit.metrics.recomputed import (
    BY_SOURCE,
    PAIRED,
    Agrees,
    Condition,
    Follows,
    ManifestTables,
    Number,
    Numbers,
    Shape,
    keeps,
    recorded,
    total,
)
from dataaudit.metrics.records import near_duplicates, of_clusters

_RATE, _COMPONENT = "near_dup_rate", "near_dup_component_rate"
_EVIDENCE = ShardColumn(column="near_dup_rate", noun="near-duplicates", but="no_words")

_IS_NEAR = Condition(lambda: pc.field("kind") == "near")
_IS_KEPT = Condition(lambda: pc.field("kept"))
_NEAR, _CLUSTERS = Number("near_sources", "documents"), Number("clusters", "", _IS_NEAR, ("cluster",))
_WORDED = total(Number("sources", "documents"), recorded(_RATE, "no_words"), -1)
_SEARCHED = total(Number("shards", "documents"), Number("shards", "no_words"), -1)
_SHOWN = total(recorded(_RATE, "verified_pairs"), recorded(_RATE, "same_words"))


def _near(shards: pa.Table) -> pa.ChunkedArray:
    worded = pc.subtract(shards["documents"], pc.fill_null(shards["no_words"], 0))
    return pc.round(pc.multiply(shards["near_dup_rate"], worded))


def _sizes_of(tables: ManifestTables) -> Counter[int]:
    return Counter(int(size) for size in Number("clusters", "", _IS_NEAR)(tables, ("cluster",)).values())


def _largest(tables: ManifestTables, _: Shape) -> Numbers:
    return {(): max(_sizes_of(tables), default=0)}


def _sizes(tables: ManifestTables, _: Shape) -> Numbers:
    """Return how many clusters have 2, 3 to 4, 5 to 8 documents and so on."""
    found = Counter[tuple[str]]()
    for size, number in _sizes_of(tables).items():
        high = 1 << (size - 1).bit_length()
        found[f"documents={high // 2 + 1}-{high}" if size > 2 else "documents=2",] += number
    return found


def _paired(tables: ManifestTables, shape: Shape) -> Numbers:
    """Return the held-out documents that are in a verified pair with a training document."""
    splits, is_held_out = (tables.rows("planned")[name].to_pylist() for name in ("split", "held_out"))
    paired = set[tuple[int, int]]()
    pairs = tables.rows("pairs").filter(pc.field("verified"))
    for *left, right, row in zip(*(pairs[name].to_pylist() for name in PAIRED), strict=True):
        if is_held_out[left[0]] != is_held_out[right]:
            paired.add((left[0], left[1]) if is_held_out[left[0]] else (right, row))
    return Counter((splits[shard],)[: len(shape)] for shard, _ in paired)


def _joined(tables: ManifestTables, shape: Shape) -> Numbers:
    """Return the held-out documents that are in a cluster with a training document."""
    rows = tables.rows("clusters").filter(_IS_NEAR.make())
    trained = rows.filter(~pc.field("held_out"))["cluster"].unique()
    joined = rows.filter(pc.field("held_out")).filter(pc.field("cluster").isin(trained))
    return Counter((split,)[: len(shape)] for split in joined["split"].to_pylist())


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
    checked_with=("near_sources", "clusters", "pairs", "sources", "shards"),
    checks=(
        *(Follows(_RATE, stat, _NEAR, _WORDED, BY_SOURCE) for stat in ("documents", "rate")),
        Agrees("documents without words", Number("shards", "no_words"), recorded(_RATE, "no_words")),
        Agrees("near-duplicates of shards and of near_sources", Number("shards", _near), _NEAR),
        Follows(_COMPONENT, "rate", Number("clusters", "", _IS_NEAR & ~_IS_KEPT), _SEARCHED),
        Follows(_RATE, "clusters", _CLUSTERS, Number("shards", "documents"), "all"),
        Follows(_RATE, "largest_cluster", _largest, Number("shards", "documents"), "all"),
        Follows(_RATE, "clusters_by_size", _sizes, _CLUSTERS, "rule"),
        Agrees(
            "verified pairs and same words", _SHOWN, Number("pairs", "", Condition(lambda: pc.field("verified"))), "all"
        ),
        *keeps("near"),
        Follows("train_val_overlap", "near_dup", least=_paired, most=_joined, shapes="all, set"),
    ),
    looked_for=True,
)
