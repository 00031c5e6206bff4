"""Classes of characters, as bits, for kernels that walk over UTF-8: built once from this Python's ``unicodedata``.

The Unicode version is part of every key and of the manifest (``unicode`` among the libraries). Only the sentence
terminals are a list of our own: the property Sentence_Terminal of Unicode 15.1 (PropList.txt), which ``unicodedata``
does not have, and the ideographic full stop with its forms.

Two kernels use no table: documents with a code point of a set, and names, a cheap screen for named entities.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dataaudit.base.cache import kept
from dataaudit.scan.kernels.jit import READ_BYTES, READ_OFFSETS, Array, Int, compiled, helper

SPACE = 1
"""``str.isspace``."""
LETTER = 2
"""``str.isalpha``."""
UPPER = 4
"""A letter for which ``str.isupper`` is true."""
LOWER = 8
"""A letter for which ``str.islower`` is true."""
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
"""Quotation mark; a comma and a back quote count too, as they do in spaCy's classes."""
BREAK = 2048
"""Ends a line, as in ``str.splitlines``."""
WORDY = 4096
"""Any category but P."""
SPECIAL = 8192
"""A piece with such a character is split; without it a piece is a word."""

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
    "21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 17D4-17D5 "
    "1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D 2047-2049 2E2E 2E3C "
    "2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE52 "
    "FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 "
    "111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 "
    "1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 "
    "16B37-16B38 16B44 16E98 1BC9F 1DA88"
)


@cache
def character_classes() -> Array:
    """Return uint16[NUM_CLASSIFIED]: the bits of every code point; nobody can write to it."""
    inputs = [Path(__file__).read_bytes(), unicodedata.unidata_version.encode()]
    make = build_character_classes
    return kept("characters", inputs, lambda: make().tobytes(), lambda data: np.frombuffer(data, dtype=np.uint16))


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
    for span in _SENTENCE_TERMINAL.split():
        first, _, last = span.partition("-")
        classes[int(first, 16) : int(last or first, 16) + 1] |= TERMINAL
    classes[(classes & (FRONT | BACK | ICON)) != 0] |= SPECIAL
    return classes


def _flags(test: object, everything: list[str]) -> Array:
    assert callable(test)
    return np.fromiter(map(test, everything), dtype=bool, count=len(everything))


def _in(categories: Array, major: str) -> Array:
    return np.char.startswith(categories, major)


@helper
def read_character(data: Array, pos: Int, classes: Array) -> tuple[Int, Int, Int]:
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
def class_and_width(data: Array, pos: Int, classes: Array) -> tuple[Int, Int]:
    """Return (class, bytes) of the character that starts at ``pos`` of valid UTF-8."""
    kind, width, _ = read_character(data, pos, classes)
    return kind, width


@helper
def start_before(data: Array, pos: Int) -> Int:
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
    """Return bool[n]: which documents hold a code point of a set, ``bits`` of :func:`code_point_bits`."""
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
    """Return int64[n]: ASCII capitals before a small letter, after a space that follows a small letter or a comma."""
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
