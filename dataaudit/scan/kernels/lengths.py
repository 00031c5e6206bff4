"""Lengths: fixed logarithmic buckets, exact quantiles, and the padding of batches.

A value below 256 is its own bucket; a larger value keeps its 8 leading binary digits. The bucket's bounds
differ by a factor below 1 + 1/128, so its midpoint is within 0.4 % of every value in it. Integer arithmetic
only: the same bucket on every processor.

Padding is computed from a histogram of lengths, for packing and for random batches. Equal lengths are handled together,
so the cost depends on the number of distinct lengths, not on the size of the corpus.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

_DIGITS = 8
EXACT_BELOW = 1 << _DIGITS


def bucket_bounds(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (low, high) int64[n], both inclusive, of the buckets of int64[n] values in [0, 2^53)."""
    _, exponents = np.frexp(values.astype(np.float64))  # exact below 2^53: the position of the leading bit
    shifts = np.maximum(exponents.astype(np.int64) - _DIGITS, 0)
    low = (values >> shifts) << shifts
    return low, low + (np.int64(1) << shifts) - 1


def quantile_bounds(
    low: np.ndarray, high: np.ndarray, counts: np.ndarray, quantiles: Sequence[Fraction]
) -> list[tuple[int, int]]:
    """Return the bucket of each quantile: the smallest value with at least that share at or below it.

    This is ``numpy.quantile(..., method="inverted_cdf")``, computed in integers. Buckets ascend, ``high`` is inclusive,
    the sum of ``counts`` is above 0, and quantiles are in (0, 1].
    """
    places = quantile_places(counts, np.array([0, len(counts)]), quantiles)[:, 0]
    return list(zip(low[places].tolist(), high[places].tolist(), strict=True))


def quantile_places(counts: np.ndarray, bounds: np.ndarray, quantiles: Sequence[Fraction]) -> np.ndarray:
    """Return int64[q, g]: of each quantile and group the bucket, as :func:`quantile_bounds` finds it.

    The buckets of group i are ``bounds[i]`` to ``bounds[i + 1]``, values ascending; any place is returned for a group
    of none.
    """
    cumulative = np.cumsum(counts)
    before = np.append(0, cumulative)[bounds]
    whole = np.diff(before).astype(object)  # integers of any size
    found = []
    for quantile in quantiles:
        ranks = -(-whole * quantile.numerator // quantile.denominator)  # ceiling
        found.append(np.searchsorted(cumulative, before[:-1] + np.maximum(ranks, 1).astype(np.int64), side="left"))
    return np.minimum(np.array(found, dtype=np.int64), max(0, len(counts) - 1))


def packed_bins(lengths: np.ndarray, counts: np.ndarray, capacity: int) -> int:
    """Return the bins that best-fit-decreasing needs: longest first, each into the fullest bin with room for it.

    Exactly what packing piece by piece gives (Ding et al. 2024, "Fewer Truncations Improve Language Modeling", section
    3): the fullest bin that fits takes pieces of one length until no more of them fit, and bins with the same room are
    alike. ``lengths`` are distinct, ascending, in [1, capacity].
    """
    bins = 0
    rooms: dict[int, int] = {}  # room left -> bins with it
    order: list[int] = []  # its keys, ascending

    def put(room: int, number: int) -> None:
        if room == 0 or number == 0:
            return
        if room not in rooms:
            insort(order, room)
            rooms[room] = 0
        rooms[room] += number

    for length, count in zip(lengths[::-1].tolist(), counts[::-1].tolist(), strict=True):
        left = count
        while left:
            place = bisect_left(order, length)
            if place == len(order):
                room, number = capacity, -(-left // (capacity // length))
                bins += number
            else:
                room = order.pop(place)
                number = rooms.pop(room)
            each = room // length
            full, rest = divmod(left, each) if left < each * number else (number, 0)
            put(room - each * length, full)
            if full < number:  # the last pieces of this length: a bin with some of them, others untouched
                touched = 1 if rest else 0
                put(room - rest * length, touched)
                put(room, number - full - touched)
                left = 0
            else:
                left -= full * each
    return bins


def batched_positions(lengths: np.ndarray, counts: np.ndarray, batch: int) -> float:
    """Return the expected positions of all batches when pieces are drawn in random order, ``batch`` at a time.

    Every piece of a batch takes as many positions as the longest of it. A batch is a random subset, so the longest is
    at most x with probability prod (F(x) - j) / (n - j) for j below its size, where F(x) counts the pieces of length x
    or less: order statistics without replacement. The last batch holds what is left. ``lengths`` are distinct and
    ascend.
    """
    pieces = int(counts.sum())
    whole, rest = divmod(pieces, batch)
    expected = whole * batch * _expected_longest(lengths, counts, batch) if whole else 0.0
    return expected + (rest * _expected_longest(lengths, counts, rest) if rest else 0.0)


def _expected_longest(lengths: np.ndarray, counts: np.ndarray, size: int) -> float:
    """Return the expected maximum of ``size`` pieces drawn without replacement."""
    below = np.cumsum(counts).astype(np.float64)
    pieces = below[-1]
    at_most = np.ones(len(lengths))
    for drawn in range(size):
        at_most *= np.maximum(below - drawn, 0.0) / (pieces - drawn)
    return float(lengths[-1]) - math.fsum((at_most[:-1] * np.diff(lengths)).tolist())
