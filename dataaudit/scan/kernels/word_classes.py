"""What every code point means to a word: a table of two stages, built once from this Python's ``unicodedata``.

The Unicode version is part of every key and of the manifest (``unicode`` among the libraries).
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np

from dataaudit.base.cache import kept
from dataaudit.scan.kernels.jit import Array

SEPARATOR = 0
"""Ends a word."""
IGNORED = 1
"""As if it were not there: format characters, variation selectors, fillers, enclosing marks."""
LETTER = 2
"""Part of a word: a letter or a number that is no decimal digit."""
DIGITS = 3
"""Part of a word; folds to ASCII digits alone."""
ALONE = 4
"""A letter of a script without spaces: a word of its own, with the marks after it."""
EXTEND = 5
"""A mark whose order matters: a vowel sign."""
MARK = 6
"""A mark whose order among others of one letter carries no meaning (non-zero combining class)."""
APOSTROPHE = 7
"""Ignored between letters, else a separator."""
POINT = 8
"""Ignored between digits, else a separator."""

KIND_BITS = 4
SEVERAL = 1 << 27
"""Payload bit: the rest is an index into ``expansions``."""
IS_MARK = 1 << 31
"""In ``expansions``: the code point is a mark."""

_APOSTROPHES = "'\u2019\u02bc\uff07"
_IGNORED = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0100, 0xE01EF),
)
"""Default-ignorable code points that are not of category Cf."""
_SCRIPTS_LIST = (
    "CJK_ HIRAGANA KATAKANA HALFWIDTH_KATAKANA HENTAIGANA IDEOGRAPHIC BOPOMOFO THAI_ LAO_ KHMER_ MYANMAR_ TIBETAN_ YI_ "
    "TAI_ NEW_TAI_ JAVANESE_ BALINESE_ TANGUT_ NUSHU_ KHITAN_"
)
_WITHOUT_SPACES = tuple(name.replace("_", " ") for name in _SCRIPTS_LIST.split())
"""Scripts that are written without spaces between words, by the beginning of their characters' names."""
_IDEOGRAPHS = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0x17000, 0x18D00), (0x20000, 0x2F800), (0x30000, 0x33480))
"""Large ranges of letters that fold to themselves: to read each name would take a second."""
_PAGE = 256
_NAMES = ("pages", "blocks", "expansions", "ascii")
_IOTA_BELOW = "\u0345"


@dataclass(frozen=True, slots=True)
class WordClasses:
    """The table; ``blocks[pages[code >> 8] * 256 + (code & 255)]`` is kind | payload << 4, payload 0 for itself."""

    pages: Array
    """uint16[0x1100]."""
    blocks: Array
    """uint32[256 * b]."""
    expansions: Array
    """uint32[e]: at the index of a payload the number of code points, then each, with :data:`IS_MARK`."""
    ascii: Array
    """uint8[256]: the folded byte of an ASCII letter or digit, 0 for every other byte."""


@cache
def word_classes() -> WordClasses:
    """Return the table, from disk if an earlier process built it, which takes a third of a second."""
    inputs = [Path(__file__).read_bytes(), unicodedata.unidata_version.encode()]
    return kept("word-classes", inputs, _built, _read)


def _built() -> bytes:
    table, file = build_word_classes(), BytesIO()
    np.savez(file, **{name: getattr(table, name) for name in _NAMES})
    return file.getvalue()


def _read(data: bytes) -> WordClasses:
    with np.load(BytesIO(data)) as arrays:
        return WordClasses(**{name: arrays[name] for name in _NAMES})


def build_word_classes() -> WordClasses:
    """Build the table from ``unicodedata``."""
    entries = np.zeros(0x110000, dtype=np.uint32)
    expansions: list[int] = [0]
    category = unicodedata.category
    ideographs = {code for low, high in _IDEOGRAPHS for code in range(low, high) if category(chr(code)) == "Lo"}
    entries[sorted(ideographs)] = ALONE
    for code in (*range(0x33480), *range(0xE0000, 0xE0200)):
        char = chr(code)
        if code in ideographs:
            continue
        kind = category(char)
        if kind in ("Cf", "Me"):
            entries[code] = IGNORED
        elif kind[0] in "LMN":
            entries[code] = _entry(char, kind, expansions)
    for low, high in _IGNORED:
        entries[low : high + 1] = IGNORED
    for char in _APOSTROPHES:
        entries[ord(char)] = APOSTROPHE
    for char in ".,":
        entries[ord(char)] = POINT
    blocks, pages = np.unique(entries.reshape(-1, _PAGE), axis=0, return_inverse=True)
    ascii_bytes = np.zeros(256, dtype=np.uint8)
    for code in range(128):
        if chr(code).isalnum():
            ascii_bytes[code] = ord(chr(code).lower())
    return WordClasses(
        pages.astype(np.uint16).reshape(-1), blocks.reshape(-1), np.array(expansions, dtype=np.uint32), ascii_bytes
    )


def _entry(char: str, category: str, expansions: list[int]) -> int:
    """Return the entry of a letter, mark or number; adds to the expansions when it folds to several code points."""
    folded = [part for part in _folded(char) if unicodedata.category(part)[0] in "LMN"]
    marks = [bool(unicodedata.combining(part)) for part in folded]
    if not folded:
        return IGNORED
    if all(marks):
        kind = MARK
    elif category[0] == "M":
        kind = EXTEND
    elif unicodedata.name(char, "").startswith(_WITHOUT_SPACES):
        kind = ALONE
    elif all("0" <= part <= "9" for part in folded):
        kind = DIGITS
    else:
        kind = LETTER
    if folded == [char]:
        return kind
    if len(folded) == 1:
        return kind | ord(folded[0]) << KIND_BITS
    payload = len(expansions) | SEVERAL
    expansions.append(len(folded))
    expansions += [ord(part) | (IS_MARK if mark else 0) for part, mark in zip(folded, marks, strict=True)]
    return kind | payload << KIND_BITS


def _folded(char: str) -> str:
    """Return a character without case and compatibility variants, decomposed; decimal digits as ASCII ones.

    The iota below a Greek letter stays a mark: as the letter that case folding makes of it, its place among other
    marks would matter.
    """
    parts = unicodedata.normalize("NFKD", char)
    lower = "".join(part if part == _IOTA_BELOW else part.casefold() for part in parts)
    folded = unicodedata.normalize("NFKD", lower)
    return "".join(str(unicodedata.decimal(part, part)) for part in folded)
