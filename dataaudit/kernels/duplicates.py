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
    if num_documents == 0:
        return np.zeros(0, dtype=bool), np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int64)
    halves = np.ascontiguousarray(keys).view(">u8")
    order = np.lexsort((rows, shards, halves[:, 1], halves[:, 0]))
    ordered = halves[order]
    same = np.zeros(num_documents, dtype=bool)
    same[1:] = (ordered[1:] == ordered[:-1]).all(axis=1)
    same_split = same.copy()
    same_split[1:] &= splits[order[1:]] == splits[order[:-1]]
    starts = np.maximum.accumulate(np.where(same, 0, np.arange(num_documents)))
    seen, seen_in_split = np.empty(num_documents, dtype=bool), np.empty(num_documents, dtype=bool)
    first = np.empty(num_documents, dtype=np.int64)
    seen[order], seen_in_split[order], first[order] = same, same_split, order[starts]
    return seen, seen_in_split, first
