"""Evaluation sets: items with a question and maybe an answer, from JSON lines, a JSON array, CSV or Parquet.

An item that cannot be used is counted with a reason; a file that cannot be trusted, or a column that no item has, is an
error: what is to be protected must not be guessed.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from dataaudit.corpus.fields import look_up
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers.columns import damage
from dataaudit.corpus.readers.jsonl import why_invalid
from dataaudit.corpus.readers.keys import key_check
from dataaudit.corpus.readers.lines import BLANK, BOM, lines
from dataaudit.corpus.readers.parquet import open_file
from dataaudit.corpus.readers.part import END, Part
from dataaudit.corpus.readers.stream import ByteStream
from dataaudit.corpus.shards import Compression, format_of

MAX_ITEM_BYTES = 64 << 20
_MAX_FILE_BYTES = 1 << 30
_MAX_NAMES = 1_000
_MAX_NAME = 200
"""Characters of an item's name: it stands in the manifest, where no text belongs."""
_BLOCK_BYTES = 1 << 20
_ROWS_AT_ONCE = 1_024
_CSV = {".csv": ",", ".tsv": "\t"}
_Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFields:
    """Where an item's texts are; columns are names or dotted paths."""

    question: str
    """Column of the question."""
    answer: str | None = None
    """Column of the answer."""
    id: str | None = None
    """Column of the item's name; its number when None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of an evaluation set."""

    id: str
    """Its name, unique in the set."""
    question: str
    """The question."""
    answer: str | None
    """The answer, when there is one."""


@dataclass(slots=True, kw_only=True)
class ItemSet:
    """The items of one evaluation set."""

    items: list[Item] = field(default_factory=list)
    """In the order of files and records."""
    losses: LossLog = field(default_factory=LossLog)
    """Records that gave no item; their row counts from the start of the set."""

    @property
    def sha256(self) -> str:
        """Digest of the items, hex: of every item's [id, question, answer] as a line of JSON."""
        state = hashlib.sha256()
        for item in self.items:
            state.update(orjson.dumps([item.id, item.question, item.answer]) + b"\n")
        return state.hexdigest()


class UnknownColumnError(Exception):
    """No record has the column.

    Args:
        column: What was looked for.
        known: Columns that records have.
    """

    def __init__(self, column: str, known: Sequence[str]) -> None:
        super().__init__(column, known)
        self.column = column
        self.known = tuple(known)


def read_items(paths: Iterable[str], fields: ItemFields) -> ItemSet:
    """Read an evaluation set.

    Args:
        paths: Its files, in the order in which items are numbered.
        fields: Where the texts are.

    Raises:
        ShardUnreadable: A file cannot be trusted; its place is the file's number and what is wrong.
        UnknownColumnError: No record has a column.
        OSError: A file cannot be opened.
    """
    found, seen, names = ItemSet(), _Seen(), dict[str, int]()
    row = -1
    for path in paths:
        for record, size in _records(path, fields):
            row += 1
            if isinstance(record, Reason):
                found.losses.add(record, row, size)
                continue
            seen.see(record)
            item = _item(record, fields, row, names)
            if isinstance(item, Reason):
                found.losses.add(item, row, size)
            else:
                found.items.append(item)
    for column in (fields.question, fields.answer, fields.id):
        if column is not None and seen.names and not seen.has(column):
            raise UnknownColumnError(column, sorted(seen.names))
    return found


@dataclass(slots=True)
class _Seen:
    """The columns that records have, nested ones as dotted paths."""

    names: dict[str, None] = field(default_factory=dict)

    def see(self, record: _Record, prefix: str = "") -> None:
        for name, value in record.items():
            path = f"{prefix}{name}"
            if len(self.names) < _MAX_NAMES:
                self.names.setdefault(path)
            if isinstance(value, dict):
                self.see(value, f"{path}.")

    def has(self, column: str) -> bool:
        return column in self.names or len(self.names) >= _MAX_NAMES


def _item(record: _Record, fields: ItemFields, row: int, names: dict[str, int]) -> Item | Reason:
    question = as_text(look_up(record, fields.question))
    if question is None or isinstance(question, Reason):
        return question or Reason.TEXT_MISSING
    answer = None if fields.answer is None else as_text(look_up(record, fields.answer))
    if isinstance(answer, Reason):
        return answer
    named = as_text(look_up(record, fields.id)) if fields.id is not None else None
    name = named[:_MAX_NAME] if isinstance(named, str) and named else str(row)
    names[name] = names.get(name, 0) + 1
    if names[name] > 1:
        name = f"{name}#{names[name]}"
    return Item(id=name, question=question, answer=answer)


