"""Fixed logarithmic buckets of non-negative integers, and exact quantiles of counted values.

A value below 256 is its own bucket; a larger one keeps its 8 leading binary digits. The bucket's bounds
differ by a factor below 1 + 1/128, so its midpoint is within 0.4 % of every value in it. Integer arithmetic
only: the same bucket on every processor.
"""

from __future__ import annotations

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

    This is ``numpy.quantile(..., method="inverted_cdf")``, computed in integers.

    Args:
        low: int64[k] lower bounds, ascending.
        high: int64[k] upper bounds, inclusive.
        counts: int64[k] observations; their sum is above 0.
        quantiles: In (0, 1].
    """
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    found = []
    for quantile in quantiles:
        rank = max(1, -(-quantile.numerator * total // quantile.denominator))  # ceiling
        index = int(np.searchsorted(cumulative, rank, side="left"))
        found.append((int(low[index]), int(high[index])))
    return found
