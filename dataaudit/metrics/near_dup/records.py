"""Records of the search for near-duplicates: what was compared, what was found, and how much was missed or wrong.

How much the search for near-duplicates misses: drawn documents are looked for among all others, without buckets.

Documents that share a bucket with another one are drawn, by hash. The sketch of each is compared with those of all
documents, and those that agree enough are verified as text; so the neighbours of a drawn document are known whatever
its buckets were. Where there are very many to verify, fewer documents count, in the order of their hashes. Recall is
the share of drawn documents with an earlier near-duplicate for which the search found one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dataaudit.manifest.metric import Metric, Scope, count
from dataaudit.metrics.near_dup.bands import Sketched
from dataaudit.metrics.near_dup.clusters import NearClusters
from dataaudit.metrics.near_dup.reference import InReference
from dataaudit.metrics.near_dup.stage import METRIC, NearDup
from dataaudit.metrics.near_dup.verify import CANDIDATES, keyed_candidates
from dataaudit.scan.kernels.intervals import clopper_pearson
from dataaudit.scan.kernels.minhash import chance_to_meet
from dataaudit.scan.kernels.pairing import agreements, least_agreement, sure_agreement
from dataaudit.scan.link.joins import Joined
from dataaudit.scan.link.keyed import NUM_BYTES
from dataaudit.scan.link.places import passes

STEPS = 20
"""A step of similarity is 1 / 20."""
DONE = pa.schema([("documents", pa.int64())])
"""Drawn documents that were looked for in a partition, the first ones."""
NO_BUCKET = 0
"""In place of the number of buckets, of pairs that were compared to measure recall."""
_ENOUGH = 8
"""Neighbours that are surely alike, of which no more need to be verified."""
_PAIRS = 1 << 20
"""Pairs of drawn documents that are verified, about: where they have more, fewer documents count."""


@dataclass(frozen=True, slots=True)
class NeighbourJoin:
    """Finds the earlier documents of a partition that drawn documents agree with."""

    places: np.ndarray
    """int64[d] of the drawn documents, in the order in which they are looked for."""
    sketches: np.ndarray
    """uint8[d, v]"""
    threshold: float
    """Jaccard similarity of a near-duplicate."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``candidates``, and ``done``: the number of drawn documents whose neighbours all are among them.

        The keyed rows are the candidates; they stand for no bucket.
        """
        values = self.sketches.shape[1]
        least, sure = least_agreement(values, self.threshold), sure_agreement(values, self.threshold)
        found: list[tuple[np.ndarray, int]] = []
        room = _PAIRS * (stop - start) // NUM_BYTES
        others = [Sketched.read(files, start, stop, values, part.rows).firsts() for part in passes(files, start, stop)]
        for place, sketch in zip(self.places.tolist(), self.sketches, strict=True):
            near = np.concatenate([_neighbours(other, place, sketch, least, sure) for other in others])
            room -= len(near)
            if room < 0 and found:
                break
            found.append((near, place))
        left = np.concatenate([np.zeros(0, dtype=np.int64), *(near for near, _ in found)])
        right = np.repeat(np.array([place for _, place in found], dtype=np.int64), [len(near) for near, _ in found])
        bands = np.full(len(left), NO_BUCKET, dtype=np.int16)
        candidates = pa.table([left, right, bands], schema=CANDIDATES)
        return Joined(
            tables={"candidates": candidates, "done": pa.table([[len(found)]], schema=DONE)},
            keyed={"candidates": keyed_candidates(candidates)},
        )


def _neighbours(others: Sketched, place: int, sketch: np.ndarray, least: int, sure: int) -> np.ndarray:
    """Return the places of earlier documents that may be alike; a few of those that surely are, if there are."""
    earlier = int(np.searchsorted(others.places, place))
    agreed = agreements(sketch, others.sketches[:earlier])
    is_sure = np.flatnonzero(agreed >= sure)
    if len(is_sure) >= _ENOUGH:
        return others.places[is_sure[np.argsort(-agreed[is_sure].astype(np.int64), kind="stable")[:_ENOUGH]]]
    return others.places[np.flatnonzero(agreed >= least)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Drawn documents that have an earlier near-duplicate."""

    similarities: np.ndarray
    """float64[d] of each to the nearest of them."""
    found: np.ndarray
    """bool[d] whether the search found one."""

    @classmethod
    def of(cls, drawn: np.ndarray, verified: pa.Table, edges: pa.Table, threshold: float) -> Recall:
        """Return them."""
        bands, rights = verified["bands"].to_numpy(), verified["right"].to_numpy()
        similarity = verified["intersection"].to_numpy() / np.maximum(verified["union"].to_numpy(), 1)
        near = (bands == NO_BUCKET) & (similarity >= threshold) & np.isin(rights, drawn)
        documents, places = np.unique(rights[near], return_inverse=True)
        best = np.zeros(len(documents))
        np.maximum.at(best, places, similarity[near])
        return cls(similarities=best, found=np.isin(documents, edges["right"].to_numpy()))


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
    """Return the records of the whole dataset that do not come from partials."""
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
    """Return the documents of each split, and of all (None), that are near-duplicates of the reference's."""
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
