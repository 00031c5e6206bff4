"""Documents that share a key or a bucket: which came earlier, and pairs of them.

In a small bucket every two documents are paired; in a large bucket those whose signatures agree most, by sketches. A
sketch is the low byte of each of the first values of a signature. Two documents of Jaccard similarity J agree on a
share J of them, and on 1 in 256 of the others (b-bit minwise hashing: Li and König 2010, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, comb

import numpy as np

from dataaudit.scan.kernels.jit import READ_BYTES, READ_FLAGS, READ_INTS, READ_OFFSETS, Array, Int, compiled, helper


def earlier_duplicates(keys: Array, shards: Array, rows: Array, splits: Array) -> tuple[Array, Array, Array]:
    """Return whether an equal document came earlier, whether in the same split, and the index of the first of them.

    The order is (shard, row). Splits are contiguous in it: shards are ordered by split first. Equal documents have
    equal keys, uint8[n, 16]; the index of a first document is its own.
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


def _shared(values: Array) -> Array:
    """Return int64[m], ascending: the indices of the values that occur more than once in uint64[n]."""
    order = np.argsort(values)
    equal = values[order[1:]] == values[order[:-1]]
    shared = np.zeros(len(values), dtype=bool)
    shared[order[1:][equal]] = True
    shared[order[:-1][equal]] = True
    return np.flatnonzero(shared)


LATER, LEAK, APART = 1, 2, 4
"""Bits of a pair. The later one asked for the earlier one, or the bucket is small; the earlier one, held out, asked for
the later one, of training data, or the bucket is small; the later one is held out and the earlier one is not."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of the documents of some buckets, by index."""

    lefts: Array
    """int64[p] the earlier one."""
    rights: Array
    """int64[p] the later one."""
    flags: Array
    """uint8[p] bits :data:`LATER`, :data:`LEAK`, :data:`APART`."""


def form_pairs(bounds: Array, splits: Array, held_out: Array, *, small: int) -> Pairs:
    """Pair every two documents of each bucket that is small.

    Bucket i holds the documents from ``bounds[i]`` to ``bounds[i + 1]``, in manifest order.
    """
    sizes = np.diff(bounds)
    sizes = sizes[sizes <= small]
    count = int((sizes * (sizes - 1) // 2).sum())
    made = Pairs(np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64), np.empty(count, dtype=np.uint8))
    _form(bounds, splits, held_out, small, made.lefts, made.rights, made.flags)
    return made


def form_probe_pairs(
    bounds: Array, splits: Array, num_splits: int, buckets: Array, *, small: int, leaders: int
) -> tuple[Array, Array]:
    """Return int64[q] documents and int64[q] probes that are paired with them, each as if it were last of its bucket.

    ``buckets``, of each probe, ascend; the size of a small bucket counts the probe.
    """
    scratch = np.zeros(num_splits, dtype=np.int64), np.empty(leaders * num_splits, dtype=np.int64)
    nothing = np.empty(0, dtype=np.int64)
    count = _form_probes(bounds, splits, buckets, small, leaders, *scratch, False, nothing, nothing)
    documents, probes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    _form_probes(bounds, splits, buckets, small, leaders, *scratch, True, documents, probes)
    return documents, probes


@compiled(f"void({READ_OFFSETS}, {READ_INTS}, {READ_FLAGS}, int64, int64[::1], int64[::1], uint8[::1])")
def _form(bounds: Array, splits: Array, held_out: Array, small: Int, lefts: Array, rights: Array, flags: Array) -> None:
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
def _lead(splits: Array, start: Int, stop: Int, leaders: Int, counts: Array, led: Array) -> Int:
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
    f"int64({READ_OFFSETS}, {READ_INTS}, {READ_OFFSETS}, int64, int64, int64[::1], int64[::1], boolean, int64[::1],"
    " int64[::1])"
)
def _form_probes(
    bounds: Array,
    splits: Array,
    buckets: Array,
    small: Int,
    leaders: Int,
    counts: Array,
    led: Array,
    write: bool,
    documents: Array,
    probes: Array,
) -> Int:
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


MORE = 8
"""Bit of a pair: its later document may have further earlier neighbours in the bucket."""
MOST_VALUES = 128
"""Values of a sketch, at most: their number fits into a byte."""
READ_SKETCHES = "Array(uint8, 2, 'C', readonly=True)"
"""uint8[n, v], may be read-only."""

TIMES = 8
_PAIRS = 1 << 18
_CHANCE = 0.001
"""That a pair at the threshold agrees on fewer values than it must."""
_AT_ONCE = 1 << 12
"""Documents of a call."""


