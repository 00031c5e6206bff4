"""Hashes of words and of n consecutive words: what every kernel over words has in common.

The hash of n words is a polynomial in them modulo 2^64, so that it rolls: ``acc = acc * BASE + word - out * BASE^n``.
Two different sequences of n words meet with a chance of about n / 2^63 as long as their words' hashes are random
(Karp and Rabin 1987); :func:`mix64` makes all bits of the result depend on all bits of the sum.
"""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.jit import helper

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
