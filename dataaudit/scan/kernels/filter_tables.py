"""What the kernels of the quality rules share: columns, digests of words, a table of keys.

Counted in a document: one column of int64 each, and the scanner's own state.

Counts one word: its digest, its characters, and what it says of the rules.

An open-addressing table of 64-bit keys that is never cleared: numbers grow, and a smaller one marks a free slot.
"""

from __future__ import annotations

import numpy as np

from dataaudit.scan.kernels.characters import LETTER, PLAIN, TERMINAL, WORDY, read_character
from dataaudit.scan.kernels.jit import Array, Integer, helper

COUNTS = (
    "chars",
    "break_chars",
    "breaks",
    "lines",
    "bullet_lines",
    "ellipsis_lines",
    "content_lines",
    "terminal_lines",
    "short_lines",
    "duplicate_lines",
    "duplicate_line_chars",
    "paragraphs",
    "duplicate_paragraphs",
    "duplicate_paragraph_chars",
    "words",
    "plain_words",
    "plain_chars",
    "letter_words",
    "stop_words",
    "hashes",
    "ellipses",
    "lorem_ipsum",
    "curly_brackets",
    "sentences",
    "sentences_terminal",
    "sentences_long_enough",
    "sentences_short_words",
    "sentences_no_javascript",
    "sentences_no_policy",
    "sentences_left",
    "top_2_gram_chars",
    "top_3_gram_chars",
    "top_4_gram_chars",
    "duplicate_5_gram_chars",
    "duplicate_6_gram_chars",
    "duplicate_7_gram_chars",
    "duplicate_8_gram_chars",
    "duplicate_9_gram_chars",
    "duplicate_10_gram_chars",
)
"""Names of the columns, in order; ``dataaudit explain quality-rules`` says what each counts."""

NUM_COUNTS = len(COUNTS)

CHARS, BREAK_CHARS, BREAKS, LINES, BULLET_LINES, ELLIPSIS_LINES = range(6)
CONTENT_LINES, TERMINAL_LINES, SHORT_LINES, DUPLICATE_LINES, DUPLICATE_LINE_CHARS = range(6, 11)
PARAGRAPHS, DUPLICATE_PARAGRAPHS, DUPLICATE_PARAGRAPH_CHARS = range(11, 14)
WORDS, PLAIN_WORDS, PLAIN_CHARS, LETTER_WORDS, STOP_WORDS, HASHES, ELLIPSES = range(14, 21)
LOREM_IPSUM, CURLY_BRACKETS, SENTENCES, SENTENCES_TERMINAL, SENTENCES_LONG_ENOUGH = range(21, 26)
SENTENCES_SHORT_WORDS, SENTENCES_NO_JAVASCRIPT, SENTENCES_NO_POLICY, SENTENCES_LEFT = range(26, 30)
TOP_2_GRAM_CHARS = 30
DUPLICATE_5_GRAM_CHARS = 33

SENTENCE_OPEN = NUM_COUNTS
"""State: 1 after a word that ends a sentence."""
LINE_SENTENCES = NUM_COUNTS + 1
"""State: sentences that began in this line after its first."""
STOP_BITS = NUM_COUNTS + 2
"""State: a bit for each stop word that was met."""
ENTRIES = NUM_COUNTS + 3
"""State: lines and paragraphs that are kept for the search of duplicates."""
PARAGRAPH_CHARS = NUM_COUNTS + 4
"""State: characters of the paragraph so far, breaks within it included; -1 outside of one."""
GAP_CHARS = NUM_COUNTS + 5
"""State: characters of the last line break."""
NUM_STATE = NUM_COUNTS + 6


SEED = np.uint64(0xCBF29CE484222325)
PRIME = np.uint64(0x100000001B3)
"""Offset and prime of FNV-1a, 64 bits."""
ENGLISH_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Of Rae et al. 2021, appendix A.1.1; compared as written, in lower case."""


def _stop_table() -> tuple[int, Array]:
    """Return a shift that tells the stop words' digests apart by five bits, and the digests by these bits."""
    digests = []
    for word in ENGLISH_STOP_WORDS:
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
def add_word(digest: np.uint64, chars: Integer, either: Integer, words: Array, ends: Array, state: Array) -> None:
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
    data: Array, start: Integer, stop: Integer, classes: Array, words: Array, ends: Array, state: Array
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
def find_or_add(slots: Array, shift: np.uint64, base: np.uint64, key: np.uint64, fresh: np.uint64) -> np.uint64:
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


def table_for(most_keys: int) -> Array:
    """Return an empty table for up to ``most_keys`` keys a use, or the largest one."""
    slots = 16
    while slots * 7 < min(most_keys, MAX_KEYS) * 8:
        slots *= 2
    return np.zeros(2 * slots, dtype=np.uint64)
