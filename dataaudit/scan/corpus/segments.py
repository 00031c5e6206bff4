"""Consecutive segments of an array: bounds from lengths, runs of limited size, and where rows change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def bounds_of(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    """Return int64[n + 1]: the start of each of n segments, then the end of the last."""
    bounds = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(np.asarray(lengths, dtype=np.int64), out=bounds[1:])
    return bounds


def runs(bounds: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Return half-open runs of segments that have at most ``most`` together, or of a single segment."""
    found, low, number = [], 0, len(bounds) - 1
    while low < number:
        fits = int(np.searchsorted(bounds, bounds[low] + most, side="right")) - 1
        found.append((low, min(max(fits, low + 1), number)))
        low = found[-1][1]
    return found


def changes(*columns: np.ndarray) -> np.ndarray:
    """Return bool[n]: rows that differ from the row before them; the first does."""
    changed = np.ones(len(columns[0]), dtype=bool)
    changed[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return changed
