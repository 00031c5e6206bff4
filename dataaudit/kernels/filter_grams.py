"""Repeated n-grams of words: each length looks only at what the length before found repeated.

An n-gram occurs twice only where both (n-1)-grams in it do. So pairs of words are counted all, triples only where two
repeated pairs meet, and so on: in natural text little is left from five words on. What is left is a list of (position,
number of the n-gram), in order, which shrinks in place.
"""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.filter_tables import (
    DUPLICATE_5_GRAM_CHARS,
    MAX_KEYS,
    TOP_2_GRAM_CHARS,
    WORDS,
    find_or_add,
    shift_for,
)
from dataaudit.kernels.jit import Integer, cold, helper

_MIX = np.uint64(0xD6E8FEB86659FD93)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_SIX = np.uint64(6)
_SIXTY_THREE = np.uint64(63)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
MARKS = 1 << 18
"""Cells of 64 marks at most: 2 MiB, for two marks of eight million hashes."""


@cold
def count_grams(
    words: np.ndarray,
    ends: np.ndarray,
    numbers: np.ndarray,
    times: np.ndarray,
    places: np.ndarray,
    marks: np.ndarray,
    state: np.ndarray,
    slots: np.ndarray,
    fresh: np.uint64,
) -> np.uint64:
    """Fill the n-gram counts of one document; return the next unused number of the table.

    Args:
        words: uint64[words]: digests; becomes the list of repeated n-grams.
        ends: int32[words + 1]: characters of the words up to each.
        numbers: int32[words] scratch: the number of the n-gram at each entry of the list.
        times: int32[words] scratch: how often each n-gram occurs.
        places: int32[words] scratch: where pairs begin that may be repeated.
        marks: uint64 scratch, a power of two of them.
        state: Counts.
        slots: The table.
        fresh: Its first unused number.
    """
    num_words = state[WORDS]
    listed = 0
    for size in range(2, 11):
        if size == 2:
            listed = _find_candidates(words, num_words - 1, places, marks)
            kinds, fresh = _number_pairs(words, places, listed, numbers, times, slots, fresh)
            listed, best, where = _keep_repeated_pairs(words, places, listed, numbers, times)
        else:
            kinds, fresh = _number_longer(words, listed, numbers, times, slots, fresh)
            listed, best, where = _keep_repeated(words, listed, numbers, times)
        if size <= 4 and num_words >= size:
            if listed == 0:
                best, where = 1, 0
            chars = np.int64(ends[where + size]) - np.int64(ends[where]) + size - 1
            state[TOP_2_GRAM_CHARS + size - 2] = chars * best
        elif size >= 5:
            if listed == 0:
                break
            state[DUPLICATE_5_GRAM_CHARS + size - 5] = _duplicate_chars(words, listed, ends, times, kinds, size)
    return fresh


@helper
def _find_candidates(words: np.ndarray, num_pairs: Integer, places: np.ndarray, marks: np.ndarray) -> Integer:
    """List where pairs begin that may occur twice, nearly all of them do; return how many.

    Two bits for each hash, "seen" and "seen again", tell without a guess of the processor and mostly from its
    nearest cache that a pair occurs once: half of all pairs in natural text.
    """
    half = len(marks) // 2
    size, shift = 1, 58
    while size < half and size * 8 < num_pairs:
        size *= 2
        shift -= 1
    bits = np.uint64(shift)
    for index in range(size):
        marks[index] = np.uint64(0)
        marks[half + index] = np.uint64(0)
    for index in range(num_pairs):
        spot = (((words[index] * _MIX) ^ words[index + 1]) * _SPREAD) >> bits
        cell = np.int64(spot >> _SIX)
        bit = _ONE << (spot & _SIXTY_THREE)
        seen = marks[cell]
        marks[half + cell] |= seen & bit
        marks[cell] = seen | bit
    found: Integer = 0
    for index in range(num_pairs):
        spot = (((words[index] * _MIX) ^ words[index + 1]) * _SPREAD) >> bits
        places[found] = index
        found += np.int64(marks[half + np.int64(spot >> _SIX)] >> (spot & _SIXTY_THREE) & _ONE)
    return found


