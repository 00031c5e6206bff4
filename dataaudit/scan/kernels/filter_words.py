"""Cuts a piece of text between white space into words, on UTF-8 bytes.

A piece without a special character is a word. Otherwise, as spaCy's rules for English do in the main:

1. From its front are cut, one by one: punctuation and brackets, quotation marks, symbols, currency signs, dashes
   (class FRONT; a plus sign before a digit stays), and runs of two or more full stops.
2. From its back: the same without currency signs and ``% = +`` (class BACK), runs of full stops, ``'s 'll 're 've
   'd 'm`` and ``n't`` (also with a typographic apostrophe); ``+ $ %`` after a digit; a full stop after a digit, a
   letter that is not upper case, a sign of BACK or one of ``% + -`` and superscript two, or after two letters that
   are not lower case - but not the one of an abbreviation, after a single ASCII letter that starts the piece or
   follows a full stop.
3. What is left is one word when it is a web or mail address (see :func:`is_address`). Else words of their own are
   in it: symbols of category So and ellipses; ``+ - * ^`` between digits (or before a minus sign); a full stop
   between a letter that is not upper case and one that is not lower case; a comma between letters; hyphens and
   dashes between a letter or digit and a letter; ``: < > = /`` likewise.

Web and mail addresses: pieces of text that stay one word, whatever signs they hold.
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
    QUOTE,
    SPECIAL,
    UPPER,
    class_and_width,
    start_before,
)
from dataaudit.scan.kernels.filter_tables import add_bytes
from dataaudit.scan.kernels.jit import Array, Integer, cold, helper

_DOT, _PLUS, _MINUS, _APOSTROPHE, _SMALL_N, _SMALL_T = 46, 43, 45, 39, 110, 116
_NOT_UPPER = LETTER | UPPER
_NOT_LOWER = LETTER | LOWER


@helper
def stop_is_cut(data: Array, low: Integer, dot: Integer, classes: Array) -> bool:
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
def split_piece(
    data: Array, start: Integer, stop: Integer, classes: Array, words: Array, ends: Array, state: Array
) -> None:
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
def _add_front(
    data: Array, start: Integer, stop: Integer, classes: Array, words: Array, ends: Array, state: Array
) -> Integer:
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
def _add_back(
    data: Array, high: Integer, stop: Integer, classes: Array, words: Array, ends: Array, state: Array
) -> None:
    """Count the words that were cut from the back, forwards: each is told by its first character."""
    while high < stop:
        size = _width_at_back(data, high, stop, classes)
        add_bytes(data, high, high + size, classes, words, ends, state)
        high += size


@helper
def _width_at_back(data: Array, high: Integer, stop: Integer, classes: Array) -> Integer:
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
def _dots_from(data: Array, pos: Integer, stop: Integer) -> Integer:
    last = pos
    while last < stop and data[last] == _DOT:
        last += 1
    return last - pos


@helper
def _apostrophe_width(data: Array, pos: Integer, stop: Integer) -> Integer:
    """Return the bytes of an apostrophe at ``pos``, 0 when there is none."""
    if pos < stop and data[pos] == _APOSTROPHE:
        return 1
    if pos + 2 < stop and data[pos] == 0xE2 and data[pos + 1] == 0x80 and data[pos + 2] == 0x99:
        return 3
    return 0


@helper
def _cut_behind(data: Array, low: Integer, high: Integer, classes: Array) -> Integer:
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
def _contraction(data: Array, low: Integer, high: Integer, classes: Array) -> Integer:
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
def _split_inside(
    data: Array, low: Integer, high: Integer, classes: Array, words: Array, ends: Array, state: Array
) -> None:
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
def _cut_inside(data: Array, pos: Integer, high: Integer, left: Integer, kind: Integer, classes: Array) -> Integer:
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
def _dash_width(data: Array, pos: Integer, high: Integer, width: Integer) -> Integer:
    """Return the bytes of up to three minus signs or two em dashes; of another character its own."""
    size = width
    if data[pos] == _MINUS:
        while size < 3 and pos + size < high and data[pos + size] == _MINUS:
            size += 1
    elif _is_dash(data, pos) == 2 and pos + 6 <= high and _is_dash(data, pos + 3) == 2:
        size = 6
    return size


@helper
def _is_dash(data: Array, pos: Integer) -> Integer:
    """Return 1 for an en dash, 2 for an em dash, else 0; only asked where three bytes are left or one is ASCII."""
    if data[pos] != 0xE2 or data[pos + 1] != 0x80:
        return 0
    last = np.int64(data[pos + 2])
    return last - 0x92 if last in (0x93, 0x94) else np.int64(0)


@helper
def _parts(byte: Integer, size: Integer, after: Integer, left: Integer, right: Integer) -> bool:
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
def is_address(data: Array, low: Integer, high: Integer, classes: Array) -> bool:
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
def _is_host(data: Array, low: Integer, high: Integer, classes: Array) -> bool:
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
