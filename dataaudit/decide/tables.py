"""Tables declared by their columns: each column has a head, a kind, and what its cell shows of an item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from dataaudit.base.render.blocks import MOST_ROWS, Cell, Column, Table, rows_of
from dataaudit.base.render.line import Line

_Item = TypeVar("_Item")
Kind = Literal["name", "number", "value", "word", "text"]
Declared = tuple[Line, Kind, Callable[[_Item], Line | Cell]]


def table(title: Line, items: Sequence[_Item], *columns: Declared[_Item], most: int = MOST_ROWS, **more: Any) -> Table:
    """Return a table of the first items, a row each; ``more`` are further fields of the table."""
    heads = tuple(Column(head, kind) for head, kind, _ in columns)
    return Table(
        title=title,
        columns=heads,
        **rows_of(items, lambda item: tuple(cell(item) for *_, cell in columns), most),
        **more,
    )