def as_text(value: object) -> str | Reason | None:
    """Return a value as text: numbers as JSON writes them, lists one entry a line; None for null."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool | int | float):
        return orjson.dumps(value).decode() if not isinstance(value, int) or abs(value) < 2**63 else str(value)
    if isinstance(value, list | tuple):
        texts = [as_text(entry) for entry in value]
        if all(type(text) is str for text in texts):
            return "\n".join(text for text in texts if isinstance(text, str))
    return Reason.TEXT_TYPE


def _records(path: str, fields: ItemFields) -> Iterator[tuple[_Record | Reason, int]]:
    """Yield the records of a file, or why one is none, with their bytes.

    Raises:
        ShardUnreadable: The file cannot be trusted.
    """
    format_, compression = format_of(path)
    suffix = next((suffix for suffix in _CSV if suffix in path.lower().rsplit("/", 1)[-1]), "")
    if format_ == "parquet":
        yield from _parquet_records(path, fields)
    elif format_ == "jsonl":
        array = _array(path, compression)
        if array is not None:
            yield from array
            return
        with ByteStream(path, compression) as stream:
            yield from _json_records(stream, fields)
    elif suffix:
        with ByteStream(path, compression) as stream:
            yield from _csv_records(_whole(stream), _CSV[suffix])
    else:
        raise ShardUnreadable(Reason.UNKNOWN_FORMAT, "expected JSON lines, CSV or Parquet")


def _array(path: str, compression: Compression) -> Iterator[tuple[_Record | Reason, int]] | None:
    """Return the entries of a file that is one JSON array; None for lines.

    Raises:
        ShardUnreadable: It begins as an array and is none.
    """
    with ByteStream(path, compression) as stream:
        head = stream.read(_BLOCK_BYTES)
        if not head.removeprefix(BOM).lstrip(BLANK).startswith(b"["):
            return None
        data = (head + _rest(stream, len(head))).removeprefix(BOM)
    try:
        entries = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise ShardUnreadable(why_invalid(data), "it begins as a JSON array") from None
    return ((entry if type(entry) is dict else Reason.NOT_AN_OBJECT, len(data) // len(entries)) for entry in entries)


def _json_records(stream: ByteStream, fields: ItemFields) -> Iterator[tuple[_Record | Reason, int]]:
    repeats = key_check(fields.question)
    for line, length, _ in lines(stream, Part(0, END), MAX_ITEM_BYTES):
        if line is None:
            yield Reason.OVERSIZE, length
            continue
        if not line.strip(BLANK):
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            yield why_invalid(line), length
            continue
        if type(record) is not dict:
            yield Reason.NOT_AN_OBJECT, length
        elif repeats(line, record, look_up(record, fields.question)):
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


def _csv_records(text: str, delimiter: str) -> Iterator[tuple[_Record | Reason, int]]:
    before = csv.field_size_limit(MAX_ITEM_BYTES)
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        header = next(rows, [])
        if len(set(header)) < len(header):
            raise ShardUnreadable(Reason.AMBIGUOUS_COLUMN, "the header names a column twice")
        for row in rows:
            size = sum(map(len, row))
            if not row:
                continue
            if len(row) != len(header):
                yield Reason.CSV_FIELDS, size
            elif any("\udc80" <= char <= "\udcff" for value in row for char in value):
                yield Reason.INVALID_UTF8, size
            else:
                yield dict(zip(header, row, strict=True)), size
    except csv.Error:
        raise ShardUnreadable(Reason.CSV_FIELDS, "a field of more than 64 MiB, or no CSV at all") from None
    finally:
        csv.field_size_limit(before)


def _parquet_records(path: str, fields: ItemFields) -> Iterator[tuple[_Record | Reason, int]]:
    with open_file(path) as file:
        with damage(Reason.NOT_PARQUET, "schema"):
            schema = file.schema_arrow
            names = schema.names
        wanted = []
        for column in (fields.question, fields.answer, fields.id):
            if column is None:
                continue
            top = column if column in names else column.split(".")[0]
            if names.count(top) > 1:
                raise ShardUnreadable(Reason.AMBIGUOUS_COLUMN, top)
            if top not in names:
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
