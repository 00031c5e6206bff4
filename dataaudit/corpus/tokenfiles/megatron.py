"""Megatron's index (``.idx``): how the tokens of a ``.bin`` are cut into sequences, and these into documents.

Little-endian, without gaps: 9 bytes of magic, the version 1 (uint64), a code of the tokens' type (uint8), the number S
of sequences and D of document borders (uint64 each); then int32[S] tokens of each sequence, int64[S] the byte of the
``.bin`` at which it begins, int64[D] the sequence at which each document begins, with S at the end. Multimodal files
have int8[S] modes behind that; they are no text and are refused.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dataaudit.errors import ConfigError
from dataaudit.regular import open_regular

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
TYPES: Mapping[int, str] = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float64",
    7: "float32",
    8: "uint16",
}
"""Types by the code that stands for them."""
_CODES = {name: code for code, name in TYPES.items()}
_HEAD = struct.Struct("<9sQBQQ")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What an index says."""

    dtype: np.dtype[Any]
    """Of the tokens, little-endian."""
    starts: np.ndarray
    """int64[D] token of the ``.bin`` at which each document begins, and where the last one ends."""


def index_path(path: Path) -> Path:
    """Return where the index of a ``.bin`` lies."""
    return path.with_suffix(".idx")


def write_index(file: BinaryIO, dtype: np.dtype[Any], lengths: Sequence[np.ndarray]) -> None:
    """Write an index of documents of one sequence each.

    Args:
        file: Where to.
        dtype: Of the tokens.
        lengths: int32[...] tokens of each document, in pieces.
    """
    total = sum(map(len, lengths))
    file.write(_HEAD.pack(MAGIC, VERSION, _CODES[dtype.name], total, total + 1))
    file.writelines(piece.astype("<i4").tobytes() for piece in lengths)
    at = 0
    for piece in lengths:
        stops = at + np.cumsum(piece, dtype=np.int64) * dtype.itemsize
        file.write((stops - piece.astype(np.int64) * dtype.itemsize).astype("<i8").tobytes())
        at = int(stops[-1]) if len(stops) else at
    borders = range(0, total + 1, _BLOCK)
    file.writelines(np.arange(one, min(one + _BLOCK, total + 1), dtype="<i8").tobytes() for one in borders)


def read_index(path: Path, size: int) -> Index:
    """Read an index and hold it against the size of its ``.bin``.

    Args:
        path: The index.
        size: Bytes of the ``.bin``.

    Raises:
        ConfigError: It is absent, no index, damaged, of several modes, or not of this ``.bin``.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            head, there = file.read(_HEAD.size), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(head) < _HEAD.size or head[: len(MAGIC)] != MAGIC:
        raise ConfigError(f"{path} is no index of Megatron: expected {MAGIC!r} at its beginning")
    _, version, code, sequences, borders = _HEAD.unpack(head)
    if version != VERSION or np.dtype(TYPES.get(code, "f4")).kind not in "iu":
        kind = TYPES.get(code, f"type {code}")
        raise ConfigError(f"{path}: expected version {VERSION} with whole numbers, found version {version} with {kind}")
    expected = _HEAD.size + sequences * (4 + 8) + borders * 8
    if there != expected:
        modes = "a multimodal index, which is not of text" if there == expected + sequences else "it is damaged"
        raise ConfigError(f"{path} has {there:,} bytes, by its head it would have {expected:,}: {modes}")
    dtype = np.dtype(TYPES[code]).newbyteorder("<")
    raw = np.memmap(path, mode="r")
    at = _HEAD.size
    lengths = raw[at : at + 4 * sequences].view("<i4")
    pointers = raw[at + 4 * sequences : at + 12 * sequences].view("<i8")
    documents = raw[at + 12 * sequences :].view("<i8")
    stops = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    follow = (lengths >= 0).all() and (pointers == stops[:-1] * dtype.itemsize).all()
    cut = len(documents) and documents[0] == 0 and documents[-1] == sequences and (np.diff(documents) >= 0).all()
    if not (follow and cut):
        raise ConfigError(f"{path} is damaged: its sequences or documents do not follow one another")
    if size != stops[-1] * dtype.itemsize:
        raise ConfigError(
            f"{path.with_suffix('.bin')} has {size:,} bytes, its index says {int(stops[-1]) * dtype.itemsize:,}",
            "It is cut, or the index is another file's.",
        )
    return Index(dtype=dtype, starts=stops[documents])
