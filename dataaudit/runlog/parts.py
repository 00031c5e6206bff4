"""A part of a table: an Arrow IPC stream to which whole record batches are appended, safe to be cut at any byte.

A kill leaves a prefix of the file. Batches in it that are whole are read; what follows them is dropped, and counted.
Each batch holds the CRC-32 of its stored bytes, in its custom metadata, so that damage is an error and no other number.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import RunLogError
from dataaudit.base.files import replacing
from dataaudit.runlog.format import RANKS_FOLDER, SUFFIX, TABLES

_CHUNK_ROWS = 1 << 16
_MANY_BATCHES = frozenset({"steps", "values"})
"""Tables of many small batches: LZ4 reads them in a fifth of the time of zstd, which makes them 10 to 40 % smaller."""
_ALONE = pa.ipc.IpcReadOptions(use_threads=False)
_CHECKED, _MARK, _DIGITS = b"checked", b"crc32:", 8
_BEGIN, _END = b"\xff" * 4, b"\xff" * 4 + bytes(4)
"""How Arrow begins a message, and ends a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHeader:
    """The head of a part."""

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
            _CHECKED.decode(): "crc32",
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


def ranks_of(folder: Path) -> list[int]:
    """Return the ranks that have a folder in a run log, ascending; none where they cannot be listed."""
    try:
        return sorted(int(name) for name in os.listdir(folder / RANKS_FOLDER) if name.isdecimal())
    except OSError:
        return []


def part_path(folder: Path, table: str, number: int) -> Path:
    """Return the file of a part in the folder of its rank."""
    return folder / f"{table}-{number:05d}{SUFFIX}"


def part_numbers(folder: Path, table: str) -> list[int]:
    """Return the numbers of the parts of a table, ascending; none where there is no such folder."""
    try:
        files = os.listdir(folder)
    except FileNotFoundError:
        return []
    names = [name for name in files if name.startswith(f"{table}-") and name.endswith(SUFFIX)]
    numbered = [name[len(table) + 1 : -len(SUFFIX)] for name in names]
    return sorted(int(number) for number in numbered if number.isdecimal())


def end_of(attempt: int, starts: Iterable[tuple[int, int]]) -> int | None:
    """Return from which step on later attempts, of (attempt, first step), supersede an attempt; None: there is none."""
    return min((first for other, first in starts if other > attempt), default=None)


def attempts_of(folder: Path) -> list[tuple[int, int]]:
    """Return (attempt, first step) of every part in the folder of a rank, sorted."""
    paths = [part_path(folder, table, number) for table in TABLES for number in part_numbers(folder, table)]
    headers = [read_header(path) for path in paths]
    return sorted({(header.attempt, header.first_step) for header in headers if header is not None})


class PartWriter:
    """Appends record batches to a new file; after an error the file ends with the last whole one."""

    def __init__(self, path: Path, table: str, header: PartHeader) -> None:
        self.schema = TABLES[table].schema.with_metadata(header.metadata())
        self.header = header
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._size = 0
        self._encoder = _Encoder(self.schema, table)
        try:
            self._append(self._encoder.encode(_empty(self.schema)))
        except OSError:  # whoever tries again begins another file
            os.close(self._descriptor)
            path.unlink(missing_ok=True)
            raise

    def append(self, batch: pa.RecordBatch) -> int:
        """Append a batch of the table's columns; return its stored bytes."""
        if self.gone:
            raise OSError(errno.ENOENT, "the file was deleted while it was written")
        return self._append(self._encoder.encode(batch))

    @property
    def gone(self) -> bool:
        """Whether the file has no name any more."""
        try:
            return os.fstat(self._descriptor).st_nlink == 0
        except OSError:  # of a network's file system
            return True

    def close(self) -> None:
        """Write the stream's end, where that is possible, and close the file."""
        with suppress(OSError):
            self._append(self._encoder.end())
        os.close(self._descriptor)

    def _append(self, data: memoryview) -> int:
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
    return pa.record_batch([pa.array([], item.type) for item in schema], schema=schema)


