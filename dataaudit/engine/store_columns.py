"""Columns on disk, as long as the corpus: written once, in order, then mapped, so no process has to hold them.

The system keeps mapped pages while there is room. The files lie in the state folder and have no name, so they are gone
with the process, however it ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.lazy import OnDemand
from dataaudit.engine.state_folder import writing
from dataaudit.manifest.canonical import list_items
from dataaudit.manifest.publish import GROUP_ROWS

T = TypeVar("T")
_BUFFERED = 4096
"""Rows, or texts, that are held until they are written."""
_CHUNK_BYTES = 1 << 20


class RowWriter:
    """Writes rows of fixed width, one after the other.

    Args:
        folder: Where the file lies.
        dtype: Of a row; structured, or of one value.

    Raises:
        StateFolderError: The folder cannot be written; so do all methods.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self._folder, self._dtype = folder, dtype
        self._rows: list[Any] = []
        self._number = 0
        with writing(folder):
            descriptor, name = tempfile.mkstemp(dir=folder)
            os.unlink(name)
        self._file = os.fdopen(descriptor, "w+b")
        weakref.finalize(self, self._file.close)  # when an error comes before all is written

    def append(self, row: Any) -> None:
        """Write one: a tuple of a structured row, or a value."""
        self._rows.append(row)
        if len(self._rows) >= _BUFFERED:
            self._flush()

    def extend(self, rows: np.ndarray) -> None:
        """Write some, ``dtype[n]``."""
        self._flush()
        self._write(np.ascontiguousarray(rows, dtype=self._dtype))

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._write(np.array(rows, dtype=self._dtype))

    def _write(self, rows: np.ndarray) -> None:
        with writing(self._folder):
            self._file.write(rows.data)
        self._number += len(rows)

    def done(self) -> np.ndarray:
        """Return all of them, ``dtype[n]``, not writable; nothing more can be written."""
        self._flush()
        with writing(self._folder), self._file:
            self._file.flush()
            if self._number == 0:
                return np.zeros(0, dtype=self._dtype)
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype=self._dtype)  # np.memmap is an array, too, but slow to look at by element


class Texts(OnDemand[bytes]):
    """Byte strings on disk.

    Args:
        data: uint8[m] all of them, one after the other.
        ends: int64[n] where each ends.
    """

    def __init__(self, data: np.ndarray, ends: np.ndarray) -> None:
        self._data, self._ends = data, ends

    def __len__(self) -> int:
        return len(self._ends)

    def item(self, place: int) -> bytes:
        """Make one."""
        start = self._ends[place - 1] if place else 0
        return self._data[start : self._ends[place]].tobytes()


class TextWriter:
    """Writes byte strings, one after the other.

    Args:
        folder: Where the files lie.

    Raises:
        StateFolderError: The folder cannot be written; so do all methods.
    """

    def __init__(self, folder: Path) -> None:
        self._data = RowWriter(folder, np.dtype("u1"))
        self._ends = RowWriter(folder, np.dtype("i8"))
        self._held: list[bytes] = []
        self._size = self._end = 0

    def append(self, text: bytes) -> None:
        """Write one."""
        self._held.append(text)
        self._size += len(text)
        self._end += len(text)
        self._ends.append(self._end)
        if self._size >= _CHUNK_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._data.extend(np.frombuffer(b"".join(self._held), dtype=np.uint8))
        self._held, self._size = [], 0

    def done(self) -> Texts:
        """Return all of them; nothing more can be written."""
        self._flush()
        return Texts(self._data.done(), self._ends.done())


class Values(OnDemand[T]):
    """Values on disk, each made again whenever it is asked for.

    Args:
        packed: Of :func:`packed`.
        make: Makes a value of what was packed; tuples are tuples again.
    """

    def __init__(self, packed: Texts, make: Callable[[Any], T]) -> None:
        self._packed, self._make = packed, make

    def __len__(self) -> int:
        return len(self._packed)

    def item(self, place: int) -> T:
        """Make one."""
        return self._make(unpacked(self._packed[place]))


def packed(value: object) -> bytes:
    """Return plain values and tuples of such as bytes; a path may have any bytes in its names."""
    import msgpack

    data: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return data


def unpacked(data: bytes) -> Any:
    """Return what :func:`packed` took."""
    import msgpack

    return msgpack.unpackb(data, use_list=False, unicode_errors="surrogateescape")


