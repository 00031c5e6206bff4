"""Blocks as Markdown: a name from data is always a code span, so nothing in it is markup, link or mention.

Inside a code span GitHub and the Hugging Face hub read no HTML, link, image, address, @mention, emoji or formula. The
two characters that could end the span or the cell of a table are shown as escapes, as control characters are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dataaudit.render.blocks import Block, Cell, Facts, Figure, Points, Prose, Table, first, left_out
from dataaudit.render.line import Line, Style, ratio, spell
from dataaudit.text import clean

NAME_LIMIT = 80
"""Characters of a name that are shown, unless the caller says otherwise."""
_ENDS = {"`": "\\x60", "|": "\\x7c"}


def code(text: str, limit: int | None = NAME_LIMIT) -> str:
    """Return a code span that shows ``text`` and stays on one line and in its cell.

    Args:
        text: Any string.
        limit: Characters to keep; how many more there are is said.
    """
    shown = clean(text, limit)
    for character, escaped in _ENDS.items():
        shown = shown.replace(character, escaped)
    return f"`{shown}`" if shown.strip() else "`(empty)`"


_MARKDOWN = Style(name=lambda text: code(text, None), share=ratio)


def markdown(line: Line) -> str:
    """Return a line as Markdown; its own words are taken for Markdown."""
    return spell(line, _MARKDOWN)


def cells(values: Iterable[Line | Cell]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(map(cell, values))} |"


def cell(one: Line | Cell) -> str:
    """Return a cell of a table."""
    if not isinstance(one, Cell):
        return markdown(one)
    return f"{markdown(one.text)} ({markdown(one.detail)})" if one.detail else markdown(one.text)


def heads(titles: Sequence[str]) -> tuple[str, str]:
    """Return the heading of a table whose columns all stand left, and its rule."""
    return cells(titles), cells(["---"] * len(titles))


def table(shown: Table, most: int | None = None, rest: str = "") -> list[str]:
    """Return the lines of a table, none when there is no row.

    Args:
        shown: The table.
        most: Rows that are listed; all that it has when None.
        rest: Where those are that are left out.
    """
    rows = shown.rows if most is None else first(shown.rows, most)
    body = (*rows, *shown.foot)
    if not body:
        return []
    rule = ["---:" if column.kind == "number" else "---" for column in shown.columns]
    lines = [cells([column.head for column in shown.columns]), cells(rule), *map(cells, body)]
    more = left_out(shown, len(rows), rest)
    lines += ["", more] if more else []
    return [*lines, "", markdown(shown.note)] if shown.note else lines


def lines_of(blocks: Iterable[Block], most: int | None = None, rest: str = "") -> list[str]:
    """Return blocks as lines, a blank one between them."""
    lines: list[str] = []
    for block in blocks:
        own = _lines(block, most, rest)
        lines += ["", *own] if own and lines else own
    return lines


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Return a part that the reader opens; nothing of an empty one."""
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>"] if lines else []


def _lines(block: Block, most: int | None, rest: str) -> list[str]:
    match block:
        case Table():
            return table(block, most, rest)
        case Figure():
            return table(block.table, most, rest)
        case Prose(text=text):
            return [markdown(text)] if text else []
        case Points(items=items):
            return [f"- {markdown(one.text)}" for one in items]
        case Facts(pairs=pairs):
            return [f"- {markdown(name)}: {cell(value)}" for name, value in pairs]
    return []
