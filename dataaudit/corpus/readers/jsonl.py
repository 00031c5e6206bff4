r"""JSON lines: plain or compressed, one object a line, blank lines ignored.

A ``\r`` before a line's end is white space to JSON. A line in which an object names a key twice is a bad record,
since readers disagree on which value counts (RFC 7493, section 2.3, forbids it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from dataaudit.corpus.batch import BatchBuilder, DocBatch
from dataaudit.corpus.fields import NO_SOURCE, FieldRule, look_up
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers.keys import key_check
from dataaudit.corpus.readers.lines import BLANK, lines
from dataaudit.corpus.readers.part import END, Part, PartStats
from dataaudit.corpus.readers.stream import ByteStream
from dataaudit.corpus.shards import Compression

_PEEK_RECORDS = 100
_PEEK_LINE_BYTES = 16 << 20


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
    builder, repeats = BatchBuilder(batch_bytes), key_check(fields.text)
    row = -1
    try:
        with ByteStream(path, compression, restart=part.restart) as stream:
            for line, length, _ in lines(stream, part, fields.max_record_bytes):
                if line is not None and not line.strip(BLANK):
                    continue
                row += 1
                stats.records = row + 1
                if line is None:
                    losses.add(Reason.OVERSIZE, row, length)
                    continue
                parsed = _parse(line, fields, stats, repeats)
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
        found = lines(stream, Part(0, END), _PEEK_LINE_BYTES)
        for (line, _, _), _ in zip(found, range(_PEEK_RECORDS), strict=False):
            try:
                record = orjson.loads(line or b"")
            except orjson.JSONDecodeError:
                continue
            if type(record) is dict:
                yield record


def _parse(
    line: bytes, fields: FieldRule, stats: PartStats, repeats: Callable[[bytes, dict[str, Any], Any], bool]
) -> tuple[str, str] | Reason:
    """Return (text, source) of a line, or why there is none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return why_invalid(line)
    if type(record) is not dict:
        return Reason.NOT_AN_OBJECT
    stats.see_layout(tuple(record))
    text = look_up(record, fields.text)
    if repeats(line, record, text):
        return Reason.DUPLICATE_KEY
    return _values(record, text, fields)


def _values(record: dict[str, Any], text: Any, fields: FieldRule) -> tuple[str, str] | Reason:
    if type(text) is not str:
        return Reason.TEXT_MISSING if text is None else Reason.TEXT_TYPE
    if fields.source_column is None:
        return text, fields.source_constant
    source = look_up(record, fields.source_column)
    if source is None:
        return text, NO_SOURCE
    return (text, source) if type(source) is str else Reason.SOURCE_TYPE


def why_invalid(line: bytes) -> Reason:
    """Return why a line is not read as JSON."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return Reason.INVALID_UTF8
    return Reason.INVALID_JSON
