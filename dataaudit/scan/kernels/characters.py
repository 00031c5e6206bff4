"""Classes of characters, as bits, for kernels that walk over UTF-8: built once from this Python's ``unicodedata``.

The Unicode version is part of every key and of the manifest (``unicode`` among the libraries). Only the sentence
terminals are a list of our own: the property Sentence_Terminal of Unicode 15.1 (PropList.txt), which ``unicodedata``
does not have, and the ideographic full stop with its forms.

Which documents hold a code point of a set: one pass over the bytes, eight at a time where they are ASCII.

How many names a document may hold: capitalised words within sentences. A cheap screen for named entities.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dataaudit.base.cache import kept
from dataaudit.scan.kernels.jit import READ_BYTES, READ_OFFSETS, Array, Integer, compiled, helper

SPACE = 1
"""``str.isspace``."""
LETTER = 2
"""``str.isalpha``."""
UPPER = 4
"""A letter that ``str.isupper`` says yes to."""
LOWER = 8
"""A letter that ``str.islower`` says yes to."""
DIGIT = 16
"""0 to 9."""
FRONT = 32
"""Cut from the front of a piece."""
BACK = 64
"""Cut from the back of a piece."""
ICON = 128
"""A word of its own anywhere: symbols of category So, and the ellipsis."""
PLAIN = 256
"""No punctuation, symbol or control character (categories P, S, Cc)."""
TERMINAL = 512
"""Ends a sentence."""
QUOTE = 1024
"""Quotation mark; a comma and a back quote count as one, as they do in spaCy's classes."""
BREAK = 2048
"""Ends a line, as in ``str.splitlines``."""
WORDY = 4096
"""Any category but P."""
SPECIAL = 8192
"""A piece with such a character is looked at in detail; without one it is a word."""

MARK = 16384
"""The hash sign, the curly bracket, the full stop and the ellipsis, which are counted."""
JAY = 32768
"""The letter j: rare, and in every word that holds ``javascript``."""

NUM_CLASSIFIED = 0x34000
"""Code points from here on have no class in any version of Unicode so far (private use, tags, unassigned)."""

_BREAKS = "\n\x0b\x0c\r\x1c\x1d\x1e\x85\u2028\u2029"
_ASCII_FRONT = frozenset("!\"#$%&'()*+,:;<=>?[]_`{}")
_ASCII_BACK = frozenset("!\"#&'()*,:;<>?[]_`{}")
_ASCII_INNER = frozenset("-+*^.:<>=/~%$,")
_DASHES = frozenset("\u2013\u2014")
_ACCENT = "\u00b4"
_ELLIPSIS = "\u2026"
_LOW_QUOTES = frozenset("\u201a\u201e")
_BACK_CATEGORIES = frozenset({"Ps", "Pe", "Pi", "Pf", "Po", "So"})
_SENTENCE_TERMINAL = (
    (0x21, 0x21),
    (0x2E, 0x2E),
    (0x3F, 0x3F),
    (0x589, 0x589),
    (0x61D, 0x61F),
    (0x6D4, 0x6D4),
    (0x700, 0x702),
    (0x7F9, 0x7F9),
    (0x837, 0x837),
    (0x839, 0x839),
    (0x83D, 0x83E),
    (0x964, 0x965),
    (0x104A, 0x104B),
    (0x1362, 0x1362),
    (0x1367, 0x1368),
    (0x166E, 0x166E),
    (0x1735, 0x1736),
    (0x17D4, 0x17D5),
    (0x1803, 0x1803),
    (0x1809, 0x1809),
    (0x1944, 0x1945),
    (0x1AA8, 0x1AAB),
    (0x1B5A, 0x1B5B),
    (0x1B5E, 0x1B5F),
    (0x1B7D, 0x1B7E),
    (0x1C3B, 0x1C3C),
    (0x1C7E, 0x1C7F),
    (0x203C, 0x203D),
    (0x2047, 0x2049),
    (0x2E2E, 0x2E2E),
    (0x2E3C, 0x2E3C),
    (0x2E53, 0x2E54),
    (0x3002, 0x3002),
    (0xA4FF, 0xA4FF),
    (0xA60E, 0xA60F),
    (0xA6F3, 0xA6F3),
    (0xA6F7, 0xA6F7),
    (0xA876, 0xA877),
    (0xA8CE, 0xA8CF),
    (0xA92F, 0xA92F),
    (0xA9C8, 0xA9C9),
    (0xAA5D, 0xAA5F),
    (0xAAF0, 0xAAF1),
    (0xABEB, 0xABEB),
    (0xFE52, 0xFE52),
    (0xFE56, 0xFE57),
    (0xFF01, 0xFF01),
    (0xFF0E, 0xFF0E),
    (0xFF1F, 0xFF1F),
    (0xFF61, 0xFF61),
    (0x10A56, 0x10A57),
    (0x10F55, 0x10F59),
    (0x10F86, 0x10F89),
    (0x11047, 0x11048),
    (0x110BE, 0x110C1),
    (0x11141, 0x11143),
    (0x111C5, 0x111C6),
    (0x111CD, 0x111CD),
    (0x111DE, 0x111DF),
    (0x11238, 0x11239),
    (0x1123B, 0x1123C),
    (0x112A9, 0x112A9),
    (0x1144B, 0x1144C),
    (0x115C2, 0x115C3),
    (0x115C9, 0x115D7),
    (0x11641, 0x11642),
    (0x1173C, 0x1173E),
    (0x11944, 0x11944),
    (0x11946, 0x11946),
    (0x11A42, 0x11A43),
    (0x11A9B, 0x11A9C),
    (0x11C41, 0x11C42),
    (0x11EF7, 0x11EF8),
    (0x11F43, 0x11F44),
    (0x16A6E, 0x16A6F),
    (0x16AF5, 0x16AF5),
    (0x16B37, 0x16B38),
    (0x16B44, 0x16B44),
    (0x16E98, 0x16E98),
    (0x1BC9F, 0x1BC9F),
    (0x1DA88, 0x1DA88),
)


