"""MinHash signatures, bands and classes of equal word sequences, and exact Jaccard similarities, from word hashes.

A shingle is ``ngram`` consecutive words; a document with fewer words is one shingle of all its words, a document
without words has none. Its 64-bit hash is folded to 32 bits, the input of MinHash: signatures equal, bit for bit,
those of ``datasketch.MinHash(num_perm=num_perm, seed=1, scheme="affine32", hashfunc=int)`` for the same input (Broder
1997, "On the resemblance and containment of documents"; the scheme is datasketch 2.0's). Bands: Leskovec et al., ch.
3.4.

The permutations are the inner loop: sixteen fit into a vector register, and eight shingles are taken at once, so
that a signature is loaded and stored once for all of them. Blocks of shingles stay in the first-level cache. Products
of uint32 are cut back to 32 bits, because numba widens them.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from dataaudit.scan.kernels.jit import READ_HASHES, READ_OFFSETS, Array, Int, compiled, helper
from dataaudit.scan.kernels.ngrams import BASE, mix64

SEED = 1
"""Of the permutations, datasketch's default."""
CLASS_BYTES = 16
BAND_BYTES = 8

_BLOCK = 1024
_AT_ONCE = 8
_U32, _U64 = np.uint32, np.uint64
_NOTHING = np.uint32(0xFFFFFFFF)
_LANES = (np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F))


@cache
def permutations(num_perm: int) -> tuple[Array, Array]:
    """Return uint32[num_perm] factors, all odd, and uint32[num_perm] summands: datasketch's of seed 1."""
    generator = np.random.RandomState(SEED)
    factors = generator.randint(0, 1 << 31, num_perm, dtype=np.uint32) * _U32(2) + _U32(1)
    return factors, generator.randint(0, 1 << 32, num_perm, dtype=np.uint32)


