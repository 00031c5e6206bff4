"""Reference implementations of shingles, MinHash, bands and Jaccard similarity: Python integers, strings, sets."""

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
    buckets: Sequence[Sequence[tuple[int, int]]], *, small: int, held_out: Mapping[int, bool]
) -> list[tuple[int, int, int]]:
    """Return (earlier, later, flags) of every two documents of each small bucket of (place, split) in order.

    Flags: 1, and 2 for a held-out document before a training one, 4 for one after it.
    """
    formed = []
    for bucket in buckets:
        for later, (right, right_split) in enumerate(bucket if len(bucket) <= small else ()):
            for left, left_split in bucket[:later]:
                first, second = held_out[left_split], held_out[right_split]
                formed.append((left, right, 1 + 2 * (first and not second) + 4 * (second and not first)))
    return formed


def crowd_pairs(
    sketches: Sequence[Sequence[int]], held_out: Sequence[bool], *, least: int, likely: int, most: int
) -> tuple[dict[tuple[int, int], tuple[int, int]], int, set[int]]:
    """Pair each document of a bucket with those it agrees with most: as many earlier ones of each kind, at most.

    Twice as many where these are likely alike, else eight times as many.

    Returns:
        {(earlier, later): (values they agree on, flags)}, flags as in :func:`form_pairs` with 8 where the later one has
        further earlier neighbours; how many those are; and who was left out.
    """
    formed: dict[tuple[int, int], tuple[int, int]] = {}
    left_out, cut = 0, set[int]()
    for document, own in enumerate(sketches):
        near: dict[str, list[tuple[int, int]]] = {"same": [], "apart": [], "later": []}
        for other, values in enumerate(sketches):
            agreed = sum(left == right for left, right in zip(own, values, strict=True))
            apart = held_out[document] and not held_out[other]
            if other == document or agreed < least or (other > document and not apart):
                continue
            near["later" if other > document else "apart" if apart else "same"].append((-agreed, other))
        room = {}
        for kind, found in near.items():
            is_likely = sum(-agreed >= likely for agreed, _ in found) >= 2 * most
            room[kind] = 2 * most if is_likely else 8 * most
        more = [max(0, len(near[kind]) - room[kind]) for kind in ("same", "apart")]
        left_out += sum(more)
        further = 8 if any(more) else 0
        flags = {"same": 1 + further, "apart": 5 + further, "later": 2}
        for kind, flag in flags.items():
            for agreed, other in sorted(near[kind])[: room[kind]]:
                pair = (min(document, other), max(document, other))
                formed[pair] = (-agreed, formed.get(pair, (0, 0))[1] | flag)
            cut |= {other for _, other in sorted(near[kind])[room[kind] :]}
    return formed, left_out, cut
