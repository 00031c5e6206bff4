"""Words of text between white space for the quality rules: how a piece is cut, and the counts of each word.

A piece without a special character is a word. Otherwise, as spaCy's rules for English do in the main:

1. From its front are cut, one by one: punctuation and brackets, quotation marks, symbols, currency signs, dashes
   (class FRONT; a plus sign before a digit stays), and runs of two or more full stops.
2. From its back: the same without currency signs and ``% = +`` (class BACK), runs of full stops, ``'s 'll 're 've
   'd 'm`` and ``n't`` (also with a typographic apostrophe); ``+ $ %`` after a digit; a full stop after a digit, a
   letter that is not upper case, a sign of BACK or one of ``% + -`` and superscript two, or after two letters that
   are not lower case - but not the one of an abbreviation, after a single ASCII letter that starts the piece or
   follows a full stop.
3. The rest is one word when it is a web or mail address (see :func:`is_address`). Else words of their own are
   in it: symbols of category So and ellipses; ``+ - * ^`` between digits (or before a minus sign); a full stop
   between a letter that is not upper case and one that is not lower case; a comma between letters; hyphens and
   dashes between a letter or digit and a letter; ``: < > = /`` likewise.

Beside them stand the columns of counts, and an open-addressing table of 64-bit keys that is never cleared: numbers
grow, and a smaller number marks a free slot.
"""

from __future__ import annotations

import numpy as np

from dataaudit.scan.kernels.characters import (
    BACK,
    DIGIT,
    FRONT,
    ICON,
    LETTER,
    LOWER,
    PLAIN,
    QUOTE,
    SPECIAL,
    TERMINAL,
    UPPER,
    WORDY,
    class_and_width,
    read_character,
    start_before,
)
from dataaudit.scan.kernels.jit import Array, Int, cold, helper

