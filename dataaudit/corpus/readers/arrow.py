"""Arrow IPC, files and streams: cut at record batches, every offset checked before a value is touched.

Which of the two a file is, its first bytes say, not its name: ``datasets`` writes streams into ``.arrow``. Of a stream
a part gets the schema, every dictionary before it and its own batches. One record batch is held at a time, of its
columns those that are asked for (of a stream all, as they are stored). Damage in one place makes the whole file
unreadable; its place names the record batch. A stream without its end marker counts as cut short, whatever
Arrow's own reader makes of it.

The messages of Arrow's IPC format: where they stand and how much memory they claim, read in plain Python.

Arrow's own reader allocates what a compressed buffer claims before it looks at it, takes a stream that was cut off
between two messages for a whole one, and reads nothing after the end marker. So the frame around the data is
read here first: prefix, metadata (a FlatBuffer) and length of each message. The layout is that of
``Message.fbs`` and ``File.fbs`` of the Arrow format, version 1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers.columns import (
    Rows,
    checked_column,
    content,
    cut_column,
    damage,
    documents,
    joined,
    locate_all,
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


def peek_columns(path: str) -> dict[str, str]:
    """Return the top-level columns, and what each holds."""
    return {field.name: content(field.type) for field in _schema(path)}


def _schema(path: str) -> pa.Schema:
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
    schema = _schema(path)
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


SCHEMA, DICTIONARY, BATCH = 1, 2, 3
FILE_MAGIC = b"ARROW1"
FEATHER_MAGIC = b"FEA1"
MAX_EXPANSION = 1_000
"""Bytes in memory for each stored one of a message; lz4 cannot exceed 255, text in zstd stays below."""
FREE_EXPANSION_BYTES = 1 << 28
"""Bytes in memory before the ratio counts."""
_CONTINUED = 0xFFFFFFFF
_MAX_METADATA = 1 << 26
_BLOCK = struct.Struct("<qi4xq")
_BUFFER = struct.Struct("<qq")
_TAIL_BYTES = len(FILE_MAGIC) + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a stream or file."""

    kind: int
    """SCHEMA, DICTIONARY, BATCH or another."""
    start: int
    """Where its prefix begins."""
    body: int
    """Where its body begins."""
    stop: int
    """Where it ends."""
    metadata: bytes


