"""Keyed rows of a sub-shard on disk: sorted by key, one Arrow record batch per first byte of the key.

A link task that owns some first bytes reads only their batches of every file, so no shuffle is needed and
memory is bounded by the rows of those bytes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NUM_BYTES = 256


def write_keyed(path: Path, tables: Sequence[pa.Table], schema: pa.Schema) -> None:
    """Write keyed rows, the first column of ``schema`` being a fixed-size binary key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.concat_tables([schema.empty_table(), *(part.select(schema.names) for part in tables)]).combine_chunks()
    order = pc.sort_indices(table, sort_keys=[(schema.names[0], "ascending"), (schema.names[1], "ascending")])
    table = table.take(order).combine_chunks()
    bounds = np.searchsorted(first_bytes(table.column(0)), np.arange(NUM_BYTES + 1))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for value in range(NUM_BYTES):
                piece = table.slice(int(bounds[value]), int(bounds[value + 1] - bounds[value]))
                batches = piece.combine_chunks().to_batches()
                writer.write_batch(batches[0] if batches else _no_rows(schema))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_keyed(path: Path, start: int, stop: int) -> pa.Table:
    """Return the rows whose key's first byte is in [start, stop)."""
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch(value) for value in range(start, stop)]
        return pa.Table.from_batches(batches, schema=reader.schema)


def first_bytes(column: pa.ChunkedArray) -> np.ndarray:
    """uint8[n] first byte of every key."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return key_matrix(array)[:, 0]


def key_matrix(array: pa.FixedSizeBinaryArray) -> np.ndarray:
    """uint8[n, width] of the keys, without copying."""
    width = array.type.byte_width
    if len(array) == 0:
        return np.zeros((0, width), dtype=np.uint8)
    values = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return values[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
