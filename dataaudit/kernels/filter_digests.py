"""Counts one word: its digest, its characters, and what it says of the rules."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.characters import LETTER, PLAIN, TERMINAL, WORDY, read_character
from dataaudit.kernels.filter_counts import (
    LETTER_WORDS,
    LINE_SENTENCES,
    PLAIN_CHARS,
    PLAIN_WORDS,
    SENTENCE_OPEN,
    STOP_BITS,
    WORDS,
)
from dataaudit.kernels.jit import Integer, helper

SEED = np.uint64(0xCBF29CE484222325)
PRIME = np.uint64(0x100000001B3)
"""Offset and prime of FNV-1a, 64 bits."""
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Of Rae et al. 2021, appendix A.1.1; compared as written, in lower case."""


def _stop_table() -> tuple[int, np.ndarray]:
    """Return a shift that tells the stop words' digests apart by five bits, and the digests by these bits."""
    digests = []
    for word in STOP_WORDS:
        digest = int(SEED)
        for point in word.encode():
            digest = (digest ^ point) * int(PRIME) % 2**64
        digests.append(digest)
    shift = next(s for s in range(61) if len({digest >> s & _STOP_MASK for digest in digests}) == len(digests))
    table = np.zeros(_STOP_MASK + 1, dtype=np.uint64)
    for digest in digests:
        table[digest >> shift & _STOP_MASK] = digest
    return shift, table


_STOP_MASK = 31
_SHIFT, _STOP_TABLE = _stop_table()
_STOP_SHIFT = np.uint64(_SHIFT)


@helper
def add_word(
    digest: np.uint64, chars: Integer, either: Integer, words: np.ndarray, ends: np.ndarray, state: np.ndarray
) -> None:
    """Count a word; ``either`` holds the classes of all its characters. Without branches where a guess would fail."""
    index = state[WORDS]
    words[index] = digest
    ends[index + 1] = ends[index] + chars
    state[WORDS] = index + 1
    plain = either // PLAIN & 1
    state[LETTER_WORDS] += either // LETTER & 1
    state[PLAIN_WORDS] += plain
    state[PLAIN_CHARS] += plain * chars
    slot = np.int64(digest >> _STOP_SHIFT) & _STOP_MASK
    state[STOP_BITS] |= np.int64(_STOP_TABLE[slot] == digest) << slot
    if state[SENTENCE_OPEN] | either & TERMINAL:
        if chars == 1 and either & TERMINAL:
            state[SENTENCE_OPEN] = 1
        elif state[SENTENCE_OPEN] and either & WORDY:
            state[LINE_SENTENCES] += 1
            state[SENTENCE_OPEN] = 0


@helper
def add_bytes(
    data: np.ndarray,
    start: Integer,
    stop: Integer,
    classes: np.ndarray,
    words: np.ndarray,
    ends: np.ndarray,
    state: np.ndarray,
) -> None:
    """Count the word from ``start`` to ``stop``."""
    digest, chars, either = SEED, 0, 0
    pos = start
    while pos < stop:
        kind, width, point = read_character(data, pos, classes)
        digest = (digest ^ np.uint64(point)) * PRIME
        either |= kind
        chars += 1
        pos += width
    add_word(digest, chars, either, words, ends, state)
