r"""Characters that were written out in ASCII and never read back: ``\n``, ``\u00e9``, ``=C3=A9``, ``%20``, ``+AOk-``.

Code writes them by right, in strings. So none counts behind a quote that is open in its line; a quote with which the
document begins opens nothing, for the document may be one string.
"""

from __future__ import annotations

import numpy as np

from dataaudit.scan.kernels.fault_markup import is_digit, is_letter, is_space
from dataaudit.scan.kernels.jit import Array, Int, cold, helper

LINE, WALKED, QUOTE, TOKEN_END, IN_ADDRESS = range(5)
"""Where ``walk`` keeps what is known: a line, how far it was walked, the quote that is open there; the end of a token
that was looked at, and whether it is an address."""
WALK_SIZE = 5
_BACKSLASH, _EQUALS, _PERCENT = 92, 61, 37
_UTF7_LIMIT = 256


@cold
def escape_end(data: Array, start: Int, line: Int, pos: Int, end: Int, walk: Array) -> Int:
    r"""Return the byte after the escapes that begin with the ``\``, ``=``, ``%`` or ``+`` at ``pos``, or ``pos``."""
    sign = data[pos]
    if sign == _BACKSLASH:
        after = _backslash_end(data, start, pos, end)
    elif sign == _EQUALS:
        after = _quoted_end(data, start, line, pos, end)
    elif sign == _PERCENT:
        after = _percent_end(data, start, pos, end, walk)
    else:
        after = _utf7_end(data, pos, end)
    return pos if after > pos and in_string(data, start, line, pos, walk) else after


@helper
def in_string(data: Array, start: Int, line: Int, pos: Int, walk: Array) -> bool:
    """Tell whether a quote is open at ``pos``; each byte of a line is walked over once."""
    if walk[LINE] != line:
        walk[LINE], walk[WALKED], walk[QUOTE] = line, line, 0
        if line == start:
            first = line + np.int64(data[line] == 98)  # b"..."
            walk[WALKED] = first + 1 if first < pos and (data[first] == 34 or data[first] == 39) else line
    at, quote = walk[WALKED], walk[QUOTE]
    while at < pos:
        byte = data[at]
        if byte == _BACKSLASH:
            at += 1
        elif quote != 0:
            quote = 0 if byte == quote else quote
        elif byte in (34, 96) or (byte == 39 and not _is_apostrophe(data, line, at)):
            quote = np.int64(byte)
        at += 1
    walk[WALKED], walk[QUOTE] = at, quote
    return bool(quote != 0)


@helper
def _is_apostrophe(data: Array, line: Int, pos: Int) -> bool:
    """Tell whether ``'`` stands behind a letter or digit, but for the prefix of a string: ``u'...'``."""
    if pos == line or not _in_word(data[pos - 1]):
        return False
    return bool(data[pos - 1] | 32 not in (98, 102, 114, 117) or (pos > line + 1 and _in_word(data[pos - 2])))


@helper
def _backslash_end(data: Array, start: Int, pos: Int, end: Int) -> Int:
    before = data[pos - 1] if pos > start else np.uint8(10)
    at, digits, point = _backslashed(data, pos, end)
    if digits < 0 or before == _BACKSLASH:
        return pos
    if digits == 0:
        return _breaks_end(data, start, pos, end, before)
    if _of_pattern(before) or (at < end and _of_pattern(data[at])):
        return pos
    if digits > 2:
        return _points_end(data, start, pos, end, before)
    second, kind, low = _backslashed(data, at, end)
    is_pair = kind == 2 and _is_lead(point) and 0x80 <= low < 0xC0
    return second if is_pair else at if _is_single(point, before, data, at, end) else pos


@helper
def _of_pattern(byte: Int) -> bool:
    """Tell whether a byte is a sign of regular expressions: ``( ) - / [ ] ^ |``."""
    return bool(byte in (40, 41, 45, 47, 91, 93, 94, 124))


@helper
def _points_end(data: Array, start: Int, pos: Int, end: Int, before: Int) -> Int:
    r"""Return the byte after a run of ``\uXXXX`` and ``\UXXXXXXXX``, or ``pos`` where text may have it."""
    for size in (4, 8):  # a run is read from its head
        first = pos - size - 2
        is_escape = first >= start and data[first] == _BACKSLASH and data[first + 1] | 32 == 117
        if is_escape and _hex_value(data, first + 2, pos, size) >= 0:
            return pos
    number, at = 0, pos
    while True:
        last, digits, point = _backslashed(data, at, end)
        if digits < 4 or point < 0xA0 or point > 0x10FFFF:
            break
        number += 1
        at = last
    if number == 0 or (at < end and _of_pattern(data[at])):
        return pos
    touches = _is_wordy(before) or (at < end and _is_wordy(data[at]))
    return at if touches or (number > 2 and is_space(before)) else pos


