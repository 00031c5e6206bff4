"""Arrow IPC, files and streams: cut at record batches, every offset checked before a value is touched.

Which of the two a file is, its first bytes say, not its name: ``datasets`` writes streams into ``.arrow``. Of a stream
a part gets the schema, every dictionary before it and its own batches. One record batch is held at a time, of its
columns those that are asked for (of a stream all, as they are stored). Damage in one place makes the whole file
unreadable; its place names the record batch. A stream without its end marker counts as cut short, whatever
Arrow's own reader makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers.columns import Rows, checked_column, cut_column, damage, documents, joined, locate_all
from dataaudit.corpus.readers.messages import (
    BATCH,
    DICTIONARY,
    FEATHER_MAGIC,
    FILE_MAGIC,
    SCHEMA,
    Message,
    check_claims,
    file_blocks,
    messages,
    read_message,
)
from dataaudit.corpus.readers.part import Part, PartStats, ReadRequest, cut_by_size
from dataaudit.corpus.storage.files import arrow_source, open_binary
from dataaudit.corpus.storage.remote import read_fully

_END_MARKER = b"\xff\xff\xff\xff\0\0\0\0"
_COPY_BYTES = 1 << 20


def plan_parts(path: str, size: int, part_bytes: int) -> list[Part]:
    """Cut at record batches so that a part holds about ``part_bytes`` stored ones; no batches are one part."""
    with open_binary(path) as file:
        if _is_file(file):
            sizes = [length for _, length in file_blocks(file, size)[1]]
        else:
            sizes = [message.stop - message.start for message in messages(file, size) if message.kind == BATCH]
    return cut_by_size(sizes, part_bytes)


def read_schema(path: str) -> pa.Schema:
    """Return the columns of a file or stream.

    Raises:
        ShardUnreadable: It is neither.
    """
    with open_binary(path) as file:
        size = _size(file)
        with damage(Reason.NOT_ARROW, "schema"):
            if _is_file(file):
                return pa.ipc.open_file(arrow_source(path)).schema
            first = next(messages(file, size), None)
            return pa.ipc.open_stream(pa.PythonFile(_Pieces(file, [] if first is None else [first]), mode="r")).schema


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of the part's record batches."""
    path, part, batch_bytes = request.path, request.part, request.batch_bytes
    schema = read_schema(path)
    with damage(Reason.NOT_ARROW, "schema"):
        stats.see_layout(tuple(f"{column.name}: {column.type}" for column in schema))
    wanted = locate_all(schema, request.fields)
    # The schema as it is read leaves the others out: their values are not even decompressed.
    included = sorted({schema.get_field_index(names[0]) for names in wanted})
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=included)
    with open_binary(path) as file:
        size = _size(file)
        if _is_file(file):
            batches = _file_batches(path, file, size, part, options)
        else:
            batches = _stream_batches(file, size, part, options)
        for rows in joined(_rows(batches, part, wanted, batch_bytes), batch_bytes):
            batch = documents(rows, request.fields, stats.records, losses)
            stats.records += len(rows)
            if len(batch):
                yield batch


def _rows(
    batches: Iterator[pa.RecordBatch], part: Part, wanted: list[tuple[str, ...]], batch_bytes: int
) -> Iterator[Rows]:
    for number in range(part.start, part.stop):
        with damage(Reason.CORRUPT_ARROW, f"record batch {number}"):
            batch = next(batches, None)
            if batch is None:
                raise ShardUnreadable(Reason.CORRUPT_ARROW, f"record batch {number}")
            batch.validate()
            columns = [checked_column(batch, names) for names in wanted]
        del batch
        yield from cut_column(columns, batch_bytes)


def _file_batches(
    path: str, file: BinaryIO, size: int, part: Part, options: pa.ipc.IpcReadOptions
) -> Iterator[pa.RecordBatch]:
    dictionaries, blocks = file_blocks(file, size)
    for number, start in enumerate(dictionaries):
        _check_block(file, start, size, f"dictionary {number}")
    with pa.ipc.open_file(arrow_source(path), options=options) as reader:
        for number in range(part.start, part.stop):
            _check_block(file, blocks[number][0], size, f"record batch {number}")
            yield reader.get_batch(number)


def _check_block(file: BinaryIO, start: int, size: int, place: str) -> None:
    message = read_message(file, start, place)
    if message is None or message.stop > size:
        raise ShardUnreadable(Reason.CORRUPT_ARROW, place)
    check_claims(file, message, place)


def _stream_batches(file: BinaryIO, size: int, part: Part, options: pa.ipc.IpcReadOptions) -> Iterator[pa.RecordBatch]:
    needed: list[Message] = []
    number = 0
    file.seek(0)
    for message in messages(file, size):
        if message.kind in (SCHEMA, DICTIONARY) or (message.kind == BATCH and number >= part.start):
            needed.append(message)
        if message.kind in (DICTIONARY, BATCH) and number >= part.start:
            check_claims(file, message, f"record batch {number}")
        number += message.kind == BATCH
        if number >= part.stop:
            break
    yield from pa.ipc.open_stream(pa.PythonFile(_Pieces(file, needed), mode="r"), options=options)


class _Pieces:
    """Some messages of a file as a stream of their own, for Arrow to read."""

    closed = False

    def __init__(self, file: BinaryIO, needed: list[Message]) -> None:
        self._file = file
        self._ranges = iter([(message.start, message.stop) for message in needed])
        self._start = self._stop = 0
        self._end = _END_MARKER

    def read(self, num_bytes: int = -1) -> bytes:
        """Return so many bytes, fewer at the end."""
        held = bytearray()
        while num_bytes < 0 or len(held) < num_bytes:
            missing = _COPY_BYTES if num_bytes < 0 else min(_COPY_BYTES, num_bytes - len(held))
            block = self._some(missing)
            if not block:
                break
            held += block
        return bytes(held)

    def _some(self, num_bytes: int) -> bytes:
        while self._start >= self._stop:
            following = next(self._ranges, None)
            if following is None:
                block, self._end = self._end[:num_bytes], self._end[num_bytes:]
                return block
            self._start, self._stop = following
        self._file.seek(self._start)
        block = self._file.read(min(num_bytes, self._stop - self._start))
        self._start = self._start + len(block) if block else self._stop
        return block

    def close(self) -> None:
        """Do nothing: the file is the caller's."""


def _size(file: BinaryIO) -> int:
    return file.seek(0, 2)


def _is_file(file: BinaryIO) -> bool:
    """Tell a file from a stream by its first bytes, and go back to them.

    Raises:
        ShardUnreadable: It is neither.
    """
    file.seek(0)
    head = read_fully(file, len(FILE_MAGIC))
    file.seek(0)
    if head == FILE_MAGIC:
        return True
    if head.startswith(FEATHER_MAGIC):
        raise ShardUnreadable(Reason.OLD_FEATHER)
    try:
        first = read_message(file, 0, "")
    except ShardUnreadable:
        first = None
    if first is None or first.kind != SCHEMA:
        raise ShardUnreadable(Reason.NOT_ARROW)
    file.seek(0)
    return False