_COUNTS_LIST = (
    "chars break_chars breaks lines bullet_lines ellipsis_lines content_lines terminal_lines short_lines "
    "duplicate_lines duplicate_line_chars paragraphs duplicate_paragraphs duplicate_paragraph_chars words "
    "plain_words plain_chars letter_words stop_words hashes ellipses lorem_ipsum curly_brackets sentences "
    "sentences_terminal sentences_long_enough sentences_short_words sentences_no_javascript sentences_no_policy "
    "sentences_left top_2_gram_chars top_3_gram_chars top_4_gram_chars duplicate_5_gram_chars "
    "duplicate_6_gram_chars duplicate_7_gram_chars duplicate_8_gram_chars duplicate_9_gram_chars "
    "duplicate_10_gram_chars"
)
COUNTS = tuple(_COUNTS_LIST.split())
"""Names of the columns, in order; ``dataaudit explain quality-rules`` describes each."""

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
"""State: characters of the paragraph so far, breaks within it included; -1 outside of paragraphs."""
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
def add_word(digest: np.uint64, chars: Int, either: Int, words: Array, ends: Array, state: Array) -> None:
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
def add_bytes(data: Array, start: Int, stop: Int, classes: Array, words: Array, ends: Array, state: Array) -> None:
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
"""Keys of a pass at most: 1.8 million, in 2^21 slots of 16 bytes."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


@helper
def shift_for(num_keys: Int, num_numbers: Int) -> np.uint64:
    """Return 64 - log2(slots) such that slots are filled to seven eighths at most."""
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
    """Return the number of a key, ``fresh`` if it is new; slots, key and number in turn, are free below ``base``."""
    mask = (_ONE << (np.uint64(64) - shift)) - _ONE
    index = (key * _SPREAD) >> shift
    place = np.int64(index) * 2
    while (slots[place + 1] >= base) & (slots[place] != key):  # a single test: apart, each would be a guess
        index = (index + _ONE) & mask
        place = np.int64(index) * 2
    number = slots[place + 1]
    number = number if number >= base else fresh
    slots[place] = key
    slots[place + 1] = number
    return number


def table_for(most_keys: int) -> Array:
    """Return an empty table for up to ``most_keys`` keys a use, or the largest table."""
    slots = 16
    while slots * 7 < min(most_keys, MAX_KEYS) * 8:
        slots *= 2
    return np.zeros(2 * slots, dtype=np.uint64)


_DOT, _PLUS, _MINUS, _APOSTROPHE, _SMALL_N, _SMALL_T = 46, 43, 45, 39, 110, 116
_NOT_UPPER = LETTER | UPPER
_NOT_LOWER = LETTER | LOWER


@helper
def stop_is_cut(data: Array, low: Int, dot: Int, classes: Array) -> bool:
    """Tell whether a single full stop at ``dot``, the end of a piece from ``low``, is a word of its own."""
    if dot == low:
        return False
    before = start_before(data, dot)
    kind, _ = class_and_width(data, before, classes)
    byte = np.int64(data[before])
    if byte < 128 and kind & LETTER and (before == low or data[before - 1] == _DOT):
        return False
    if kind & (DIGIT | BACK) or kind & _NOT_UPPER == LETTER:
        return True
    if byte in (37, 43, 45) or (byte == 0xC2 and data[before + 1] == 0xB2):
        return True
    if kind & _NOT_LOWER != LETTER or before == low:
        return False
    kind, _ = class_and_width(data, start_before(data, before), classes)
    return bool(kind & _NOT_LOWER == LETTER)


@cold
def split_piece(data: Array, start: Int, stop: Int, classes: Array, words: Array, ends: Array, state: Array) -> None:
    """Count the words of a piece with special characters."""
    low = _add_front(data, start, stop, classes, words, ends, state)
    high = stop
    while high > low:
        size = _cut_behind(data, low, high, classes)
        if size == 0:
            break
        high -= size
    if high > low:
        if is_address(data, low, high, classes):
            add_bytes(data, low, high, classes, words, ends, state)
        else:
            _split_inside(data, low, high, classes, words, ends, state)
    _add_back(data, high, stop, classes, words, ends, state)


@helper
def _add_front(data: Array, start: Int, stop: Int, classes: Array, words: Array, ends: Array, state: Array) -> Int:
    """Count the words that are cut from the front; return where they end."""
    low = start
    while low < stop:
        kind, width = class_and_width(data, low, classes)
        if data[low] == _DOT:
            width = _dots_from(data, low, stop)
            if width < 2:
                break
        elif not kind & FRONT or (data[low] == _PLUS and low + 1 < stop and 48 <= data[low + 1] <= 57):
            break
        add_bytes(data, low, low + width, classes, words, ends, state)
        low += width
    return low


@helper
def _add_back(data: Array, high: Int, stop: Int, classes: Array, words: Array, ends: Array, state: Array) -> None:
    """Count the words that were cut from the back, forwards: the first character decides each."""
    while high < stop:
        size = _width_at_back(data, high, stop, classes)
        add_bytes(data, high, high + size, classes, words, ends, state)
        high += size


@helper
def _width_at_back(data: Array, high: Int, stop: Int, classes: Array) -> Int:
    """Return the bytes of the word at ``high``: full stops, a contraction, or a single character."""
    if data[high] == _DOT:
        return _dots_from(data, high, stop)
    _, size = class_and_width(data, high, classes)
    if data[high] == _SMALL_N:
        return size + _apostrophe_width(data, high + 1, stop) + 1
    if _apostrophe_width(data, high, stop):
        while high + size < stop and class_and_width(data, high + size, classes)[0] & LETTER:
            if data[high + size] == _SMALL_N and _apostrophe_width(data, high + size + 1, stop):
                break
            size += 1
    return size


@helper
def _dots_from(data: Array, pos: Int, stop: Int) -> Int:
    last = pos
    while last < stop and data[last] == _DOT:
        last += 1
    return last - pos


@helper
def _apostrophe_width(data: Array, pos: Int, stop: Int) -> Int:
    """Return the bytes of an apostrophe at ``pos``, 0 when there is none."""
    if pos < stop and data[pos] == _APOSTROPHE:
        return 1
    if pos + 2 < stop and data[pos] == 0xE2 and data[pos + 1] == 0x80 and data[pos + 2] == 0x99:
        return 3
    return 0


@helper
def _cut_behind(data: Array, low: Int, high: Int, classes: Array) -> Int:
    """Return how many bytes the next word at the back has, 0 when nothing is cut."""
    last = start_before(data, high)
    byte = np.int64(data[last])
    if byte == _DOT:
        first = last
        while first > low and data[first - 1] == _DOT:
            first -= 1
        if high - first > 1:
            return high - first
        return 1 if stop_is_cut(data, low, last, classes) else 0
    kind, _ = class_and_width(data, last, classes)
    if kind & BACK:
        return high - last
    if last > low and byte in (36, 37, 43):
        return 1 if 48 <= data[last - 1] <= 57 else 0
    if byte >= 128 or not kind & LETTER:
        return 0
    return _contraction(data, low, high, classes)


@helper
def _contraction(data: Array, low: Int, high: Int, classes: Array) -> Int:
    """Return the bytes of ``'s``, ``'ll``, ``n't`` and the like at the end of ``low`` to ``high``, else 0."""
    for letters in range(1, 3):
        mark = 0
        if high - letters > low and data[high - letters - 1] == _APOSTROPHE:
            mark = 1
        elif high - letters - 3 >= low and _apostrophe_width(data, high - letters - 3, high) == 3:
            mark = 3
        if mark == 0:
            continue
        front = high - letters - mark
        item, two = np.int64(data[high - letters]), np.int64(data[high - 1])
        if letters == 2:
            known = (item == 108 and two == 108) or (item in (114, 118) and two == 101)
            return letters + mark if known and front > low else 0
        if two in (115, 83):
            return letters + mark
        if two in (100, 109):
            return letters + mark if front > low else 0
        if two != _SMALL_T or front - 1 <= low or data[front - 1] != _SMALL_N:
            return 0
        before, _ = class_and_width(data, start_before(data, front - 1), classes)
        return letters + mark + 1 if before & LETTER else 0
    return 0


