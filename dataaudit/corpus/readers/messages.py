"""The messages of Arrow's IPC format: where they stand and how much memory they claim, read in plain Python.

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

from dataaudit.corpus.loss import Reason, ShardUnreadable
from dataaudit.corpus.storage.remote import read_fully

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
