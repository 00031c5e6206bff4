"""Consecutive segments of an array: bounds from lengths, runs of limited size, changes; and the buffers of texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


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


def text_buffers(texts: pa.LargeStringArray) -> tuple[Offsets, Bytes]:
    """View int64[n + 1] offsets (from 0) and uint8[offsets[n]] bytes of an array without nulls, slices included."""
    if len(texts) == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64, count=len(texts) + 1, offset=8 * texts.offset)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, dtype=np.uint8)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]
