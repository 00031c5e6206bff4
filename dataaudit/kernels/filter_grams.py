"""Repeated n-grams of words: each length looks only at what the length before found repeated.

An n-gram occurs twice only where both (n-1)-grams in it do. So pairs of words are counted all, triples only where two
repeated pairs meet, and so on: in natural text little is left from five words on. What is left is a list of (position,
number of the n-gram), in order, which shrinks in place.
"""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.filter_counts import DUPLICATE_5_GRAM_CHARS, TOP_2_GRAM_CHARS, WORDS
from dataaudit.kernels.filter_table import MAX_KEYS, find_or_add, shift_for
from dataaudit.kernels.jit import Integer, helper

_MIX = np.uint64(0xD6E8FEB86659FD93)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


@helper
def count_grams(
    words: np.ndarray, ends: np.ndarray, numbers: np.ndarray, times: np.ndarray, state: np.ndarray,
    slots: np.ndarray, fresh: np.uint64,
) -> np.uint64:  # fmt: skip
    """Fill the n-gram counts of one document; return the next unused number of the table.

    Args:
        words: uint64[words]: digests; becomes the list of repeated n-grams.
        ends: int32[words + 1]: characters of the words up to each.
        numbers: int32[words] scratch: the number of the n-gram at each entry of the list.
        times: int32[words] scratch: how often each n-gram occurs.
        state: Counts.
        slots: The table.
        fresh: Its first unused number.
    """
    num_words = state[WORDS]
    listed = 0
    for size in range(2, 11):
        if size == 2:
            kinds, fresh = _number_pairs(words, num_words - 1, numbers, times, slots, fresh)
            listed, best, where = _keep_repeated_pairs(words, num_words - 1, numbers, times)
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
def _number_pairs(
    words: np.ndarray, num_pairs: Integer, numbers: np.ndarray, times: np.ndarray, slots: np.ndarray, fresh: np.uint64
) -> tuple[Integer, np.uint64]:
    """Number the pairs of neighbours; return how many kinds there are, and the next unused number."""
    parts = 1 + max(num_pairs, 0) // MAX_KEYS
    shift = shift_for(min(num_pairs, MAX_KEYS), len(slots))
    first = fresh
    for part in range(parts):
        base = fresh
        for index in range(num_pairs):
            key = (words[index] * _MIX) ^ words[index + 1]
            if parts > 1 and np.int64((key * _MIX) >> _HALF) % parts != part:
                continue
            number = find_or_add(slots, shift, base, key, fresh)
            local = np.int64(number - first)
            new = number == fresh
            fresh += np.uint64(new)
            times[local] = times[local] * (1 - np.int64(new)) + 1
            numbers[index] = local
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
            number = find_or_add(slots, shift, base, key, fresh)
            local = np.int64(number - first)
            new = number == fresh
            fresh += np.uint64(new)
            times[local] = times[local] * (1 - np.int64(new)) + 1
            numbers[index] = local
    return np.int64(fresh - first), fresh


@helper
def _keep_repeated_pairs(
    words: np.ndarray, num_pairs: Integer, numbers: np.ndarray, times: np.ndarray
) -> tuple[Integer, Integer, Integer]:
    """Turn the words into the list of repeated pairs; return its length, the most occurrences and where they begin."""
    kept, best, where = 0, 1, 0
    for index in range(num_pairs):
        number = numbers[index]
        count = np.int64(times[number])
        words[kept] = np.uint64(index) << _HALF | np.uint64(number)
        kept += np.int64(count > 1)
        if count > best:
            best, where = count, index
    return kept, best, where


@helper
def _keep_repeated(
    listed: np.ndarray, length: Integer, numbers: np.ndarray, times: np.ndarray
) -> tuple[Integer, Integer, Integer]:
    """Shrink the list to the repeated n-grams; as :func:`_keep_repeated_pairs`."""
    kept, best, where = 0, 1, 0
    for index in range(length):
        number = max(np.int64(numbers[index]), 0)
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
    for number in range(kinds):
        times[number] = 0
    chars, free_from = np.int64(0), np.int64(0)
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
