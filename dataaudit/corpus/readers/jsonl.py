"""JSON lines: plain, .gz or .zst, one object a line, blank lines ignored.

A plain file is cut at fixed byte offsets; a line belongs to the part that holds its first byte. Compressed
files are one part. The stream is read in blocks, so memory is bounded by the longest line that is allowed.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from dataaudit.corpus.batch import BatchBuilder, DocBatch
from dataaudit.corpus.fields import NO_SOURCE, FieldRule, look_up
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers.part import Part, PartStats
from dataaudit.corpus.shards import Compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_BLOCK_BYTES = 1 << 20
_BLANK = b" \t\r\n"


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
        with open_stream(path, compression) as stream:
            lines = _lines(stream, part, fields.max_record_bytes, bounded=compression == "none")
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
    except EOFError:
        raise ShardUnreadable(Reason.TRUNCATED, f"after record {row}") from None
    except (gzip.BadGzipFile, zlib.error, zstd.ZstdError):
        raise ShardUnreadable(Reason.CORRUPT_STREAM, f"after record {row}") from None
    if len(builder):
        yield builder.take()


def open_stream(path: str, compression: Compression) -> BinaryIO:
    """Open a file of lines for reading bytes."""
    opened: Any
    if compression == "gzip":
        opened = gzip.open(path, "rb")
    elif compression == "zstd":
        opened = zstd.open(path, "rb")
    else:
        opened = open(path, "rb", buffering=0)  # noqa: PTH123, SIM115 - the caller closes it
    return opened  # type: ignore[no-any-return]


def _lines(
    stream: BinaryIO, part: Part, max_bytes: int, *, bounded: bool
) -> Iterator[tuple[bytes | None, int]]:
    """Yield (line without its end, its length); the line is None when it is longer than ``max_bytes``.

    With ``bounded``, only lines whose first byte lies in the part.
    """
    position = 0  # of the first byte that is not yet part of a yielded line
    if bounded and part.start:
        # One byte before the part: when it ends a line, the part's first byte begins one.
        position = stream.seek(part.start - 1)
    skip_first = bounded and part.start > 0
    held: list[bytes] = []  # the beginning of a line whose end has not been read
    held_bytes = 0
    while block := stream.read(_BLOCK_BYTES):
        pieces = block.split(b"\n")
        for index, piece in enumerate(pieces):
            if index == len(pieces) - 1:
                break
            length = held_bytes + len(piece)
            line = b"".join([*held, piece]) if held else piece
            held.clear()
            held_bytes = 0
            if skip_first:
                skip_first = False
            else:
                if bounded and position >= part.stop:
                    return
                yield (line if length <= max_bytes else None), length
            position += length + 1
        if bounded and not skip_first and position >= part.stop:
            return
        held_bytes += len(pieces[-1])
        if held_bytes <= max_bytes:
            held.append(pieces[-1])
        else:
            held.clear()  # too long in any case: only its length is still counted
    if held_bytes and not skip_first and not (bounded and position >= part.stop):
        yield (b"".join(held) if held_bytes <= max_bytes else None), held_bytes


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
