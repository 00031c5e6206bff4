"""Evaluation sets: items with a question and maybe an answer, from JSON lines, a JSON array, CSV or Parquet.

An item that cannot be used is counted with a reason; a file that cannot be trusted, or lacks a column, is an error:
what is to be protected must not be guessed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import orjson

from dataaudit.corpus.fields import look_up
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.protected.set_records import Record, UnknownColumnError, read_records

_MAX_NAME = 200
"""Characters of an item's name: it stands in the manifest, where no text belongs."""
_MAX_LIST_DEPTH = 8


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
    first_lost: tuple[int, int] | None = None
    """File and record in it of the first of them."""

    @property
    def sha256(self) -> str:
        """Digest of the items, hex: of every item's [id, question, answer] as a line of JSON."""
        state = hashlib.sha256()
        for item in self.items:
            state.update(orjson.dumps([item.id, item.question, item.answer]) + b"\n")
        return state.hexdigest()


class SetFileError(Exception):
    """A file of a set cannot be used.

    Args:
        number: Of the file in the set.
        cause: What is wrong with it.
    """

    def __init__(self, number: int, cause: ShardUnreadable | UnknownColumnError) -> None:
        super().__init__(number, cause)
        self.number = number
        self.cause = cause


def read_items(paths: Iterable[str], fields: ItemFields) -> ItemSet:
    """Read an evaluation set.

    Args:
        paths: Its files, in the order in which items are numbered.
        fields: Where the texts are.

    Raises:
        SetFileError: A file cannot be opened or trusted, or has no such column.
        OSError: Reading failed, and may not fail again.
    """
    columns = [column for column in (fields.question, fields.answer, fields.id) if column is not None]
    found, names, row = ItemSet(), dict[str, int](), -1
    for number, path in enumerate(paths):
        with _named(number):
            for in_file, (record, size) in enumerate(read_records(path, columns)):
                row += 1
                item = record if isinstance(record, Reason) else _item(record, fields, row, names)
                if not isinstance(item, Reason):
                    found.items.append(item)
                    continue
                found.losses.add(item, row, size)
                found.first_lost = found.first_lost or (number, in_file)
    return found


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Say of what is wrong in which file it is."""
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
    answer = None if fields.answer is None else as_text(look_up(record, fields.answer))
    if isinstance(answer, Reason):
        return answer
    named = as_text(look_up(record, fields.id)) if fields.id is not None else None
    name = named[:_MAX_NAME] if isinstance(named, str) and named else str(row)
    own = name
    while name in names:  # a name of its own may look like one of a repeated one
        names[own] += 1
        name = f"{own}#{names[own]}"
    names[name] = 1
    return Item(id=name, question=question, answer=answer)


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
