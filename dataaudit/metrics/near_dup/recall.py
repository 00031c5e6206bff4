"""How much the search for near-duplicates misses: drawn documents are looked for among all others, without buckets.

Documents that share a bucket with another one are drawn, by hash. The sketch of each is compared with those of all
documents, and those that agree enough are verified as text; so the neighbours of a drawn document are known whatever
its buckets were. Where there are very many to verify, fewer documents count, in the order of their hashes. Recall is
the share of drawn documents with an earlier near-duplicate for which the search found one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.crowds import agreements, least_agreement, sure_agreement
from dataaudit.link.joins import Joined
from dataaudit.link.keyed import NUM_BYTES
from dataaudit.link.places import passes
from dataaudit.metrics.near_dup.crowds import Sketched
from dataaudit.metrics.near_dup.pairs import CANDIDATES, keyed_candidates

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

        Args:
            files: With the rows ``sketches`` of every part.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
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
        """Return them.

        Args:
            drawn: int64[d] the documents that were looked for in all partitions.
            verified: Of schema :data:`.verify.VERIFIED`; pairs of no bucket are those of drawn documents.
            edges: Those that the search found.
            threshold: Jaccard similarity of a near-duplicate.
        """
        bands, rights = verified["bands"].to_numpy(), verified["right"].to_numpy()
        similarity = verified["intersection"].to_numpy() / np.maximum(verified["union"].to_numpy(), 1)
        near = (bands == NO_BUCKET) & (similarity >= threshold) & np.isin(rights, drawn)
        documents, places = np.unique(rights[near], return_inverse=True)
        best = np.zeros(len(documents))
        np.maximum.at(best, places, similarity[near])
        return cls(similarities=best, found=np.isin(documents, edges["right"].to_numpy()))
