"""Blocks as plain text: facts, tables, sections and curves that fit the terminal, without any escape sequence.

A number is never cut. Names are folded onto further lines where a row is too wide; where even that is not enough, the
row is wider than the terminal.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Sequence
from typing import Literal

from dataaudit.base.render.blocks import Block, Cell, Facts, Figure, Points, Prose, Row, Section, Table, first, left_out
from dataaudit.base.render.line import Line, cells, fold, spell, wrap
from dataaudit.base.text import safe_line

ROWS = 20
"""Rows of a table that are listed, unless the caller says otherwise."""
_INDENT = "  "
_LEAST_WIDTH, _MOST_WIDTH, _PIPE_WIDTH = 72, 160, 100
_MARK = "<--"
"""Stands beside a row with a number that is pointed out."""


def terminal_width() -> int:
    """Return the columns to write for; a pipe gets 100 unless COLUMNS says otherwise."""
    columns = shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns
    return max(_LEAST_WIDTH, min(columns, _MOST_WIDTH))


def page(title: Line, *blocks: Iterable[str]) -> str:
    """Return the whole text: a title, then blocks that are not empty, a blank line before each."""
    lines = [spell(title)]
    for number, block in enumerate(map(list, blocks)):
        if block:
            lines += [*([""] if number else []), *block]
    return "\n".join(safe_line(line.rstrip()) for line in lines) + "\n"


def render(
    title: Line, blocks: Iterable[Block | Section], *, width: int | None = None, most: int | None = ROWS, rest: str = ""
) -> str:
    """Return a title and blocks as a page."""
    columns = width or terminal_width()
    parts = [part for block in blocks for part in parts_of(block, columns, most, rest)]
    return page(title, *parts)


def parts_of(item: Block | Section, width: int, most: int | None = ROWS, rest: str = "") -> list[list[str]]:
    """Return a block, or a section's title and its blocks, as parts of a page."""
    if not isinstance(item, Section):
        return [lines] if (lines := _lines(item, width, most, rest)) else []
    parts = [[spell(item.title), *prose(item.lead, width)]]
    for block in item.blocks:
        lines = _lines(block, width, most, rest)
        if isinstance(block, Prose):
            parts[-1] += lines
        elif lines:
            parts.append(lines)
    return [lines for index, lines in enumerate(parts) if index or len(lines) > 1]


def section(title: Line, lines: Iterable[str]) -> list[str]:
    """Return a heading and what belongs to it; nothing when that is empty."""
    body = list(lines)
    return [spell(title), *body] if title and body else body


def prose(text: Line, width: int) -> list[str]:
    """Return an indented paragraph; nothing of an empty text."""
    words = spell(text)
    return [_INDENT + line for line in wrap(words, width - len(_INDENT))] if words else []


def facts(pairs: Iterable[tuple[Line, Line | Cell]], width: int) -> list[str]:
    """Return ``name  value`` lines, values below each other."""
    rows = [(spell(name), _cell(value)) for name, value in pairs]
    column = max((cells(name) for name, _ in rows), default=0) + 2
    lines = []
    for name, value in rows:
        parts = wrap(value, width - column - len(_INDENT))
        lines.append(_INDENT + _pad(name, column, "left") + parts[0])
        lines += [_INDENT + " " * column + part for part in parts[1:]]
    return lines


def table(shown: Table, width: int, most: int | None = ROWS, rest: str = "") -> list[str]:
    """Return a table with its title; nothing when it has no rows and nothing to say of that."""
    chosen = shown.rows if most is None or shown.whole else first(shown.rows, most)
    body = [*chosen, *shown.foot]
    if not body:
        return section(shown.title, prose(shown.empty, width))
    lines = _grid(shown, body, width)
    lines += prose(left_out(shown, len(chosen), rest), width)
    return section(shown.title, [*lines, *prose(shown.note, width)])


def _lines(block: Block, width: int, most: int | None, rest: str) -> list[str]:
    match block:
        case Table():
            return table(block, width, most, rest)
        case Figure():
            return table(block.table, width, most, rest)
        case Prose(text=text):
            return prose(text, width)
        case Facts(pairs=pairs, title=title):
            return section(title, facts(pairs, width))
        case Points(items=items, title=title):
            return section(title, [line for item in items for line in prose(item.text, width)])
    return []


