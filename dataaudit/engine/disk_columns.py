"""Columns as long as the corpus: written to disk once, in order, then mapped, so that no process has to hold them.

What is mapped is the system's: it keeps pages as long as there is room and reads them again when they are asked for.
The files lie in the state folder and have no name, so they are gone with the process, however it ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from dataaudit.base.lazy import OnDemand
from dataaudit.engine.state_folder import writing

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
