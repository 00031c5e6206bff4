"""Cuts a piece of text between white space into words, on UTF-8 bytes.

A piece without a special character is a word. Otherwise, as spaCy's rules for English do in the main:

1. From its front are cut, one by one: punctuation and brackets, quotation marks, symbols, currency signs, dashes
   (class FRONT; a plus sign before a digit stays), and runs of two or more full stops.
2. From its back: the same without currency signs and ``% = +`` (class BACK), runs of full stops, ``'s 'll 're 've
   'd 'm`` and ``n't`` (also with a typographic apostrophe); ``+ $ %`` after a digit; a full stop after a digit, a
   letter that is not upper case, a sign of BACK or one of ``% + -`` and superscript two, or after two letters that
   are not lower case - but not the one of an abbreviation, after a single ASCII letter that starts the piece or
   follows a full stop.
3. What is left is one word when it is a web or mail address (see :func:`_is_address`). Else words of their own are
   in it: symbols of category So and ellipses; ``+ - * ^`` between digits (or before a minus sign); a full stop
   between a letter that is not upper case and one that is not lower case; a comma between letters; hyphens and
   dashes between a letter or digit and a letter; ``: < > = /`` likewise.
"""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.characters import (
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
_DOT, _PLUS, _MINUS, _APOSTROPHE, _SLASH, _COLON, _AT = 46, 43, 45, 39, 47, 58, 64
_SMALL_N, _SMALL_T = 110, 116
_NOT_UPPER = LETTER | UPPER
_NOT_LOWER = LETTER | LOWER


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
def _add_bytes(
    data: np.ndarray, start: Integer, stop: Integer, classes: np.ndarray,
    words: np.ndarray, ends: np.ndarray, state: np.ndarray,
) -> None:  # fmt: skip
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


@helper
def stop_is_cut(data: np.ndarray, low: Integer, dot: Integer, classes: np.ndarray) -> bool:
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
    return kind & _NOT_LOWER == LETTER


@helper
def split_piece(
    data: np.ndarray, start: Integer, stop: Integer, classes: np.ndarray,
    words: np.ndarray, ends: np.ndarray, state: np.ndarray,
) -> None:  # fmt: skip
    """Count the words of a piece with special characters."""
    low = start
    while low < stop:
        kind, width = class_and_width(data, low, classes)
        if data[low] == _DOT:
            width = _dots_from(data, low, stop)
            if width < 2:
                break
        elif not kind & FRONT or (data[low] == _PLUS and low + 1 < stop and 48 <= data[low + 1] <= 57):
            break
        _add_bytes(data, low, low + width, classes, words, ends, state)
        low += width
    high = stop
    while high > low:
        size = _cut_behind(data, low, high, classes)
        if size == 0:
            break
        high -= size
    if high > low:
        if _is_address(data, low, high, classes):
            _add_bytes(data, low, high, classes, words, ends, state)
        else:
            _split_inside(data, low, high, classes, words, ends, state)
    while high < stop:  # what was cut from the back, forwards; its parts are told apart by their first character
        _, size = class_and_width(data, high, classes)
        if data[high] == _DOT:
            size = _dots_from(data, high, stop)
        elif data[high] == _SMALL_N:
            size += _apostrophe_width(data, high + 1, stop) + 1
        else:
            mark = _apostrophe_width(data, high, stop)
            if mark:
                while high + size < stop and class_and_width(data, high + size, classes)[0] & LETTER:
                    if data[high + size] == _SMALL_N and _apostrophe_width(data, high + size + 1, stop):
                        break
                    size += 1
        _add_bytes(data, high, high + size, classes, words, ends, state)
        high += size


@helper
def _dots_from(data: np.ndarray, pos: Integer, stop: Integer) -> Integer:
    last = pos
    while last < stop and data[last] == _DOT:
        last += 1
    return last - pos


@helper
def _apostrophe_width(data: np.ndarray, pos: Integer, stop: Integer) -> Integer:
    """Return the bytes of an apostrophe at ``pos``, 0 when there is none."""
    if pos < stop and data[pos] == _APOSTROPHE:
        return 1
    if pos + 2 < stop and data[pos] == 0xE2 and data[pos + 1] == 0x80 and data[pos + 2] == 0x99:
        return 3
    return 0


@helper
def _cut_behind(data: np.ndarray, low: Integer, high: Integer, classes: np.ndarray) -> Integer:
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
def _contraction(data: np.ndarray, low: Integer, high: Integer, classes: np.ndarray) -> Integer:
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
        one, two = np.int64(data[high - letters]), np.int64(data[high - 1])
        if letters == 2:
            known = (one == 108 and two == 108) or ((one == 114 or one == 118) and two == 101)
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
def _split_inside(
    data: np.ndarray, low: Integer, high: Integer, classes: np.ndarray,
    words: np.ndarray, ends: np.ndarray, state: np.ndarray,
) -> None:  # fmt: skip
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
            _add_bytes(data, first, pos, classes, words, ends, state)
        _add_bytes(data, pos, pos + size, classes, words, ends, state)
        pos += size
        first, left = pos, kind
    if first < high:
        _add_bytes(data, first, high, classes, words, ends, state)


@helper
def _cut_inside(
    data: np.ndarray, pos: Integer, high: Integer, left: Integer, kind: Integer, classes: np.ndarray
) -> Integer:
    """Return the bytes of the word that begins at a special character, 0 when the character belongs to one.

    ``left`` is the class of the character before, 0 for none.
    """
    _, width = class_and_width(data, pos, classes)
    if kind & ICON:
        return width
    byte = np.int64(data[pos])
    if byte == _DOT and pos + 1 < high and data[pos + 1] == _DOT:
        return _dots_from(data, pos, high)
    size = width
    if byte == _MINUS:
        while size < 3 and pos + size < high and data[pos + size] == _MINUS:
            size += 1
    dash = byte == 0xE2 and data[pos + 1] == 0x80 and data[pos + 2] in (0x93, 0x94)
    if dash and data[pos + 2] == 0x94 and pos + 6 <= high and data[pos + 3] == 0xE2 and data[pos + 4] == 0x80:
        size = 6 if data[pos + 5] == 0x94 else 3
    if left == 0 or pos + size >= high:
        return 0
    right, _ = class_and_width(data, pos + size, classes)
    if byte in (43, 45, 42, 94) and size == 1 and left & DIGIT and (right & DIGIT or data[pos + 1] == _MINUS):
        return 1
    if byte == _DOT:
        fits = (left & _NOT_UPPER == LETTER or left & QUOTE) and (right & _NOT_LOWER == LETTER or right & QUOTE)
        return 1 if fits else 0
    if byte == 44:
        return 1 if left & LETTER and right & LETTER else 0
    if dash or byte in (45, 126, 58, 60, 62, 61, 47):
        return size if left & (LETTER | DIGIT) and right & LETTER else 0
    return 0


@helper
def _is_address(data: np.ndarray, low: Integer, high: Integer, classes: np.ndarray) -> bool:
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
def _is_host(data: np.ndarray, low: Integer, high: Integer, classes: np.ndarray) -> bool:
    """Tell whether ``host[:port][/path]`` fills the bytes."""
    pos, label, dots, letters = low, 0, 0, True
    while pos < high:
        kind, width = class_and_width(data, pos, classes)
        byte = np.int64(data[pos])
        if byte == _DOT:
            if label == 0:
                return False
            dots, label, letters = dots + 1, 0, True
        elif kind & (LETTER | DIGIT) or byte == _MINUS or byte == 95:
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
    return pos == high or data[pos] == _SLASH or data[pos] == 63 or data[pos] == 35
