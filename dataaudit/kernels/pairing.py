"""Documents that share a key or a bucket: which came earlier, and pairs of them.

Which documents were seen before: one sort of 128-bit keys.

Pairs of documents that share a bucket: every two of a small one; those of a large one are in :mod:`.crowds`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.kernels.jit import READ_OFFSETS, Integer, compiled, helper


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


READ_SPLITS = "Array(int32, 1, 'C', readonly=True)"
READ_FLAGS = "Array(boolean, 1, 'C', readonly=True)"

LATER, LEAK, APART = 1, 2, 4
"""Bits of a pair. The later one asked for the earlier one, or the bucket is small; the earlier one, held out, asked for
the later one, of training data, or the bucket is small; the later one is held out and the earlier one is not."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of the documents of some buckets, by index."""

    lefts: np.ndarray
    """int64[p] the earlier one."""
    rights: np.ndarray
    """int64[p] the later one."""
    flags: np.ndarray
    """uint8[p] bits :data:`LATER`, :data:`LEAK`, :data:`APART`."""


def form_pairs(bounds: np.ndarray, splits: np.ndarray, held_out: np.ndarray, *, small: int) -> Pairs:
    """Pair every two documents of each bucket that is small.

    Args:
        bounds: int64[b + 1] bucket i holds the documents from ``bounds[i]`` to ``bounds[i + 1]``, in manifest order.
        splits: int32[m] split of each document.
        held_out: bool[s] whether a split is held out.
        small: Documents of a small bucket, at most.
    """
    sizes = np.diff(bounds)
    sizes = sizes[sizes <= small]
    count = int((sizes * (sizes - 1) // 2).sum())
    made = Pairs(np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64), np.empty(count, dtype=np.uint8))
    _form(bounds, splits, held_out, small, made.lefts, made.rights, made.flags)
    return made


def form_probe_pairs(
    bounds: np.ndarray, splits: np.ndarray, num_splits: int, buckets: np.ndarray, *, small: int, leaders: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pair each probe as if it were one more document, the last, of its bucket.

    Args:
        bounds: int64[b + 1], as for :func:`form_pairs`.
        splits: int32[m], ditto.
        num_splits: Splits there are.
        buckets: int64[p] bucket of each probe, ascending.
        small: As for :func:`form_pairs`; with the probe.
        leaders: Ditto.

    Returns:
        int64[q] indices of documents and int64[q] indices of the probes that are paired with them.
    """
    scratch = np.zeros(num_splits, dtype=np.int64), np.empty(leaders * num_splits, dtype=np.int64)
    nothing = np.empty(0, dtype=np.int64)
    count = _form_probes(bounds, splits, buckets, small, leaders, *scratch, False, nothing, nothing)
    documents, probes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    _form_probes(bounds, splits, buckets, small, leaders, *scratch, True, documents, probes)
    return documents, probes


@compiled(f"void({READ_OFFSETS}, {READ_SPLITS}, {READ_FLAGS}, int64, int64[::1], int64[::1], uint8[::1])")
def _form(
    bounds: np.ndarray,
    splits: np.ndarray,
    held_out: np.ndarray,
    small: Integer,
    lefts: np.ndarray,
    rights: np.ndarray,
    flags: np.ndarray,
) -> None:
    done = 0
    for bucket in range(len(bounds) - 1):
        start, stop = bounds[bucket], bounds[bucket + 1]
        if stop - start > small:
            continue
        for right in range(start, stop):
            for left in range(start, right):
                first, second = held_out[splits[left]], held_out[splits[right]]
                lefts[done], rights[done] = left, right
                flags[done] = LATER | (LEAK if first and not second else 0) | (APART if second and not first else 0)
                done += 1


@helper
def _lead(
    splits: np.ndarray, start: Integer, stop: Integer, leaders: Integer, counts: np.ndarray, led: np.ndarray
) -> Integer:
    """Write the leaders of a bucket, in order; return how many there are."""
    for split in range(len(counts)):
        counts[split] = 0
    found = 0
    for document in range(start, stop):
        if counts[splits[document]] < leaders:
            counts[splits[document]] += 1
            led[found] = document
            found += 1
    return found


@compiled(
    f"int64({READ_OFFSETS}, {READ_SPLITS}, {READ_OFFSETS}, int64, int64, int64[::1], int64[::1], boolean, int64[::1],"
    " int64[::1])"
)
def _form_probes(
    bounds: np.ndarray,
    splits: np.ndarray,
    buckets: np.ndarray,
    small: Integer,
    leaders: Integer,
    counts: np.ndarray,
    led: np.ndarray,
    write: bool,
    documents: np.ndarray,
    probes: np.ndarray,
) -> Integer:
    done, num_led = 0, 0
    for probe in range(len(buckets)):
        start, stop = bounds[buckets[probe]], bounds[buckets[probe] + 1]
        is_small = stop - start + 1 <= small
        if not is_small and (probe == 0 or buckets[probe] != buckets[probe - 1]):
            num_led = _lead(splits, start, stop, leaders, counts, led)
        for index in range(stop - start if is_small else num_led):
            if write:
                documents[done], probes[done] = start + index if is_small else led[index], probe
            done += 1
    return done
