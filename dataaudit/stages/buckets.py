"""Fixed logarithmic buckets of non-negative integers, and exact quantiles of counted values.

A value below 256 is its own bucket; a larger one keeps its 8 leading binary digits. The bucket's bounds
differ by a factor below 1 + 1/128, so its midpoint is within 0.4 % of every value in it. Integer arithmetic
only: the same bucket on every processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = 8
EXACT_BELOW = 1 << _DIGITS


def bucket_bounds(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (low, high) int64 of the buckets of int64[n] values in [0, 2^53)."""
    _, exponents = np.frexp(values.astype(np.float64))  # exact below 2^53: the position of the leading bit
    shifts = np.maximum(exponents.astype(np.int64) - _DIGITS, 0)
    low = (values >> shifts) << shifts
    return low, low + (np.int64(1) << shifts) - 1


def settle_lengths(table: pa.Table, max_distinct: int) -> pa.Table:
    """Bucket every source that has over ``max_distinct`` distinct values, or that was bucketed before.

    Columns: source, low, high and counts. Commutes with merging: distinct values never become fewer, and a
    bucketed source is known by a bucket that is wider than one value.
    """
    wide = pc.greater(table["high"], table["low"])
    per_source = pa.table({"source": table["source"], "wide": wide}).group_by("source", use_threads=False)
    sizes = per_source.aggregate([("wide", "count"), ("wide", "any")])
    crowded = pc.or_(pc.greater(sizes["wide_count"], max_distinct), sizes["wide_any"])
    chosen = sizes.filter(crowded)["source"]
    if len(chosen) == 0:
        return table
    mask = pc.is_in(table["source"], chosen.combine_chunks())
    coarse, rest = table.filter(mask), table.filter(pc.invert(mask))
    low, high = bucket_bounds(coarse["low"].to_numpy())
    coarse = coarse.set_column(1, "low", pa.array(low)).set_column(2, "high", pa.array(high))
    return pa.concat_tables([rest, coarse])


def quantile_bounds(
    low: np.ndarray, high: np.ndarray, counts: np.ndarray, quantiles: Sequence[Fraction]
) -> list[tuple[int, int]]:
    """Return the bucket of each quantile: the smallest value with at least that share at or below it.

    This is ``numpy.quantile(..., method="inverted_cdf")``, computed in integers.

    Args:
        low: int64[k] ascending lower bounds.
        high: int64[k] upper bounds.
        counts: int64[k] observations, their sum above 0.
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
