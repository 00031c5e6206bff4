"""Counts what a wrong decoder or a careless extractor leaves in text: one pass over the bytes of each document.

Mojibake is UTF-8 that was read as Latin-1 or Windows-1252, once or several times: characters that, taken as bytes of
Windows-1252, are valid UTF-8. A single sequence may stand there by right (a German sharp s before a closing quote), so
it counts by itself only where no text has it; two sequences side by side always count.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from dataaudit.kernels.fault_markup import (
    READ_DIGESTS,
    begins_line,
    ends_line,
    entity_end,
    is_address,
    is_comment,
    name_tables,
    tag_end,
)
from dataaudit.kernels.jit import READ_BYTES, READ_OFFSETS, Integer, cold, compiled, helper

KINDS = ("mojibake", "replacement", "control", "entities", "tags", "base64")
"""What is counted, in the order of the columns."""
MOJIBAKE, REPLACEMENT, CONTROL, ENTITIES, TAGS, BASE64, LINES, MARKUP_LINES = range(8)
NUM_COUNTS = 8
RUN = 64
"""Letters, digits, ``+`` and ``/`` that a run of base64 has at least."""
_LINE_END, _CONTROL, _AMPERSAND, _LESS, _C2, _C3, _EF, _FOUR_BYTES = range(1, 9)
_UPPER, _LOWER, _DIGIT, _SIGN = range(1, 5)
_IS_QUOTE, _IS_MARK, _BEHIND_E2, _BEHIND_EF, _BEHIND_UNIT = 1, 2, 4, 8, 16
_ROLES = {
    _IS_QUOTE: b"\x82\x84\x85\x8b\x91\x92\x93\x94\x95\x96\x97\x99\x9b\xa0\xab\xb7\xbb\xbf",
    _IS_MARK: b"\xa9\xaa\xae\xb0\xb1\xb2\xb3\xb9\xba",
    _BEHIND_E2: b"\x80\x82\x84\x86\x88\x89\x9c",
    _BEHIND_EF: b"\xbb\xbc\xbf",
    _BEHIND_UNIT: b"\x85\x92\x94\x95\x96\x97\xa0\xb7",
}
"""Signs of Windows-1252 that may follow a capital letter (quotes, dashes, a space), or one that stands for a unit or a
name; second bytes of three whose characters stand side by side in no text; signs that may follow an Angstrom."""
_DIGESTS = (64, 96, 128)
"""Hexadecimal digits of SHA-256, SHA-384 and SHA-512; shorter digests are no run."""


@cache
def _actions() -> np.ndarray:
    """Return uint8[256]: what is looked at where a byte stands."""
    actions = np.zeros(256, dtype=np.uint8)
    actions[:32], actions[127] = _CONTROL, _CONTROL
    actions[list(b"\t\f\r")] = 0
    actions[list(b"\n&<")] = _LINE_END, _AMPERSAND, _LESS
    actions[[0xC2, 0xC3, 0xEF]] = _C2, _C3, _EF
    actions[0xF0:0xF5] = _FOUR_BYTES
    return actions


@cache
def _cp1252() -> np.ndarray:
    """Return uint8[0x2123]: the byte of Windows-1252, or of Latin-1, that a code point is; 0 where it is none."""
    table = np.zeros(0x2123, dtype=np.uint8)
    table[0x80:0x100] = np.arange(0x80, 0x100)
    for byte in range(0x80, 0xA0):
        character = bytes([byte]).decode("cp1252", "ignore")
        table[ord(character or chr(byte))] = byte
    return table


@cache
def _roles() -> np.ndarray:
    """Return uint8[256]: what of :data:`_ROLES` a byte of Windows-1252 is."""
    roles = np.zeros(256, dtype=np.uint8)
    for role, some in _ROLES.items():
        roles[list(some)] |= role
    return roles


@cache
def _alphabet() -> np.ndarray:
    """Return uint8[256]: the class of each character of base64, 0 of all others."""
    classes = np.zeros(256, dtype=np.uint8)
    classes[65:91], classes[97:123], classes[48:58], classes[list(b"+/")] = _UPPER, _LOWER, _DIGIT, _SIGN
    return classes


def count_faults(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return int64[n, 8] of each document: the bytes of each of :data:`KINDS`, its lines, those that are markup.

    Lines without a character that is seen are none. A line is markup when it begins or ends with a tag, unless it is
    a comment, or the tag is a bare one that stands as a word between others.

    Args:
        data: uint8[m] valid UTF-8.
        offsets: int64[n + 1] of the documents in it.
    """
    counts = np.zeros((len(offsets) - 1, NUM_COUNTS), dtype=np.int64)
    _count(data, offsets, _actions(), _cp1252(), _roles(), _alphabet(), *name_tables(), counts)
    return counts


