"""Counting and adding up integers that are keyed by a group and a number, without a hash table.

The number of distinct values decides the way: an array with a place for every value where that is small
beside the data, a sort otherwise. Both give the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dataaudit.scan.kernels.jit import READ_IDS, READ_OFFSETS, Array, Int, compiled

_IDS_PER_PLACE = 1
_ROWS_PER_RUN = 64


def count_ids(
    ids: np.ndarray, lengths: np.ndarray, marks: np.ndarray, size: int, num_groups: int
) -> tuple[np.ndarray, ...]:
    """Return groups, ids, counts and marked counts, int64[k] each, of what occurs, sorted by (group, id).

    ``ids`` are uint32 below ``size``, document after document; ``marks`` int64[d] are twice the group of each document,
    plus 1 where it is marked.
    """
    if _IDS_PER_PLACE * num_groups * size <= len(ids):
        table = np.zeros((num_groups, 2, size), dtype=np.int64)
        _count(ids, lengths, marks, size, table.reshape(-1))
        totals, marked = (table[:, 0] + table[:, 1]).reshape(-1), table[:, 1].reshape(-1)
        places = np.flatnonzero(totals != 0)
        return places // size, places % size, totals[places], marked[places]
    narrow = np.uint32 if 2 * num_groups * size < 2**32 else np.int64  # half the bytes to move and to sort
    keys = np.repeat(((marks >> 1) * 2 * size + (marks & 1)).astype(narrow), lengths)
    keys += ids << np.uint32(1) if 2 * size < 2**32 else ids.astype(np.int64) << 1
    keys.sort()
    firsts = _firsts(keys)
    numbers = np.diff(firsts, append=len(keys))
    keys = keys[firsts].astype(np.int64)
    places, odd = keys >> 1, keys & 1
    firsts = _firsts(places)
    if len(firsts) == 0:
        return places, places, numbers, numbers
    counts, marked = np.add.reduceat(numbers, firsts), np.add.reduceat(numbers * odd, firsts)
    return places[firsts] // size, places[firsts] % size, counts, marked


@compiled(f"void({READ_IDS}, {READ_OFFSETS}, {READ_OFFSETS}, int64, int64[::1])")
def _count(ids: Array, lengths: Array, marks: Array, size: Int, table: Array) -> None:
    place = np.uintp(0)
    for document in range(len(lengths)):
        first = np.uintp(marks[document] * size)
        for _ in range(lengths[document]):
            table[first + np.uintp(ids[place])] += 1
            place += np.uintp(1)


def add_up(
    groups: np.ndarray, values: np.ndarray, columns: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]] | None:
    """Return groups, values and sums, int64[k] each, of rows of equal (group, value); None when unique and sorted.

    Values lie in [0, 2^31).
    """
    breaks = np.flatnonzero((values[1:] <= values[:-1]) | (groups[1:] != groups[:-1])) + 1
    if (groups[breaks] > groups[breaks - 1]).all():
        return None
    if len(breaks) * _ROWS_PER_RUN > len(values):
        return _add_sorted((groups.astype(np.int64) << 32) | values, columns)
    return _add_runs(np.concatenate([[0], breaks, [len(values)]]), groups, values, columns)


def _add_sorted(keys: np.ndarray, columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    firsts = _firsts(ordered)
    kept = ordered[firsts]
    return kept >> 32, kept & 0xFFFFFFFF, [np.add.reduceat(column[order], firsts) for column in columns]


def _add_runs(
    starts: np.ndarray, groups: np.ndarray, values: np.ndarray, columns: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Add ascending runs, each of a group, into an array with a cell for every value.

    Values of a run are distinct, so plain indexing adds every one of them.
    """
    size = int(values.max()) + 1
    sums = [np.zeros(size, dtype=np.int64) for _ in columns]
    seen = np.zeros(size, dtype=np.bool_)
    run_groups = groups[starts[:-1]]
    order = np.argsort(run_groups, kind="stable")
    found: list[tuple[np.ndarray, np.ndarray, list[np.ndarray]]] = []
    for position, run in enumerate(order):
        rows = slice(starts[run], starts[run + 1])
        own = values[rows]
        seen[own] = True
        for total, column in zip(sums, columns, strict=True):
            total[own] += column[rows]
        last = position + 1 == len(order) or run_groups[order[position + 1]] != run_groups[run]
        if last:
            present = np.flatnonzero(seen)
            found.append((np.full(len(present), run_groups[run]), present, [total[present] for total in sums]))
            seen[present] = False
            for total in sums:
                total[present] = 0
    return (
        np.concatenate([item[0] for item in found]),
        np.concatenate([item[1] for item in found]),
        [np.concatenate([item[2][index] for item in found]) for index in range(len(columns))],
    )


def _firsts(ordered: np.ndarray) -> np.ndarray:
    """Return int64[k], where each run of equal values begins in a sorted array."""
    if len(ordered) == 0:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
