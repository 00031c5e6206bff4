r"""Reads JSON lines, plain or compressed: an object a line, blank lines ignored.

A line in which an object names a key twice is a bad record, since readers disagree on which value counts (RFC 7493,
section 2.3, forbids it). ``NaN``, ``Infinity`` and ``-Infinity``, which Python writes and reads, are no JSON: they are
read as null, and remarked.

The parser keeps the last value of a repeated key. But every key is followed by a quote, perhaps white space, and a
colon. When a line has as many of these as the parsed record has keys, no key is repeated; only where it has more is the
line walked token by token. The text's value, most of the line, is left out of the count: it takes at least as many
bytes as it has characters. (So a key of the text that is repeated with escapes in its name may be missed:
``{"text": "a", "te\u0078t": "..."}``.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain, count, islice
from typing import Any

import orjson

from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.fields import MIXED, NO_SOURCE, NOTHING, TEXT, FieldRule, look_up
from dataaudit.scan.corpus.loss import LossLog, Reason
from dataaudit.scan.corpus.readers.part import END, Part, PartStats, ReadRequest
from dataaudit.scan.corpus.readers.stream import BLANK, ByteStream, Record, batches, lines
from dataaudit.scan.corpus.shards import format_of

_PEEK_RECORDS = 100
_KINDS = {str: TEXT, type(None): NOTHING, list: "array", dict: "object", bool: "boolean"}
_KINDS |= {int: "number", float: "number"}
_PEEK_LINE_BYTES = 16 << 20


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of a part, or of the wanted records; the others are not parsed."""
    fields = request.fields
    repeats = key_check(fields.text)

    def records(stream: ByteStream) -> Iterator[tuple[Record, int]]:
        only = count() if request.only is None else chain(map(int, request.only), [END])
        row, wanted = -1, next(only)
        for line, length, _ in lines(stream, request.part, fields.max_record_bytes):
            if line is not None and not line.strip(BLANK):
                continue
            row += 1
            if wanted == END:
                return
            if row < wanted:
                yield None, length
            else:
                wanted = next(only)
                record = Reason.OVERSIZE if line is None else _parse(line, fields, stats, repeats)
                if record is Reason.INVALID_JSON and line and (strict := _NOT_FINITE(_or_null, line)) != line:
                    record = _parse(strict, fields, stats, repeats)
                    if not isinstance(record, Reason):
                        losses.remark(Reason.NOT_FINITE, row)
                yield record, length

    yield from batches(request, records, losses, stats)


def peek_columns(path: str) -> dict[str, str]:
    """Return the keys of the first objects and their contents: null counts nothing, strings and others are mixed."""
    kinds: dict[str, set[str]] = {}
    for record in _first_records(path):
        for name, value in record.items():
            kinds.setdefault(name, set()).add(_KINDS[type(value)])
    if not kinds:
        raise LookupError(path)
    known = {name: own - {NOTHING} for name, own in kinds.items()}
    return {name: MIXED if own > {TEXT} else ", ".join(sorted(own)) or NOTHING for name, own in known.items()}


def _first_records(path: str) -> Iterator[dict[str, Any]]:
    """Yield the objects among the first lines of a file."""
    with ByteStream(path, format_of(path)[1]) as stream:
        for line, _, _ in islice(lines(stream, Part(0, END), _PEEK_LINE_BYTES), _PEEK_RECORDS):
            try:
                record = load(line or b"")
            except orjson.JSONDecodeError:
                continue
            if type(record) is dict:
                yield record


def load(data: bytes) -> Any:
    """Return a JSON value, numbers that are not finite as null."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(_NOT_FINITE(_or_null, data))


def _parse(
    line: bytes, fields: FieldRule, stats: PartStats, repeats: Callable[[bytes, dict[str, Any], Any], bool]
) -> Record:
    """Return (text, source) of a line, or the reason of its loss."""
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
    """Return the reason why a line is no JSON."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return Reason.INVALID_UTF8
    return Reason.INVALID_JSON


_KEY_END = re.compile(rb'"[ \t\r\n]*:').findall
_NOT_FINITE = re.compile(rb'("(?:[^"\\]++|\\.)*+"?)|-?\bInfinity\b|\bNaN\b', re.DOTALL).sub
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}:]', re.DOTALL).finditer
_NESTED = (dict, list)


def _or_null(match: re.Match[bytes]) -> bytes:
    """Return a string as it is, null for a number that is not finite."""
    return match.group(1) or b"null"


def key_check(text: str) -> Callable[[bytes, dict[str, Any], Any], bool]:
    """Return a function that tells whether an object in a line names a key twice.

    Its arguments are the line (valid JSON, an object), the parsed record, and the text in that. It takes about a
    microsecond, a twentieth of reading the record.
    """
    name = orjson.dumps(text.rpartition(".")[2])
    size, key_end = len(name), _KEY_END

    def repeats(line: bytes, record: dict[str, Any], value: Any) -> bool:
        start = -1
        if type(value) is str:
            length = len(value)
            start = line.rfind(name, 0, len(line) - length)
            if start >= 0 and line.find(name, 0, start) < 0:
                begin = line.find(b":", start + size) + 1
                if len(key_end(line, 0, begin)) + len(key_end(line, begin + 1 + length)) == len(record):
                    return False
            else:
                start = -1
        number = _num_keys(record)
        if start >= 0:  # the value may have more bytes than characters, and what looks like a key among the rest
            while line[begin] in BLANK:
                begin += 1
            for written in (orjson.dumps(value), json.dumps(value).encode()):
                if line.startswith(written, begin):
                    return number != len(key_end(line, 0, begin)) + len(key_end(line, begin + len(written))) and _walk(
                        line
                    )
        return number != len(key_end(line)) and _walk(line)

    return repeats


def names_a_key_twice(data: bytes, value: list[Any]) -> bool:
    """Tell whether an object in a JSON array names a key twice."""
    return _num_keys(value) != len(_KEY_END(data)) and _walk(data)


def _num_keys(record: dict[str, Any] | list[Any]) -> int:
    """Return how many keys a record has, nested ones included."""
    number = 0
    left: list[Any] = [record]
    while left:
        value = left.pop()
        if type(value) is dict:
            number += len(value)
            value = value.values()
        left += [item for item in value if type(item) in _NESTED]
    return number


def _walk(line: bytes) -> bool:
    """Tell whether a valid line names a key twice, token by token."""
    objects: list[set[str]] = []
    string = b""
    for match in _TOKEN(line):
        token = match.group()
        if token == b"{":
            objects.append(set())
        elif token == b"}":
            objects.pop()
        elif token == b":":
            name: str = orjson.loads(string)
            if name in objects[-1]:
                return True
            objects[-1].add(name)
        else:
            string = token
    return False