def sketch(hashes: Array, offsets: Array, *, ngram: int = 5, num_perm: int = 128) -> tuple[Array, Array]:
    """Return the signature and the class of every document.

    Args:
        hashes: uint64[w] word hashes.
        offsets: int64[n + 1] the words of document i are ``hashes[offsets[i]:offsets[i + 1]]``.
        ngram: Words of a shingle.
        num_perm: Values of a signature.

    Returns:
        ``signatures`` uint32[n, num_perm], all ones for a document without words; ``classes`` uint8[n, 16], a digest
        of the sequence of words: equal ones have equal shingles.
    """
    num_documents = len(offsets) - 1
    signatures = np.empty((num_documents, num_perm), dtype=np.uint32)
    classes = np.empty((num_documents, CLASS_BYTES // 8), dtype=np.uint64)
    wide, narrow = np.empty(_BLOCK, dtype=np.uint64), np.empty(_BLOCK, dtype=np.uint32)
    _sketch(hashes, offsets, ngram, *permutations(num_perm), wide, narrow, signatures, classes)
    return signatures, classes.view(np.uint8)


def shingle_hashes(hashes: Array, offsets: Array, *, ngram: int = 5) -> tuple[Array, Array]:
    """Return uint64[s] hashes of every document's shingles in order, and their int64[n + 1] bounds."""
    words = np.diff(offsets)
    bounds = np.zeros(len(offsets), dtype=np.int64)
    np.cumsum(np.where(words > ngram, words - ngram + 1, np.minimum(words, 1)), out=bounds[1:])
    shingles = np.empty(int(bounds[-1]), dtype=np.uint64)
    _shingles(hashes, offsets, ngram, bounds, shingles)
    return shingles, bounds


def fold(shingles: Array) -> Array:
    """Return the uint32 hashes that MinHash is fed with, of uint64 hashes of shingles."""
    return np.asarray((shingles ^ (shingles >> _U64(32))).astype(np.uint32))


def band_keys(signatures: Array, bands: int, rows: int) -> Array:
    """Return uint8[n, bands, 8]: for each band the big-endian hash of its number and its ``rows`` values.

    Values beyond ``bands * rows`` are in no band.
    """
    keys = np.empty((len(signatures), bands), dtype=np.uint64)
    _bands(signatures, rows, keys)
    return keys.astype(">u8").view(np.uint8).reshape(len(signatures), bands, BAND_BYTES)


@helper
def _mix32(value: np.uint32) -> np.uint32:
    """Return MurmurHash3's 32-bit finaliser, which affine32 applies to its input."""
    value = _U32(value ^ (value >> _U32(16)))
    value = _U32(value * _U32(0x85EBCA6B))
    value = _U32(value ^ (value >> _U32(13)))
    value = _U32(value * _U32(0xC2B2AE35))
    return _U32(value ^ (value >> _U32(16)))


@helper
def _hash_block(words: Array, ngram: Int, wide: Array) -> None:
    """Write the hashes of the shingles that begin at each of the first ``len(wide)`` words.

    Views from index 0 on: an index that might be negative, and so count from the end, makes no vector code.
    """
    for index in range(len(wide)):
        wide[index] = words[index]
    for word in range(1, ngram):
        later = words[word:]
        for index in range(len(wide)):
            wide[index] = wide[index] * BASE + later[index]
    for index in range(len(wide)):
        wide[index] = mix64(wide[index])


@compiled(
    f"void({READ_HASHES}, {READ_OFFSETS}, int64, uint32[::1], uint32[::1], uint64[::1], uint32[::1], uint32[:, ::1],"
    " uint64[:, ::1])"
)
def _sketch(
    hashes: Array,
    offsets: Array,
    ngram: Int,
    factors: Array,
    summands: Array,
    wide: Array,
    narrow: Array,
    signatures: Array,
    classes: Array,
) -> None:
    num_perm = len(factors)
    for document in range(len(offsets) - 1):
        start, stop = offsets[document], offsets[document + 1]
        _write_class(hashes, start, stop, classes[document])
        signature = signatures[document]
        for index in range(num_perm):
            signature[index] = _NOTHING
        length = min(ngram, stop - start)
        for base in range(start, stop - length + 1 if length else start, _BLOCK):
            size = min(_BLOCK, stop - length + 1 - base)
            _hash_block(hashes[base:stop], length, wide[:size])
            for index in range(size):
                narrow[index] = _mix32(_U32(wide[index] ^ (wide[index] >> _U64(32))))
            padded = (size + _AT_ONCE - 1) // _AT_ONCE * _AT_ONCE
            for index in range(size, padded):  # a shingle that is seen again changes nothing
                narrow[index] = narrow[0]
            for index in range(0, padded, _AT_ONCE):
                _take_eight(narrow, index, factors, summands, signature)


@helper
def _take_eight(narrow: Array, at: Int, factors: Array, summands: Array, signature: Array) -> None:
    """Lower a signature by eight mixed hashes; written out, as that is what becomes vector code."""
    h0, h1, h2, h3 = narrow[at], narrow[at + 1], narrow[at + 2], narrow[at + 3]
    h4, h5, h6, h7 = narrow[at + 4], narrow[at + 5], narrow[at + 6], narrow[at + 7]
    for index in range(len(factors)):
        a, b = factors[index], summands[index]
        m0, m1 = min(_U32(a * h0 + b), _U32(a * h1 + b)), min(_U32(a * h2 + b), _U32(a * h3 + b))
        m2, m3 = min(_U32(a * h4 + b), _U32(a * h5 + b)), min(_U32(a * h6 + b), _U32(a * h7 + b))
        low, high = min(m0, m1), min(m2, m3)
        lowest = min(low, high)
        signature[index] = min(signature[index], lowest)


@helper
def _write_class(hashes: Array, start: Int, stop: Int, into: Array) -> None:
    """Write two 64-bit digests of a sequence; each step is a bijection of what went before, and not linear."""
    left, right = _LANES
    for index in range(start, stop):
        left = (left ^ hashes[index]) * _LANES[0]
        right = (right + hashes[index]) * _LANES[1]
        left ^= left >> _U64(32)
        right ^= right >> _U64(29)
    into[0] = mix64(left ^ _U64(stop - start))
    into[1] = mix64(right)


@compiled(f"void({READ_HASHES}, {READ_OFFSETS}, int64, int64[::1], uint64[::1])")
def _shingles(hashes: Array, offsets: Array, ngram: Int, bounds: Array, shingles: Array) -> None:
    for document in range(len(offsets) - 1):
        length = min(ngram, offsets[document + 1] - offsets[document])
        first, last = bounds[document], bounds[document + 1]
        for base in range(first, last, _BLOCK):
            words = hashes[offsets[document] + base - first : offsets[document + 1]]
            _hash_block(words, length, shingles[base : min(base + _BLOCK, last)])


@compiled("void(uint32[:, ::1], int64, uint64[:, ::1])")
def _bands(signatures: Array, rows: Int, keys: Array) -> None:
    for document in range(len(keys)):
        for band in range(keys.shape[1]):
            value = _U64(band + 1) * BASE
            for row in range(band * rows, (band + 1) * rows):
                value = mix64(value ^ _U64(signatures[document, row])) * BASE
            keys[document, band] = mix64(value)


def chance_to_meet(jaccard: float, bands: int, rows: int) -> float:
    """Return the probability that two documents agree on all rows of some band: 1 - (1 - J^rows)^bands."""
    return 1.0 - (1.0 - jaccard**rows) ** bands


def choose_bands(num_perm: int, threshold: float, target_recall: float) -> tuple[int, int] | None:
    """Return bands and rows: the most rows that reach the recall at the threshold, and all bands that fit.

    More rows are fewer chance meetings of dissimilar documents. None when even a single row does not reach it.
    """
    for rows in range(num_perm, 0, -1):
        bands = num_perm // rows
        if chance_to_meet(threshold, bands, rows) >= target_recall:
            return bands, rows
    return None


_PER_BUCKET = 4


def distinct_sets(values: Array, bounds: Array) -> tuple[Array, Array]:
    """Return the distinct values of every document, ascending: uint64[d], and int64[n + 1] where each begins.

    Takes time linear in the values when these are well mixed, as hashes are.
    """
    longest = int(np.diff(bounds).max(initial=0))
    scratch = np.empty(longest, dtype=np.uint64)
    counts = np.empty(longest // _PER_BUCKET + 2, dtype=np.int64)
    distinct, ends = np.empty(len(values), dtype=np.uint64), np.zeros(len(bounds), dtype=np.int64)
    _distinct(values, bounds, scratch, counts, distinct, ends)
    return distinct[: ends[-1]].copy(), ends


def intersections(values: Array, bounds: Array, lefts: Array, rights: Array) -> Array:
    """Return int64[p], how many values of :func:`distinct_sets` the documents of each pair share."""
    shared = np.empty(len(lefts), dtype=np.int64)
    _intersect(values, bounds, lefts, rights, shared)
    return shared


@compiled(f"void({READ_HASHES}, {READ_OFFSETS}, uint64[::1], int64[::1], uint64[::1], int64[::1])")
def _distinct(values: Array, bounds: Array, scratch: Array, counts: Array, distinct: Array, ends: Array) -> None:
    done = 0
    for document in range(len(bounds) - 1):
        start, size = bounds[document], bounds[document + 1] - bounds[document]
        _sort_mixed(values, start, size, scratch, counts)
        for index in range(size):
            if index == 0 or scratch[index] != scratch[index - 1]:
                distinct[done] = scratch[index]
                done += 1
        ends[document + 1] = done


@helper
def _sort_mixed(values: Array, start: Int, size: Int, scratch: Array, counts: Array) -> None:
    """Sort ``values[start:start + size]`` into ``scratch``: dealt into buckets by their upper half, then inserted."""
    buckets = size // _PER_BUCKET + 1
    for index in range(buckets + 1):
        counts[index] = 0
    for index in range(start, start + size):
        counts[np.int64(((values[index] >> _U64(32)) * _U64(buckets)) >> _U64(32)) + 1] += 1
    for index in range(buckets):
        counts[index + 1] += counts[index]
    for index in range(start, start + size):
        bucket = np.int64(((values[index] >> _U64(32)) * _U64(buckets)) >> _U64(32))
        scratch[counts[bucket]] = values[index]
        counts[bucket] += 1
    for index in range(1, size):
        value, place = scratch[index], index
        while place > 0 and scratch[place - 1] > value:
            scratch[place] = scratch[place - 1]
            place -= 1
        scratch[place] = value


@compiled(f"void({READ_HASHES}, {READ_OFFSETS}, {READ_OFFSETS}, {READ_OFFSETS}, int64[::1])")
def _intersect(values: Array, bounds: Array, lefts: Array, rights: Array, shared: Array) -> None:
    for pair in range(len(lefts)):
        left, left_end = bounds[lefts[pair]], bounds[lefts[pair] + 1]
        right, right_end = bounds[rights[pair]], bounds[rights[pair] + 1]
        found = 0
        while left < left_end and right < right_end:  # without branches: which side moves on is a coin toss
            a, b = values[left], values[right]
            found += a == b
            left += a <= b
            right += b <= a
        shared[pair] = found
