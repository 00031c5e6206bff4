"""Token files as trainers read them: Megatron's ``.bin``/``.idx`` or flat ones, and the map of their documents.

Megatron's index (``.idx``) cuts the tokens of a ``.bin`` into sequences, and these into documents; a flat file is cut
at its end tokens. The index is little-endian, without gaps: 9 bytes of magic, the version 1 (uint64), a code of the
tokens' type (uint8), the number S of sequences and D of document borders (uint64 each); then int32[S] tokens of each
sequence, int64[S] the byte of the ``.bin`` at which it begins, int64[D] the sequence at which each document begins and
S at the end. Multimodal files have int8[S] modes behind that; they are no text and are refused.

The map ``FILE.map.parquet`` has a row for each document, in the file's order. The metadata of its schema names the
manifest, tokenizer and type of tokens, so that a file and a manifest that do not belong together are refused.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import open_safely, replacing

MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_VERSION = 1
TYPES: Mapping[int, str] = dict(
    enumerate(("uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"), start=1)
)
"""Types of tokens by their code in an index."""
_CODES = {name: code for code, name in TYPES.items()}
_HEAD = struct.Struct("<9sQBQQ")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """An index that was read."""

    dtype: np.dtype[Any]
    """Of the tokens, little-endian."""
    starts: np.ndarray
    """int64[D] token of the ``.bin`` at which each document begins, then the end of the last."""


def index_path(path: Path) -> Path:
    """Return the path of a ``.bin``'s index."""
    return path.with_suffix(".idx")


def write_index(file: BinaryIO, dtype: np.dtype[Any], lengths: Sequence[np.ndarray]) -> None:
    """Write an index in which each document is a sequence."""
    total = sum(map(len, lengths))
    file.write(_HEAD.pack(MAGIC, MEGATRON_VERSION, _CODES[dtype.name], total, total + 1))
    file.writelines(piece.astype("<i4").tobytes() for piece in lengths)
    at = 0
    for piece in lengths:
        stops = at + np.cumsum(piece, dtype=np.int64) * dtype.itemsize
        file.write((stops - piece.astype(np.int64) * dtype.itemsize).astype("<i8").tobytes())
        at = int(stops[-1]) if len(stops) else at
    borders = range(0, total + 1, _BLOCK)
    file.writelines(np.arange(border, min(border + _BLOCK, total + 1), dtype="<i8").tobytes() for border in borders)


def read_index(path: Path, size: int) -> Index:
    """Read an index and check it against the size of its ``.bin``."""
    head, there = _head_and_size(path, _HEAD.size)
    if len(head) < _HEAD.size or head[: len(MAGIC)] != MAGIC:
        raise ConfigError(f"{path} is no index of Megatron: expected {MAGIC!r} at its beginning")
    _, version, code, sequences, borders = _HEAD.unpack(head)
    if version != MEGATRON_VERSION or np.dtype(TYPES.get(code, "f4")).kind not in "iu":
        kind = TYPES.get(code, f"type {code}")
        raise ConfigError(
            f"{path}: expected version {MEGATRON_VERSION} with whole numbers, found version {version} with {kind}"
        )
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


def _head_and_size(path: Path, num_bytes: int) -> tuple[bytes, int]:
    try:
        with open(path, "rb", opener=open_safely) as file:
            return file.read(num_bytes), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFileHead:
    """Type and size of a token file, known before its tokens are read."""

    path: Path
    format: Literal["megatron", "flat"]
    dtype: np.dtype[Any]
    tokens: int
    starts: np.ndarray | None
    """int64[D + 1] token at which each document begins, then the end; None of a flat file."""


def open_token_file(path: Path, dtype: str) -> TokenFileHead:
    """Return the head of a token file: Megatron's where an index lies beside it, else a flat file's."""
    _, size = _head_and_size(path, 0)
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
    """Return the starts of the documents that begin in a range of a flat file, then the end of the last."""
    first = start
    if start and tokens[start - 1] != end:
        first = _after(tokens, start, end)
    if first >= stop:
        return np.zeros(0, dtype=np.int64)
    inside = first + 1 + np.flatnonzero(tokens[first:stop] == end).astype(np.int64)
    borders = np.concatenate([[first], inside])
    return borders if borders[-1] >= stop else np.append(borders, _after(tokens, stop, end))


def _after(tokens: np.ndarray, at: int, end: int) -> int:
    """Return the position behind the next end token; the file's end when there is none."""
    for begin in range(at, len(tokens), _BLOCK):
        ends = np.flatnonzero(tokens[begin : begin + _BLOCK] == end)
        if len(ends):
            return begin + int(ends[0]) + 1
    return len(tokens)


def inner(tokens: np.ndarray, ends: Collection[int], begins: Collection[int]) -> tuple[int, int]:
    """Return the bounds of a document's own tokens, without end tokens behind and begin tokens before them."""
    start, stop = 0, len(tokens)
    while stop and int(tokens[stop - 1]) in ends:
        stop -= 1
    while start < stop and int(tokens[start]) in begins:
        start += 1
    return start, stop


def token_digest(tokens: np.ndarray) -> bytes:
    """Return 16 bytes of blake2b of tokens of any type, as little-endian uint32."""
    return blake2b(np.ascontiguousarray(tokens, dtype="<u4").data, digest_size=16).digest()


MAP_VERSION = "1"
"""Of the form of a map; maps without a version are of this form, too."""
SCHEMA = pa.schema(
    [
        pa.field("start", pa.int64(), nullable=False),
        pa.field("stop", pa.int64(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
    ]
)
"""First token of a document in the file, then the token after its last; ordinal of its shard in the manifest; record of
the shard, bad records counted; number of its source in the manifest, -1 for any other."""
_METADATA = {"manifest", "dtype", "tokens"}


def map_path(path: Path) -> Path:
    """Return the path of a file's map."""
    return path.with_name(f"{path.name}.map.parquet")


def write_map(path: Path, tables: Iterable[pa.Table], metadata: Mapping[str, str]) -> None:
    """Write the map of a token file; it appears whole or not at all."""
    schema = SCHEMA.with_metadata({**metadata, "version": MAP_VERSION})
    with replacing(map_path(path)) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata))


def map_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a token file's map."""
    where = map_path(path)
    try:
        schema = pq.read_schema(where)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{where} cannot be read: {reason}", "`dataaudit tokenize` and `write_tokens` write it beside the file."
        ) from None
    metadata = {name.decode(): value.decode() for name, value in (schema.metadata or {}).items()}
    is_known = metadata.get("version", MAP_VERSION) == MAP_VERSION and metadata.keys() >= _METADATA
    if not is_known or not schema.remove_metadata().equals(SCHEMA):
        raise ConfigError(
            f"{where} is no map of a token file, or one of a newer version",
            "`dataaudit tokenize` and `write_tokens` write one.",
        )
    return metadata


def read_map(path: Path) -> tuple[pa.Table, dict[str, str]]:
    """Return the map of a token file, and its metadata."""
    metadata = map_metadata(path)
    try:
        return pq.read_table(map_path(path)), metadata
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{map_path(path)} cannot be read: {reason}", "Write the file anew.") from None