class _Encoder:
    """Encodes record batches as an Arrow stream, each with a checksum of its bytes."""

    def __init__(self, schema: pa.Schema, table: str) -> None:
        self._schema, self._pending = schema, BytesIO()
        options = pa.ipc.IpcWriteOptions(compression="lz4" if table in _MANY_BATCHES else "zstd", use_threads=False)
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._pending, mode="w"), schema, options=options)

    def encode(self, batch: pa.RecordBatch) -> memoryview:
        """Return the bytes of a batch; before the first those of the schema, which its checksum covers, too."""
        batch = batch.replace_schema_metadata(self._schema.metadata)
        self._stream.write_batch(batch, custom_metadata={"checksum": _MARK + b"0" * _DIGITS})
        data = self._take()
        at = data.index(_MARK) + len(_MARK)
        data[at : at + _DIGITS] = b"%08x" % zlib.crc32(data)
        return memoryview(data)

    def end(self) -> memoryview:
        """Return the end of the stream."""
        self._stream.close()
        return memoryview(self._take())

    def _take(self) -> bytearray:
        data = bytearray(self._pending.getvalue())
        self._pending.seek(0)
        self._pending.truncate()
        return data


def _intact(data: bytes, begin: int, end: int) -> bool:
    """Return whether the bytes of a batch, a part of ``data``, have the checksum that stands in them."""
    at = data.find(_MARK, begin, end) + len(_MARK)
    view = memoryview(data)
    before = zlib.crc32(b"0" * _DIGITS, zlib.crc32(view[begin:at]))
    return data[at : at + _DIGITS] == b"%08x" % zlib.crc32(view[at + _DIGITS : end], before)


def numbers(values: np.ndarray, column: pa.Field) -> pa.Array:
    """Return a column of numbers; what a masked array masks is null; pa.array would import pandas."""
    data = np.ascontiguousarray(np.ma.getdata(values), dtype=column.type.to_pandas_dtype())
    mask = np.ma.getmask(values)
    valid = None if mask is np.ma.nomask else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(data), [valid, pa.py_buffer(data)])


def write_part(path: Path, table: str, header: PartHeader, rows: pa.Table) -> None:
    """Write a whole part in place of what has its name."""
    encoder = _Encoder(TABLES[table].schema.with_metadata(header.metadata()), table)
    with replacing(path) as file:
        for batch in (_empty(TABLES[table].schema), *rows.to_batches(max_chunksize=_CHUNK_ROWS)):
            file.write(encoder.encode(batch))
        file.write(encoder.end())


def read_header(path: Path) -> PartHeader | None:
    """Return the head of a part; None when that is not whole, or the file cannot be opened."""
    try:
        with pa.OSFile(os.fspath(path)) as file, pa.ipc.open_stream(file) as stream:
            stream.read_next_batch()
            size = file.tell()
            file.seek(0)
            read = _Read(file.read(size))
    except OSError:
        return None
    except (pa.ArrowException, EOFError, StopIteration):
        read = _Read(path.read_bytes())
    read.check(path)
    return read.header


def read_part(path: Path, table: str) -> ReadPart | None:
    """Return the whole record batches of a part; None when not even its header is whole, or it has other columns."""
    data = path.read_bytes()
    read = _Read(data)
    read.check(path)
    if read.schema is None or read.header is None or not read.schema.equals(TABLES[table].schema):
        return None
    rows = pa.Table.from_batches(read.batches, schema=read.schema).replace_schema_metadata(None)
    return ReadPart(header=read.header, table=rows, torn_bytes=len(data) - read.end)


