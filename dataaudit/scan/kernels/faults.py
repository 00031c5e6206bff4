"""Faults that a wrong decoder or a careless extractor leaves in text, counted in one pass over a document's bytes."""

from __future__ import annotations

from functools import cache

import numpy as np

from dataaudit.scan.kernels.fault_decoders import (
    LEAST_SOFT,
    SOFT_ONE_IN,
    flag_end,
    is_invisible,
    is_right_to_left,
    kana_end,
    letters_end,
    mojibake_end,
    page_chain,
    page_tables,
    role_table,
    splits_word,
)
from dataaudit.scan.kernels.fault_escapes import WALK_SIZE, escape_end
from dataaudit.scan.kernels.fault_markup import (
    begins_line,
    ends_line,
    entity_end,
    is_address,
    is_comment,
    name_tables,
    tag_end,
)
from dataaudit.scan.kernels.jit import READ_BYTES, READ_HASHES, READ_OFFSETS, Array, Int, cold, compiled, helper

KINDS = ("mojibake", "replacement", "control", "invisible", "escapes", "entities", "tags", "base64")
"""What is counted, in the order of the columns."""
MOJIBAKE, REPLACEMENT, CONTROL, INVISIBLE, ESCAPES, ENTITIES, TAGS, BASE64, LINES, MARKUP_LINES = range(10)
NUM_COUNTS = 10
RUN = 64
"""Letters, digits, ``+`` and ``/`` that a run of base64 has at least."""
_LINE_END, _AMPERSAND, _LESS, _C2, _C3, _E2, _CONTROL, _EF, _FOUR_BYTES, _ESCAPE = range(1, 11)
_BEGIN = {
    b"\\": b"\\Unrtux",
    b"=": b"0123456789ABCDEF\r\n",
    b"%": b"0123456789ABCDEFabcdef",
    b"+": bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123)) + b"+/",
    b"<": b"/!?" + bytes(range(65, 91)) + bytes(range(97, 123)),
    b"&": b"#" + bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123)),
}
"""Signs that begin a fault, and what may follow each: most that stand in code are passed over like letters."""
_ALWAYS = 128
_UPPER, _LOWER, _DIGIT, _SIGN = range(1, 5)
DONE, CHECKED, SOFT, MARKS = range(WALK_SIZE, WALK_SIZE + 4)
"""Where the state of a document has the byte after what was last counted as mojibake, that after letters that were
looked at, the bytes of soft hyphens, and those of marks of right-to-left text."""
_STATE_SIZE = WALK_SIZE + 4
_DIGESTS = (64, 96, 128)
"""Hexadecimal digits of SHA-256, SHA-384 and SHA-512; shorter digests are no run."""


@cache
def _actions() -> Array:
    """Return uint8[256]: the action at each byte."""
    actions = np.zeros(256, dtype=np.uint8)
    actions[:32], actions[127] = _CONTROL, _CONTROL
    actions[list(b"\t\f\r")] = 0
    actions[list(b"\n&<")] = _LINE_END, _AMPERSAND, _LESS
    actions[list(b"\\=%+")] = _ESCAPE
    actions[[0xC2, 0xC3, 0xE2, 0xEF]] = _C2, _C3, _E2, _EF
    actions[0xF0:0xF5] = _FOUR_BYTES
    return actions


@cache
def _gates() -> Array:
    """Return uint8[2, 256]: bits of a byte, and of the byte behind it; what has none in common is passed over."""
    gates = np.zeros((2, 256), dtype=np.uint8)
    gates[0, _actions() > 0], gates[1] = _ALWAYS, _ALWAYS
    for number, (sign, followers) in enumerate(_BEGIN.items()):
        gates[0, sign[0]] = 1 << number
        gates[1, list(followers)] |= 1 << number
    return gates


@cache
def _alphabet() -> Array:
    """Return uint8[256]: the class of each character of base64, 0 of all others."""
    classes = np.zeros(256, dtype=np.uint8)
    classes[65:91], classes[97:123], classes[48:58], classes[list(b"+/")] = _UPPER, _LOWER, _DIGIT, _SIGN
    return classes


def count_faults(data: Array, offsets: Array) -> Array:
    """Return int64[n, 10] of each document: the bytes of each of :data:`KINDS`, its lines, those that are markup.

    Lines without a character that is seen are none. A line is markup when it begins or ends with a tag, unless it is
    a comment, or the tag is a bare one that stands as a word between others.

    Args:
        data: uint8[m] valid UTF-8.
        offsets: int64[n + 1] of the documents in it.
    """
    counts = np.zeros((len(offsets) - 1, NUM_COUNTS), dtype=np.int64)
    tables = (_actions(), _gates(), *page_tables(), role_table(), _alphabet(), *name_tables())
    _count(data, offsets, *tables, np.full(_STATE_SIZE, -1, dtype=np.int64), counts)
    return counts


