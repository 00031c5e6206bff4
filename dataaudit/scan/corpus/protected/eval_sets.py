"""Reads evaluation sets: items with a question and maybe an answer, from JSON lines, a JSON array, CSV or Parquet.

An item that cannot be used is counted with a reason. A file that cannot be trusted, or lacks a wanted column (in its
header, schema and all records), is an error: what is to be protected must not be guessed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from dataaudit.scan.corpus.fields import look_up
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers.columns import damage
from dataaudit.scan.corpus.readers.jsonl import key_check, load, names_a_key_twice, why_invalid
from dataaudit.scan.corpus.readers.parquet import open_file
from dataaudit.scan.corpus.readers.part import END, Part
from dataaudit.scan.corpus.readers.stream import BLANK, BOM, ByteStream, lines
from dataaudit.scan.corpus.shards import Compression, format_of

_MAX_NAME = 200
"""Characters of an item's name, which is in the manifest, where no text belongs."""
_MAX_LIST_DEPTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFields:
    """Columns of an item, by name or dotted path."""

    question: str
    answer: str | None = None
    id: str | None = None
    """None where its number is its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item of an evaluation set."""

    id: str
    """Unique in the set."""
    question: str
    answers: tuple[str, ...] = ()
    """The answer, all accepted answers, or none."""


@dataclass(slots=True, kw_only=True)
class ItemSet:
    """The items of one evaluation set."""

    items: list[Item] = field(default_factory=list)
    """In the order of files and records."""
    losses: LossLog = field(default_factory=LossLog)
    """Records that gave no item; rows count from the start of the set."""
    first_lost: tuple[int, int] | None = None
    """File, and record in it, of the first loss."""

    @property
    def sha256(self) -> str:
        """Digest of the items, hex: of every item's [id, question, answer] as a line of JSON, several as a list."""
        state = hashlib.sha256()
        for item in self.items:
            answer = item.answers[0] if len(item.answers) == 1 else list(item.answers) or None
            state.update(orjson.dumps([item.id, item.question, answer]) + b"\n")
        return state.hexdigest()


class SetFileError(Exception):
    """A file of a set, by its number there, cannot be used."""

    def __init__(self, number: int, cause: ShardUnreadable | UnknownColumnError) -> None:
        super().__init__(number, cause)
        self.number = number
        self.cause = cause


def read_items(paths: Iterable[str], fields: ItemFields) -> ItemSet:
    """Read an evaluation set."""
    columns = [column for column in (fields.question, fields.answer, fields.id) if column is not None]
    item_set, names, row = ItemSet(), dict[str, int](), -1
    for number, path in enumerate(paths):
        with _named(number):
            for in_file, (record, size) in enumerate(read_records(path, columns)):
                row += 1
                item = record if isinstance(record, Reason) else _item(record, fields, row, names)
                if not isinstance(item, Reason):
                    item_set.items.append(item)
                    continue
                item_set.losses.add(item, row, size)
                item_set.first_lost = item_set.first_lost or (number, in_file)
    return item_set


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Add the file's number to its errors."""
    try:
        yield
    except (UnknownColumnError, ShardUnreadable) as error:
        raise SetFileError(number, error) from None
    except FileNotFoundError:
        raise SetFileError(number, ShardUnreadable(Reason.NOT_FOUND)) from None
    except PermissionError:
        raise SetFileError(number, ShardUnreadable(Reason.PERMISSION)) from None


def _item(record: Record, fields: ItemFields, row: int, names: dict[str, int]) -> Item | Reason:
    question = as_text(look_up(record, fields.question))
    if question is None or isinstance(question, Reason):
        return question or Reason.TEXT_MISSING
    answers = () if fields.answer is None else _answers(look_up(record, fields.answer))
    if isinstance(answers, Reason):
        return answers
    named = as_text(look_up(record, fields.id)) if fields.id is not None else None
    name = named[:_MAX_NAME] if isinstance(named, str) and named else str(row)
    own = name
    while name in names:  # a name of its own may look like one of a repeated one
        names[own] += 1
        name = f"{own}#{names[own]}"
    names[name] = 1
    return Item(id=name, question=question, answers=answers)


def _answers(value: object, depth: int = 0) -> tuple[str, ...] | Reason:
    """Return an answer, or each entry of a list of accepted answers, once; null and NaN are no answers."""
    if not isinstance(value, list | tuple):
        text = as_text(value)
        return text if isinstance(text, Reason) else () if text is None else (text,)
    if depth > _MAX_LIST_DEPTH:
        return Reason.TEXT_TYPE
    answers: dict[str, None] = {}
    for entry in value:
        own = _answers(entry, depth + 1)
        if isinstance(own, Reason):
            return own
        answers.update(dict.fromkeys(own))
    return tuple(answers)