class Codes(Generic[T]):
    """Small numbers for values of which there are few."""

    def __init__(self, values: Iterable[T] = ()) -> None:
        self.values: list[T] = []
        """By number."""
        self._numbers: dict[T, int] = {}
        for value in values:
            self.of(value)

    def of(self, value: T) -> int:
        """Return the number of a value."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


def first_of_equal(words: np.ndarray, later: np.ndarray | None = None) -> np.ndarray:
    """Return int64[n]: of each row, the first row that equals it."""
    keys = (words[:, 1], words[:, 0])
    order = np.lexsort(keys if later is None else (later, *keys))  # stable
    ranked = words[order]
    new = np.concatenate([[True], (ranked[1:] != ranked[:-1]).any(axis=1)])[: len(order)]
    firsts = np.empty(len(order), dtype=np.int64)
    firsts[order] = order[new][np.cumsum(new) - 1]
    return firsts


_HELD = 1 << 17
"""Rows that are held and sorted at a time; more lie on disk."""
_RATIO = 4
"""A run that is not this many times as long as what comes is merged with it, so runs stay few."""
_HEADS = 1 << 64


class SortedRows:
    """Rows of fixed width in runs, each in order of ``head``, which is a part of a digest: about evenly spread.

    Args:
        folder: Where many of them lie.
        dtype: Of a row, first the field ``head``, an aligned uint64.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self._folder, self._dtype = folder, dtype
        self._runs: list[np.ndarray] = []

    def add(self, pieces: Iterable[np.ndarray], stay: Callable[[np.ndarray], np.ndarray]) -> None:
        """Take more rows."""
        fresh, held = self._sorted(pieces), list(self._runs)
        number = sum(map(len, fresh))
        while held and len(held[-1]) < _RATIO * number:
            fresh.insert(0, held.pop())
            number += len(fresh[0])
        self._runs = held + ([self._merged(fresh, number, stay)] if len(fresh) > 1 else fresh)

    def _sorted(self, pieces: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Return rows in runs: those that are many on disk, one behind the other."""
        writer, ends = None, [0]
        held, number = [np.zeros(0, dtype=self._dtype)], 0
        for piece in pieces:
            held.append(piece)
            number += len(piece)
            if number - ends[-1] >= _HELD:
                writer = writer or RowWriter(self._folder, self._dtype)
                writer.extend(_ordered(held))
                ends.append(number)
                held = held[:1]
        written = held[0] if writer is None else writer.done()
        runs = [written[start:stop] for start, stop in pairwise(ends)]
        return [run for run in (*runs, _ordered(held)) if len(run)]

    def _merged(self, runs: list[np.ndarray], number: int, stay: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the rows of runs as one, in memory where they are few; of equal heads those of the first run first."""
        ranges = -(-number // _HELD)
        writer = RowWriter(self._folder, self._dtype) if ranges > 1 else None
        starts, rows = [0] * len(runs), np.zeros(0, dtype=self._dtype)
        for bound in (_HEADS * place // ranges for place in range(1, ranges + 1)):
            stops = [len(run) if bound == _HEADS else _place(run, bound) for run in runs]
            rows = _ordered([run[start:stop] for run, start, stop in zip(runs, starts, stops, strict=True)])
            rows, starts = rows[stay(rows)], stops
            if writer is not None:
                writer.extend(rows)
        return rows if writer is None else writer.done()

    def at(self, head: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a head."""
        for run in self._runs:
            place = _place(run, head)
            while place < len(run):
                row = run[place].item()
                if row[0] != head:
                    break
                yield row
                place += 1

    def at_all(self, heads: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows of many heads, uint64[n]: int64[k] places of some heads, and ``dtype[k]`` a row of each.

        Of one head the rows come in the order of :meth:`at`.
        """
        order = np.argsort(heads, kind="stable")  # neighbours lie on the same pages
        for run in self._runs:
            which, column = order, run["head"]
            places = column.searchsorted(heads[order])
            while True:
                inside = places < len(run)
                which, places = which[inside], places[inside]
                same = column[places] == heads[which]
                which, places = which[same], places[same]
                if not len(which):
                    break
                yield which, run[places]
                places = places + 1


def _place(run: np.ndarray, head: int) -> int:
    """Return where the rows of a head begin."""
    return int(run["head"].searchsorted(np.uint64(head)))


def _ordered(pieces: list[np.ndarray]) -> np.ndarray:
    """Return rows in order of their heads; equal ones as they come."""
    rows = np.concatenate(pieces)
    return rows[np.argsort(rows["head"], kind="stable")]


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
        arrays = [pa.chunked_array([joined.array(data) for joined in column]) for column in columns]
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
            children = [self.join(field.type, [item[place] for item in opened]) for place, field in enumerate(kind)]
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