class _Read:
    """What could be read of the bytes of a part, up to what is cut off or damaged."""

    def __init__(self, data: bytes, schema: pa.Schema | None = None) -> None:
        self.schema = schema
        """Of the part; given where the bytes begin behind it."""
        self.batches: list[pa.RecordBatch] = []
        self.end = 0
        """Bytes of what was read."""
        self.wrong = False
        """Whether a whole batch is not what was written."""
        self._data = data
        begin = b"" if schema is None else schema.serialize().to_pybytes()
        ends = self._intact_ends()
        with suppress(pa.ArrowException, OSError, EOFError, IndexError):
            source = pa.BufferReader(begin + data[: ends[-1]])
            # a stream reads small batches in a tenth of the time that single messages take
            for batch, end in zip(pa.ipc.open_stream(source, options=_ALONE), ends, strict=False):
                self.batches.append(batch)
                self.end = end
        if self.schema is not None and self.end == (ends or [0])[-1] and data[self.end :].startswith(_END):
            self.wrong = len(data) - self.end != len(_END)
            self.end += 0 if self.wrong else len(_END)

    def _intact_ends(self) -> list[int]:
        """Return where each batch ends, up to what is cut off or has another checksum."""
        source = pa.BufferReader(self._data)
        ends: list[int] = []
        with suppress(pa.ArrowException, OSError, EOFError, StopIteration):
            messages = pa.ipc.MessageReader.open_stream(source)
            if self.schema is None:
                self.schema = pa.ipc.read_schema(messages.read_next_message())
            while True:
                messages.read_next_message()
                begin, end = ends[-1] if ends else 0, source.tell()
                if not _intact(self._data, begin, end):
                    self.wrong = True
                    break
                ends.append(end)
        return ends

    @property
    def header(self) -> PartHeader | None:
        """The head of the part; None when that is not whole."""
        known = self.schema.metadata or {} if self.schema is not None and self.end else {}
        try:
            attempt, first_step, thinned = (int(known[name]) for name in (b"attempt", b"first_step", b"thinned"))
        except (KeyError, ValueError):
            return None
        return PartHeader(attempt=attempt, first_step=first_step, thinned=bool(thinned))

    def check(self, path: Path) -> None:
        """Refuse a part that is not as it was written, up to where a kill may have cut it."""
        if self.schema is not None and _CHECKED not in (self.schema.metadata or {}):
            raise without_checksum(path)
        if self.wrong or (self.end < len(self._data) and self._goes_on()):
            raise RunLogError(
                f"{path} is damaged: the batch from byte {self.end:,} on is not what was written",
                f"Restore it from a copy. `truncate --size={self.end} {path}` leaves out that batch and all behind it."
                if self.end
                else "Restore it from a copy; a log goes on without the file, and without what it held.",
            )

    def _goes_on(self) -> bool:
        """Return whether something whole follows what cannot be read: then no kill has cut it."""
        if self._data.endswith(_END):
            return True
        at = self._data.find(_BEGIN, self.end + 1)
        while at >= 0:
            with suppress(pa.ArrowException, OSError, EOFError, StopIteration):
                source = pa.BufferReader(memoryview(self._data)[at:])
                pa.ipc.MessageReader.open_stream(source).read_next_message()
                if _intact(self._data, at, at + source.tell()):
                    return True
            at = self._data.find(_BEGIN, at + 1)
        return False


class PartFollower:
    """Reads a part while it is written: each batch once, when it is whole."""

    def __init__(self, path: Path, table: str) -> None:
        self.header: PartHeader | None = None
        """The head of the part; None until it is whole."""
        self.damaged = False
        """Whether a batch is not what was written: nothing behind it is read."""
        self._path, self._table, self._at = path, table, 0
        self._schema: pa.Schema | None = None

    def read(self, most: int) -> tuple[list[pa.RecordBatch], bool]:
        """Return batches that were not read before, and whether more may be there than so many bytes hold."""
        if self.damaged:
            return [], False
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read(most)
            read = _Read(data, self._schema)
            if not read.end and len(data) == most:  # a batch that is larger
                read = _Read(data + file.read(), self._schema)
        self.damaged = read.wrong
        if not read.end:
            return [], False
        if self._schema is None:
            self._schema, self.header = read.schema, read.header
            if not TABLES[self._table].schema.equals(self._schema):
                self.damaged = True
                return [], False
        self._at += read.end
        return read.batches, len(data) == most


def without_checksum(path: Path) -> RunLogError:
    """Return the error of a file of a run log that lacks what every version that reads it writes."""
    return RunLogError(
        f"{path} has no checksum: it is damaged, or an older version wrote it",
        "Restore it from a copy, or run the command with the version that `program` in run.json names.",
    )
