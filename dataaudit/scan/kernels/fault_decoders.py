"""Text in characters that a wrong decoder made of it: UTF-8 in some code page, or text of a code page in Latin-1.

UTF-8 in the wrong characters gives itself away: as bytes of the code page in which it was read, they are valid UTF-8.
Of Windows-1252 a single sequence may be legitimate (a German sharp s before a closing quote), so it counts by itself
only where no text has it; two side by side always count. Of other code pages it takes three, or a sequence that no text
has. Text of a code page in Latin-1 has no such form: there letters count that stand side by side in no text.

Invisible characters count where no script and no emoji has them.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from dataaudit.scan.kernels.fault_escapes import in_string
from dataaudit.scan.kernels.jit import Array, Int, cold, helper

CODE_PAGES = (
    *("cp1250", "cp1251", "cp1253", "cp1255", "cp1256", "cp1257", "cp874", "koi8-r"),
    *("cp437", "cp850", "cp852", "cp866", "mac-roman", "mac-cyrillic"),
)
"""What UTF-8 was read as, besides Latin-1 and Windows-1252."""
POINTS = 0x2600
"""Code points of all their characters are below."""
_LEADS = b"\xc2\xc3\xc4\xc5\xce\xcf\xd0\xd1\xd7\xd8\xd9" + bytes(range(0xE0, 0xF0))
"""First bytes of known scripts: Latin, Greek, Cyrillic, Hebrew, Arabic, and all of three bytes."""
_CHAIN = 3
"""Sequences side by side of the same code page."""
_RUN, _TURNS = 6, 2
"""Letters of Latin-1 side by side, and how often their order turns up and down; lists of letters ascend."""
_IS_QUOTE, _IS_MARK, _BEHIND_E2, _BEHIND_EF, _BEHIND_UNIT = 1, 2, 4, 8, 16
_ROLES = {
    _IS_QUOTE: b"\x82\x84\x85\x8b\x91\x92\x93\x94\x95\x96\x97\x99\x9b\xa0\xab\xb7\xbb\xbf",
    _IS_MARK: b"\xa9\xaa\xae\xb0\xb1\xb2\xb3\xb9\xba",
    _BEHIND_E2: b"\x80\x82\x84\x86\x88\x89\x9c",
    _BEHIND_EF: b"\xbb\xbc\xbf",
    _BEHIND_UNIT: b"\x85\x92\x94\x95\x96\x97\xa0\xb7",
}
"""Signs of Windows-1252 that may follow a capital letter (quotes, dashes, a space), or a letter that is a unit or a
name; second bytes of three whose characters stand side by side in no text; signs that may follow an Angstrom."""


@cache
def role_table() -> Array:
    """Return uint8[256]: what of :data:`_ROLES` a byte of Windows-1252 is."""
    roles = np.zeros(256, dtype=np.uint8)
    for role, some in _ROLES.items():
        roles[list(some)] |= role
    return roles


@cache
def page_tables() -> tuple[Array, Array]:
    """Return uint8[pages + 1, points], uint16[2, points]: bytes that characters are, and a bit for each page.

    Row 0 is Windows-1252, with Latin-1 where it has none. Bits are of the others: whether a character continues a
    sequence, and whether it begins or continues one.
    """
    pages = np.zeros((len(CODE_PAGES) + 1, POINTS), dtype=np.uint8)
    pages[0, 0x80:0x100] = np.arange(0x80, 0x100)
    for byte in range(0x80, 0x100):
        for page, name in enumerate(("cp1252", *CODE_PAGES)):
            character = bytes([byte]).decode(name, "ignore")
            if page == 0:
                pages[0, ord(character or chr(byte))] = byte
            elif character and (byte < 0xC0 or byte in _LEADS):
                pages[page, ord(character)] = byte
    bits = (1 << np.arange(len(CODE_PAGES)))[:, None]
    goes_on = (pages[1:] >= 0x80) & (pages[1:] < 0xC0)
    masks = [(bits * known).sum(axis=0) for known in (goes_on, pages[1:] > 0)]
    return pages, np.array(masks, dtype=np.uint16)


@cold
def page_chain(data: Array, done: Int, pos: Int, end: Int, pages: Array, masks: Array) -> tuple[Int, Int]:
    """Return the bounds of the chain of sequences around the character at ``pos``; ``pos`` twice without any."""
    first, after = pos, pos
    if pos == done or data[pos - 1] < 0x80:
        return first, after
    point, before = point_at(data, pos), point_at(data, back(data, done, pos))
    if point == before or point >= POINTS or before >= POINTS:
        return first, after
    known, page = np.int64(masks[0, point] & masks[1, before]), 0
    while known:
        page += 1
        if known & 1:
            begin, stop = _chain(data, done, pos, end, pages[page])
            if stop - begin > after - first:
                first, after = begin, stop
        known >>= 1
    return first, after


@cold
def _chain(data: Array, done: Int, pos: Int, end: Int, page: Array) -> tuple[Int, Int]:
    """Return the chain of sequences of a code page around a character, or ``pos`` twice."""
    lead = pos
    for _ in range(2):
        lead = back(data, done, lead)
        byte, _ = _byte_at(data, lead, end, page)
        if byte >= 0xC0 or lead == done:
            break
    after = _sequence_end(data, lead, end, page)
    if after <= pos:
        return pos, pos
    byte, width = _byte_at(data, lead, end, page)
    second, _ = _byte_at(data, lead + width, end, page)
    number, first = 1, lead
    is_accent = 0xC3 <= byte <= 0xC4 and lead > done and 97 <= data[lead - 1] <= 122
    is_sure = is_accent or (byte == 0xE2 and second == 0x80)
    while first > done:
        begin = first
        for _ in range(3):
            begin = back(data, done, begin)
            if begin == done or _byte_at(data, begin, end, page)[0] >= 0xC0:
                break
        if _sequence_end(data, begin, end, page) != first:
            break
        first, number = begin, number + 1
    stop = after
    while True:
        stop = _sequence_end(data, after, end, page)
        if stop == after:
            break
        after, number = stop, number + 1
    is_sure |= number > 1 and first > done and 97 <= data[first - 1] <= 122
    return (first, after) if number >= _CHAIN or is_sure else (pos, pos)


@helper
def back(data: Array, done: Int, pos: Int) -> Int:
    """Return the first byte of the character before ``pos``; ``pos`` where it is the first."""
    while pos > done:
        pos -= 1
        if data[pos] & 0xC0 != 0x80:
            break
    return pos


@helper
def point_at(data: Array, pos: Int) -> Int:
    """Return the code point of the character at ``pos``."""
    first = np.int64(data[pos])
    if first < 0x80:
        return first
    if first < 0xE0:
        return (first & 0x1F) << 6 | (data[pos + 1] & 0x3F)
    point = (first & 0x0F) << 12 | (np.int64(data[pos + 1]) & 0x3F) << 6 | (data[pos + 2] & 0x3F)
    return point if first < 0xF0 else (point & 0x7FFF) << 6 | (data[pos + 3] & 0x3F)


@cold
def letters_end(data: Array, start: Int, line: Int, pos: Int, end: Int, walk: Array) -> tuple[Int, Int]:
    """Return the byte after text of a code page in Latin-1 that begins at ``pos``, and its bytes that count.

    It is runs of U+00A1 to U+00FF, the first of two and more, with one or two characters of ASCII in between. They
    count where one of them has six and its order turns up twice and down twice, unless they begin in a string.
    """
    found, size, ups, downs, length, last = False, 0, 0, 0, 0, 0
    at, after = pos, pos
    while at < end and at - after < 3:
        lead = data[at]
        if lead < 0x80 and lead != 10:
            length, ups, downs = 0, 0, 0
            at += 1
            continue
        if not (lead == 0xC3 or (lead == 0xC2 and data[at + 1] > 0xA0)):
            break
        point = np.int64(lead & 1) << 6 | data[at + 1]
        ups += int(length > 0 and point > last)
        downs += int(length > 0 and point < last)
        length, last, size = length + 1, point, size + 2
        found |= length >= _RUN and ups >= _TURNS and downs >= _TURNS
        at += 2
        after = at
    is_text = found and not in_string(data, start, line, pos, walk)
    return after, np.int64(size if is_text else 0)


@cold
def kana_end(data: Array, pos: Int, end: Int) -> Int:
    """Return the byte after Kana of Shift-JIS in Windows-1252 (each second character is of two kinds), or ``pos``."""
    at, number = pos, 0
    while at < end:
        step = at
        if data[at] == 0xC6 and data[at + 1] == 0x92:
            step += 2
        elif data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0x9A:
            step += 3
        if step == at or step >= end or data[step] == 10:
            break
        first = data[step]
        at = step + 1 + np.int64(first >= 0xC0) + np.int64(first >= 0xE0) + np.int64(first >= 0xF0)
        number += 1
    return at if number >= _CHAIN else pos


@helper
def splits_word(data: Array, start: Int, pos: Int, end: Int, width: Int) -> bool:
    """Tell whether a sign that no word has stands between two small letters on each side."""
    if pos - start < 2 or end - pos - width < 2:
        return False
    for at in (pos - 2, pos - 1, pos + width, pos + width + 1):
        if not 97 <= data[at] <= 122:
            return False
    last = data[pos + width - 1]
    if width == 3:
        return bool(data[pos + 1] == 0x80 and last in (0x9A, 0x9E, 0xA0, 0xA1))
    return bool(0xA1 <= last <= 0xA8 or last in (0xAF, 0xB3, 0xB6, 0xB8, 0xB9) or 0xBC <= last <= 0xBF)


@cold
def mojibake_end(data: Array, start: Int, pos: Int, end: Int, cp1252: Array, roles: Array) -> Int:
    """Return the byte after the sequences that begin at ``pos``; ``pos`` where none does, or where text may have it."""
    at, number = pos, 0
    while True:
        after = _sequence_end(data, at, end, cp1252)
        if after == at:
            break
        at = after
        number += 1
    if number > 1 or (number == 1 and _stands_alone(data, start, pos, at, end, cp1252, roles)):
        return at
    return pos


@helper
def _sequence_end(data: Array, pos: Int, end: Int, page: Array) -> Int:
    """Return the byte after the characters that are a sequence of UTF-8 in a code page, or ``pos``."""
    lead, width = _byte_at(data, pos, end, page)
    if lead < 0xC2 or lead > 0xF4:
        return pos
    least, most = 0x80, 0xBF
    if lead == 0xE0:
        least = 0xA0
    elif lead == 0xED:
        most = 0x9F
    elif lead == 0xF0:
        least = 0x90
    elif lead == 0xF4:
        most = 0x8F
    at, is_box = pos + width, _is_box(data, pos)
    for _ in range(1 + np.int64(lead >= 0xE0) + np.int64(lead >= 0xF0)):
        byte, width = _byte_at(data, at, end, page)
        if byte < least or byte > most:
            return pos
        least, most = 0x80, 0xBF
        is_box &= _is_box(data, at)
        at += width
    return pos if is_box else at


@helper
def _is_box(data: Array, pos: Int) -> bool:
    """Tell whether a character draws a box (U+2500 to U+25BF)."""
    return bool(data[pos] == 0xE2 and 0x94 <= data[pos + 1] <= 0x96)


@helper
def _byte_at(data: Array, pos: Int, end: Int, page: Array) -> tuple[Int, Int]:
    """Return the byte that a character is in a code page, 0 for none, and its own bytes."""
    if pos >= end or data[pos] < 0xC2 or data[pos] >= 0xF0:
        return np.int64(0), 1
    point = point_at(data, pos)
    return np.int64(page[point] if point < POINTS else 0), 2 + np.int64(data[pos] >= 0xE0)


@helper
def _stands_alone(data: Array, start: Int, pos: Int, after: Int, end: Int, cp1252: Array, roles: Array) -> bool:
    """Tell whether no text has a single sequence."""
    lead = 0xC0 | (data[pos + 1] & 0x3F)
    second, width = _byte_at(data, pos + 2, end, cp1252)
    role, into_word = roles[second], after < end and 97 <= data[after] <= 122
    if lead == 0xE1 and second == 0xBB:  # half of the letters of Vietnamese, and a closing quote behind a letter
        return bool(into_word or roles[_byte_at(data, pos + 2 + width, end, cp1252)[0]] & _IS_QUOTE == 0)
    is_quote = role & _IS_QUOTE != 0 and (width == 3 or second >= 0xA0)  # a control character is none
    if lead > 0xC5:
        is_sign = (lead == 0xE2 and role & _BEHIND_E2) or (lead == 0xEF and role & _BEHIND_EF)
        is_start = (lead == 0xE1 and second == 0xBA) or (lead == 0xE3 and second == 0x80)
        return bool(is_sign or is_start or (lead == 0xF0 and second == 0x9F))
    before = np.int64(data[pos - 1]) if pos > start else 32
    if lead > 0xC3:
        if 97 <= before <= 122 and lead == 0xC5:  # a unit and an Angstrom
            return bool(role & _BEHIND_UNIT == 0 and (into_word or (role & _IS_MARK == 0 and second != 0x93)))
        return bool(97 <= before <= 122 or (into_word and not is_quote and role & _IS_MARK == 0))
    is_capital = 65 <= before <= 90 or (pos > start + 1 and data[pos - 2] == 0xC3 and before <= 0x9E)
    return bool(into_word or not is_capital or not is_quote)


LEAST_SOFT, SOFT_ONE_IN = 5, 256
"""Soft hyphens from which on they count: so many of a document, and 1 in so many bytes."""


@cold
def is_invisible(data: Array, start: Int, pos: Int, after: Int, end: Int) -> Int:
    """Return 1 where a character is not seen and belongs to nothing, 2 where only right-to-left text has it; else 0."""
    point = point_at(data, pos)
    if 0x200E <= point <= 0x200F or 0x202A <= point <= 0x202E or 0x2066 <= point <= 0x2069:
        return 2
    before = point_at(data, back(data, start, pos)) if pos > start else np.int64(0)
    behind = point_at(data, after) if after < end else np.int64(0)
    if point == 0x200B:
        return np.int64(not (0x900 <= before < 0x1D00 or 0x900 <= behind < 0x1D00))
    if 0x200C <= point <= 0x200D:
        is_joined = 0x590 <= before < 0x1D00 or 0x590 <= behind < 0x1D00 or 0xFB50 <= before < 0xFE00
        return np.int64(not (is_joined or (point == 0x200D and before >= 0x2010)))
    is_selector = 0xFE00 <= before < 0xFE10 or before >= 0xE0000
    if 0xFE00 <= point < 0xFE10:
        is_base = before in (35, 42, 0xA9, 0xAE) or 48 <= before < 58 or 0x1000 <= before < 0x10A0 or before >= 0x2010
        return np.int64(is_selector or not is_base)
    if 0xE0100 <= point < 0xE01F0:
        return np.int64(is_selector or before < 0x2E80)
    is_mark = (0x2060 <= point < 0x2066 or 0x206A <= point < 0x2070) or 0xFFF9 <= point < 0xFFFC
    return np.int64(is_mark or (point == 0xFEFF and pos > start) or 0xE0000 <= point < 0xE0080)


@cold
def flag_end(data: Array, pos: Int, end: Int) -> Int:
    """Return the byte after a character of four bytes, and after its tags where it is the flag that has some."""
    after = pos + 4
    if point_at(data, pos) == 0x1F3F4:
        while after < end and data[after] == 0xF3 and 0xE0020 <= point_at(data, after) < 0xE0080:
            after += 4
    return after


@cold
def is_right_to_left(data: Array, start: Int, end: Int) -> bool:
    """Tell whether a document has a letter of U+0580 to U+07FF: Hebrew, Arabic, Syriac, Thaana or N'Ko."""
    at = start
    while at < end and not 0xD6 <= data[at] < 0xE0:
        at += 1
    return bool(at < end)
