"""White space collapsed in a whole batch at once, and the documents that may not be in NFC.

The kernel under the normal form ``nfc_space`` (:mod:`dataaudit.scan.corpus.texts`). White space is that of
``str.split``. Whether a text is in NFC is decided by code points first (Unicode Standard Annex 15, section 9,
"Detecting Normalization Forms"): a text without any code point that NFC changes or may change, and without any of non-
zero combining class, is in NFC; the others are left to the caller. :func:`normalized` takes time that does not grow
with the square of a run of marks.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Literal
from unicodedata import combining, decomposition, normalize

import numpy as np
import numpy.typing as npt

from dataaudit.base.cache import kept
from dataaudit.scan.kernels.jit import READ_BYTES, READ_OFFSETS, compiled

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PLANES_WITH_MARKS = 0x30000
"""No code point from here on decomposes or has a combining class; a test holds that for all of them."""
_HANGUL_VOWELS_AND_FINALS = range(0x1161, 0x11C3)


def collapse_spaces(offsets: Offsets, data: Bytes) -> tuple[Offsets, Bytes, Mask]:
    """Collapse every run of white space to a space and strip both ends, document by document.

    The third result, bool[n], are documents with a code point that may keep them from being in NFC.
    """
    out = np.empty(len(data), dtype=np.uint8)
    out_offsets = np.zeros(len(offsets), dtype=np.int64)
    suspect = np.zeros(len(offsets) - 1, dtype=np.bool_)
    _collapse(offsets, data, _suspects(), out_offsets, out, suspect)
    return out_offsets, out[: out_offsets[-1]], suspect


@cache
def _suspects() -> Bytes:
    """uint8[0x110000 / 8], a bit for each code point that NFC changes, may change or may move."""
    inputs = [Path(__file__).read_bytes(), unicodedata.unidata_version.encode()]
    return kept("normal", inputs, lambda: build_suspects().tobytes(), lambda data: np.frombuffer(data, dtype=np.uint8))


def build_suspects() -> Bytes:
    """Return the same, made of ``unicodedata``."""
    marked = np.zeros(0x110000, dtype=np.uint8)
    for number in range(0x80, _PLANES_WITH_MARKS):
        char = chr(number)
        if unicodedata.combining(char):
            marked[number] = 1
        decomposed = unicodedata.decomposition(char)
        if decomposed and not decomposed.startswith("<"):
            parts = decomposed.split()
            if len(parts) == 2:
                marked[int(parts[1], 16)] = 1  # may compose with what stands before it
            if not unicodedata.is_normalized("NFC", char):
                marked[number] = 1
    marked[_HANGUL_VOWELS_AND_FINALS.start : _HANGUL_VOWELS_AND_FINALS.stop] = 1
    marked[:0x80] = 0
    return np.packbits(marked, bitorder="little")


@compiled(f"void({READ_OFFSETS}, {READ_BYTES}, {READ_BYTES}, int64[::1], uint8[::1], boolean[::1])")
def _collapse(offsets: Offsets, data: Bytes, suspects: Bytes, out_offsets: Offsets, out: Bytes, suspect: Mask) -> None:
    written = np.uintp(0)
    item, two, three, four = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)  # unsigned: no index wraps around
    for document in range(len(offsets) - 1):
        begun = written
        place, stop = np.uintp(offsets[document]), np.uintp(offsets[document + 1])
        gap = False
        found = False
        while place < stop:
            first = data[place]
            if first <= 0x20 and (first == 0x20 or 0x09 <= first <= 0x0D or 0x1C <= first <= 0x1F):
                gap = True
                place += item
                continue
            size = item
            if first >= 0x80:
                if first < 0xE0:
                    size, code = two, np.uint32(first & 0x1F)
                elif first < 0xF0:
                    size, code = three, np.uint32(first & 0x0F)
                else:
                    size, code = four, np.uint32(first & 0x07)
                for step in range(item, size):
                    code = np.uint32(code << 6) | np.uint32(data[place + step] & 0x3F)
                if (
                    0x2000 <= code <= 0x200A
                    or code in (0x85, 0xA0, 0x1680)
                    or code in (0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
                ):
                    gap = True
                    place += size
                    continue
                found |= (suspects[np.uintp(code >> 3)] >> np.uint8(code & 7)) & 1 != 0
            if gap and written > begun:
                out[written] = 0x20
                written += item
            gap = False
            for _ in range(size):
                out[written] = data[place]
                written += item
                place += item
            while place < stop and 0x20 < data[place] < 0x80:
                out[written] = data[place]
                written += item
                place += item
        suspect[document] = found
        out_offsets[document + 1] = written


Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
LONG_RUN = 64
"""Marks in a row from which on they are put in order here."""
_BEYOND_MARKS = 0x20000
"""No code point from here on has a combining class, or decomposes to such a code point; a test checks that."""


def normalized(form: Form, text: str) -> str:
    """Return a normal form of a text, in time that grows like n log n.

    ``unicodedata`` puts marks in order by insertion, which takes n^2 steps for n marks in a row. So those of a long
    run are put in canonical order first, by a stable sort. That gives a canonically equivalent text, whose normal
    form is the same (Unicode Standard, section 3.11, D108 to D109).
    """
    if len(text) < LONG_RUN:
        return normalize(form, text)
    run, decomposed = _marks("NFKD" if "K" in form else "NFD")
    return normalize(form, run.sub(lambda found: _in_order(found[0].translate(decomposed)), text))


def _in_order(marks: str) -> str:
    return "".join(sorted(marks, key=combining))


@cache
def _marks(form: Form) -> tuple[re.Pattern[str], dict[int, str]]:
    """Return a pattern of long runs of marks, and the decompositions of marks by code point.

    Compatibility has marks of its own: U+FF9E, a voiced sound mark of half width, has no combining class, but what
    it decomposes to has one.
    """
    signs = map(chr, range(0x300, _BEYOND_MARKS))
    forms = {ord(sign): normalize(form, sign) for sign in signs if combining(sign) or decomposition(sign)}
    marks = {number: parts for number, parts in forms.items() if combining(parts[0])}
    listed = "".join(map(chr, marks))
    return re.compile(f"[{listed}]{{{LONG_RUN},}}"), {at: parts for at, parts in marks.items() if parts != chr(at)}
