"""Near-duplicates of an older corpus that is not read again: its stored signatures meet the bands of this one.

What such a pair has in common can only be estimated: the share of equal values of two signatures is, on average, the
Jaccard similarity, and the number of equal ones is binomial (Broder 1997).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.intervals import clopper_pearson
from dataaudit.kernels.pairing import LATER, form_probe_pairs
from dataaudit.link.joins import Joined
from dataaudit.link.places import named, read_placed
from dataaudit.manifest.places import shards_of
from dataaudit.metrics.near_dup.bands import BucketRows, pairs_table
from dataaudit.metrics.near_dup.rows import BANDS

CONFIDENCE = 0.95
EXACTLY = -1
"""Stands for all values and more: the words are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceJoin:
    """Pairs the documents of this corpus with those of the older one in the same bucket."""

    small: int
    """Older documents of a bucket up to which all are taken."""
    leaders: int
    """First older documents of a larger bucket that are taken."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return the keyed rows ``pairs``, of schema :data:`.bands.PAIRS`: left is the older one.

        Args:
            files: With the rows ``bands`` of this corpus and ``older`` of the other.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
        older = BucketRows.of(read_placed(named(files, "older"), BANDS, start, stop))
        rows = BucketRows.of(read_placed(named(files, "bands"), BANDS, start, stop))
        older = older.take(older.first_of_same())
        heads = np.flatnonzero(np.append(True, older.keys[1:] != older.keys[:-1])[: len(older.keys)])
        bounds = np.append(heads, len(older.keys)).astype(np.int64)
        rows = rows.take(np.flatnonzero(np.isin(rows.keys, older.keys[heads])))
        rows = rows.take(rows.first_of_same())
        lefts, rights = form_probe_pairs(
            bounds,
            np.zeros(len(older.keys), dtype=np.int32),
            1,
            np.searchsorted(older.keys[heads], rows.keys),
            small=self.small + 1,
            leaders=self.leaders,
        )
        left, right = older.places[lefts], rows.places[rights]
        once = np.ones(len(left), dtype=np.int16)
        asked = np.full(len(left), LATER, dtype=np.uint8)
        pairs = pairs_table(left, right, bands=once, agreed=np.zeros_like(once), flags=asked)
        return Joined(tables={"rows": pa.table({"rows": pa.array([len(left)], pa.int64())})}, keyed={"pairs": pairs})


@dataclass(frozen=True, slots=True, kw_only=True)
class InReference:
    """Documents of one scope with a near-duplicate in the older corpus."""

    estimated: int
    """Those whose best estimate is at or above the threshold."""
    low: int
    """Those of them whose estimate's lower bound is."""
    high: int
    """Documents whose estimate's upper bound is."""
    documents: int
    """All documents."""


def equal_values(left: np.ndarray, right: np.ndarray, lefts: np.ndarray, rights: np.ndarray) -> np.ndarray:
    """Return int64[p], how many values the signatures of each pair share.

    Args:
        left: uint32[a, num_perm] signatures.
        right: uint32[b, num_perm] signatures.
        lefts: int64[p] rows of ``left``.
        rights: int64[p] rows of ``right``.
    """
    step = 1 << 16
    counts = [
        (left[lefts[start : start + step]] == right[rights[start : start + step]]).sum(axis=1)
        for start in range(0, len(lefts), step)
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *counts])


def decide(counts: np.ndarray, num_perm: int, threshold: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tell for numbers of equal values whether the estimate, its lower and its upper bound reach the threshold.

    Args:
        counts: int64[n] equal values, or :data:`EXACTLY`.
        num_perm: Values of a signature.
        threshold: Jaccard similarity of a near-duplicate.
    """
    bounds = [clopper_pearson(number, num_perm, CONFIDENCE) for number in range(num_perm + 1)]
    tables = (
        [number / num_perm >= threshold for number in range(num_perm + 1)] + [True],
        [low >= threshold for low, _ in bounds] + [True],
        [high >= threshold for _, high in bounds] + [True],
    )
    near, low, high = (np.array(table)[counts] for table in tables)  # EXACTLY is the last entry
    return near, low & near, high | near


def count_matches(
    places: np.ndarray, counts: np.ndarray, members: pa.Table, splits: np.ndarray, *, num_perm: int, threshold: float
) -> np.ndarray:
    """Return int64[s, 3]: by split, documents near by estimate, by its lower and by its upper bound.

    Args:
        places: int64[n] documents that share a band with an older one, each the first of its class.
        counts: int64[n] equal values of their best match, or :data:`EXACTLY`.
        members: Of schema :data:`dataaudit.metrics.near_dup.classes.CLASS_MEMBERS`: who else has the same words.
        splits: int32[shards] split of each shard.
        num_perm: Values of a signature.
        threshold: Jaccard similarity of a near-duplicate.
    """
    found = np.zeros((int(splits.max(initial=0)) + 1, 3), dtype=np.int64)
    if len(places) == 0:
        return found
    flags = np.stack(decide(counts, num_perm, threshold), axis=1)
    firsts, others = members["first"].to_numpy(), members["place"].to_numpy()
    later = firsts != others
    at = np.minimum(np.searchsorted(places, firsts[later]), len(places) - 1)
    shared = places[at] == firsts[later]
    np.add.at(found, splits[shards_of(places)], flags)
    np.add.at(found, splits[shards_of(others[later][shared])], flags[at[shared]])
    return found
