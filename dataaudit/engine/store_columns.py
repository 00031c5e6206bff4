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
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np
import pyarrow as pa

from dataaudit.base.lazy import LazySequence
from dataaudit.engine.state_folder import writing
from dataaudit.manifest.publish import GROUP_ROWS

T = TypeVar("T")
_BUFFERED = 4096
_CHUNK_BYTES = 1 << 20


def unnamed_file(folder: Path) -> BinaryIO:
    """Open a file in a folder of the state folder that is gone with the process, however it ends."""
    with writing(folder):
        descriptor, name = tempfile.mkstemp(dir=folder)
        os.unlink(name)
    return os.fdopen(descriptor, "w+b")


def _mapped(file: BinaryIO) -> mmap.mmap:
    """Map what was written to a file, and close it."""
    with file:
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class RowWriter:
    """Writes rows of fixed width, one after the other, to a file in a folder."""

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self._folder, self._dtype = folder, dtype
        self._rows: list[Any] = []
        self._number = 0
        self._file = unnamed_file(folder)
        weakref.finalize(self, self._file.close)  # when an error comes before all is written

    def append(self, row: Any) -> None:
        """Write a row: a tuple of a structured row, or a value."""
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
            if self._number == 0:
                return np.zeros(0, dtype=self._dtype)
            mapped = _mapped(self._file)
        return np.frombuffer(mapped, dtype=self._dtype)  # np.memmap is an array, too, but slow to look at by element


class Texts(LazySequence[bytes]):
    """Byte strings on disk, in ``data`` one after the other, each up to its end."""

    def __init__(self, data: np.ndarray, ends: np.ndarray) -> None:
        self._data, self._ends = data, ends

    def __len__(self) -> int:
        return len(self._ends)

    def item(self, place: int) -> bytes:
        """Make an item."""
        start = self._ends[place - 1] if place else 0
        return self._data[start : self._ends[place]].tobytes()


class TextWriter:
    """Writes byte strings, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._data = RowWriter(folder, np.dtype("u1"))
        self._ends = RowWriter(folder, np.dtype("i8"))
        self._texts: list[bytes] = []
        self._size = self._end = 0

    def append(self, text: bytes) -> None:
        """Write a text."""
        self._texts.append(text)
        self._size += len(text)
        self._end += len(text)
        self._ends.append(self._end)
        if self._size >= _CHUNK_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._data.extend(np.frombuffer(b"".join(self._texts), dtype=np.uint8))
        self._texts, self._size = [], 0

    def done(self) -> Texts:
        """Return all of them; nothing more can be written."""
        self._flush()
        return Texts(self._data.done(), self._ends.done())


class Values(LazySequence[T]):
    """Values on disk, each made again whenever it is asked for."""

    def __init__(self, packed: Texts, make: Callable[[Any], T]) -> None:
        self._packed, self._make = packed, make

    def __len__(self) -> int:
        return len(self._packed)

    def item(self, place: int) -> T:
        """Make an item."""
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


_SORTED_ROWS = 1 << 17
"""Rows that are sorted in memory at a time; more lie on disk."""
_RATIO = 4
"""A run that is not this many times as long as what comes is merged with it, so runs stay few."""
_HEADS = 1 << 64


class SortedRows:
    """Rows in runs, each in order of their first field ``head``, uint64, a part of a digest: about evenly spread."""

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self._folder, self._dtype = folder, dtype
        self._runs: list[np.ndarray] = []

    def add(self, pieces: Iterable[np.ndarray], stay: Callable[[np.ndarray], np.ndarray]) -> None:
        """Take more rows."""
        fresh, older = self._sorted(pieces), list(self._runs)
        number = sum(map(len, fresh))
        while older and len(older[-1]) < _RATIO * number:
            fresh.insert(0, older.pop())
            number += len(fresh[0])
        self._runs = older + ([self._merged(fresh, number, stay)] if len(fresh) > 1 else fresh)

    def _sorted(self, pieces: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Return rows in runs: those that are many on disk, in a sequence."""
        writer, ends = None, [0]
        pending, number = [np.zeros(0, dtype=self._dtype)], 0
        for piece in pieces:
            pending.append(piece)
            number += len(piece)
            if number - ends[-1] >= _SORTED_ROWS:
                writer = writer or RowWriter(self._folder, self._dtype)
                writer.extend(_ordered(pending))
                ends.append(number)
                pending = pending[:1]
        written = pending[0] if writer is None else writer.done()
        runs = [written[start:stop] for start, stop in pairwise(ends)]
        return [run for run in (*runs, _ordered(pending)) if len(run)]

    def _merged(self, runs: list[np.ndarray], number: int, stay: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the rows of runs as one, in memory where they are few; of equal heads those of the first run first."""
        ranges = -(-number // _SORTED_ROWS)
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


_PIECE_ROWS = 1024


class TableWriter:
    """Writes the rows of a table, some at a time."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._schema = folder, schema
        self._rows = schema.empty_table()
        self._pieces = _Stream(folder, schema)

    def append(self, table: pa.Table) -> None:
        """Write some rows."""
        self._rows = pa.concat_tables([self._rows, table])
        while self._rows.num_rows >= _PIECE_ROWS:
            self._pieces.append(self._rows.slice(0, _PIECE_ROWS))
            self._rows = self._rows.slice(_PIECE_ROWS)

    def done(self) -> pa.Table:
        """Return all of them, each column in pieces of as many rows as a row group; nothing more can be written."""
        self._pieces.append(self._rows)
        pieces = self._pieces.done()
        columns = [_Stream(self._folder, pa.schema([field])) for field in self._schema]
        while batches := [*islice(pieces, GROUP_ROWS // _PIECE_ROWS)]:
            group = pa.Table.from_batches(batches)
            for place, column in enumerate(columns):  # a whole group of all columns would be much memory
                column.append(group.select([place]))
        return pa.table([column.done().read_all().column(0) for column in columns], schema=self._schema)


class _Stream:
    """A stream of Arrow's on disk: record batches of a schema."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._file = folder, unnamed_file(folder)
        weakref.finalize(self, self._file.close)
        with writing(folder):
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), schema)

    def append(self, table: pa.Table) -> None:
        with writing(self._folder):
            self._writer.write_table(table.combine_chunks())

    def done(self) -> pa.RecordBatchReader:
        """Return a reader of all batches, which are mapped."""
        with writing(self._folder):
            self._writer.close()
            return pa.ipc.open_stream(pa.py_buffer(_mapped(self._file)))
