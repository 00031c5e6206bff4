"""Metric records of the search for near-duplicates that no partial gives: its work, clusters, recall, precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dataaudit.manifest.metric import Metric, Scope, count
from dataaudit.metrics.near_dup.clusters import NearClusters
from dataaudit.metrics.near_dup.stage import METRIC, NearDup
from dataaudit.metrics.near_dup.verification import Recall
from dataaudit.scan.kernels.intervals import clopper_pearson
from dataaudit.scan.kernels.minhash import chance_to_meet

CONFIDENCE = 0.95
"""Least coverage of the intervals (Clopper and Pearson)."""
CURVE = tuple(range(50, 101, 5))
"""Similarities, in hundredths, at which the chance to share a band is reported."""
STEPS = 20
"""Recall is reported by similarity in steps of 1 / 20."""


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
    """Reported pairs that were checked."""
    right: int
    """Those of them whose similarity as text reaches the threshold, too."""


def near_metrics(stage: NearDup, counts: NearCounts, clusters: NearClusters, recall: Recall) -> list[Metric]:
    """Return the records of the whole dataset."""
    sizes, documents, pairs = clusters.sizes, counts.documents, counts.candidates
    record = partial(Metric, metric=METRIC, version=stage.version)
    (bands, rows), left_out = stage.bands(), counts.missed + counts.dropped
    numbers = (
        ("candidate_pairs", pairs, "pairs", pairs),
        ("verified_pairs", counts.verified, "pairs", pairs),
        ("truncated_pairs", left_out, "pairs", pairs + left_out),
        ("same_words", clusters.same_words, "documents", documents),
        ("clusters", len(sizes), "clusters", documents),
        ("largest_cluster", int(sizes.max(initial=0)), "documents", documents),
        ("bands", bands, "count", stage.num_perm),
        ("band_rows", rows, "count", stage.num_perm),
    )
    counted = partial(count, METRIC, version=stage.version)
    metrics = [counted(stat, value, scope=Scope(), unit=unit, n=n) for stat, value, unit, n in numbers]
    metrics += [
        counted("clusters_by_size", number, scope=Scope(rule=label), unit="clusters", n=len(sizes))
        for label, number in size_classes(sizes)
    ]
    by_chance = partial(record, stat="chance_to_meet", unit="ratio", n=bands, denominator=bands)
    for similarity in CURVE:
        scope, chance = Scope(rule=f"jaccard={similarity / 100:.2f}"), chance_to_meet(similarity / 100, bands, rows)
        metrics.append(by_chance(scope=scope, value=chance))
    shared, union = clusters.weakest
    weakest = partial(record, stat="weakest_link", unit="ratio")
    if union:
        metrics.append(weakest(value=shared / union, n=union, denominator=union))
    else:
        metrics.append(weakest(value=None, status="not_evaluated", reason="no_cluster"))
    metrics += recall_records(stage, recall)
    return [*metrics, _share(stage, "precision", counts.right, counts.reported, Scope(), "no_pair_checked")]


def size_classes(sizes: np.ndarray) -> Iterator[tuple[str, int]]:
    """Yield (sizes, number) of clusters: of 2 documents, 3 to 4, 5 to 8 and so on, up to the largest; zeros kept."""
    low, high = 2, 2
    while low <= sizes.max(initial=0):
        label = f"documents={low}" if low == high else f"documents={low}-{high}"
        yield label, int(((sizes >= low) & (sizes <= high)).sum())
        low, high = high + 1, 2 * high


def recall_records(stage: NearDup, recall: Recall) -> Iterator[Metric]:
    """Yield the share of drawn near-duplicates that the search found, of all and by similarity to the nearest document.

    Documents that share no bucket are not drawn, so the lower bound of all is lowered by the chance to share none.
    """
    reason = "no_neighbour" if stage.recall_documents else "none_drawn"
    whole = _share(stage, "recall", int(recall.found.sum()), len(recall.found), Scope(), reason)
    if whole.low is not None:
        whole = replace(whole, low=whole.low * chance_to_meet(stage.threshold, *stage.bands()))
    yield whole
    steps = np.minimum((recall.similarities * STEPS).astype(np.int64), STEPS - 1)
    for step in range(int(stage.threshold * STEPS), STEPS):
        own, scope = steps == step, Scope(rule=f"jaccard={step / STEPS:.2f}-{(step + 1) / STEPS:.2f}")
        yield _share(stage, "recall", int(recall.found[own].sum()), int(own.sum()), scope, reason)


def _share(stage: NearDup, stat: str, good: int, tried: int, scope: Scope, reason: str) -> Metric:
    record = partial(Metric, metric=METRIC, stat=stat, scope=scope, unit="ratio", version=stage.version)
    if tried == 0:
        return record(value=None, status="not_evaluated", reason=reason)
    low, high = clopper_pearson(good, tried, CONFIDENCE)
    sampled = partial(record, method="sampled", n=tried, denominator=tried, confidence=CONFIDENCE)
    return sampled(value=good / tried, low=low, high=high)


def reference_metrics(
    stage: NearDup, scopes: Mapping[str | None, tuple[np.ndarray, int]], problem: str = ""
) -> list[Metric]:
    """Return the share of documents of each split, and of all (None), that are near-duplicates of the reference's.

    A scope has int64[3], the near-duplicates by estimate, by its lower and by its upper bound, and all documents.
    """
    metrics = []
    for split, (near, documents) in scopes.items():
        record = partial(
            Metric, metric=METRIC, stat="in_reference", scope=Scope(split=split), unit="ratio", version=stage.version
        )
        if problem:
            metrics.append(record(value=None, status="not_applicable", reason=problem))
        elif documents == 0:
            metrics.append(record(value=None, status="not_evaluated", reason="empty_denominator"))
        else:
            value, low, high = (near / documents).tolist()
            estimated = partial(record, method="estimated", n=documents, denominator=documents, confidence=CONFIDENCE)
            metrics.append(estimated(value=value, low=low, high=high))
    return metrics