class _Table:
    """A table of a FlatBuffer; every offset is checked.

    Raises:
        struct.error: An offset leads out of the buffer.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position
        self._fields = position - self._read("<i", position)
        self._size = self._read("<H", self._fields)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _read(self, form: str, position: int) -> int:
        if position < 0:
            raise struct.error("an offset leads before the buffer")
        value: int = struct.unpack_from(form, self._data, position)[0]
        return value

    def _place(self, field: int) -> int:
        entry = 4 + 2 * field
        offset = self._read("<H", self._fields + entry) if entry + 2 <= self._size else 0
        return self._position + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        """Return a number, 0 when it is left out."""
        place = self._place(field)
        return self._read(form, place) if place else 0

    def table(self, field: int) -> _Table | None:
        """Return a table, None when it is left out."""
        place = self._place(field)
        return _Table(self._data, place + self._read("<I", place)) if place else None

    def structs(self, field: int, form: struct.Struct) -> list[tuple[int, ...]]:
        """Return a vector of structs, empty when it is left out."""
        place = self._place(field)
        if not place:
            return []
        start = place + self._read("<I", place)
        number = self._read("<I", start)
        stop = start + 4 + number * form.size
        if stop > len(self._data):
            raise struct.error("a vector leads behind the buffer")
        return list(form.iter_unpack(self._data[start + 4 : stop]))


def messages(file: BinaryIO, size: int) -> Iterator[Message]:
    """Yield the messages of a stream, from where the file stands to its end marker.

    Args:
        file: Seekable; moved freely by the caller between two messages.
        size: Bytes of the file.

    Raises:
        ShardUnreadable: The stream is cut short, damaged, or followed by something.
    """
    position, batches = file.tell(), 0
    while True:
        place = f"record batch {batches}"
        message = read_message(file, position, place)
        if message is None:
            if file.tell() != size:
                raise ShardUnreadable(Reason.CORRUPT_ARROW, f"{size - file.tell()} bytes after the end")
            return
        if message.stop > size:
            raise ShardUnreadable(Reason.TRUNCATED, place)
        batches += message.kind == BATCH
        position = message.stop
        yield message


def read_message(file: BinaryIO, position: int, place: str) -> Message | None:
    """Return the message at a place, None for an end marker; the file stands behind what was read.

    Raises:
        ShardUnreadable: It is cut short, or its metadata are damaged.
    """
    file.seek(position)
    prefix = read_fully(file, 4)
    continued = prefix == _CONTINUED.to_bytes(4, "little")
    if continued:  # before version 0.15 there was no such mark
        prefix = read_fully(file, 4)
    if len(prefix) < 4:
        raise ShardUnreadable(Reason.TRUNCATED, place)
    length = int.from_bytes(prefix, "little")
    if length == 0:
        return None
    begin = position + (8 if continued else 4)
    if length > _MAX_METADATA:
        raise ShardUnreadable(Reason.CORRUPT_ARROW, place)
    metadata = read_fully(file, length)
    if len(metadata) < length:
        raise ShardUnreadable(Reason.TRUNCATED, place)
    try:
        table = _Table.root(metadata)
        kind, body = table.number(1, "<B"), table.number(3, "<q")
    except struct.error:
        raise ShardUnreadable(Reason.CORRUPT_ARROW, place) from None
    if body < 0:
        raise ShardUnreadable(Reason.CORRUPT_ARROW, place)
    start = begin + length
    return Message(kind=kind, start=position, body=start, stop=start + body, metadata=metadata)


def file_blocks(file: BinaryIO, size: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Return where a file's dictionaries begin, and (where it begins, bytes) of each of its record batches.

    Raises:
        ShardUnreadable: The file has no readable footer.
    """
    file.seek(max(0, size - _TAIL_BYTES))
    tail = read_fully(file, _TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little", signed=True)
    if tail[4:] != FILE_MAGIC or not 0 < length <= min(_MAX_METADATA, size - _TAIL_BYTES):
        raise ShardUnreadable(Reason.NOT_ARROW)
    file.seek(size - _TAIL_BYTES - length)
    try:
        footer = _Table.root(read_fully(file, length))
        dictionaries, batches = footer.structs(2, _BLOCK), footer.structs(3, _BLOCK)
    except struct.error:
        raise ShardUnreadable(Reason.NOT_ARROW, "footer") from None
    for offset, metadata, body in (*dictionaries, *batches):
        if min(offset, metadata, body) < 0 or offset + metadata + body > size:
            raise ShardUnreadable(Reason.CORRUPT_ARROW, "footer")
    return [offset for offset, _, _ in dictionaries], [(one[0], one[1] + one[2]) for one in batches]


def check_claims(file: BinaryIO, message: Message, place: str) -> None:
    """Raise ShardUnreadable when a message's compressed buffers claim too much memory, or do not lie in it."""
    try:
        table = _Table.root(message.metadata).table(2)
        if table is not None and message.kind == DICTIONARY:
            table = table.table(1)
        if table is None:
            raise struct.error("a message without its header")
        buffers, compressed = table.structs(2, _BUFFER), table.table(3) is not None
    except struct.error:
        raise ShardUnreadable(Reason.CORRUPT_ARROW, place) from None
    stored = message.stop - message.body
    claimed = 0
    for offset, length in buffers:
        if min(offset, length) < 0 or offset + length > stored:
            raise ShardUnreadable(Reason.CORRUPT_ARROW, place)
        claim = length
        if compressed and length >= 8:
            file.seek(message.body + offset)
            claim = int.from_bytes(read_fully(file, 8), "little", signed=True)
        claimed += max(claim, 0 if claim != -1 else length)
    if claimed > FREE_EXPANSION_BYTES + MAX_EXPANSION * stored:
        raise ShardUnreadable(Reason.EXPANSION, place)