@compiled(
    f"void({READ_BYTES}, {READ_OFFSETS}, uint8[::1], uint8[:, ::1], uint8[:, ::1], uint16[:, ::1], uint8[::1],"
    f" uint8[::1], {', '.join([READ_HASHES] * 6)}, int64[::1], int64[:, ::1])"
)
def _count(
    data: Array,
    offsets: Array,
    actions: Array,
    gates: Array,
    pages: Array,
    masks: Array,
    roles: Array,
    alphabet: Array,
    entities: Array,
    opened: Array,
    escapes: Array,
    bare: Array,
    glued: Array,
    plain: Array,
    state: Array,
    counts: Array,
) -> None:
    """Fill ``counts``."""
    here, behind = gates[0], gates[1]
    for document in range(len(offsets) - 1):
        start, end = offsets[document], offsets[document + 1]
        own = counts[document]
        pos, line, last_tag, in_tag = start, start, -1, False
        state[DONE], state[CHECKED], state[SOFT], state[MARKS] = start, start, 0, 0
        while pos < end:
            pos = _passed_over(data, pos, end - 1, here, behind)
            if pos == end - 1 and here[data[pos]] != _ALWAYS:
                break
            action = actions[data[pos]]
            if action == _LINE_END:
                _end_line(data, line, pos, last_tag, in_tag, own)
                pos += 1
                line, in_tag = pos, False
            elif action == _LESS:
                after = tag_end(data, start, pos, end, bare, glued, plain)
                own[TAGS] += after - pos
                if after == pos:
                    pos += 1
                    continue
                in_tag |= _is_blank(data, line, pos) and begins_line(data, pos, after, end)
                ends = ends_line(data, start, pos, after)
                while pos < after:
                    if data[pos] == 10:  # the tag goes on in the next line
                        in_tag = True
                        _end_line(data, line, pos, last_tag, in_tag, own)
                        line = pos + 1
                    pos += 1
                last_tag = after if ends else last_tag
            elif action == _AMPERSAND:
                after = entity_end(data, start, pos, end, entities, opened, escapes)
                if after > pos and not is_address(data, line, pos, after, end) and not is_comment(data, line, pos):
                    own[ENTITIES] += after - pos
                pos = max(after, pos + 1)
            elif action == _ESCAPE:
                after = escape_end(data, start, line, pos, end, state)
                own[ESCAPES] += after - pos
                pos = max(after, pos + 1)
            elif action <= _E2 and _is_usual(data, start, pos, end):
                pos += 2 + np.int64(action == _E2)
            elif action <= _E2:
                pos = _letter_end(data, start, line, pos, end, pages, masks, roles, state, own)
            else:
                pos = _sign_end(data, start, pos, end, action, own)
        _end_line(data, line, end, last_tag, in_tag, own)
        own[BASE64] = _base64_bytes(data, start, end, alphabet)
        if state[SOFT] >= 2 * LEAST_SOFT and SOFT_ONE_IN * state[SOFT] >= 2 * (end - start):
            own[INVISIBLE] += state[SOFT]
        if state[MARKS] > 0 and not is_right_to_left(data, start, end):
            own[INVISIBLE] += state[MARKS]


@helper
def _passed_over(data: Array, pos: Int, last: Int, here: Array, behind: Array) -> Int:
    """Return the first byte from ``pos`` on that may begin something, or ``last``."""
    at, stop, item = np.uintp(pos), np.uintp(last), np.uintp(1)  # unsigned: no index wraps around
    while at < stop and here[data[at]] & behind[data[at + item]] == 0:
        at += item
    return np.int64(at)


@helper
def _is_usual(data: Array, start: Int, pos: Int, end: Int) -> bool:
    """Tell whether a character is a letter of Latin-1 or a sign as most are, beside ASCII: it is no fault."""
    if pos > start and data[pos - 1] >= 0x80:
        return False
    lead, second = data[pos], data[pos + 1]
    if lead == 0xC3:
        return bool(pos + 2 == end or data[pos + 2] < 0x80)
    third = data[pos + 2] if lead == 0xE2 else np.uint8(0)
    return bool(lead == 0xE2 and (second > 0x81 or (second == 0x80 and (0x93 <= third < 0x9A or 0x9C <= third < 0x9E))))