@helper
def _backslashed(data: Array, pos: Int, end: Int) -> tuple[Int, Int, Int]:
    r"""Return the byte after an escape, its digits (0 for ``\n``, ``\r`` and ``\t``, -1 for none), its value."""
    at = pos
    while at < end and data[at] == _BACKSLASH:
        at += 1
    if at in (pos, end):
        return pos, np.int64(-1), np.int64(0)
    kind = data[at]
    if kind in (110, 114, 116):
        return at + 1, np.int64(0), np.int64(0)
    digits = np.int64(2 if kind == 120 else 4 if kind == 117 else 8 if kind == 85 else -1)
    value = _hex_value(data, at + 1, end, digits)
    if value < 0:
        return pos, np.int64(-1), np.int64(0)
    return at + 1 + digits, digits, value


@helper
def _hex_value(data: Array, pos: Int, end: Int, digits: Int) -> Int:
    """Return the number that hexadecimal digits are, or -1."""
    if digits < 0 or end - pos < digits:
        return np.int64(-1)
    value = np.int64(0)
    for at in range(pos, pos + digits):
        if is_digit(data[at]):
            value = value << 4 | (data[at] - 48)
        elif 97 <= data[at] | 32 <= 102:
            value = value << 4 | ((data[at] | 32) - 87)
        else:
            return np.int64(-1)
    return value


@helper
def _breaks_end(data: Array, start: Int, pos: Int, end: Int, before: Int) -> Int:
    r"""Return the byte after a run of ``\n``, ``\r`` and ``\t`` behind a sentence or word, before another."""
    behind = data[pos - 2] if pos - start > 1 else np.uint8(10)
    is_end = _in_word(behind) and before in (33, 34, 41, 44, 46, 58, 63)  # ! " ) , . : ?
    if behind == _BACKSLASH or not (_in_word(before) or is_end):  # a backslash: it stands behind another escape
        return pos
    number, at = 0, pos
    while True:
        after, digits, _ = _backslashed(data, at, end)
        if digits != 0:
            break
        number += 1
        at = after
    if at == end:
        return pos
    is_head = not _is_small(data[at]) or number > 1
    return at if is_head and _is_wordy(data[at]) else pos


@helper
def _quoted_end(data: Array, start: Int, line: Int, pos: Int, end: Int) -> Int:
    """Return the byte after what is left of quoted-printable, or ``pos``."""
    at = pos + 1
    before = data[pos - 1] if pos > start else np.uint8(10)
    is_sentence = before in (33, 44, 46, 58, 59, 63)  # ! , . : ; ?
    if at < end and (data[at] == 10 or (data[at] == 13 and at + 1 < end and data[at + 1] == 10)):
        is_soft = 70 <= pos - line <= 75 and (_is_small(before) or is_sentence)
        return at if is_soft and _has_space(data, line, pos) else pos
    value, after = _capital_byte(data, at, end), at + 2
    behind = data[after] if value >= 0 and after < end else np.uint8(10)
    if value in (0x09, 0x20):
        is_fault = is_sentence and behind in (10, 13)
    elif value == 0x3D:
        is_fault = behind == 34 and is_letter(before)
    elif _is_lead(value) and behind == _EQUALS and 0x80 <= _capital_byte(data, after + 1, end) < 0xC0:
        is_fault, after = True, after + 3
    else:
        is_fault = _is_single(value, before, data, after, end)
    return after if is_fault else pos


@helper
def _has_space(data: Array, line: Int, pos: Int) -> bool:
    found = False
    for at in range(line, pos):
        found |= bool(data[at] == 32)
    return found


@helper
def _capital_byte(data: Array, pos: Int, end: Int) -> Int:
    """Return the byte that two digits stand for, none of them a small letter; or -1."""
    if end - pos < 2 or data[pos] >= 97 or data[pos + 1] >= 97:
        return np.int64(-1)
    return _hex_value(data, pos, end, np.int64(2))


@helper
def _is_single(value: Int, before: Int, data: Array, after: Int, end: Int) -> bool:
    """Tell whether a byte is a letter of Latin-1 between two small letters, written with a digit."""
    return bool(value >= 0xE0 and (value & 15) < 10 and _is_small(before) and after < end and _is_small(data[after]))


