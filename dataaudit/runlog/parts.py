"""A part of a table: an Arrow IPC stream to which whole record batches are appended, safe to be cut at any byte.

A kill leaves a prefix of the file. Batches in it that are whole are read; what follows them is dropped, and counted.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.atomic import replacing
from dataaudit.runlog.format import RANKS_FOLDER, SUFFIX, TABLES

_CHUNK_ROWS = 1 << 16
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHeader:
    """What a part says of itself."""

    attempt: int
    """Which start of the run wrote it, from 0."""
    first_step: int
    """Step that it begins with."""
    thinned: bool = False
    """Whether some of its rows are summed up in the table of sums."""

    def metadata(self) -> dict[str, str]:
        """Return it as the metadata of an Arrow schema."""
        return {
            "attempt": str(self.attempt),
            "first_step": str(self.first_step),
            "thinned": str(int(self.thinned)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart:
    """What could be read of a part."""

    header: PartHeader
    table: pa.Table
    torn_bytes: int
    """Stored bytes behind the last whole batch."""


def rank_folder(folder: Path, rank: int) -> Path:
    """Return the folder of a rank."""
    return folder / RANKS_FOLDER / f"{rank:05d}"


def part_path(folder: Path, table: str, number: int) -> Path:
    """Return the file of a part in the folder of its rank."""
    return folder / f"{table}-{number:05d}{SUFFIX}"


def part_numbers(folder: Path, table: str) -> list[int]:
    """Return the numbers of the parts of a table, ascending; none where there is no such folder.

    Raises:
        OSError: It cannot be listed.
    """
    try:
        files = os.listdir(folder)
    except FileNotFoundError:
        return []
    parts = (name for name in files if name.startswith(f"{table}-") and name.endswith(SUFFIX))
    held = (name[len(table) + 1 : -len(SUFFIX)] for name in parts)
    return sorted(int(number) for number in held if number.isdecimal())


class PartWriter:
    """Appends record batches to a new file; after an error the file ends with the last whole one.

    Args:
        path: The file, which must not be there.
        table: Name of the table.
        header: What it says of itself.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, path: Path, table: str, header: PartHeader) -> None:
        self.schema = TABLES[table].schema.with_metadata(header.metadata())
        self.header = header
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._size = 0
        self._pending = _Pending()
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._pending, mode="w"), self.schema, options=_OPTIONS)
        self._stream.write_batch(_empty(self.schema))
        self._append()

    def append(self, batch: pa.RecordBatch) -> int:
        """Append a batch of the table's columns; return its stored bytes.

        Raises:
            OSError: It cannot be written, and the part is as before; or nobody would find it.
        """
        if self.gone:
            raise OSError(errno.ENOENT, "the file was deleted while it was written")
        self._stream.write_batch(batch.replace_schema_metadata(self.schema.metadata))
        return self._append()

    @property
    def gone(self) -> bool:
        """Whether the file has no name any more."""
        return os.fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _append(self) -> int:
        data = self._pending.take()
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            raise
        self._size += len(data)
        return len(data)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows: Arrow writes the schema, the part's header, no sooner than a batch."""
    return pa.record_batch([pa.array([], one.type) for one in schema], schema=schema)


class _Pending(RawIOBase):
    """What Arrow has encoded and no file holds yet."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(self._pieces[-1])

    def take(self) -> memoryview:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return memoryview(data)


def numbers(values: np.ndarray, column: pa.Field) -> pa.Array:
    """Return a column of numbers; what a masked array masks is null; pa.array would import pandas.

    Args:
        values: [n] numbers, masked or not.
        column: Name and type of the column.
    """
    held = np.ascontiguousarray(np.ma.getdata(values), dtype=column.type.to_pandas_dtype())
    known = ~np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    valid = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(held), [valid, pa.py_buffer(held)])


def write_part(path: Path, table: str, header: PartHeader, rows: pa.Table) -> None:
    """Write a whole part in place of what has its name.

    Raises:
        OSError: It cannot be written.
    """
    schema = TABLES[table].schema.with_metadata(header.metadata())
    with replacing(path) as file, pa.ipc.new_stream(file, schema, options=_OPTIONS) as stream:
        stream.write_batch(_empty(schema))
        stream.write_table(rows.replace_schema_metadata(schema.metadata), max_chunksize=_CHUNK_ROWS)


def read_header(path: Path) -> PartHeader | None:
    """Return what a part says of itself; None when that is not whole."""
    try:
        with pa.OSFile(os.fspath(path)) as file, pa.ipc.open_stream(file) as stream:
            stream.read_next_batch()
            return _header(stream.schema)
    except (pa.ArrowException, OSError, EOFError, StopIteration):
        return None


def read_part(path: Path, table: str) -> ReadPart | None:
    """Return the whole record batches of a part; None when not even its header is whole, or it has other columns.

    Raises:
        OSError: It cannot be opened.
    """
    batches = []
    with pa.OSFile(os.fspath(path)) as file:
        size, end = file.size(), 0
        try:
            with pa.ipc.open_stream(file) as stream:
                schema = stream.schema
                end = file.tell()
                while True:
                    batches.append(stream.read_next_batch())
                    end = file.tell()
        except StopIteration:
            pass
        except (pa.ArrowException, OSError, EOFError):
            if not end:
                return None
        if not schema.equals(TABLES[table].schema):
            return None
        header = _header(schema)
        if header is None:
            return None
        kept = pa.Table.from_batches(batches, schema=schema).replace_schema_metadata(None)
        return ReadPart(header=header, table=kept, torn_bytes=size - end)


def _header(schema: pa.Schema) -> PartHeader | None:
    said = schema.metadata or {}
    try:
        attempt, first_step, thinned = (int(said[name]) for name in (b"attempt", b"first_step", b"thinned"))
    except (KeyError, ValueError):
        return None
    return PartHeader(attempt=attempt, first_step=first_step, thinned=bool(thinned))
