"""Characters that nobody sees, where no script and no emoji has them."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.fault_decoders import back, point_at
from dataaudit.kernels.jit import Integer, cold

LEAST_SOFT, SOFT_ONE_IN = 5, 256
"""Soft hyphens from which on they count: so many of a document, and one in so many bytes."""


@cold
def is_invisible(data: np.ndarray, start: Integer, pos: Integer, after: Integer, end: Integer) -> Integer:
    """Return 1 where a character is not seen and belongs to nothing, 2 where only right-to-left text has it; else 0.

    Args:
        data: uint8[m] valid UTF-8.
        start: First byte of the document.
        pos: First byte of the character.
        after: Byte after it.
        end: Byte after the document.
    """
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
def flag_end(data: np.ndarray, pos: Integer, end: Integer) -> Integer:
    """Return the byte after a character of four bytes, and after its tags where it is the flag that has some."""
    after = pos + 4
    if point_at(data, pos) == 0x1F3F4:
        while after < end and data[after] == 0xF3 and 0xE0020 <= point_at(data, after) < 0xE0080:
            after += 4
    return after


@cold
def is_right_to_left(data: np.ndarray, start: Integer, end: Integer) -> bool:
    """Tell whether a document has a letter of U+0580 to U+07FF: Hebrew, Arabic, Syriac, Thaana or N'Ko."""
    at = start
    while at < end and not 0xD6 <= data[at] < 0xE0:
        at += 1
    return bool(at < end)
