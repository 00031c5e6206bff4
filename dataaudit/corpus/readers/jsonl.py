r"""JSON lines: plain, .gz or .zst, one object a line, blank lines ignored.

A plain file is cut at fixed byte offsets; a line belongs to the part that holds its first byte, so every line
is read by one part whatever the cut. Compressed files are one part. The stream is read in blocks, and of a
line that is too long only the length is kept, so memory is bounded by the longest line that is allowed.

A line ends at ``\n`` alone; a ``\r`` before it is white space to JSON. A byte order mark at the start of a
file is skipped. Of a key that occurs twice in an object, the last value counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from dataaudit.corpus.batch import BatchBuilder, DocBatch
from dataaudit.corpus.fields import NO_SOURCE, FieldRule, look_up
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers.part import Part, PartStats
from dataaudit.corpus.readers.stream import ByteStream
from dataaudit.corpus.shards import Compression

_BLOCK_BYTES = 1 << 20
_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_PEEK_RECORDS = 100
_PEEK_LINE_BYTES = 16 << 20


def plan_parts(compression: Compression, size: int, part_bytes: int) -> list[Part]:
    """Cut a plain file every ``part_bytes``; a compressed one stays whole."""
    if compression != "none" or size <= part_bytes:
        return [Part(0, size)]
    return [Part(start, min(start + part_bytes, size)) for start in range(0, size, part_bytes)]


def read_part(
    path: str,
    compression: Compression,
    part: Part,
    fields: FieldRule,
    batch_bytes: int,
    losses: LossLog,
    stats: PartStats,
) -> Iterator[DocBatch]:
    """Stream the documents of one part."""
    builder = BatchBuilder(batch_bytes)
    row = -1
    try:
        with ByteStream(path, compression) as stream:
            if compression == "none":
                stream.read_until(part.stop)
            lines = _lines(stream, part if compression == "none" else None, fields.max_record_bytes)
            for line, length in lines:
                if line is not None and not line.strip(_BLANK):
                    continue
                row += 1
                stats.records = row + 1
                if line is None:
                    losses.add(Reason.OVERSIZE, row, length)
                    continue
                parsed = _parse(line, fields, stats)
                if isinstance(parsed, Reason):
                    losses.add(parsed, row, length)
                elif builder.add(parsed[0], row, parsed[1], length):
                    yield builder.take()
    except ShardUnreadable as error:
        raise ShardUnreadable(error.reason, f"after {row + 1} records") from None
    if len(builder):
        yield builder.take()


def peek_records(path: str, compression: Compression) -> Iterator[dict[str, Any]]:
    """Yield the first objects of a file; lines that are none are passed over.

    Raises:
        ShardUnreadable: The file is damaged before the end of what is looked at.
    """
    with ByteStream(path, compression) as stream:
        lines = _lines(stream, None, _PEEK_LINE_BYTES)
        for (line, _), _ in zip(lines, range(_PEEK_RECORDS), strict=False):
            try:
                record = orjson.loads(line or b"")
            except orjson.JSONDecodeError:
                continue
            if type(record) is dict:
                yield record


def _lines(stream: ByteStream, part: Part | None, max_bytes: int) -> Iterator[tuple[bytes | None, int]]:
    """Yield (line without its end, its length); the line is None when it is longer than ``max_bytes``.

    With a part, only lines whose first byte lies in it.
    """
    position, block, mark_bytes = _first_line(stream, part)
    stop = None if part is None else part.stop
    held: list[bytes] = []  # the beginning of a line whose end has not been read
    held_bytes = 0
    while stop is None or position < stop:
        block = block or stream.read(_BLOCK_BYTES)
        if not block:
            if held_bytes:
                yield (b"".join(held) if held_bytes <= max_bytes else None), held_bytes
            return
        *ends, beginning = block.split(b"\n")
        block = b""
        for piece in ends:
            length = held_bytes + len(piece)
            line = b"".join([*held, piece]) if held and length <= max_bytes else piece
            held.clear()
            held_bytes = 0
            yield (line if length <= max_bytes else None), length
            position += mark_bytes + length + 1
            mark_bytes = 0
            if stop is not None and position >= stop:
                return
        held_bytes += len(beginning)
        if held_bytes <= max_bytes:
            held.append(beginning)
        else:
            held.clear()  # too long in any case: only its length is still counted


def _first_line(stream: ByteStream, part: Part | None) -> tuple[int, bytes, int]:
    """Return where the part's first line begins, what has been read of it and on, and the mark's length.

    Without a line that begins in the part, the position is the part's end or beyond it. Only the part's own
    bytes are searched, so that many parts inside one long line cost no more than reading it once.
    """
    if part is None or part.start == 0:
        head = stream.read(len(_BOM))
        return (0, b"", len(_BOM)) if head == _BOM else (0, head, 0)
    # One byte before the part: when it ends a line, the part's first byte begins one.
    position = part.start - 1
    stream.seek(position)
    while position < part.stop - 1 and (block := stream.read(_BLOCK_BYTES)):
        end = block.find(b"\n")
        if end >= 0:
            return position + end + 1, block[end + 1 :], 0
        position += len(block)
    return part.stop, b"", 0


def _parse(line: bytes, fields: FieldRule, stats: PartStats) -> tuple[str, str] | Reason:
    """Return (text, source) of a line, or why there is none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _why_invalid(line)
    if type(record) is not dict:
        return Reason.NOT_AN_OBJECT
    stats.see_layout(tuple(record))
    text = look_up(record, fields.text)
    if type(text) is not str:
        return Reason.TEXT_MISSING if text is None else Reason.TEXT_TYPE
    if fields.source_column is None:
        return text, fields.source_constant
    source = look_up(record, fields.source_column)
    if source is None:
        return text, NO_SOURCE
    return (text, source) if type(source) is str else Reason.SOURCE_TYPE


def _why_invalid(line: bytes) -> Reason:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return Reason.INVALID_UTF8
    return Reason.INVALID_JSON
