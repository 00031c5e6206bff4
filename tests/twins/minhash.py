"""Slow twins of shingles, MinHash, bands and Jaccard similarity: plain Python integers, strings and sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

_M64 = 2**64 - 1


def mix64(value: int) -> int:
    """Return variant 13 of the 64-bit finalisers."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ value >> shift) * factor & _M64
    return value ^ value >> 31


def mix32(value: int) -> int:
    """Return MurmurHash3's 32-bit finaliser."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ value >> shift) * factor % 2**32
    return value ^ value >> 16


def grams(words: Sequence[int], ngram: int) -> list[tuple[int, ...]]:
    """Return a document's shingles: n words each, or all of them when there are fewer, none when there is none."""
    if not words:
        return []
    return [tuple(words[start : start + ngram]) for start in range(max(1, len(words) - ngram + 1))]


def shingle_hash(gram: Sequence[int]) -> int:
    """Return the hash of one shingle: a polynomial over its words, mixed."""
    power = 0x9E3779B97F4A7C15
    return mix64(sum(word * power ** (len(gram) - 1 - place) for place, word in enumerate(gram)) & _M64)


def signature(shingles: Iterable[int], permutations: Sequence[tuple[int, int]]) -> list[int]:
    """Return the least value of each permutation over 64-bit shingle hashes, folded to 32 bits and mixed."""
    inputs = {mix32(value >> 32 ^ value & 0xFFFFFFFF) for value in shingles}
    return [min(((a * value + b) % 2**32 for value in inputs), default=2**32 - 1) for a, b in permutations]


def sequence_digest(words: Sequence[int]) -> bytes:
    """Return the class of a sequence of words: little-endian bytes of its two lanes."""
    first, second = 0xD6E8FEB86659FD93, 0xA0761D6478BD642F
    left, right = first, second
    for word in words:
        left = (left ^ word) * first & _M64
        left ^= left >> 32
        right = (right + word) * second & _M64
        right ^= right >> 29
    return mix64(left ^ len(words)).to_bytes(8, "little") + mix64(right).to_bytes(8, "little")


def band_key(values: Sequence[int], band: int) -> bytes:
    """Return the key of one band of a signature."""
    step = 0x9E3779B97F4A7C15
    state = (band + 1) * step & _M64
    for value in values:
        state = mix64(state ^ value) * step & _M64
    return mix64(state).to_bytes(8, "big")


def jaccard(left: Iterable[object], right: Iterable[object]) -> tuple[int, int]:
    """Return the sizes of intersection and union."""
    first, second = set(left), set(right)
    return len(first & second), len(first | second)


def form_pairs(
    buckets: Sequence[Sequence[tuple[int, int]]],
    *,
    small: int,
    leaders: int,
    held_out: Mapping[int, bool],
) -> tuple[dict[tuple[int, int], list[int]], int]:
    """Pair the documents of buckets, each (place, split) in order.

    Returns:
        For each (earlier, later) pair, of every bucket that forms it who asked: 1 the later one, 2 the earlier one,
        held out, for a training document, 3 both; and how many pairs of a bucket were not formed in it.
    """
    formed: dict[tuple[int, int], list[int]] = {}
    missed = 0
    for bucket in buckets:
        led: dict[int, list[int]] = {}
        for place, split in bucket:
            if len(led.setdefault(split, [])) < leaders:
                led[split].append(place)
        chosen = {place for places in led.values() for place in places}
        for later, (right, right_split) in enumerate(bucket):
            for left, left_split in bucket[:later]:
                asks = len(bucket) <= small or left in chosen
                wanted = len(bucket) <= small or right in chosen
                asked = held_out[left_split] and not held_out[right_split] and wanted
                if asks or asked:
                    formed.setdefault((left, right), []).append(int(asks) + 2 * int(asked))
                else:
                    missed += 1
    return formed, missed
