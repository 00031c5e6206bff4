"""Hashes of words and of n consecutive words, and sets of n-grams that every word of a corpus is looked up in.

The hash of n words is a polynomial in them modulo 2^64, so that it rolls: ``acc = acc * BASE + word - out * BASE^n``.
Two different sequences of n words meet with a chance of about n / 2^63 as long as their words' hashes are random
(Karp and Rabin 1987); :func:`mix64` makes all bits of the result depend on all bits of the sum.

A look-up first reads a word of a filter, which ends it for all but 1 in a hundred of the grams that are not in the
set; only the others are searched for in an open-addressing table. All arrays can be mapped from a file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.scan.kernels.jit import READ_HASHES, READ_OFFSETS, Array, Int, compiled, helper

BASE = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that multiplying loses nothing."""
NUMBER = np.uint64(1)
"""Bit of a word's hash: set exactly for numbers."""


def power(words: int) -> np.uint64:
    """Return ``BASE ** words`` modulo 2^64: what the word that leaves a window is multiplied with."""
    return np.uint64(pow(int(BASE), words, 1 << 64))


@helper
def mix64(value: np.uint64) -> np.uint64:
    """Return the finaliser of SplitMix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators")."""
    value = np.uint64((value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    value = np.uint64((value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return value ^ (value >> np.uint64(31))


@helper
def roll(acc: np.uint64, word: np.uint64, leaving: np.uint64, power: np.uint64) -> np.uint64:
    """Return the sum after ``word`` has come and ``leaving``, n words before it, has gone (0 while there is none)."""
    return np.uint64(acc * BASE) + word - np.uint64(leaving * power)


ANY_NUMBER = np.uint64(0x6C8E9CF570932BD5)
"""Stands for every number in a gram that must not tell numbers apart."""
_FILTER_BITS = 8
"""Bits of the filter for each gram, at least; at most twice as many."""


@dataclass(frozen=True, slots=True)
class GramTable:
    """A set of hashes; the number of a hash in it is its *entry*."""

    keys: Array
    """uint64[k] the hashes, ascending."""
    slots: Array
    """uint32[power of two, at least 2 k]: entry + 1, or 0; a hash starts at its highest bits and goes on upwards."""
    filter: Array
    """uint64[power of two]: a Bloom filter of single words (Putze et al. 2009, "Cache-, hash- and space-efficient Bloom
    filters"): every hash of the set sets three bits in a word, numbered by its lowest bits."""

    def lookup(self) -> tuple[Array, Array, np.uint64, Array]:
        """Return the arguments of :func:`find` behind the hash."""
        shift = np.uint64(64 - (len(self.slots) - 1).bit_length())
        return self.filter, self.slots, shift, self.keys


def make_table(keys: Array) -> GramTable:
    """Return the table of some hashes, uint64[k], ascending, each once; 2^31 of them are a ``ValueError``."""
    if len(keys) >= 1 << 31:
        raise ValueError(f"a table of {len(keys):,} grams")
    size = 1 << max(6, (2 * len(keys) - 1).bit_length())
    bits = 1 << max(12, (_FILTER_BITS * len(keys) - 1).bit_length())
    slots, known = np.zeros(size, dtype=np.uint32), np.zeros(bits // 64, dtype=np.uint64)
    _fill(keys, slots, known)
    return GramTable(keys, slots, known)


def gram_hashes(words: Array, offsets: Array, length: int, *, wild_numbers: bool = False) -> tuple[Array, Array]:
    """Return uint64[g], the hash of every ``length`` consecutive words, and int64[n + 1] offsets of documents in them.

    With ``wild_numbers`` all numbers count as one.
    """
    counts = np.maximum(np.diff(offsets) - (length - 1), 0)
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    hashes = np.empty(bounds[-1], dtype=np.uint64)
    _hash_all(words, offsets, length, power(length), wild_numbers, hashes)
    return hashes, bounds


@helper
def plain_word(word: np.uint64, wild_numbers: bool) -> np.uint64:
    """Return what stands for a word in a gram."""
    return ANY_NUMBER if wild_numbers and word & NUMBER else word


@helper
def _three_bits(key: np.uint64) -> np.uint64:
    item, low = np.uint64(1), np.uint64(63)
    return item << (key & low) | item << (key >> np.uint64(6) & low) | item << (key >> np.uint64(12) & low)


@helper
def find(key: np.uint64, known: Array, slots: Array, shift: np.uint64, keys: Array) -> Int:
    """Return the entry of a hash, or -1; ``shift`` is 64 less the bits of a slot's number."""
    bits = _three_bits(key)
    if known[np.uintp(key >> np.uint64(18)) & np.uintp(len(known) - 1)] & bits != bits:
        return np.int64(-1)
    mask = np.uintp(len(slots) - 1)
    slot = np.uintp(key >> shift)
    while slots[slot]:
        entry = np.int64(slots[slot]) - 1
        if keys[np.uintp(entry)] == key:
            return entry
        slot = (slot + np.uintp(1)) & mask
    return np.int64(-1)


@compiled(f"void({READ_HASHES}, uint32[::1], uint64[::1])")
def _fill(keys: Array, slots: Array, known: Array) -> None:
    bits = np.uint64(0)
    while np.uint64(1) << bits < np.uint64(len(slots)):
        bits += np.uint64(1)
    shift, mask = np.uint64(64) - bits, np.uintp(len(slots) - 1)
    for entry in range(len(keys)):
        key = keys[entry]
        known[np.uintp(key >> np.uint64(18)) & np.uintp(len(known) - 1)] |= _three_bits(key)
        slot = np.uintp(key >> shift)
        while slots[slot]:
            slot = (slot + np.uintp(1)) & mask
        slots[slot] = np.uint32(entry + 1)


@compiled(f"void({READ_HASHES}, {READ_OFFSETS}, int64, uint64, boolean, uint64[::1])")
def _hash_all(words: Array, offsets: Array, length: Int, out_power: np.uint64, wild: bool, hashes: Array) -> None:
    written = 0
    for document in range(len(offsets) - 1):
        start, stop = offsets[document], offsets[document + 1]
        acc = np.uint64(0)
        for place in range(start, stop):
            leaving = np.uint64(0)
            if place - start >= length:
                leaving = plain_word(words[np.uintp(place - length)], wild)
            acc = roll(acc, plain_word(words[np.uintp(place)], wild), leaving, out_power)
            if place - start >= length - 1:
                hashes[np.uintp(written)] = mix64(acc)
                written += 1