def _grid(shown: Table, body: Sequence[Row], width: int) -> list[str]:
    """Return heads, a rule and rows; a number that is pointed out has a mark at the end of its row."""
    kinds = [column.kind for column in shown.columns]
    rows = [[_cell(cell) for cell in row] for row in body]
    loud = [
        any(kind == "number" and isinstance(cell, Cell) and cell.tone in {"bad", "warn"} for cell, kind in pairs)
        for pairs in (zip(row, kinds, strict=True) for row in body)
    ]
    used = [index for index in range(len(kinds)) if kinds[index] != "word" or any(row[index] for row in rows)]
    kinds = [kinds[index] for index in used]
    rows = [[row[index] for index in used] for row in rows]
    heads = [spell(shown.columns[index].head) for index in used]
    if any(loud):
        kinds, heads = [*kinds, "word"], [*heads, ""]
        rows = [[*row, _MARK if mark else ""] for row, mark in zip(rows, loud, strict=True)]
    widest = [max(cells(row[index]) for row in rows) for index in range(len(kinds))]
    broken = [
        _head(head, most) if kind == "number" else [head] for head, kind, most in zip(heads, kinds, widest, strict=True)
    ]
    least = [max(map(cells, head)) for head in broken]
    folds = [kind in {"name", "text", "value"} for kind in kinds]
    widths, gap = _fit(folds, list(map(max, least, widest)), least, width - len(_INDENT))
    depth = max(map(len, broken))
    padded = [[""] * (depth - len(head)) + head for head in broken]
    right = [kind == "number" for kind in kinds]
    lines = [_line(right, [head[level] for head in padded], widths, gap) for level in range(depth)]
    lines.append(_INDENT + gap.join("-" * number for number in widths))
    for row in rows:
        folded = [fold(cell, widths[index]) if folds[index] else [cell] for index, cell in enumerate(row)]
        depth = max(map(len, folded))
        levels = ([cell[level] if level < len(cell) else "" for cell in folded] for level in range(depth))
        lines += [_line(right, level, widths, gap) for level in levels]
    return lines


def _cell(cell: Line | Cell) -> str:
    if not isinstance(cell, Cell):
        return spell(cell)
    detail = spell(cell.detail)
    return f"{spell(cell.text)} ({detail})" if detail else spell(cell.text)


def _head(head: str, widest: int) -> list[str]:
    """Return the lines of a heading: two at most, as wide as the numbers below it where it fits."""
    parts = (head.replace("/", "/ ") if cells(head) > widest else head).split(" ")
    halves = ((" ".join(parts[:at]), " ".join(parts[at:])) for at in range(1, len(parts) + 1))
    return wrap(" ".join(parts), max(widest, min(max(map(cells, pair)) for pair in halves)))


def _fit(folds: Sequence[bool], natural: Sequence[int], least: Sequence[int], width: int) -> tuple[list[int], str]:
    """Return the widths of the columns and the gap between them."""
    for floor, gap in ((24, 2), (16, 2), (12, 1)):
        widths = list(natural)
        floors = [max(least[index], min(floor, number)) for index, number in enumerate(natural)]
        room = width - gap * (len(widths) - 1)
        while sum(widths) > room:
            wide = [index for index, number in enumerate(widths) if folds[index] and number > floors[index]]
            if not wide:
                break
            widths[max(wide, key=lambda index: widths[index])] -= 1
        if sum(widths) <= room:
            break
    return widths, " " * gap


def _line(right: Sequence[bool], parts: Sequence[str], widths: Sequence[int], gap: str) -> str:
    shown = [_pad(part, widths[index], "right" if right[index] else "left") for index, part in enumerate(parts)]
    return (_INDENT + gap.join(shown)).rstrip()


def _pad(text: str, width: int, align: Literal["left", "right"]) -> str:
    blanks = " " * max(0, width - cells(text))
    return blanks + text if align == "right" else text + blanks


QUIET, LOUD = ".", "#"
_HEIGHT = 12
_LEAST_COLUMNS = 20


def plot_lines(
    steps: Sequence[int], values: Sequence[float], loud: Sequence[bool], width: int, height: int = _HEIGHT
) -> list[str]:
    """Return a chart of values by step; nothing when no value is finite.

    A column stands for as many steps as have to share it: its mean of quiet values, and the largest loud value.
    """
    points = [item for item in zip(steps, values, loud, strict=True) if math.isfinite(item[1])]
    if not points:
        return []
    low, high = min(value for _, value, _ in points), max(value for _, value, _ in points)
    labels = [f"{value:,.2f}" for value in (high, low)]
    margin = max(map(len, labels))
    columns = max(_LEAST_COLUMNS, width - margin - 2)
    first, span = steps[0], max(1, steps[-1] - steps[0] + 1)
    columns = min(columns, span)
    quiet: dict[int, list[float]] = {}
    marks: dict[int, float] = {}
    for step, value, marked in points:
        column = (step - first) * columns // span
        if marked:
            marks[column] = max(value, marks.get(column, value))
        else:
            quiet.setdefault(column, []).append(value)
    grid = [[" "] * columns for _ in range(height)]
    for column, own in quiet.items():
        grid[_row_of(sum(own) / len(own), low, high, height)][column] = QUIET
    for column, value in marks.items():
        grid[_row_of(value, low, high, height)][column] = LOUD
    heads = [labels[0], *[""] * (height - 2), labels[1]]
    lines = [f"{head:>{margin}} |{''.join(row)}".rstrip() for head, row in zip(heads, grid, strict=True)]
    begin, end = f"{steps[0]:,}", f"{steps[-1]:,}"
    blanks = max(1, columns - len(begin) - len(end))
    return [*lines, f"{'':>{margin}} +{'-' * columns}", f"{'':>{margin}}  {begin}{' ' * blanks}{end}"]


def _row_of(value: float, low: float, high: float, height: int) -> int:
    """Return the line of a value, 0 at the top."""
    share = (value - low) / (high - low) if high > low else 0.5
    return round((1 - share) * (height - 1))
