"""Which documents were seen before: one sort of 128-bit keys."""

from __future__ import annotations

import numpy as np


def earlier_twins(
    keys: np.ndarray, shards: np.ndarray, rows: np.ndarray, splits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for every document, whether an equal one came earlier, and which equal one came first.

    Order is (shard, row). Splits are contiguous in it: shards are ordered by split first.

    Args:
        keys: uint8[n, 16]; equal documents have equal keys.
        shards: int32[n] ordinal of the shard.
        rows: int64[n] row within the shard.
        splits: int32[n] ordinal of the split.

    Returns:
        ``seen`` bool[n], ``seen_in_split`` bool[n] (the earlier one is of the same split), and ``first``
        int64[n], the index of the first equal document (its own index for the first).
    """
    num_documents = len(keys)
    seen, seen_in_split = np.zeros(num_documents, dtype=bool), np.zeros(num_documents, dtype=bool)
    first = np.arange(num_documents)
    halves = np.ascontiguousarray(keys).view(np.uint64)
    chosen = _shared(halves[:, 0])  # mostly few: only these need the sort by four keys
    halves, shards, rows, splits = halves[chosen], shards[chosen], rows[chosen], splits[chosen]
    order = np.lexsort((rows, shards, halves[:, 1], halves[:, 0]))
    ordered, ordered_splits = halves[order], splits[order]
    same = np.zeros(len(chosen), dtype=bool)
    same[1:] = (ordered[1:] == ordered[:-1]).all(axis=1)
    same_split = same.copy()
    same_split[1:] &= ordered_splits[1:] == ordered_splits[:-1]
    starts = np.maximum.accumulate(np.where(same, 0, np.arange(len(chosen))))
    places = chosen[order]
    seen[places], seen_in_split[places], first[places] = same, same_split, places[starts]
    return seen, seen_in_split, first


def _shared(values: np.ndarray) -> np.ndarray:
    """Return int64[m], ascending: the indices of the values that occur more than once in uint64[n]."""
    order = np.argsort(values)
    equal = values[order[1:]] == values[order[:-1]]
    shared = np.zeros(len(values), dtype=bool)
    shared[order[1:][equal]] = True
    shared[order[:-1][equal]] = True
    return np.flatnonzero(shared)