def as_text(value: object, depth: int = 0) -> str | Reason | None:
    """Return a value as text: numbers as JSON writes them, lists one entry a line; None for null and NaN.

    Lists inside more than eight lists, and infinite numbers, are no text.
    """
    if value is None or type(value) is str:
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else Reason.TEXT_TYPE
    if isinstance(value, bool | int | float):
        return orjson.dumps(value).decode() if not isinstance(value, int) or abs(value) < 2**63 else str(value)
    if isinstance(value, list | tuple) and depth <= _MAX_LIST_DEPTH:
        texts = [as_text(entry, depth + 1) for entry in value]
        if all(type(text) is str for text in texts):
            return "\n".join(text for text in texts if isinstance(text, str))
    return Reason.TEXT_TYPE


MAX_ITEM_BYTES = 64 << 20
_MAX_FILE_BYTES = 1 << 30
_MAX_NAMES = 1_000
_MAX_NAME_DEPTH = 8
"""Nested columns are named in errors down to here; deeper ones are found all the same."""
_BLOCK_BYTES = 1 << 20
_ROWS_AT_ONCE = 1_024
_CSV = {".csv": ",", ".tsv": "\t"}
Record = dict[str, Any]
Records = Iterator[tuple[Record | Reason, int]]
"""Records, or the reasons of their loss, with their bytes."""


class UnknownColumnError(Exception):
    """A file has no such column, but the known ones."""

    def __init__(self, column: str, known: Sequence[str]) -> None:
        super().__init__(column, known)
        self.column = column
        self.known = tuple(known)


def read_records(path: str, columns: Sequence[str]) -> Records:
    """Yield the records of a file."""
    format_, compression = format_of(path)
    suffix = next((suffix for suffix in _CSV if suffix in path.lower().rsplit("/", 1)[-1]), "")
    if format_ == "parquet":
        yield from _parquet_records(path, columns)
    elif format_ == "jsonl":
        array = _array(path, compression)
        if array is not None:
            yield from _checked(array, columns)
            return
        with ByteStream(path, compression) as stream:
            yield from _checked(_json_records(stream, columns[0]), columns)
    elif suffix:
        with ByteStream(path, compression) as stream:
            yield from _csv_records(_whole(stream), _CSV[suffix], columns)
    else:
        raise ShardUnreadable(Reason.UNKNOWN_FORMAT, "expected JSON lines, CSV or Parquet")


@dataclass(slots=True)
class _Names:
    """Names of columns for an error, those on top first: all of these, and some nested ones as dotted paths."""

    top: dict[str, None] = field(default_factory=dict)
    nested: dict[str, None] = field(default_factory=dict)

    def see(self, record: Record) -> None:
        self.top.update(dict.fromkeys(record))
        left = [("", record, 1)]
        while left and len(self.nested) < _MAX_NAMES:
            prefix, value, depth = left.pop()
            if depth > 1:
                self.nested.update(dict.fromkeys(f"{prefix}{name}" for name in value))
            if depth < _MAX_NAME_DEPTH:
                left += [(f"{prefix}{name}.", item, depth + 1) for name, item in value.items() if type(item) is dict]


def _checked(records: Records, columns: Sequence[str]) -> Records:
    """Yield records, and raise at the end when none of them has a column."""
    names, absent = _Names(), dict.fromkeys(columns)
    for record, size in records:
        if not isinstance(record, Reason):
            for column in [column for column in absent if _has(record, column)]:
                del absent[column]
            if absent:
                names.see(record)
        yield record, size
    if absent and names.top:
        raise UnknownColumnError(next(iter(absent)), [*sorted(names.top), *sorted(names.nested)])


def _has(record: Record, column: str) -> bool:
    """Tell whether a record has a column, be its value null."""
    if column in record or "." not in column:
        return column in record
    current: Any = record
    for name in column.split("."):
        if type(current) is not dict or name not in current:
            return False
        current = current[name]
    return True