def sketches_of(signatures: Array) -> Array:
    """Return uint8[n, v] of uint32[n, num_perm] signatures."""
    return np.ascontiguousarray(signatures[:, :MOST_VALUES].astype(np.uint8))


@cache
def least_agreement(values: int, threshold: float) -> int:
    """Return on how many values two documents must agree: those at the threshold fail with a chance of 0.001."""
    below = 0.0
    for agreed in range(values + 1):
        below += _chance(values, agreed, threshold)
        if below > _CHANCE:
            return agreed
    return values


@cache
def sure_agreement(values: int, threshold: float) -> int:
    """Return from how many values on two documents are alike: those below the threshold reach it with 0.001.

    One more than there are, where agreeing on all of them is too likely.
    """
    above = 0.0
    for agreed in range(values, -1, -1):
        above += _chance(values, agreed, threshold)
        if above > _CHANCE:
            return agreed + 1
    return 0


def _chance(values: int, agreed: int, threshold: float) -> float:
    return comb(values, agreed) * threshold**agreed * (1 - threshold) ** (values - agreed)


@dataclass(frozen=True, slots=True)
class CrowdPairs:
    """Pairs of the documents of a bucket, by index."""

    lefts: Array
    """int64[p] the earlier one."""
    rights: Array
    """int64[p] the later one."""
    agreed: Array
    """int16[p] values on which they agree."""
    flags: Array
    """uint8[p] bits: :data:`.pairing.LATER`, :data:`.pairing.LEAK`, :data:`.pairing.APART`, :data:`MORE`."""
    missed: int
    """Pairs that were not compared, and those that agree and were left out."""
    cut: Array
    """int64[c] documents that another document, earlier or later, left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdLimits:
    """What is compared and kept."""

    threshold: float
    """Jaccard similarity of a near-duplicate."""
    most: int
    """Earlier documents that each is paired with, those that agree most, then the first; a held-out document with as
    many of training data, and with as many of training data that comes later. In a bucket that is not too large,
    twice as many where these are more likely alike than not, else up to :data:`TIMES` as many."""
    large: int
    """Documents up to which every two are compared."""
    leaders: int
    """First documents of each split that all others of a larger bucket are paired with, whatever they agree on."""

    def agreements(self, values: int) -> tuple[int, int]:
        """Return on how many values documents must agree, and are more likely alike than not."""
        return least_agreement(values, self.threshold), ceil(self.threshold * values)


def form_crowd_pairs(
    sketches: Array, splits: Array, held_out: Array, limits: CrowdLimits, *, turn: int = 0
) -> CrowdPairs:
    """Pair each document of a bucket with those that it agrees with most.

    In a bucket of more than ``large`` documents each is compared with the leaders, and with the ``large`` that are next
    to it when they are ordered by their sketches from value ``turn`` on, so the work is linear. Each bucket should have
    another turn.
    """
    size, values = sketches.shape
    over = size > limits.large
    order = _by_sketch(sketches, turn) if over else np.arange(size)
    places = np.empty(size, dtype=np.int64)
    places[order] = np.arange(size)
    led = _leaders(splits, limits.leaders) if over else np.empty(0, dtype=np.int64)
    half = limits.large // 2 if over else size
    width = min(size, 2 * half + 1) + len(led)
    scratch = np.empty(width, np.int64), np.empty(width, np.uint8), np.empty(width, np.int16)
    further = max(limits.most, min(TIMES * limits.most, _PAIRS // size))
    most = min(width, 3 * further + len(led))
    room, documents = min(size, _AT_ONCE) * most, (sketches, splits, held_out)
    pairs = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int16), np.empty(room, np.uint8)
    left_out = np.zeros(size, dtype=bool)
    counts, tally = np.zeros(2, dtype=np.int64), np.zeros((3, values + 1), dtype=np.int64)
    cut = np.array([*limits.agreements(values), limits.most, further], dtype=np.int64)
    parts = []
    for start in range(0, size, _AT_ONCE):
        span = half, start, min(size, start + _AT_ONCE)
        done = _form_of_crowd(*documents, order, places, led, *span, cut, counts, left_out, tally, *scratch, *pairs)
        parts.append([column[:done].copy() for column in pairs])
    missed = size * (size - 1) // 2 - int(counts[0]) if over else 0
    lefts, rights, shared, flags = (np.concatenate(column) for column in zip(*parts, strict=True))
    cut = np.arange(size) if over else np.flatnonzero(left_out)
    return CrowdPairs(lefts, rights, shared, flags, missed=missed + int(counts[1]), cut=cut)


def agreements(sketch: Array, sketches: Array) -> Array:
    """Return uint8[n]: on how many values a sketch, uint8[v], agrees with each of uint8[n, v]."""
    found = np.empty(len(sketches), dtype=np.uint8)
    _agreements(sketch, sketches, found)
    return found


def _by_sketch(sketches: Array, turn: int) -> Array:
    """Return int64[n]: the documents ordered by sixteen values of their sketches, from some value on."""
    chosen = (turn + np.arange(16)) % sketches.shape[1]
    keys = np.ascontiguousarray(sketches[:, chosen]).view(">u8").astype(np.uint64)
    return np.lexsort((keys[:, 1], keys[:, 0]))


def _leaders(splits: Array, leaders: int) -> Array:
    """Return int64[l], ascending: the first documents of each split."""
    return np.sort(np.concatenate([np.flatnonzero(splits == split)[:leaders] for split in np.unique(splits)]))


@helper
def _agree(left: Array, right: Array) -> np.uint8:
    """Return on how many values two sketches agree; the byte that counts is what becomes vector code."""
    found = np.uint8(0)
    for index in range(len(left)):
        found = np.uint8(found + np.uint8(left[index] == right[index]))
    return found


@compiled(f"void({READ_BYTES}, {READ_SKETCHES}, uint8[::1])")
def _agreements(sketch: Array, sketches: Array, found: Array) -> None:
    for index in range(len(sketches)):
        found[index] = _agree(sketch, sketches[index])


@compiled(
    f"int64({READ_SKETCHES}, {READ_INTS}, {READ_FLAGS}, {READ_OFFSETS}, {READ_OFFSETS}, {READ_OFFSETS}, int64, int64,"
    " int64, int64[::1], int64[::1], boolean[::1], int64[:, ::1], int64[::1], uint8[::1], int16[::1], int64[::1],"
    " int64[::1], int16[::1], uint8[::1])"
)
def _form_of_crowd(
    sketches: Array,
    splits: Array,
    held_out: Array,
    order: Array,
    places: Array,
    led: Array,
    half: Int,
    start: Int,
    stop: Int,
    cut: Array,
    counts: Array,
    left_out: Array,
    tally: Array,
    near: Array,
    kinds: Array,
    agreed: Array,
    lefts: Array,
    rights: Array,
    shared: Array,
    flags: Array,
) -> Int:
    """Form the pairs of some documents in the order; kinds are earlier, earlier and apart, later."""
    done = 0
    for place in range(start, stop):
        document = order[place]
        own = held_out[splits[document]]
        tally[:] = 0
        found = 0
        low, high = max(0, place - half), min(len(order), place + half + 1)
        for index in range(low, high + len(led)):
            is_led = index >= high
            other = led[index - high] if is_led else order[index]
            apart = own and not held_out[splits[other]]
            if other == document or (other > document and not apart):
                continue
            within = is_led and low <= places[other] < high
            same = _agree(sketches[document], sketches[other])
            if other < document and not within:
                counts[0] += 1
            if (same < cut[0] and not is_led) or (same >= cut[0] and within):
                continue
            kind = (1 if apart else 0) if other < document else 2
            near[found], kinds[found], agreed[found] = other, kind, same
            tally[kind, same] += 0 if is_led else 1
            found += 1
        more = len(led) > 0
        for kind in range(3):
            left = _limit(tally[kind], cut)
            if kind < 2:
                counts[1] += left
                more = more or left > 0
        for index in range(found):
            kind, same = kinds[index], agreed[index]
            if tally[kind, same] > 0:
                tally[kind, same] -= 1
            elif not _is_led(near[index], led):
                left_out[near[index]] = True
                continue
            flag = LEAK if kind == 2 else (LATER | APART if kind == 1 else LATER)
            if kind == 2:
                lefts[done], rights[done] = document, near[index]
            else:
                lefts[done], rights[done] = near[index], document
                flag |= MORE if more else 0
            shared[done], flags[done] = same, flag
            done += 1
    return done


@helper
def _is_led(document: Int, led: Array) -> bool:
    found = False
    for index in range(len(led)):
        found = found or led[index] == document
    return found


@helper
def _limit(tally: Array, cut: Array) -> Int:
    """Lower the numbers of pairs, by values they agree on, to the most that are kept; return how many are left out."""
    likely, most, room = cut[1], cut[2], cut[3]
    left = 0
    if tally[likely:].sum() >= 2 * most:
        room = min(room, 2 * most)
    for same in range(len(tally) - 1, -1, -1):
        kept = min(room, tally[same])
        left += tally[same] - kept
        tally[same] = kept
        room -= kept
    return left
