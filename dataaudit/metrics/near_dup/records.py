"""Records of the search for near-duplicates: what was compared, what was found, and how much was missed or wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dataaudit.kernels.intervals import clopper_pearson
from dataaudit.kernels.minhash import chance_to_meet
from dataaudit.manifest.metric import Metric, Scope, count
from dataaudit.metrics.near_dup.clusters import NearClusters
from dataaudit.metrics.near_dup.recall import STEPS, Recall
from dataaudit.metrics.near_dup.reference_join import InReference
from dataaudit.metrics.near_dup.stage import METRIC, NearDup

CONFIDENCE = 0.95
"""Of the intervals (Clopper and Pearson): what they cover at least."""
CURVE = tuple(range(50, 101, 5))
"""Similarities, in hundredths, at which the chance to share a band is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearCounts:
    """What the joins counted."""

    documents: int
    candidates: int
    """Pairs whose similarity was computed."""
    verified: int
    """Those at or above the threshold."""
    missed: int
    """Pairs of large buckets that were not compared, or agree and were left out."""
    dropped: int
    """Pairs left out because their later document had too many."""
    reported: int
    """Checked pairs that were reported."""
    right: int
    """Those of them whose similarity as text is at or above the threshold too."""


def near_metrics(stage: NearDup, counts: NearCounts, clusters: NearClusters, recall: Recall) -> list[Metric]:
    """Return the records of the whole dataset that do not come from partials.

    Args:
        stage: With its parameters.
        counts: What was counted.
        clusters: What was found.
        recall: What became of the drawn documents.
    """
    whole, sizes, documents = Scope(), clusters.sizes, counts.documents

    def counted(stat: str, value: int, unit: str, n: int, scope: Scope = whole) -> Metric:
        return count(METRIC, stat, value, scope=scope, unit=unit, n=n, version=stage.version)

    metrics = [
        counted("candidate_pairs", counts.candidates, "pairs", counts.candidates),
        counted("verified_pairs", counts.verified, "pairs", counts.candidates),
        counted(
            "truncated_pairs",
            counts.missed + counts.dropped,
            "pairs",
            counts.candidates + counts.missed + counts.dropped,
        ),
        counted("same_words", clusters.same_words, "documents", documents),
        counted("clusters", len(sizes), "clusters", documents),
        counted("largest_cluster", int(sizes.max(initial=0)), "documents", documents),
        _weakest(stage, clusters),
    ]
    metrics += [
        counted("clusters_by_size", number, "clusters", len(sizes), Scope(rule=label))
        for label, number in size_classes(sizes)
    ]
    bands, rows = stage.bands()
    metrics += [
        Metric(
            metric=METRIC,
            stat="chance_to_meet",
            scope=Scope(rule=f"jaccard={hundredths / 100:.2f}"),
            unit="ratio",
            value=chance_to_meet(hundredths / 100, bands, rows),
            n=bands,
            denominator=bands,
            version=stage.version,
        )
        for hundredths in CURVE
    ]
    metrics += [
        Metric(
            metric=METRIC,
            stat=stat,
            scope=whole,
            unit="count",
            value=value,
            n=stage.num_perm,
            denominator=stage.num_perm,
            version=stage.version,
        )
        for stat, value in (("bands", bands), ("band_rows", rows))
    ]
    return [
        *metrics,
        *recall_records(stage, recall),
        _share(stage, "precision", counts.right, counts.reported, whole, "no_pair_checked"),
    ]


def size_classes(sizes: np.ndarray) -> Iterator[tuple[str, int]]:
    """Yield (sizes, number) of clusters: of 2 documents, 3 to 4, 5 to 8 and so on, up to the largest; zeros kept."""
    low, high = 2, 2
    while low <= sizes.max(initial=0):
        label = f"documents={low}" if low == high else f"documents={low}-{high}"
        yield label, int(((sizes >= low) & (sizes <= high)).sum())
        low, high = high + 1, 2 * high


def _weakest(stage: NearDup, clusters: NearClusters) -> Metric:
    shared, union = clusters.weakest
    if union == 0:
        return Metric(
            metric=METRIC,
            stat="weakest_link",
            unit="ratio",
            value=None,
            status="not_evaluated",
            reason="no_cluster",
            version=stage.version,
        )
    return Metric(
        metric=METRIC,
        stat="weakest_link",
        unit="ratio",
        value=shared / union,
        n=union,
        denominator=union,
        version=stage.version,
    )


def recall_records(stage: NearDup, recall: Recall) -> Iterator[Metric]:
    """Yield the share of drawn near-duplicates that were found, of all and by similarity to the nearest document.

    Who shares no bucket with anybody is not drawn, so the lower bound of all is lowered by the chance to share none.
    """
    reason = "no_neighbour" if stage.recall_documents else "none_drawn"
    whole = _share(stage, "recall", int(recall.found.sum()), len(recall.found), Scope(), reason)
    if whole.low is not None:
        bands, rows = stage.bands()
        whole = replace(whole, low=whole.low * chance_to_meet(stage.threshold, bands, rows))
    yield whole
    first = int(stage.threshold * STEPS)
    steps = np.minimum((recall.similarities * STEPS).astype(np.int64), STEPS - 1)
    for step in range(first, STEPS):
        own, scope = steps == step, Scope(rule=f"jaccard={step / STEPS:.2f}-{(step + 1) / STEPS:.2f}")
        yield _share(stage, "recall", int(recall.found[own].sum()), int(own.sum()), scope, reason)


def _share(stage: NearDup, stat: str, good: int, tried: int, scope: Scope, reason: str) -> Metric:
    if tried == 0:
        return Metric(
            metric=METRIC,
            stat=stat,
            scope=scope,
            unit="ratio",
            value=None,
            status="not_evaluated",
            reason=reason,
            version=stage.version,
        )
    low, high = clopper_pearson(good, tried, CONFIDENCE)
    return Metric(
        metric=METRIC,
        stat=stat,
        scope=scope,
        unit="ratio",
        value=good / tried,
        low=low,
        high=high,
        confidence=CONFIDENCE,
        n=tried,
        denominator=tried,
        method="sampled",
        version=stage.version,
    )


def reference_metrics(stage: NearDup, found: Mapping[str | None, InReference], problem: str = "") -> list[Metric]:
    """Return the documents of each split, and of all (None), that are near-duplicates of the reference's.

    Args:
        stage: With its parameters.
        found: By split; with a problem only the keys count.
        problem: Why nothing was compared, if so.
    """
    metrics = []
    for split, counts in found.items():
        scope, documents = Scope(split=split), counts.documents
        if problem or documents == 0:
            metrics.append(
                Metric(
                    metric=METRIC,
                    stat="in_reference",
                    scope=scope,
                    unit="ratio",
                    value=None,
                    status="not_applicable" if problem else "not_evaluated",
                    reason=problem or "empty_denominator",
                    version=stage.version,
                )
            )
            continue
        metrics.append(
            Metric(
                metric=METRIC,
                stat="in_reference",
                scope=scope,
                unit="ratio",
                value=counts.estimated / documents,
                low=counts.low / documents,
                high=counts.high / documents,
                confidence=CONFIDENCE,
                n=documents,
                denominator=documents,
                method="estimated",
                version=stage.version,
            )
        )
    return metrics