@helper
def _split_inside(data: Array, low: Int, high: Int, classes: Array, words: Array, ends: Array, state: Array) -> None:
    """Cut what is between the front and the back of a piece."""
    first, pos, left = low, low, 0
    while pos < high:
        kind, width = class_and_width(data, pos, classes)
        size = 0
        if kind & SPECIAL:
            size = _cut_inside(data, pos, high, left, kind, classes)
        if size == 0:
            pos += width
            left = kind
            continue
        if first < pos:
            add_bytes(data, first, pos, classes, words, ends, state)
        add_bytes(data, pos, pos + size, classes, words, ends, state)
        pos += size
        first, left = pos, kind
    if first < high:
        add_bytes(data, first, high, classes, words, ends, state)


@helper
def _cut_inside(data: Array, pos: Int, high: Int, left: Int, kind: Int, classes: Array) -> Int:
    """Return the bytes of the word that begins at a special character, 0 when the character belongs to one.

    ``left`` is the class of the character before, 0 for none.
    """
    _, width = class_and_width(data, pos, classes)
    if kind & ICON:
        return width
    byte = np.int64(data[pos])
    if byte == _DOT and pos + 1 < high and data[pos + 1] == _DOT:
        return _dots_from(data, pos, high)
    size = _dash_width(data, pos, high, width)
    if _is_dash(data, pos):
        byte = np.int64(126)
    if left == 0 or pos + size >= high:
        return 0
    right, _ = class_and_width(data, pos + size, classes)
    return size if _parts(byte, size, data[pos + size], left, right) else 0


@helper
def _dash_width(data: Array, pos: Int, high: Int, width: Int) -> Int:
    """Return the bytes of up to three minus signs or two em dashes; of another character its own."""
    size = width
    if data[pos] == _MINUS:
        while size < 3 and pos + size < high and data[pos + size] == _MINUS:
            size += 1
    elif _is_dash(data, pos) == 2 and pos + 6 <= high and _is_dash(data, pos + 3) == 2:
        size = 6
    return size


@helper
def _is_dash(data: Array, pos: Int) -> Int:
    """Return 1 for an en dash, 2 for an em dash, else 0; three bytes must be left, or an ASCII byte be there."""
    if data[pos] != 0xE2 or data[pos + 1] != 0x80:
        return 0
    last = np.int64(data[pos + 2])
    return last - 0x92 if last in (0x93, 0x94) else np.int64(0)


@helper
def _parts(byte: Int, size: Int, after: Int, left: Int, right: Int) -> bool:
    """Tell whether a sign, first byte ``byte``, parts what stands left and right of it (classes; ``after``: byte)."""
    if byte in (43, 45, 42, 94) and size == 1 and left & DIGIT and (right & DIGIT or after == _MINUS):
        return True
    if byte == _DOT:
        before = left & _NOT_UPPER == LETTER or left & QUOTE != 0
        return bool(before and (right & _NOT_LOWER == LETTER or right & QUOTE != 0))
    if byte == 44:
        return bool(left & LETTER and right & LETTER)
    if byte in (45, 126, 58, 60, 62, 61, 47):
        return bool(left & (LETTER | DIGIT) and right & LETTER)
    return False


_SLASH, _COLON, _AT = 47, 58, 64


@cold
def is_address(data: Array, low: Int, high: Int, classes: Array) -> bool:
    """Tell whether the bytes are a web or mail address.

    ``[scheme://][user@]host[:port][/path|?query|#fragment]``: the host is two or more labels of letters, digits, ``-``
    and ``_`` with full stops between, the last of at least two letters none of which is upper case; a port has
    2 to 5 digits. The scheme ends at the first ``://``, the user at the last ``@``.
    """
    dotted, at, host = False, -1, low
    for pos in range(low, high):
        byte = data[pos]
        if byte == _DOT:
            dotted = True
        elif byte == _AT:
            at = pos
        elif byte == _COLON and host == low and pos + 2 < high and data[pos + 1] == _SLASH and data[pos + 2] == _SLASH:
            host = pos + 3
    if not dotted:
        return False
    return _is_host(data, host, high, classes) or (at > host and _is_host(data, at + 1, high, classes))


@helper
def _is_host(data: Array, low: Int, high: Int, classes: Array) -> bool:
    """Tell whether ``host[:port][/path]`` fills the bytes."""
    pos, label, dots, letters = low, 0, 0, True
    while pos < high:
        kind, width = class_and_width(data, pos, classes)
        byte = np.int64(data[pos])
        if byte == _DOT:
            if label == 0:
                return False
            dots, label, letters = dots + 1, 0, True
        elif kind & (LETTER | DIGIT) or byte in (_MINUS, 95):
            label += 1
            letters = letters and kind & _NOT_UPPER == LETTER
        else:
            break
        pos += width
    if dots == 0 or label < 2 or not letters:
        return False
    if pos < high and data[pos] == _COLON:
        first = pos + 1
        pos = first
        while pos < high and 48 <= data[pos] <= 57:
            pos += 1
        if not 2 <= pos - first <= 5:
            return False
    return bool(pos == high or data[pos] in (35, _SLASH, 63))