@cold
def _letter_end(
    data: Array,
    start: Int,
    line: Int,
    pos: Int,
    end: Int,
    pages: Array,
    masks: Array,
    roles: Array,
    state: Array,
    counts: Array,
) -> Int:
    """Count what begins with a character of Latin-1 or of U+2000 on, or lies around it; return the byte after."""
    lead, second = data[pos], data[pos + 1]
    first, after, width = pos, pos, 3 if lead == 0xE2 else 2
    if lead == 0xC3:
        after = mojibake_end(data, start, pos, end, pages[0], roles)
    if after == pos and pos > state[DONE] and data[pos - 1] >= 0x80:
        first, after = page_chain(data, state[DONE], pos, end, pages, masks)
    if after == pos and lead == 0xE2 and second == 0x80 and data[pos + 2] == 0x9A:
        after = kana_end(data, pos, end)
    if after == pos and lead != 0xC3 and splits_word(data, start, pos, end, width):
        after = pos + width
    counts[MOJIBAKE] += after - first
    if after == pos and lead != 0xE2 and pos >= state[CHECKED] and pos + 2 < end and data[pos + 2] in (0xC2, 0xC3):
        state[CHECKED], size = letters_end(data, start, line, pos, end, state)
        counts[MOJIBAKE] += size
        after = state[CHECKED] if size > 0 else pos
    if after > pos:
        state[DONE] = after
        return after
    if lead == 0xE2 and second in (0x80, 0x81):
        kind = is_invisible(data, start, pos, pos + 3, end)
        counts[INVISIBLE] += 3 * np.int64(kind == 1)
        state[MARKS] += 3 * np.int64(kind == 2)
    elif lead == 0xC2:
        counts[CONTROL] += 2 * np.int64(second < 0xA0)
        state[SOFT] += 2 * np.int64(second == 0xAD)
    return pos + width


@cold
def _sign_end(data: Array, start: Int, pos: Int, end: Int, action: Int, counts: Array) -> Int:
    """Count a character at ``pos`` that no text should have; return the byte after."""
    if action == _CONTROL:
        counts[CONTROL] += 1
        return pos + 1
    second, third = data[pos + 1], data[pos + 2]
    if action == _FOUR_BYTES:
        counts[CONTROL] += 4 * np.int64(second & 15 == 15 and third == 0xBF and data[pos + 3] >= 0xBE)
        counts[INVISIBLE] += 4 * np.int64(data[pos] == 0xF3 and is_invisible(data, start, pos, pos + 4, end) == 1)
        return flag_end(data, pos, end)
    if second == 0xBF and third == 0xBD:
        counts[REPLACEMENT] += 3
    elif (second == 0xBF and third >= 0xBE) or (second == 0xB7 and 0x90 <= third < 0xB0):
        counts[CONTROL] += 3
    elif second in (0xB8, 0xBB, 0xBF):
        counts[INVISIBLE] += 3 * np.int64(is_invisible(data, start, pos, pos + 3, end) == 1)
    return pos + 3


@helper
def _end_line(data: Array, line: Int, end: Int, last_tag: Int, in_tag: bool, counts: Array) -> None:
    """Count the line from ``line`` to ``end``, unless it is blank."""
    while end > line and (data[end - 1] == 32 or 9 <= data[end - 1] <= 13) and end != last_tag:
        end -= 1
    if end > line:
        counts[LINES] += 1
        counts[MARKUP_LINES] += np.int64((in_tag or end == last_tag) and not is_comment(data, line, end))


@helper
def _is_blank(data: Array, first: Int, last: Int) -> bool:
    while last > first and (data[last - 1] == 32 or 9 <= data[last - 1] <= 13):
        last -= 1
    return bool(last == first)


@helper
def _base64_bytes(data: Array, start: Int, end: Int, alphabet: Array) -> Int:
    """Return the bytes of all runs of base64 or hexadecimal digits but digests; between runs 1 byte in 64 is read."""
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
def _is_random(data: Array, start: Int, first: Int, last: Int, alphabet: Array) -> bool:
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
def _is_named_digest(data: Array, start: Int, first: Int) -> bool:
    """Tell whether ``sha384-`` or ``sha512-``, or the same with ``:`` or ``=``, stands before a run."""
    if first - start < 7 or data[first - 1] not in (45, 58, 61):
        return False
    for at in range(3):
        if data[first - 7 + at] | 32 != (115, 104, 97)[at]:
            return False
    return bool(48 <= data[first - 4] <= 57 and 48 <= data[first - 3] <= 57 and 48 <= data[first - 2] <= 57)