@cache
def character_classes() -> Array:
    """Return uint16[NUM_CLASSIFIED]: the bits of every code point; nobody can write to it."""
    inputs = [Path(__file__).read_bytes(), unicodedata.unidata_version.encode()]
    return kept("characters", inputs, lambda: build_character_classes().tobytes(), _read)


def _read(held: bytes) -> Array:
    return np.frombuffer(held, dtype=np.uint16)


def build_character_classes() -> Array:
    """Return the same, made of ``unicodedata`` in a sixth of a second."""
    everything = [chr(point) for point in range(NUM_CLASSIFIED)]
    categories = np.array([unicodedata.category(character) for character in everything])
    letters = _flags(str.isalpha, everything)
    classes = np.zeros(NUM_CLASSIFIED, dtype=np.uint16)
    classes[_flags(str.isspace, everything)] |= SPACE
    classes[letters] |= LETTER
    classes[letters & _flags(str.isupper, everything)] |= UPPER
    classes[letters & _flags(str.islower, everything)] |= LOWER
    classes[ord("0") : ord("9") + 1] |= DIGIT
    punctuation = _in(categories, "P")
    classes[~punctuation & ~_in(categories, "S") & (categories != "Cc")] |= PLAIN
    classes[~punctuation] |= WORDY
    wide = np.arange(NUM_CLASSIFIED) >= 128
    back = wide & np.isin(categories, sorted(_BACK_CATEGORIES))
    classes[back] |= FRONT | BACK
    classes[wide & (categories == "Sc")] |= FRONT
    classes[wide & (categories == "So")] |= ICON
    classes[wide & ((categories == "Pi") | (categories == "Pf"))] |= QUOTE
    for characters, bits in (
        (_ASCII_FRONT, FRONT),
        (_ASCII_BACK, BACK),
        (_DASHES, FRONT | BACK),
        (_ACCENT, FRONT | BACK | QUOTE),
        (_ELLIPSIS, ICON),
        (_LOW_QUOTES | frozenset("\"'`,"), QUOTE),
        (_BREAKS, BREAK),
        (_ASCII_INNER, SPECIAL),
        ("#{.\u2026", MARK),
        ("jJ", JAY),
    ):
        for character in characters:
            classes[ord(character)] |= bits
    for first, last in _SENTENCE_TERMINAL:
        classes[first : last + 1] |= TERMINAL
    classes[(classes & (FRONT | BACK | ICON)) != 0] |= SPECIAL
    return classes


def _flags(test: object, everything: list[str]) -> Array:
    assert callable(test)
    return np.fromiter(map(test, everything), dtype=bool, count=len(everything))


def _in(categories: Array, major: str) -> Array:
    return np.char.startswith(categories, major)


