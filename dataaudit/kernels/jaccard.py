"""Exact Jaccard similarity of sets of hashes: sorted distinct values of every document, intersected pair by pair."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.jit import READ_OFFSETS, Integer, compiled, helper
from dataaudit.kernels.minhash import READ_HASHES

_PER_BUCKET = 4
_U64 = np.uint64


def distinct_sets(values: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of every document, ascending.

    Takes time linear in the values when these are well mixed, as hashes are.

    Args:
        values: uint64[s] hashes.
        bounds: int64[n + 1] those of document i are ``values[bounds[i]:bounds[i + 1]]``.

    Returns:
        uint64[d] and int64[n + 1], as ``values`` and ``bounds``.
    """
    longest = int(np.diff(bounds).max(initial=0))
    scratch = np.empty(longest, dtype=np.uint64)
    counts = np.empty(longest // _PER_BUCKET + 2, dtype=np.int64)
    distinct, ends = np.empty(len(values), dtype=np.uint64), np.zeros(len(bounds), dtype=np.int64)
    _distinct(values, bounds, scratch, counts, distinct, ends)
    return distinct[: ends[-1]].copy(), ends


def intersections(values: np.ndarray, bounds: np.ndarray, lefts: np.ndarray, rights: np.ndarray) -> np.ndarray:
    """Return int64[p], how many values the sets of each pair of documents share.

    Args:
        values: uint64[d] of :func:`distinct_sets`.
        bounds: int64[n + 1], ditto.
        lefts: int64[p] one document of each pair.
        rights: int64[p] the other.
    """
    shared = np.empty(len(lefts), dtype=np.int64)
    _intersect(values, bounds, lefts, rights, shared)
    return shared


@compiled(f"void({READ_HASHES}, {READ_OFFSETS}, uint64[::1], int64[::1], uint64[::1], int64[::1])")
def _distinct(
    values: np.ndarray,
    bounds: np.ndarray,
    scratch: np.ndarray,
    counts: np.ndarray,
    distinct: np.ndarray,
    ends: np.ndarray,
) -> None:
    done = 0
    for document in range(len(bounds) - 1):
        start, size = bounds[document], bounds[document + 1] - bounds[document]
        _sort_mixed(values, start, size, scratch, counts)
        for index in range(size):
            if index == 0 or scratch[index] != scratch[index - 1]:
                distinct[done] = scratch[index]
                done += 1
        ends[document + 1] = done


@helper
def _sort_mixed(values: np.ndarray, start: Integer, size: Integer, scratch: np.ndarray, counts: np.ndarray) -> None:
    """Sort ``values[start:start + size]`` into ``scratch``: dealt into buckets by their upper half, then inserted."""
    buckets = size // _PER_BUCKET + 1
    for index in range(buckets + 1):
        counts[index] = 0
    for index in range(start, start + size):
        counts[np.int64(((values[index] >> _U64(32)) * _U64(buckets)) >> _U64(32)) + 1] += 1
    for index in range(buckets):
        counts[index + 1] += counts[index]
    for index in range(start, start + size):
        bucket = np.int64(((values[index] >> _U64(32)) * _U64(buckets)) >> _U64(32))
        scratch[counts[bucket]] = values[index]
        counts[bucket] += 1
    for index in range(1, size):
        value, place = scratch[index], index
        while place > 0 and scratch[place - 1] > value:
            scratch[place] = scratch[place - 1]
            place -= 1
        scratch[place] = value


@compiled(f"void({READ_HASHES}, {READ_OFFSETS}, {READ_OFFSETS}, {READ_OFFSETS}, int64[::1])")
def _intersect(
    values: np.ndarray, bounds: np.ndarray, lefts: np.ndarray, rights: np.ndarray, shared: np.ndarray
) -> None:
    for pair in range(len(lefts)):
        left, left_end = bounds[lefts[pair]], bounds[lefts[pair] + 1]
        right, right_end = bounds[rights[pair]], bounds[rights[pair] + 1]
        found = 0
        while left < left_end and right < right_end:  # without branches: which side moves on is a coin toss
            a, b = values[left], values[right]
            found += a == b
            left += a <= b
            right += b <= a
        shared[pair] = found
