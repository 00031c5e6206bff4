"""Token files that anybody wrote, cut into documents: by Megatron's index, or flat ones by their end tokens."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dataaudit.corpus.tokenfiles.megatron import index_path, read_index
from dataaudit.errors import ConfigError
from dataaudit.regular import open_regular

DIGEST_BYTES = 16
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFileHead:
    """What is known of a token file before its tokens are read."""

    path: Path
    format: Literal["megatron", "flat"]
    dtype: np.dtype[Any]
    tokens: int
    starts: np.ndarray | None
    """int64[D + 1] of an index: token at which each document begins, and the end; None of a flat file."""


def open_token_file(path: Path, dtype: str) -> TokenFileHead:
    """Look at a token file: Megatron's where an index lies beside it, else a flat one.

    Args:
        path: The ``.bin``.
        dtype: Of a flat file, which does not say it.

    Raises:
        ConfigError: It is absent, empty, cut, or its index is damaged or another file's.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if path.suffix == ".idx":
        raise ConfigError(f"{path} is an index", f"Name the tokens: {path.with_suffix('.bin')}.")
    if not size:
        raise ConfigError(f"{path} is empty: it holds no token")
    index = read_index(index_path(path), size) if index_path(path).exists() else None
    kind = np.dtype(dtype).newbyteorder("<") if index is None else index.dtype
    if size % kind.itemsize:
        raise ConfigError(
            f"{path} has {size:,} bytes, which is no whole number of tokens of {kind.itemsize} bytes",
            "It is cut, or of another type: --dtype. A file of Megatron needs its .idx beside it.",
        )
    return TokenFileHead(
        path=path,
        format="flat" if index is None else "megatron",
        dtype=kind,
        tokens=size // kind.itemsize,
        starts=None if index is None else index.starts,
    )


def flat_borders(tokens: np.ndarray, start: int, stop: int, end: int) -> np.ndarray:
    """Return where the documents that begin in a range of a flat file begin, and where the last of them ends.

    Args:
        tokens: [T] all tokens of the file.
        start: First token of the range.
        stop: The one after its last.
        end: The token that ends a document; it belongs to the document.

    Returns:
        int64[documents + 1]; empty when none begins there.
    """
    first = start
    if start and tokens[start - 1] != end:
        first = _after(tokens, start, end)
    if first >= stop:
        return np.zeros(0, dtype=np.int64)
    inside = first + 1 + np.flatnonzero(tokens[first:stop] == end).astype(np.int64)
    borders = np.concatenate([[first], inside])
    return borders if borders[-1] >= stop else np.append(borders, _after(tokens, stop, end))


def _after(tokens: np.ndarray, at: int, end: int) -> int:
    """Return the place behind the next end token from a place on; the file's end when there is none."""
    for begin in range(at, len(tokens), _BLOCK):
        found = np.flatnonzero(tokens[begin : begin + _BLOCK] == end)
        if len(found):
            return begin + int(found[0]) + 1
    return len(tokens)


def inner(tokens: np.ndarray, ends: Collection[int], begins: Collection[int]) -> tuple[int, int]:
    """Return where a document's own tokens begin and end: without end tokens behind and begin tokens before them."""
    start, stop = 0, len(tokens)
    while stop and int(tokens[stop - 1]) in ends:
        stop -= 1
    while start < stop and int(tokens[start]) in begins:
        start += 1
    return start, stop


def token_digest(tokens: np.ndarray) -> bytes:
    """Return 16 bytes that stand for tokens, of whatever type: blake2b of them as little-endian uint32."""
    return blake2b(np.ascontiguousarray(tokens, dtype="<u4").data, digest_size=DIGEST_BYTES).digest()
