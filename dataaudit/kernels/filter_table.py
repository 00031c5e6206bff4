"""An open-addressing table of 64-bit keys that is never cleared: numbers grow, and a smaller one marks a free slot."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.jit import Integer, helper

MAX_KEYS = 7 << 18
"""Keys that one pass holds at most: 1.8 million, in 2^21 slots of 16 bytes."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


@helper
def shift_for(num_keys: Integer, num_numbers: Integer) -> np.uint64:
    """Return 64 - log2(slots) such that slots are filled to seven eighths at most.

    Args:
        num_keys: How many keys may come.
        num_numbers: Length of the table, two for each slot; a power of two.
    """
    slots = 16
    while slots * 7 < num_keys * 8 and slots * 2 < num_numbers:
        slots *= 2
    shift = 64
    while slots > 1:
        slots //= 2
        shift -= 1
    return np.uint64(shift)


@helper
def find_or_add(slots: np.ndarray, shift: np.uint64, base: np.uint64, key: np.uint64, fresh: np.uint64) -> np.uint64:
    """Return the number of the key, ``fresh`` when it was not there.

    Args:
        slots: uint64[2 * slots]: key and number in turn; numbers below ``base`` are of earlier uses, so the slot is
            free.
        shift: Of :func:`shift_for`.
        base: First number of this use.
        key: What is looked for.
        fresh: Number that a new key gets; the caller counts on.
    """
    mask = (_ONE << (np.uint64(64) - shift)) - _ONE
    index = (key * _SPREAD) >> shift
    place = np.int64(index) * 2
    while (slots[place + 1] >= base) & (slots[place] != key):  # one test: apart, each would be a guess
        index = (index + _ONE) & mask
        place = np.int64(index) * 2
    held = slots[place + 1]
    number = held if held >= base else fresh
    slots[place] = key
    slots[place + 1] = number
    return number


def table_for(most_keys: int) -> np.ndarray:
    """Return an empty table for up to ``most_keys`` keys a use, or the largest one."""
    slots = 16
    while slots * 7 < min(most_keys, MAX_KEYS) * 8:
        slots *= 2
    return np.zeros(2 * slots, dtype=np.uint64)
