"""Blocks as Markdown: a name from data is always a code span, so nothing in it is markup, link or mention.

Inside a code span GitHub and the Hugging Face hub read no HTML, link, image, address, @mention, emoji or formula. The
two characters that could end the span or the cell of a table are shown as escapes, as control characters are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dataaudit.base.render.blocks import Block, Cell, Facts, Figure, Points, Prose, Table, first, left_out
from dataaudit.base.render.line import Line, Style, ratio, spell
from dataaudit.base.text import clean, plural

NAME_LIMIT = 80
"""Characters of a name that are shown, unless the caller says otherwise."""
_ENDS = {"`": "\\x60", "|": "\\x7c"}


def code(text: str, limit: int | None = NAME_LIMIT) -> str:
    """Return a code span that shows ``text`` and stays on one line and in its cell."""
    shown = clean(text, limit)
    for character, escaped in _ENDS.items():
        shown = shown.replace(character, escaped)
    return f"`{shown}`" if shown.strip() else "`(empty)`"


_MARKDOWN = Style(name=lambda text: code(text, None), share=ratio)


def markdown(line: Line) -> str:
    """Return a line as Markdown; its own words are taken for Markdown."""
    return spell(line, _MARKDOWN)


def cells(values: Iterable[Line | Cell], *, asides: bool = False) -> str:
    """Return a line of a table; ``asides`` says whether what cells say in small print is in it."""
    return f"| {' | '.join(cell(value, asides=asides) for value in values)} |"


def cell(line: Line | Cell, *, asides: bool = False) -> str:
    """Return a cell of a table."""
    if not isinstance(line, Cell):
        return markdown(line)
    text = f"[{markdown(line.text)}](<{line.link}>)" if line.link else markdown(line.text)
    text = f"**{text}**" if line.tone == "bad" and isinstance(line.text, str) else text
    text += f" {markdown(line.aside)}" if asides and line.aside else ""
    return f"{text} ({markdown(line.detail)})" if line.detail else text


def table(shown: Table, most: int | None = None, rest: str = "") -> list[str]:
    """Return the lines of a table, none when there is no row."""
    rows = shown.rows if most is None else first(shown.rows, most)
    body = (*rows, *shown.foot)
    if not body:
        return []
    lines = [*_heads(shown), *map(cells, body)]
    more = left_out(shown, len(rows), rest)
    lines += ["", more] if more else []
    return [*lines, "", markdown(shown.note)] if shown.note else lines


def lines_of(blocks: Iterable[Block], most: int | None = None, rest: str = "") -> list[str]:
    """Return blocks as lines, a blank line between them."""
    lines: list[str] = []
    for block in blocks:
        own = _lines(block, most, rest)
        lines += ["", *own] if own and lines else own
    return lines


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Return a part that the reader opens; nothing of an empty part."""
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
            return [f"- {markdown(point.text)}" for point in items]
        case Facts(pairs=pairs):
            return list(map(_fact, pairs))
    return []


def _heads(shown: Table) -> tuple[str, str]:
    """Return the heading of a table and its rule."""
    rule = ["---:" if column.kind == "number" else "---" for column in shown.columns]
    return cells([column.head for column in shown.columns]), cells(rule)


def _fact(pair: tuple[Line, Line | Cell]) -> str:
    """Return a fact; without a name it belongs to the fact before."""
    return f"- {markdown(pair[0])}: {cell(pair[1])}" if pair[0] else f"  - {cell(pair[1])}"


Measure = Callable[[str], int]


def num_bytes(text: str) -> int:
    """Return the length in UTF-8, as the summary of a step counts."""
    return len(text.encode("utf-8", "backslashreplace"))


def num_characters(text: str) -> int:
    """Return the length in UTF-16 units, the larger of the ways to count characters."""
    return len(text) + sum(character > "\uffff" for character in text)


def fitted(blocks: Iterable[Table | Facts], room: int, measure: Measure, rest: str) -> str:
    """Return tables and facts under their titles, whole rows only: an earlier block takes what it needs first."""
    parts: list[str] = []
    for block in blocks:
        parts.append(_fitted(block, room, measure, rest))
        room -= measure(parts[-1])
    return "".join(parts)


def _fitted(block: Table | Facts, room: int, measure: Measure, rest: str) -> str:
    title = markdown(block.title)
    before, after, noun = [f"### {title}", ""], [""], "line"
    if isinstance(block, Table):
        if block.folded:
            before, after = [f"<details><summary>{title}</summary>", ""], ["", "</details>", ""]
        before, rows, noun = [*before, *_heads(block)], [cells(row, asides=True) for row in block.rows], block.noun
        total = len(block.rows) if block.number is None else block.number
    else:
        rows, total = list(map(_fact, block.pairs)), len(block.pairs)

    def left(number: int) -> list[str]:
        return ["", f"{plural(number, f'more {noun}')} not shown here; {rest}"] if number else []

    free = room - measure("".join(f"{line}\n" for line in (*before, *after, *left(total))))
    chosen: list[str] = []
    for row in rows:
        free -= measure(row) + 1
        if free < 0:
            break
        chosen.append(row)
    lines = (*before, *chosen, *left(total - len(chosen)), *after)
    return "".join(f"{line}\n" for line in lines) if chosen else ""
