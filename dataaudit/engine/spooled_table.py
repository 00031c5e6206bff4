"""A table as long as the corpus: its rows are written to disk as they come, and it is mapped, each column in one piece.

A file of Parquet depends on how the columns that are written lie in memory: its pages end where a piece of a column
does. So the pieces are put together, on disk, buffer by buffer: of each type what Arrow's columnar format says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.engine.spool import RowWriter
from dataaudit.manifest.canonical import list_items
from dataaudit.manifest.publish import GROUP_ROWS

_ALIGN = 64
_PIECE_ROWS = 1024
_BYTE = np.dtype("u1")


class TableWriter:
    """Writes the rows of a table, some at a time.

    Args:
        folder: Where the files lie.
        schema: Of fixed-width numbers, strings, lists and structs.

    Raises:
        StateFolderError: The folder cannot be written; so do all methods.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._schema = folder, schema
        self._file = _File(folder)
        self._held = schema.empty_table()
        self._pieces: list[slice] = []

    def append(self, table: pa.Table) -> None:
        """Write some rows."""
        self._held = pa.concat_tables([self._held, table])
        while self._held.num_rows >= _PIECE_ROWS:
            self._write(self._held.slice(0, _PIECE_ROWS))
            self._held = self._held.slice(_PIECE_ROWS)

    def _write(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            writer.write_table(table.combine_chunks())
        self._pieces.append(self._file.put([np.frombuffer(sink.getvalue(), dtype=_BYTE)]))

    def done(self) -> pa.Table:
        """Return all of them, each column in pieces of as many rows as a row group; nothing more can be written."""
        self._write(self._held)
        pieces, whole = self._file.mapped(), _File(self._folder)
        step = GROUP_ROWS // _PIECE_ROWS
        groups = [self._pieces[start : start + step] for start in range(0, len(self._pieces), step)]
        columns = [
            [
                whole.join(field.type, [chunk for at in group for chunk in _column(pieces, at, place)])
                for group in groups
            ]
            for place, field in enumerate(self._schema)
        ]
        data = whole.mapped()
        arrays = [pa.chunked_array([one.array(data) for one in column]) for column in columns]
        return pa.table(arrays, schema=self._schema)


def _column(pieces: pa.Buffer, at: slice, place: int) -> list[pa.Array]:
    """Return a column of some rows; all columns of all rows at once would be many objects."""
    options = pa.ipc.IpcReadOptions(included_fields=[place])
    chunks: list[pa.Array] = (
        pa.ipc.open_stream(pieces.slice(at.start, at.stop - at.start), options=options).read_all().column(0).chunks
    )
    return chunks


@dataclass(frozen=True, slots=True)
class _Joined:
    """An array that was written: where its buffers lie."""

    kind: pa.DataType
    length: int
    nulls: int
    buffers: list[slice | None]
    children: list[_Joined]

    def array(self, data: pa.Buffer) -> pa.Array:
        """Return it, of the mapped file."""
        buffers = [None if at is None else data.slice(at.start, at.stop - at.start) for at in self.buffers]
        children = [child.array(data) for child in self.children]
        return pa.Array.from_buffers(self.kind, self.length, buffers, self.nulls, children=children)


class _File:
    """Buffers, one behind the other, each where Arrow wants it: at a multiple of 64 bytes."""

    def __init__(self, folder: Path) -> None:
        self._writer = RowWriter(folder, _BYTE)
        self._end = 0

    def put(self, pieces: Iterable[np.ndarray]) -> slice:
        """Write a buffer, in pieces; return where it lies."""
        start = self._end
        for piece in pieces:
            self._writer.extend(piece.view(_BYTE))
            self._end += piece.nbytes
        stop = self._end
        self._writer.extend(np.zeros(-stop % _ALIGN, dtype=_BYTE))
        self._end += -stop % _ALIGN
        return slice(start, stop)

    def mapped(self) -> pa.Buffer:
        """Return all of them; nothing more can be written."""
        return pa.py_buffer(self._writer.done())

    def join(self, kind: pa.DataType, chunks: list[pa.Array]) -> _Joined:
        """Write chunks as one array."""
        nulls = sum(chunk.null_count for chunk in chunks)
        valid = self.put([_bits(chunks)]) if nulls else None
        buffers, children = [valid], list[_Joined]()
        if pa.types.is_struct(kind):
            opened = [chunk.flatten() for chunk in chunks]
            children = [self.join(field.type, [one[place] for one in opened]) for place, field in enumerate(kind)]
        elif pa.types.is_list(kind):
            buffers.append(self.put(_ends(chunks, pc.list_value_length)))
            children = [self.join(kind.value_type, [list_items(chunk) for chunk in chunks])]
        elif pa.types.is_string(kind):
            buffers += [self.put(_ends(chunks, pc.binary_length)), self.put(map(_text, chunks))]
        else:
            buffers.append(self.put(_numbers(chunk) for chunk in chunks))
        return _Joined(kind, sum(map(len, chunks)), nulls, buffers, children)


def _bits(chunks: list[pa.Array]) -> np.ndarray:
    """Return where there is a value, a bit each."""
    valid = [chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.packbits(np.concatenate(valid), bitorder="little")


def _ends(chunks: list[pa.Array], length: Callable[[pa.Array], pa.Array]) -> Iterable[np.ndarray]:
    """Yield where the first value begins, then where each ends, int32; a null has no length."""
    end = np.zeros(1, dtype=np.int64)
    yield end.astype(np.int32)
    for chunk in chunks:
        ends = end[-1] + np.cumsum(pc.fill_null(length(chunk), 0).to_numpy(), dtype=np.int64)
        end = ends if len(ends) else end
        assert end[-1] <= np.iinfo(np.int32).max, "as many rows as a row group has stay below"
        yield ends.astype(np.int32)


def _text(chunk: pa.Array) -> np.ndarray:
    """Return all bytes of strings, nulls as nothing."""
    plain = pc.fill_null(chunk, "")
    _, ends, data = plain.buffers()
    if len(plain) == 0 or data is None:
        return np.zeros(0, dtype=_BYTE)
    first, last = np.frombuffer(ends, dtype=np.int32)[[plain.offset, plain.offset + len(plain)]].tolist()
    return np.frombuffer(data, dtype=_BYTE)[first:last]


def _numbers(chunk: pa.Array) -> np.ndarray:
    """Return the bytes of numbers; what stands for nulls is anything."""
    width = chunk.type.byte_width
    return np.frombuffer(chunk.buffers()[1], dtype=_BYTE)[chunk.offset * width : (chunk.offset + len(chunk)) * width]