@compiled(
    f"void({READ_BYTES}, {READ_OFFSETS}, uint8[::1], uint8[::1], uint8[::1], uint8[::1], {READ_DIGESTS},"
    f" {READ_DIGESTS}, {READ_DIGESTS}, {READ_DIGESTS}, int64[:, ::1])"
)
def _count(
    data: np.ndarray,
    offsets: np.ndarray,
    actions: np.ndarray,
    cp1252: np.ndarray,
    roles: np.ndarray,
    alphabet: np.ndarray,
    entities: np.ndarray,
    bare: np.ndarray,
    glued: np.ndarray,
    plain: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Fill ``counts``."""
    for document in range(len(offsets) - 1):
        start, end = offsets[document], offsets[document + 1]
        own = counts[document]
        pos, line, last_tag, opened = start, start, -1, False
        while pos < end:
            while pos < end and actions[data[pos]] == 0:
                pos += 1
            if pos == end:
                break
            action = actions[data[pos]]
            if action == _LINE_END:
                _end_line(data, line, pos, last_tag, opened, own)
                pos += 1
                line, opened = pos, False
            elif action == _LESS:
                after = tag_end(data, start, pos, end, bare, glued, plain)
                own[TAGS] += after - pos
                if after == pos:
                    pos += 1
                    continue
                opened |= _is_blank(data, line, pos) and begins_line(data, pos, after, end)
                ends = ends_line(data, start, pos, after)
                while pos < after:
                    if data[pos] == 10:  # the tag goes on in the next line
                        opened = True
                        _end_line(data, line, pos, last_tag, opened, own)
                        line = pos + 1
                    pos += 1
                last_tag = after if ends else last_tag
            elif action == _AMPERSAND:
                after = entity_end(data, pos, end, entities)
                if after > pos and not is_address(data, line, pos, after, end) and not is_comment(data, line, pos):
                    own[ENTITIES] += after - pos
                pos = max(after, pos + 1)
            elif action == _C3:
                after = _mojibake_end(data, start, pos, end, cp1252, roles)
                own[MOJIBAKE] += after - pos
                pos = after if after > pos else pos + 2
            else:
                pos += _count_character(data, pos, action, own)
        _end_line(data, line, end, last_tag, opened, own)
        own[BASE64] = _base64_bytes(data, start, end, alphabet)


@helper
def _count_character(data: np.ndarray, pos: Integer, action: Integer, counts: np.ndarray) -> Integer:
    """Count a character that no text should have; return its bytes."""
    if action == _CONTROL:
        counts[CONTROL] += 1
        return 1
    if action == _C2:
        counts[CONTROL] += 2 * np.int64(data[pos + 1] < 0xA0)
        return 2
    second, third = data[pos + 1], data[pos + 2]
    if action == _EF:
        if second == 0xBF and third == 0xBD:
            counts[REPLACEMENT] += 3
        elif (second == 0xBF and third >= 0xBE) or (second == 0xB7 and 0x90 <= third < 0xB0):
            counts[CONTROL] += 3
        return 3
    if second & 15 == 15 and third == 0xBF and data[pos + 3] >= 0xBE:
        counts[CONTROL] += 4
    return 4


@helper
def _end_line(
    data: np.ndarray, line: Integer, end: Integer, last_tag: Integer, opened: bool, counts: np.ndarray
) -> None:
    """Count the line from ``line`` to ``end``, unless it is blank."""
    while end > line and (data[end - 1] == 32 or 9 <= data[end - 1] <= 13) and end != last_tag:
        end -= 1
    if end > line:
        counts[LINES] += 1
        counts[MARKUP_LINES] += np.int64((opened or end == last_tag) and not is_comment(data, line, end))


@helper
def _is_blank(data: np.ndarray, first: Integer, last: Integer) -> bool:
    while last > first and (data[last - 1] == 32 or 9 <= data[last - 1] <= 13):
        last -= 1
    return bool(last == first)


@cold
def _mojibake_end(
    data: np.ndarray, start: Integer, pos: Integer, end: Integer, cp1252: np.ndarray, roles: np.ndarray
) -> Integer:
    """Return the byte after the sequences that begin at ``pos``; ``pos`` where none does, or one that text may have."""
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
def _sequence_end(data: np.ndarray, pos: Integer, end: Integer, cp1252: np.ndarray) -> Integer:
    """Return the byte after the characters that are one sequence of UTF-8 in Windows-1252, or ``pos``."""
    if pos >= end or data[pos] != 0xC3:
        return pos
    lead = 0xC0 | (data[pos + 1] & 0x3F)
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
    at = pos + 2
    for _ in range(1 + np.int64(lead >= 0xE0) + np.int64(lead >= 0xF0)):
        byte, width = _byte_at(data, at, end, cp1252)
        if byte < least or byte > most:
            return pos
        least, most = 0x80, 0xBF
        at += width
    return at


@helper
def _byte_at(data: np.ndarray, pos: Integer, end: Integer, cp1252: np.ndarray) -> tuple[Integer, Integer]:
    """Return the byte that a character of two or three bytes is in Windows-1252, 0 for none, and its own bytes."""
    if pos < end and 0xC2 <= data[pos] < 0xE0:
        point = (np.int64(data[pos]) & 0x1F) << 6 | (data[pos + 1] & 0x3F)
        return np.int64(cp1252[point]), 2
    if pos < end and data[pos] == 0xE2:
        point = 0x2000 | (np.int64(data[pos + 1]) & 0x3F) << 6 | (data[pos + 2] & 0x3F)
        return np.int64(cp1252[point] if point < len(cp1252) else 0), 3
    return np.int64(0), 1


@helper
def _stands_alone(
    data: np.ndarray,
    start: Integer,
    pos: Integer,
    after: Integer,
    end: Integer,
    cp1252: np.ndarray,
    roles: np.ndarray,
) -> bool:
    """Tell whether a single sequence is one that no text has."""
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


@helper
def _base64_bytes(data: np.ndarray, start: Integer, end: Integer, alphabet: np.ndarray) -> Integer:
    """Return the bytes of all runs of base64 or hexadecimal digits but digests: one byte in 64 of each is looked at."""
    found, done, pos = 0, start, start + RUN - 1
    while pos < end:
        if alphabet[data[pos]] == 0:
            pos += RUN
            continue
        first, last = pos, pos + 1
        while first > done and alphabet[data[first - 1]]:
            first -= 1
        while last < end and alphabet[data[last]]:
            last += 1
        if last - first >= RUN and _is_random(data, start, first, last, alphabet):
            found += last - first
        done, pos = last, last + RUN
    return found


@cold
def _is_random(data: np.ndarray, start: Integer, first: Integer, last: Integer, alphabet: np.ndarray) -> bool:
    """Tell whether characters change their class as often as in base64, or in hexadecimal digits that are no digest."""
    if data[first] == 48 and data[first + 1] | 32 == 120:  # 0x
        first += 2
    if last - first in (64, 86) and _is_named_digest(data, start, first):
        return False
    changes, slashes, classes, is_hex = np.int64(0), np.int64(0), 0, True
    for at in range(first, last):
        byte, kind = data[at], alphabet[data[at]]
        classes |= 1 << kind
        slashes += np.int64(byte == 47)
        is_hex &= kind == _DIGIT or 97 <= byte | 32 <= 102
        changes += np.int64(at > first and kind != alphabet[data[at - 1]])
    of_letters = classes & (1 << _UPPER | 1 << _LOWER)
    if classes & 1 << _DIGIT == 0 or of_letters == 0:
        return False
    if is_hex:
        return bool(8 * changes >= last - first and last - first not in _DIGESTS)
    is_path = 16 * slashes > last - first
    return bool(of_letters == (1 << _UPPER | 1 << _LOWER) and not is_path and 20 * changes >= 9 * (last - first))


@helper
def _is_named_digest(data: np.ndarray, start: Integer, first: Integer) -> bool:
    """Tell whether ``sha384-`` or ``sha512-``, or the same with ``:`` or ``=``, stands before a run."""
    if first - start < 7 or data[first - 1] not in (45, 58, 61):
        return False
    for at in range(3):
        if data[first - 7 + at] | 32 != (115, 104, 97)[at]:
            return False
    return bool(48 <= data[first - 4] <= 57 and 48 <= data[first - 3] <= 57 and 48 <= data[first - 2] <= 57)