def _array(path: str, compression: Compression) -> Records | None:
    """Return the entries of a file that is one JSON array; None for lines."""
    with ByteStream(path, compression) as stream:
        head = stream.read(_BLOCK_BYTES)
        if not head.removeprefix(BOM).lstrip(BLANK).startswith(b"["):
            return None
        data = (head + _rest(stream, len(head))).removeprefix(BOM)
    try:
        entries = load(data)
    except orjson.JSONDecodeError:
        raise ShardUnreadable(why_invalid(data), "it begins as a JSON array") from None
    if names_a_key_twice(data, entries):
        raise ShardUnreadable(Reason.DUPLICATE_KEY, "an object in the array names a key twice")
    return ((entry if type(entry) is dict else Reason.NOT_AN_OBJECT, len(data) // len(entries)) for entry in entries)


def _json_records(stream: ByteStream, text: str) -> Records:
    repeats = key_check(text)
    for line, length, _ in lines(stream, Part(0, END), MAX_ITEM_BYTES):
        if line is None:
            yield Reason.OVERSIZE, length
            continue
        if not line.strip(BLANK):
            continue
        try:
            record = load(line)
        except orjson.JSONDecodeError:
            yield why_invalid(line), length
            continue
        if type(record) is not dict:
            yield Reason.NOT_AN_OBJECT, length
        elif repeats(line, record, look_up(record, text)):
            yield Reason.DUPLICATE_KEY, length
        else:
            yield record, length


def _whole(stream: ByteStream) -> str:
    """Return all of a stream as text; bytes that are no UTF-8 become lone surrogates."""
    return _rest(stream, 0).removeprefix(BOM).decode("utf-8", "surrogateescape")


def _rest(stream: ByteStream, size: int) -> bytes:
    """Return what is left of a stream, ``size`` bytes having been read."""
    pieces = []
    while block := stream.read(_BLOCK_BYTES):
        pieces.append(block)
        size += len(block)
        if size > _MAX_FILE_BYTES:
            raise ShardUnreadable(Reason.OVERSIZE, "more than 1 GiB in a file that is read at once")
    return b"".join(pieces)


def _csv_records(text: str, delimiter: str, columns: Sequence[str]) -> Records:
    before = csv.field_size_limit(MAX_ITEM_BYTES)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(rows, [])
        if any(_is_undecoded(name) or "\0" in name for name in header):
            raise ShardUnreadable(Reason.INVALID_UTF8, "the header is not UTF-8 (it may be UTF-16 or Latin-1)")
        if len(set(header)) < len(header):
            raise ShardUnreadable(Reason.AMBIGUOUS_COLUMN, "the header names a column twice")
        for column in columns:
            if header and column not in header:
                raise UnknownColumnError(column, header)
        for row in rows:
            size = sum(map(len, row))
            if not row:
                continue
            if len(row) != len(header):
                yield Reason.CSV_FIELDS, size
            elif any(map(_is_undecoded, row)):
                yield Reason.INVALID_UTF8, size
            else:
                yield dict(zip(header, row, strict=True)), size
    except csv.Error:
        _check_header(text, rows.line_num, delimiter, columns[0])
        cause = "a quote is not closed, something follows a closing one, or a field has more than 64 MiB"
        raise ShardUnreadable(Reason.CSV_FIELDS, f"line {rows.line_num}: {cause}") from None
    finally:
        csv.field_size_limit(before)


def _check_header(text: str, line: int, delimiter: str, column: str) -> None:
    """Refuse a header with another separator, where quotes are wrong in its line."""
    names = next(csv.reader([text.partition("\n")[0]], delimiter=delimiter))
    if line == 1 and len(names) == 1:
        raise UnknownColumnError(column, names) from None


def _is_undecoded(value: str) -> bool:
    """Tell whether a text has bytes that are no UTF-8, as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _parquet_records(path: str, columns: Sequence[str]) -> Records:
    with open_file(path) as file:
        with damage(Reason.NOT_PARQUET, "schema"):
            schema = file.schema_arrow
            names = schema.names
        wanted = []
        for column in columns:
            top = column if column in names else column.split(".")[0]
            if names.count(top) > 1:
                raise ShardUnreadable(Reason.AMBIGUOUS_COLUMN, "the schema names a column twice")
            if top not in names or (top != column and not _has_field(schema.field(top).type, column.split(".")[1:])):
                raise UnknownColumnError(column, names)
            wanted.append(top)
        with damage(Reason.CORRUPT_PARQUET, ""):
            batches = file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted, use_threads=False)
        while True:
            with damage(Reason.CORRUPT_PARQUET, ""):
                batch: pa.RecordBatch | None = next(batches, None)
                if batch is None:
                    return
                batch.validate(full=True)
                records = batch.to_pylist()
            for record in records:
                yield record, sum(len(value) for value in record.values() if isinstance(value, str))


def _has_field(kind: pa.DataType, names: Sequence[str]) -> bool:
    """Tell whether a type has a field, inside fields."""
    for name in names:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return False
        kind = kind.field(name).type
    return True