@helper
def read_character(data: Array, pos: Integer, classes: Array) -> tuple[Integer, Integer, Integer]:
    """Return (class, bytes, code point) of the character that starts at ``pos`` of valid UTF-8."""
    lead = np.int64(data[pos])
    if lead < 0x80:
        return np.int64(classes[lead]), 1, lead
    if lead < 0xE0:
        point = (lead & 0x1F) << 6 | np.int64(data[pos + 1]) & 0x3F
        return np.int64(classes[point]), 2, point
    tail = (np.int64(data[pos + 1]) & 0x3F) << 6 | np.int64(data[pos + 2]) & 0x3F
    if lead < 0xF0:
        point = (lead & 0x0F) << 12 | tail
        return np.int64(classes[point]), 3, point
    point = (lead & 0x07) << 18 | tail << 6 | np.int64(data[pos + 3]) & 0x3F
    return (np.int64(classes[point]) if point < NUM_CLASSIFIED else np.int64(PLAIN | WORDY)), 4, point


@helper
def class_and_width(data: Array, pos: Integer, classes: Array) -> tuple[Integer, Integer]:
    """Return (class, bytes) of the character that starts at ``pos`` of valid UTF-8."""
    kind, width, _ = read_character(data, pos, classes)
    return kind, width


@helper
def start_before(data: Array, pos: Integer) -> Integer:
    """Return where the character that ends at ``pos`` starts."""
    start = pos - 1
    while np.int64(data[start]) & 0xC0 == 0x80:
        start -= 1
    return start


Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NUM_CODE_POINTS = 0x110000


def code_point_bits(ranges: Iterable[tuple[int, int]]) -> Bytes:
    """Return uint8[0x110000 / 8]: a bit for each code point of some inclusive ranges."""
    marked = np.zeros(NUM_CODE_POINTS, dtype=np.uint8)
    for low, high in ranges:
        marked[low : high + 1] = 1
    return np.packbits(marked, bitorder="little")


def documents_with(offsets: Offsets, data: Bytes, bits: Bytes) -> Mask:
    """Tell which documents hold a code point of a set.

    Args:
        offsets: int64[n + 1], ascending from 0.
        data: uint8[offsets[n]], valid UTF-8.
        bits: Of :func:`code_point_bits`.

    Returns:
        bool[n].
    """
    found = np.zeros(len(offsets) - 1, dtype=np.bool_)
    _search(offsets, data, bits, bool(bits[:16].any()), found)
    return found


@compiled(f"void({READ_OFFSETS}, {READ_BYTES}, {READ_BYTES}, boolean, boolean[::1])")
def _search(offsets: Offsets, data: Bytes, bits: Bytes, in_ascii: bool, found: Mask) -> None:
    item, eight = np.uintp(1), np.uintp(8)  # unsigned: no index wraps around
    for document in range(len(offsets) - 1):
        place, stop = np.uintp(offsets[document]), np.uintp(offsets[document + 1])
        while place < stop:
            if not in_ascii:
                while place + eight <= stop:
                    high = np.uint8(0)
                    for step in range(eight):
                        high |= data[place + np.uintp(step)]
                    if high >= 0x80:
                        break
                    place += eight
                while place < stop and data[place] < 0x80:
                    place += item
                if place == stop:
                    break
            first = data[place]
            if first < 0x80:
                size, code = 1, np.uint32(first)
            elif first < 0xE0:
                size, code = 2, np.uint32(first & 0x1F)
            elif first < 0xF0:
                size, code = 3, np.uint32(first & 0x0F)
            else:
                size, code = 4, np.uint32(first & 0x07)
            for step in range(1, size):
                code = np.uint32(code << 6) | np.uint32(data[place + np.uintp(step)] & 0x3F)
            if (bits[np.uintp(code >> 3)] >> np.uint8(code & 7)) & 1:
                found[document] = True
                break
            place += np.uintp(size)


def count_names(values: Array, offsets: Array) -> Array:
    """Return int64[n]: ASCII capitals before a small letter, after a space that follows a small letter or a comma.

    Args:
        values: uint8[b] UTF-8 of all documents.
        offsets: int64[n + 1] where they begin and end.
    """
    counts = np.zeros(len(offsets) - 1, dtype=np.int64)
    _count(values, offsets, counts)
    return counts


@compiled(f"void({READ_BYTES}, {READ_OFFSETS}, int64[::1])")
def _count(values: Array, offsets: Array, counts: Array) -> None:
    for document in range(len(counts)):
        found = 0
        for place in range(offsets[document] + 2, offsets[document + 1] - 1):
            if values[place - 1] != 32 or values[place] < 65 or values[place] > 90:
                continue
            before, after = values[place - 2], values[place + 1]
            if 97 <= after <= 122 and (97 <= before <= 122 or before == 44):
                found += 1
        counts[document] = found