@helper
def _count_key(
    key: np.uint64,
    times: np.ndarray,
    slots: np.ndarray,
    shift: np.uint64,
    base: np.uint64,
    first: np.uint64,
    fresh: np.uint64,
) -> tuple[Integer, np.uint64]:
    """Count one n-gram; return its number, from 0 on, and the table's next unused number."""
    found = find_or_add(slots, shift, base, key, fresh)
    number: Integer = np.int64(found - first)
    new = found == fresh
    times[number] = times[number] * (1 - np.int64(new)) + 1
    return number, fresh + np.uint64(new)


@helper
def _number_pairs(
    words: np.ndarray,
    places: np.ndarray,
    length: Integer,
    numbers: np.ndarray,
    times: np.ndarray,
    slots: np.ndarray,
    fresh: np.uint64,
) -> tuple[Integer, np.uint64]:
    """Number the pairs of neighbours at these places; return how many kinds there are, and the next unused number."""
    parts = 1 + length // MAX_KEYS
    shift = shift_for(min(length, MAX_KEYS), len(slots))
    first = fresh
    for part in range(parts):
        base = fresh
        for index in range(length):
            place = places[index]
            key = (words[place] * _MIX) ^ words[place + 1]
            if parts > 1 and np.int64((key * _MIX) >> _HALF) % parts != part:
                continue
            numbers[index], fresh = _count_key(key, times, slots, shift, base, first, fresh)
    return np.int64(fresh - first), fresh


@helper
def _number_longer(
    listed: np.ndarray, length: Integer, numbers: np.ndarray, times: np.ndarray, slots: np.ndarray, fresh: np.uint64
) -> tuple[Integer, np.uint64]:
    """Number the n-grams where two listed neighbours meet; -1 where they do not."""
    parts = 1 + length // MAX_KEYS
    shift = shift_for(min(length, MAX_KEYS), len(slots))
    first = fresh
    for part in range(parts):
        base = fresh
        for index in range(length):
            here = listed[index]
            after = listed[index + 1] if index + 1 < length else np.uint64(0)
            if (here >> _HALF) + _ONE != after >> _HALF:
                numbers[index] = -1
                continue
            key = here << _HALF | after & _LOW
            if parts > 1 and np.int64((key * _MIX) >> _HALF) % parts != part:
                continue
            numbers[index], fresh = _count_key(key, times, slots, shift, base, first, fresh)
    return np.int64(fresh - first), fresh


@helper
def _keep_repeated_pairs(
    words: np.ndarray, places: np.ndarray, length: Integer, numbers: np.ndarray, times: np.ndarray
) -> tuple[Integer, Integer, Integer]:
    """Turn the words into the list of repeated pairs; return its length, the most occurrences and where they begin."""
    kept: Integer = 0
    best: Integer = 1
    where: Integer = 0
    for index in range(length):
        number = numbers[index]
        count = np.int64(times[number])
        words[kept] = np.uint64(places[index]) << _HALF | np.uint64(number)
        kept += np.int64(count > 1)
        if count > best:
            best, where = count, np.int64(places[index])
    return kept, best, where


@helper
def _keep_repeated(
    listed: np.ndarray, length: Integer, numbers: np.ndarray, times: np.ndarray
) -> tuple[Integer, Integer, Integer]:
    """Shrink the list to the repeated n-grams; as :func:`_keep_repeated_pairs`."""
    kept: Integer = 0
    best: Integer = 1
    where: Integer = 0
    for index in range(length):
        number: Integer = max(np.int64(numbers[index]), 0)
        count = np.int64(times[number]) * np.int64(numbers[index] >= 0)
        position = listed[index] >> _HALF
        listed[kept] = position << _HALF | np.uint64(number)
        kept += np.int64(count > 1)
        if count > best:
            best, where = count, np.int64(position)
    return kept, best, where


@helper
def _duplicate_chars(
    listed: np.ndarray, length: Integer, ends: np.ndarray, times: np.ndarray, kinds: Integer, size: Integer
) -> Integer:
    """Return the characters of n-grams that came before, no character twice: after one, its words are skipped."""
    for kind in range(kinds):
        times[kind] = 0
    chars: Integer = 0
    free_from: Integer = 0
    for index in range(length):
        position = np.int64(listed[index] >> _HALF)
        if position < free_from:
            continue
        number = np.int64(listed[index] & _LOW)
        if times[number]:
            chars += np.int64(ends[position + size]) - np.int64(ends[position])
            free_from = position + size
        else:
            times[number] = 1
    return chars
