"""The place of a document in the manifest's order as one number."""

from __future__ import annotations

import numpy as np

ROW_BITS = 40
"""A shard has fewer than 2^40 records (10^12), a corpus fewer than 2^23 shards: a place is below 2^63."""


def places_of(shards: int | np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return int64[n]: numbers that are ordered as documents are, by shard, then row."""
    places: np.ndarray = np.left_shift(np.asarray(shards, dtype=np.int64), ROW_BITS) | rows
    return places


def shards_of(places: np.ndarray) -> np.ndarray:
    """Return int32[n] shards of places."""
    return (places >> ROW_BITS).astype(np.int32)


def rows_of(places: np.ndarray) -> np.ndarray:
    """Return int64[n] rows of places."""
    return places & ((1 << ROW_BITS) - 1)
