r"""JSON lines: plain or compressed, one object a line, blank lines ignored.

A ``\r`` before a line's end is white space to JSON. A line in which an object names a key twice is a bad record,
since readers disagree on which value counts (RFC 7493, section 2.3, forbids it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.fields import NO_SOURCE, FieldRule, look_up
from dataaudit.corpus.loss import LossLog, Reason
from dataaudit.corpus.readers.keys import key_check
from dataaudit.corpus.readers.lines import BLANK, lines
from dataaudit.corpus.readers.part import END, Part, PartStats, ReadRequest
from dataaudit.corpus.readers.records import Record, batches
from dataaudit.corpus.readers.stream import ByteStream
from dataaudit.corpus.shards import Compression

_PEEK_RECORDS = 100
_PEEK_LINE_BYTES = 16 << 20


def read_part(
    request: ReadRequest, losses: LossLog, stats: PartStats, only: frozenset[int] | None = None
) -> Iterator[DocBatch]:
    """Stream the documents of one part, or of some of its records; the others are not parsed."""
    fields = request.fields
    repeats = key_check(fields.text)
    last = END if only is None else max(only, default=-1)

    def records(stream: ByteStream) -> Iterator[tuple[Record, int]]:
        row = -1
        for line, length, _ in lines(stream, request.part, fields.max_record_bytes):
            if line is not None and not line.strip(BLANK):
                continue
            row += 1
            if row > last:
                return
            if only is not None and row not in only:
                yield None, length
            else:
                yield Reason.OVERSIZE if line is None else _parse(line, fields, stats, repeats), length

    yield from batches(request, records, losses, stats)


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
) -> Record:
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


def _values(record: dict[str, Any], text: Any, fields: FieldRule) -> Record:
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