@helper
def _percent_end(data: Array, start: Int, pos: Int, end: Int, walk: Array) -> Int:
    """Return the byte after a byte or character written with ``%`` in prose, or ``pos``: addresses have them."""
    value = _hex_value(data, pos + 1, end, np.int64(2))
    if value < 0:
        return pos
    before, after = data[pos - 1] if pos > start else np.uint8(10), pos + 3
    is_pair = _is_lead(value) and after < end and data[after] == _PERCENT
    if is_pair and 0x80 <= _hex_value(data, after + 1, end, np.int64(2)) < 0xC0:
        after += 3
    elif value in (0x0A, 0x0D, 0x20, 0x21, 0x22, 0x27, 0x28, 0x29, 0x2C, 0x3A, 0x3B, 0x3F):
        is_behind = _in_word(before) or before in (33, 44, 46, 58, 59, 63)
        if not is_behind or after == end or not (_is_wordy(data[after]) or data[after] == _PERCENT):
            return pos
    elif not _is_single(value, before, data, after, end):
        return pos
    return pos if _in_address(data, start, pos, end, walk) else after


@helper
def _in_address(data: Array, start: Int, pos: Int, end: Int, walk: Array) -> bool:
    """Tell whether the token around ``pos`` may be an address, a name of a file or code; each is read once."""
    if pos < walk[TOKEN_END]:
        return bool(walk[IN_ADDRESS])
    first = pos
    while first > start and not _ends_token(data[first - 1]):
        first -= 1
    found, last = first > start and not is_space(data[first - 1]), first
    while last < end and not _ends_token(data[last]):
        byte = data[last]
        found |= byte in (35, 36, 38, 42, 47, 61, 63, 64, 92, 95)  # # $ & * / = ? @ \ _
        found |= byte == 46 and last + 1 < end and _in_word(data[last + 1])
        last += 1
    walk[TOKEN_END], walk[IN_ADDRESS] = last, np.int64(found)
    return bool(found)


@helper
def _ends_token(byte: Int) -> bool:
    return bool(is_space(byte) or byte in (34, 39, 40, 41, 60, 62, 91, 93, 96, 123, 124, 125))


@helper
def _utf7_end(data: Array, pos: Int, end: Int) -> Int:
    """Return the byte after ``+...`` that is letters or quotes in UTF-7, with the ``-`` that ends it, or ``pos``."""
    at, stop = pos + 1, min(end, pos + _UTF7_LIMIT)
    bits, num_bits, is_east, classes = np.int64(0), 0, False, 0
    while at < stop:
        byte = data[at]
        if 65 <= byte <= 90:
            value, classes = byte - 65, classes | 1
        elif 97 <= byte <= 122:
            value, classes = byte - 71, classes | 2
        elif 48 <= byte <= 57:
            value, classes = byte + 4, classes | 4
        elif byte in (43, 47):
            value = 62 + np.int64(byte == 47)
        else:
            break
        bits, num_bits = (bits << 6 | np.int64(value)) & 0x3FFFFF, num_bits + 6
        if num_bits >= 16:
            num_bits -= 16
            point = bits >> num_bits & 0xFFFF
            is_near = 0xA0 <= point < 0x250 or 0x370 <= point < 0xE80 or 0x2010 <= point < 0x203B
            is_far = 0x3040 <= point < 0x3100 or 0x4E00 <= point < 0xA000 or 0xAC00 <= point < 0xD7A4
            if not (is_near or is_far):
                return pos
            is_east |= bool(is_far)
        at += 1
    size = at - pos - 1
    is_closed = at < end and data[at] == 45
    is_whole = at < stop and size > 2 and num_bits < 6 and bits & ((1 << num_bits) - 1) == 0
    is_sure = (is_closed and not is_east) or (size > 7 and classes == 7)
    return at + np.int64(is_closed) if is_whole and is_sure else pos


@helper
def _is_lead(value: Int) -> bool:
    return bool(0xC2 <= value <= 0xF4)


@helper
def _is_small(byte: Int) -> bool:
    return bool(97 <= byte <= 122)


@helper
def _is_wordy(byte: Int) -> bool:
    """Tell whether a byte is a letter, or part of a letter beyond ASCII, but of no sign of Latin-1 and no quote."""
    return bool(is_letter(byte) or (byte >= 0x80 and byte not in (0xC2, 0xE2)))


@helper
def _in_word(byte: Int) -> bool:
    return bool(is_letter(byte) or is_digit(byte) or byte >= 0x80)
