"""Words of a batch of documents, as hashes with their positions: the one pass that all kernels over words share.

A word is a longest run of letters, marks and numbers (categories L, M, N of Unicode). Case, compatibility variants
(NFKD) and the order of accents do not matter to it, digits of all scripts are equal, format characters (soft hyphen,
zero-width space) are not there. Everything else separates, but

* an apostrophe between letters is ignored (``don't`` is one word, the same as ``dont``),
* a full stop or comma between digits is ignored (``80,000`` is ``80000``), as Unicode Standard Annex 29 keeps both
  kinds of words whole (rules WB6, WB7, WB11, WB12);
* in a script without spaces (Han, Kana, Thai, Khmer and others) each letter is a word, its marks with it.

So canonically equal texts have equal words, and re-wrapping, other case or other punctuation change none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dataaudit.scan.kernels.jit import (
    READ_BYTES,
    READ_HASHES,
    READ_IDS,
    READ_OFFSETS,
    READ_SHORTS,
    Array,
    Int,
    cold,
    compiled,
    helper,
)
from dataaudit.scan.kernels.ngrams import NUMBER, mix64
from dataaudit.scan.kernels.word_classes import (
    ALONE,
    APOSTROPHE,
    DIGITS,
    EXTEND,
    IGNORED,
    IS_MARK,
    KIND_BITS,
    LETTER,
    MARK,
    POINT,
    SEPARATOR,
    SEVERAL,
    word_classes,
)

_START = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0xD6E8FEB86659FD93)
_MARKS = np.uint64(0xA0761D6478BD642F)
_HIGH = np.uint64(0x8080808080808080)
_SPACES = np.uint64(0x2020202020202020)
_FROM_A, _PAST_Z = np.uint64(0x1F1F1F1F1F1F1F1F), np.uint64(0x0505050505050505)
_FROM_0, _PAST_9 = np.uint64(0x5050505050505050), np.uint64(0x4646464646464646)
_COUNT = np.uint64(0x0001020304050607)
_KIND = np.uint32((1 << KIND_BITS) - 1)


@dataclass(frozen=True, slots=True)
class WordBatch:
    """The words of ``n`` documents."""

    hashes: Array
    """uint64[w]; equal words have equal hashes, and bit 0 is set exactly when a word is a number."""
    offsets: Array
    """int64[n + 1]: the words of document i are ``hashes[offsets[i]:offsets[i + 1]]``."""
    starts: Array
    """uint32[w] first byte of the word, from the start of its document."""
    ends: Array
    """uint32[w] byte after its last."""

    def num_words(self) -> Array:
        """int64[n] words of each document."""
        return np.diff(self.offsets)


def split_words(values: Array, offsets: Array) -> WordBatch:
    """Cut documents, none of 2^32 bytes or more, into words."""
    most = int(offsets[-1]) // 2 + len(offsets)  # a word and what separates it from the next: two bytes
    hashes = np.empty(most, dtype=np.uint64)
    starts, ends = np.empty(most, dtype=np.uint32), np.empty(most, dtype=np.uint32)
    bounds = np.zeros(len(offsets), dtype=np.int64)
    table = word_classes()
    _split(values, offsets, table.ascii, table.pages, table.blocks, table.expansions, hashes, bounds, starts, ends)
    size = int(bounds[-1])
    return WordBatch(hashes[:size], bounds, starts[:size], ends[:size])


def without_marks(made: WordBatch, words: WordBatch, values: Array, offsets: Array) -> WordBatch:
    """Return words with the hashes that they have without combining marks: an accented letter is the letter.

    ``made`` was made of ``words``, which :func:`split_words` made; words with other hashes than these keep them.
    """
    hashes, table = made.hashes.copy(), word_classes()
    own = words.offsets, words.starts, words.ends, words.hashes
    _unmark(values, offsets, *own, made.offsets, made.starts, table.pages, table.blocks, table.expansions, hashes)
    return replace(made, hashes=hashes)


@compiled(
    f"void({READ_BYTES}, {READ_OFFSETS}, {READ_OFFSETS}, {READ_IDS}, {READ_IDS}, {READ_HASHES}, {READ_OFFSETS},"
    f" {READ_IDS}, {READ_SHORTS}, {READ_IDS}, {READ_IDS}, uint64[::1])"
)
def _unmark(
    data: Array,
    bounds: Array,
    offsets: Array,
    starts: Array,
    ends: Array,
    words: Array,
    made_offsets: Array,
    made_starts: Array,
    pages: Array,
    blocks: Array,
    expansions: Array,
    hashes: Array,
) -> None:
    """Hash words of ``hashes`` anew that are as they were and have a character beyond ASCII."""
    for document in range(len(bounds) - 1):
        begun, stop = np.uintp(bounds[document]), np.uintp(bounds[document + 1])
        bits = np.uint8(0)
        for place in range(begun, stop):
            bits |= data[place]
        if bits < 0x80:
            continue
        word = np.uintp(offsets[document])
        for index in range(made_offsets[document], made_offsets[document + 1]):
            at = np.uintp(index)
            while starts[word] < made_starts[at]:
                word += np.uintp(1)
            first, end = begun + np.uintp(starts[word]), begun + np.uintp(ends[word])
            bits = np.uint8(0)
            for place in range(first, end):
                bits |= data[place]
            if bits >= 0x80 and hashes[at] == words[word]:
                hashes[at] = _bare(data, first, end, pages, blocks, expansions)


@cold
def _bare(data: Array, place: Int, end: Int, pages: Array, blocks: Array, expansions: Array) -> np.uint64:
    """Return the hash of a word without its marks."""
    value, chunk, shift, letters, wordy, digit = _START, np.uint64(0), np.uint64(0), np.uint64(0), False, False
    while place < end:
        code, size = _code_at(data, place)
        entry = blocks[(np.uintp(pages[code >> np.uint32(8)]) << np.uintp(8)) + np.uintp(code & np.uint32(255))]
        payload = entry >> np.uint32(KIND_BITS)
        number, index = np.uint32(1), np.uintp(0)
        if payload & np.uint32(SEVERAL):
            index = np.uintp(payload & np.uint32(SEVERAL - 1))
            number = expansions[index]
        for step in range(number):
            part = expansions[index + np.uintp(step) + np.uintp(1)] if index else payload or code
            if entry & _KIND in (LETTER, DIGITS, ALONE, EXTEND) and part & np.uint32(IS_MARK) == 0:
                value, chunk, shift, _, letters, wordy, digit = _push(
                    value, chunk, shift, np.uint64(0), letters, wordy, digit, part, False
                )
        place += size
    return _finished(value, chunk, np.uint64(0), wordy)


@compiled(
    f"void({READ_BYTES}, {READ_OFFSETS}, {READ_BYTES}, {READ_SHORTS}, {READ_IDS}, {READ_IDS},"
    " uint64[::1], int64[::1], uint32[::1], uint32[::1])"
)
def _split(
    data: Array,
    offsets: Array,
    ascii_bytes: Array,
    pages: Array,
    blocks: Array,
    expansions: Array,
    hashes: Array,
    bounds: Array,
    starts: Array,
    ends: Array,
) -> None:
    item, eight, full = np.uintp(1), np.uint64(8), np.uint64(64)  # unsigned: no index wraps around
    zero, three, eight_bytes, total = np.uint64(0), np.uint64(3), np.uintp(8), np.uintp(len(data))
    count = np.uintp(0)
    for document in range(len(offsets) - 1):
        begun, stop = np.uintp(offsets[document]), np.uintp(offsets[document + 1])
        place, first, end = begun, begun, begun
        while place < stop:
            folded = ascii_bytes[data[place]]
            if folded == 0 and data[place] < 0x80:
                place += item
                continue
            # Most words are of ASCII alone, and are hashed here; what is open after that goes on below.
            first = place
            value, chunk, shift, wordy = _START, zero, zero, False
            gap = np.uintp(0)
            while place + eight_bytes <= total:
                value, chunk, shift, letters, gap = _eight(data, place, value)
                wordy = wordy or letters
                place += np.uintp(shift >> three)
                if shift != full:
                    break
                value, chunk, shift = _absorb(value, chunk), zero, zero
            if place > stop:  # the next document's bytes are not ours
                place, value, chunk, shift, wordy, gap = first, _START, zero, zero, False, np.uintp(0)
            if place + eight_bytes > total or place == first:
                folded = ascii_bytes[data[place]] if place < stop else np.uint8(0)
                while folded != 0:
                    chunk |= np.uint64(folded) << shift
                    shift += eight
                    wordy = bool(wordy or folded > 57)
                    if shift == full:
                        value = _absorb(value, chunk)
                        chunk, shift = zero, zero
                    place += item
                    folded = ascii_bytes[data[place]] if place < stop else np.uint8(0)
            end = place
            if not _may_go_on(data, place, first, stop, ascii_bytes):
                hashes[count] = _finished(value, chunk, zero, wordy)
                starts[count], ends[count] = np.uint32(first - begun), np.uint32(end - begun)
                count += item
                place += gap
                continue
            place, count = _go_on(
                data,
                place,
                begun,
                stop,
                first,
                pages,
                blocks,
                expansions,
                hashes,
                starts,
                ends,
                count,
                value,
                chunk,
                shift,
                wordy,
            )
        bounds[document + 1] = np.int64(count)


@cold
def _go_on(
    data: Array,
    place: Int,
    begun: Int,
    stop: Int,
    first: Int,
    pages: Array,
    blocks: Array,
    expansions: Array,
    hashes: Array,
    starts: Array,
    ends: Array,
    count: Int,
    value: np.uint64,
    chunk: np.uint64,
    shift: np.uint64,
    wordy: bool,
) -> tuple[Int, Int]:
    """Go on, code point by code point, until no word is open and ASCII follows; return the next byte and the count.

    The bytes from ``first`` to ``place`` are those of an open word of ASCII, if there are any.
    """
    item, zero = np.uintp(1), np.uint64(0)
    letters, accents = np.uint64(place - first), zero
    is_open, lone = place > first, False
    digit = place > first and data[place - item] <= 57
    end = place
    while place < stop:
        code, size = _code_at(data, place)
        entry = blocks[(np.uintp(pages[code >> np.uint32(8)]) << np.uintp(8)) + np.uintp(code & np.uint32(255))]
        kind = entry & _KIND
        after = place + size
        if kind == APOSTROPHE:
            joins = is_open and not lone and not digit
            kind = np.uint32(IGNORED if joins and _kind_at(data, after, stop, pages, blocks) == LETTER else SEPARATOR)
        elif kind == POINT:
            joins = is_open and digit
            kind = np.uint32(IGNORED if joins and _kind_at(data, after, stop, pages, blocks) == DIGITS else SEPARATOR)
        if is_open and (kind in (SEPARATOR, ALONE) or (lone and kind in (LETTER, DIGITS))):
            hashes[count] = _finished(value, chunk, accents, wordy)
            starts[count], ends[count] = np.uint32(first - begun), np.uint32(end - begun)
            count += item
            is_open = False
        if kind == SEPARATOR:
            place = after
            if place == stop or data[place] < 0x80:
                return place, count
            continue
        if kind != IGNORED and (is_open or kind != MARK):
            if not is_open:
                value, chunk, shift, accents, letters, wordy = _START, zero, zero, zero, zero, False
                is_open, lone, first = True, kind == ALONE, place
            payload = entry >> np.uint32(KIND_BITS)
            if payload & np.uint32(SEVERAL):
                index = np.uintp(payload & np.uint32(SEVERAL - 1))
                for step in range(expansions[index]):
                    part = expansions[index + np.uintp(step) + item]
                    value, chunk, shift, accents, letters, wordy, digit = _push(
                        value,
                        chunk,
                        shift,
                        accents,
                        letters,
                        wordy,
                        digit,
                        part & np.uint32(IS_MARK - 1),
                        part & np.uint32(IS_MARK) != 0,
                    )
            else:
                value, chunk, shift, accents, letters, wordy, digit = _push(
                    value, chunk, shift, accents, letters, wordy, digit, payload or code, kind == MARK
                )
            end = after
        place = after
    if is_open:
        hashes[count] = _finished(value, chunk, accents, wordy)
        starts[count], ends[count] = np.uint32(first - begun), np.uint32(end - begun)
        count += item
    return place, count


@helper
def _push(
    value: np.uint64,
    chunk: np.uint64,
    shift: np.uint64,
    accents: np.uint64,
    letters: np.uint64,
    wordy: bool,
    digit: bool,
    code: np.uint32,
    mark: bool,
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64, bool, bool]:
    """Add a folded code point: ASCII as a byte, others as three with their high bits set, marks in any order.

    Returns:
        The state of the open word: hash so far, bytes that are not in it yet, their bits, sum of the marks, number of
        other code points, whether it has more than digits, and whether its last code point is a digit.
    """
    wide = np.uint64(code)
    if mark:
        accents += mix64(np.uint64((wide | letters << np.uint64(32)) * _MARKS))
        return value, chunk, shift, accents, letters, True, digit
    bits, size = wide, np.uint64(8)
    if code >= 0x80:
        bits = (
            np.uint64(0x808080)
            | (wide >> np.uint64(14))
            | (wide >> np.uint64(7) & np.uint64(0x7F)) << np.uint64(8)
            | (wide & np.uint64(0x7F)) << np.uint64(16)
        )
        size = np.uint64(24)
    if shift + size > np.uint64(64):
        value = _absorb(value, chunk)
        chunk, shift = np.uint64(0), np.uint64(0)
    chunk |= bits << shift
    shift += size
    if shift == np.uint64(64):
        value = _absorb(value, chunk)
        chunk, shift = np.uint64(0), np.uint64(0)
    is_digit = bool(48 <= code <= 57)
    return value, chunk, shift, accents, letters + np.uint64(1), wordy or not is_digit, is_digit


@helper
def _may_go_on(data: Array, place: Int, first: Int, stop: Int, ascii_bytes: Array) -> bool:
    """Tell whether a word of ASCII that has come to ``place`` may not end there."""
    if place == stop:
        return False
    byte = data[place]
    if byte >= 0x80:
        return True
    if byte not in (39, 44, 46) or place + np.uintp(1) == stop:
        return False
    after = data[place + np.uintp(1)]
    if after >= 0x80:
        return True
    if byte == 39:
        return bool(ascii_bytes[after] > 57)
    return bool(place > first and data[place - np.uintp(1)] <= 57 and 48 <= after <= 57)


@helper
def _eight(data: Array, place: Int, value: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64, bool, Int]:
    """Look at eight bytes at once, at the folded ASCII letters and digits that they begin with.

    Returns:
        The hash as it is, those bytes as a chunk, their bits, whether a letter is among them, and how many ASCII
        separators follow them within the eight.
    """
    block = np.uint64(data[place])
    for step in range(1, 8):
        block |= np.uint64(data[place + np.uintp(step)]) << np.uint64(8 * step)
    seven = block & ~_HIGH
    lower = seven | _SPACES
    letters = (lower + _FROM_A) & ~(lower + _PAST_Z)
    digits = (seven + _FROM_0) & ~(seven + _PAST_9)
    inside = (letters | digits) & ~block & _HIGH
    ends = inside ^ _HIGH
    bit = (ends & (np.uint64(0) - ends)) >> np.uint64(7)
    before = bit - np.uint64(1)  # all ones when no byte ends the word
    size = np.uint64(64) if ends == np.uint64(0) else (bit * _COUNT >> np.uint64(56)) << np.uint64(3)
    live = (inside | block & _HIGH) & ~before
    next_bit = (live & (np.uint64(0) - live)) >> np.uint64(7)
    place_of_next = np.uint64(64) if live == np.uint64(0) else (next_bit * _COUNT >> np.uint64(56)) << np.uint64(3)
    gap = np.uintp((place_of_next - size) >> np.uint64(3))
    return value, (block | _SPACES) & before, size, letters & _HIGH & before != np.uint64(0), gap


@helper
def _absorb(value: np.uint64, chunk: np.uint64) -> np.uint64:
    value = np.uint64((value ^ chunk) * _PRIME)
    return value ^ (value >> np.uint64(32))


@helper
def _finished(value: np.uint64, chunk: np.uint64, accents: np.uint64, wordy: bool) -> np.uint64:
    value = mix64((value ^ chunk) + accents) | NUMBER
    return value ^ NUMBER if wordy else value


@helper
def ascii_hash(data: Array, first: Int, end: Int) -> np.uint64:
    """Return the hash of a word of ASCII letters and digits with a letter; of more than seven bytes that of no word."""
    chunk = np.uint64(0)
    for place in range(first, end):
        chunk |= np.uint64(data[place] | 32) << np.uint64(8 * (place - first) & 63)
    return _finished(_START, chunk, np.uint64(end - first > 7), True)


@helper
def _code_at(data: Array, place: Int) -> tuple[np.uint32, Int]:
    """Return the code point at ``place`` of valid UTF-8, and its bytes."""
    first = np.uint32(data[place])
    if first < 0x80:
        return first, np.uintp(1)
    second = np.uint32(data[place + np.uintp(1)] & 0x3F)
    if first < 0xE0:
        return (first & np.uint32(0x1F)) << np.uint32(6) | second, np.uintp(2)
    third = np.uint32(data[place + np.uintp(2)] & 0x3F)
    if first < 0xF0:
        return (first & np.uint32(0x0F)) << np.uint32(12) | second << np.uint32(6) | third, np.uintp(3)
    fourth = np.uint32(data[place + np.uintp(3)] & 0x3F)
    code = (first & np.uint32(0x07)) << np.uint32(18) | second << np.uint32(12) | third << np.uint32(6) | fourth
    return code, np.uintp(4)


@helper
def _kind_at(data: Array, place: Int, stop: Int, pages: Array, blocks: Array) -> np.uint32:
    """Return the kind of the code point at ``place``; a separator at the end."""
    if place >= stop:
        return np.uint32(SEPARATOR)
    code, _ = _code_at(data, place)
    entry = blocks[(np.uintp(pages[code >> np.uint32(8)]) << np.uintp(8)) + np.uintp(code & np.uint32(255))]
    kind: np.uint32 = entry & _KIND
    return kind
