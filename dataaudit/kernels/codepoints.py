"""Which documents hold a code point of a set: one pass over the bytes, eight at a time where they are ASCII."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dataaudit.kernels.jit import READ_BYTES, READ_OFFSETS, compiled

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
    one, eight = np.uintp(1), np.uintp(8)  # unsigned: no index wraps around
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
                    place += one
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
