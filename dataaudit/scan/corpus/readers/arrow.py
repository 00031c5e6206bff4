"""Reads Arrow IPC files and streams, every offset checked before a value is touched.

The first bytes tell a file from a stream, not its name: ``datasets`` writes streams into ``.arrow``. A file is cut at
record batches, a stream is a single part. A record batch is in memory at a time, with the wanted columns alone. Damage
in one place makes the whole file unreadable. A stream without its end marker, or with bytes behind it, is damaged, even
where Arrow reads it. Arrow allocates what a compressed buffer claims: only the child process limits that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers.columns import (
    Rows,
    batches,
    checked_column,
    contents,
    cut_column,
    damage,
    joined,
    layout,
    locate_all,
)
from dataaudit.scan.corpus.readers.part import Part, PartStats, ReadRequest, cut_by_size
from dataaudit.scan.corpus.storage.files import arrow_source, open_binary
from dataaudit.scan.corpus.storage.remote import read_fully

_FILE_MAGIC = b"ARROW1"
_FEATHER_MAGIC = b"FEA1"


def plan_parts(path: str, size: int, part_bytes: int) -> list[Part]:
    """Cut a file at record batches so that a part holds about ``part_bytes`` stored ones; a stream is one part."""
    with open_binary(path) as file, damage(Reason.NOT_ARROW, ""):
        if not _is_file(file):
            return [Part(0, 1)]
        number = pa.ipc.open_file(arrow_source(path)).num_record_batches
    return cut_by_size([size // number] * number if number else [], part_bytes)


def peek_columns(path: str) -> dict[str, str]:
    """Return the top-level columns and their contents."""
    return contents(_schema(path))


def _schema(path: str) -> pa.Schema:
    """Return the columns of a file or stream."""
    with open_binary(path) as file, damage(Reason.NOT_ARROW, "schema"):
        if _is_file(file):
            return pa.ipc.open_file(arrow_source(path)).schema
        return pa.ipc.open_stream(pa.PythonFile(_Stream(file), mode="r")).schema


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of the part's record batches."""
    path, part, batch_bytes = request.path, request.part, request.batch_bytes
    schema = _schema(path)
    with damage(Reason.NOT_ARROW, "schema"):
        stats.see_layout(layout(schema))
    wanted = locate_all(schema, request.fields)
    # The schema as it is read leaves the others out: their values are not even decompressed.
    included = sorted({schema.get_field_index(names[0]) for names in wanted})
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=included)
    with open_binary(path) as file:
        is_file = _is_file(file)
        decoded = _file_batches(path, part, options) if is_file else _stream_batches(_Stream(file), options)
        rows = joined(_rows(decoded, part.start, wanted, batch_bytes), batch_bytes)
        yield from batches(rows, request, losses, stats)


def _rows(
    decoded: Iterator[pa.RecordBatch], number: int, wanted: list[tuple[str, ...]], batch_bytes: int
) -> Iterator[Rows]:
    while True:
        with damage(Reason.CORRUPT_ARROW, f"record batch {number}"):
            batch = next(decoded, None)
            if batch is None:
                return
            batch.validate()
            columns = [checked_column(batch, names) for names in wanted]
        del batch
        number += 1
        yield from cut_column(columns, batch_bytes)


def _file_batches(path: str, part: Part, options: pa.ipc.IpcReadOptions) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_file(arrow_source(path), options=options) as reader:
        yield from map(reader.get_batch, range(part.start, part.stop))


def _stream_batches(stream: _Stream, options: pa.ipc.IpcReadOptions) -> Iterator[pa.RecordBatch]:
    number = before = 0
    with pa.ipc.open_stream(pa.PythonFile(stream, mode="r"), options=options) as reader:
        while True:
            before = stream.left
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            except (pa.ArrowInvalid, OSError):
                if stream.left:
                    raise
                raise ShardUnreadable(Reason.TRUNCATED, f"record batch {number}") from None
            yield batch
            number += 1
    if stream.left == before:
        raise ShardUnreadable(Reason.TRUNCATED, f"record batch {number}")
    if stream.left:
        raise ShardUnreadable(Reason.CORRUPT_ARROW, f"{stream.left} bytes after the end")


class _Stream:
    """A file for Arrow to read, which allocates no more than the file has."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.left = file.seek(0, 2)  # bytes that were not read
        file.seek(0)

    def read(self, num_bytes: int = -1) -> bytes:
        """Return so many bytes, fewer at the end."""
        data = read_fully(self._file, self.left if num_bytes < 0 else min(num_bytes, self.left))
        self.left -= len(data)
        return data

    def close(self) -> None:
        """Do nothing: the file is the caller's."""


def _is_file(file: BinaryIO) -> bool:
    """Tell a file from a stream by its first bytes, and go back to them."""
    file.seek(0)
    head = read_fully(file, len(_FILE_MAGIC))
    file.seek(0)
    if head.startswith(_FEATHER_MAGIC):
        raise ShardUnreadable(Reason.OLD_FEATHER)
    if head != _FILE_MAGIC:
        with damage(Reason.NOT_ARROW, ""):
            pa.ipc.open_stream(pa.PythonFile(_Stream(file), mode="r"))
        file.seek(0)
    return head == _FILE_MAGIC
