"""Keyed rows of a sub-shard on disk: sorted by key, in blocks of rows whose keys have one first byte.

A link task that owns some first bytes reads only their blocks of every file, so no shuffle is needed and
memory is bounded by the rows of those bytes. Every block has its sha256 in the file's head, and so has the
head itself, together with the file's place in the store: rows that were cut, flipped, lost or another's are found out
before they are counted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.atomic import DamagedFileError, write_whole

NUM_BYTES = 256
KEYED_VERSION = 2
"""Changes with the form of the files."""
_MAGIC = f"dataaudit keyed rows {KEYED_VERSION}\n".encode().ljust(24, b"\0")
_ALIGN = 64
_FIXED = _ALIGN
"""Bytes before the head: magic, length of the head (8 bytes), sha256 of the place and the head."""


def write_keyed(path: Path, tables: Sequence[pa.Table], schema: pa.Schema) -> None:
    """Write keyed rows, the first column of ``schema`` being a fixed-size binary key."""
    table = pa.concat_tables([schema.empty_table(), *(part.select(schema.names) for part in tables)])
    blocks, bodies = [], []
    for value, body in _blocks(table.take(_order(table.combine_chunks()))):
        blocks.append([value, len(body), _short_digest(body)])
        bodies.append(body)
    head = orjson.dumps({"schema": schema.serialize().to_pybytes().hex(), "blocks": blocks})
    fixed = _MAGIC + len(head).to_bytes(8, "little") + _head_digest(path, head)
    write_whole(path, fixed, _padded(head), *bodies)


def read_keyed(path: Path, start: int, stop: int) -> pa.Table:
    """Return the rows whose key's first byte is in [start, stop).

    Raises:
        DamagedFileError: The file is absent or damaged.
    """
    try:
        with pa.OSFile(os.fsencode(path), "rb") as source:
            schema, blocks, position = _head(path, source)
            wanted = [block for block in blocks if start <= block[0] < stop]
            source.seek(position + sum(size for value, size, _ in blocks if value < start))
            data = source.read_buffer(sum(size for _, size, _ in wanted))
    except FileNotFoundError:
        raise DamagedFileError(str(path)) from None
    batches, position = [], 0
    for _, size, digest in wanted:
        body = data.slice(position, min(size, data.size - position))
        if _short_digest(memoryview(body)) != digest:
            raise DamagedFileError(str(path))
        batches.append(pa.ipc.read_record_batch(body, schema))
        position += size
    return pa.Table.from_batches(batches, schema=schema)


def stored_bytes(path: Path, start: int, stop: int) -> int:
    """Return the bytes of the rows that :func:`read_keyed` would return, from the file's head alone.

    Raises:
        DamagedFileError: The file is absent or its head is damaged.
    """
    try:
        with pa.OSFile(os.fsencode(path), "rb") as source:
            _, blocks, _ = _head(path, source)
    except FileNotFoundError:
        raise DamagedFileError(str(path)) from None
    return sum(size for value, size, _ in blocks if start <= value < stop)


def is_keyed(path: Path) -> bool:
    """Tell by its first bytes whether a file holds keyed rows.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def is_sound(path: Path) -> bool:
    """Tell whether a file is there whole, as it was written."""
    try:
        read_keyed(path, 0, NUM_BYTES)
    except DamagedFileError:
        return False
    return True


def key_matrix(array: pa.FixedSizeBinaryArray) -> np.ndarray:
    """uint8[n, width] of the keys, without copying."""
    width = array.type.byte_width
    if len(array) == 0:
        return np.zeros((0, width), dtype=np.uint8)
    values = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return values[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def _order(table: pa.Table) -> pa.Array:
    """Return the order by key, then by the second column, then as it was.

    Keys are mostly hashes: few are equal in their first eight bytes, and only these are compared further. That takes a
    sixth of the time of Arrow's sort of two columns, which does what is left.
    """
    first, second = table.column(0), table.column(1)
    if table.num_rows < 2 or not pa.types.is_integer(second.type) or second.null_count:
        return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names[:2]])
    keys = np.concatenate([key_matrix(chunk) for chunk in first.chunks])
    heads = np.zeros((len(keys), 8), dtype=np.uint8)
    heads[:, : min(8, keys.shape[1])] = keys[:, :8]
    values = heads.view(">u8").reshape(-1).astype(np.uint64)
    order = np.argsort(values)
    same = np.zeros(len(order) + 1, dtype=bool)
    same[1:-1] = values[order[1:]] == values[order[:-1]]
    tied = np.flatnonzero(same[:-1] | same[1:])
    chosen = order[tied]
    further = [keys[chosen, place] for place in range(keys.shape[1] - 1, 7, -1)]
    order[tied] = chosen[np.lexsort((chosen, second.to_numpy()[chosen], *further, values[chosen]))]
    return pa.array(order)


def _blocks(table: pa.Table) -> Iterator[tuple[int, bytes]]:
    """Yield (first byte, record batch as a message) of a sorted table; a first byte may have several."""
    for batch in table.to_batches():
        bounds = np.searchsorted(key_matrix(batch.column(0))[:, 0], np.arange(NUM_BYTES + 1))
        for value in np.flatnonzero(np.diff(bounds)).tolist():
            piece = batch.slice(int(bounds[value]), int(bounds[value + 1] - bounds[value]))
            yield value, _padded(piece.serialize().to_pybytes())


def _head(path: Path, source: pa.NativeFile) -> tuple[pa.Schema, list[tuple[int, int, str]], int]:
    """Return a file's schema and blocks (first byte, size, digest), checked, and where the first begins."""
    fixed = source.read(_FIXED)
    length = int.from_bytes(fixed[len(_MAGIC) : len(_MAGIC) + 8], "little")
    head = source.read(length) if fixed.startswith(_MAGIC) and length <= source.size() else b""
    if _head_digest(path, head) != fixed[len(_MAGIC) + 8 :]:
        raise DamagedFileError(str(path))
    value = orjson.loads(head)
    schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(value["schema"])))
    return schema, [tuple(block) for block in value["blocks"]], _FIXED + length + -length % _ALIGN


def _head_digest(path: Path, head: bytes) -> bytes:
    """Return the digest of a head in its place: rows of another part, stage or partition are not these rows."""
    place = f"{path.parent.parent.name}/{path.name}\n"
    return hashlib.sha256(os.fsencode(place) + head).digest()


def _short_digest(body: bytes | memoryview) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGN)
