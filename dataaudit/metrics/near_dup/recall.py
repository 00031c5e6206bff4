"""How much the search for near-duplicates misses: drawn documents are looked for among all others, without buckets.

Documents that share a bucket with another one are drawn, by hash. The sketch of each is compared with those of all
documents, and those that agree enough are verified as text; so the neighbours of a drawn document are known whatever
its buckets were. Recall is the share of drawn documents with an earlier near-duplicate for which the search found one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.crowds import ENOUGH, agreements, least_agreement, sure_agreement
from dataaudit.link.joins import Joined
from dataaudit.link.places import passes
from dataaudit.metrics.near_dup.crowds import Sketched
from dataaudit.metrics.near_dup.pairs import CANDIDATES, keyed_candidates

STEPS = 20
"""A step of similarity is 1 / 20."""
NO_BUCKET = 0
"""In place of the number of buckets, of pairs that were compared to measure recall."""
_MOST = 256
"""Neighbours of a drawn document in a partition that are verified, those that agree most."""


@dataclass(frozen=True, slots=True)
class NeighbourJoin:
    """Finds the earlier documents of a partition that drawn documents agree with."""

    places: np.ndarray
    """int64[d] of the drawn documents."""
    sketches: np.ndarray
    """uint8[d, v]"""
    threshold: float
    """Jaccard similarity of a near-duplicate."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``candidates`` and the keyed rows of this name, which share no bucket that was looked at.

        Args:
            files: With the rows ``sketches`` of every part.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
        values, lefts, rights = self.sketches.shape[1], [], []
        least, sure = least_agreement(values, self.threshold), sure_agreement(values, self.threshold)
        for part in passes(files, start, stop):
            others = Sketched.read(files, start, stop, values, part.rows).firsts()
            for place, sketch in zip(self.places.tolist(), self.sketches, strict=True):
                earlier = int(np.searchsorted(others.places, place))
                agreed = agreements(sketch, others.sketches[:earlier])
                near = np.flatnonzero(agreed >= least)
                near = near[np.argsort(-agreed[near].astype(np.int64), kind="stable")]
                near = near[: ENOUGH if (agreed[near] >= sure).sum() >= ENOUGH else _MOST]
                lefts.append(others.places[near])
                rights.append(np.full(len(near), place))
        left, right = (np.concatenate([np.zeros(0, dtype=np.int64), *sides]) for sides in (lefts, rights))
        bands = np.full(len(left), NO_BUCKET, dtype=np.int16)
        candidates = pa.table([left, right, bands], schema=CANDIDATES)
        return Joined(tables={"candidates": candidates}, keyed={"candidates": keyed_candidates(candidates)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Drawn documents that have an earlier near-duplicate."""

    similarities: np.ndarray
    """float64[d] of each to the nearest of them."""
    found: np.ndarray
    """bool[d] whether the search found one."""

    @classmethod
    def of(cls, verified: pa.Table, edges: pa.Table, threshold: float) -> Recall:
        """Return them.

        Args:
            verified: Of schema :data:`.verify.VERIFIED`; pairs of no bucket are those of drawn documents.
            edges: Those that the search found.
            threshold: Jaccard similarity of a near-duplicate.
        """
        bands, rights = verified["bands"].to_numpy(), verified["right"].to_numpy()
        similarity = verified["intersection"].to_numpy() / np.maximum(verified["union"].to_numpy(), 1)
        near = (bands == NO_BUCKET) & (similarity >= threshold)
        drawn, places = np.unique(rights[near], return_inverse=True)
        best = np.zeros(len(drawn))
        np.maximum.at(best, places, similarity[near])
        return cls(similarities=best, found=np.isin(drawn, edges["right"].to_numpy()))
