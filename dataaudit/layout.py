"""Blocks of plain text: facts, tables and sections that fit the terminal, without any escape sequence.

A number is never cut. Names are folded onto further lines where a row is too wide; where even that is not
enough, the row is wider than the terminal.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dataaudit.text import clean, safe_line

_INDENT = "  "
_LEAST_WIDTH, _MOST_WIDTH, _PIPE_WIDTH = 72, 160, 100
_BREAKS = " /-_="
_CUT = "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    head: str
    """Heading; ``\\n`` begins a further line."""
    align: Literal["left", "right"] = "right"
    """Numbers stand right, names left."""
    folds: bool = False
    """Whether its cells may be folded."""


def name_column(head: str) -> Column:
    """Return a column of names: left, and folded where it must be."""
    return Column(head=head, align="left", folds=True)


def word_column(head: str) -> Column:
    """Return a column of short words: left, never folded."""
    return Column(head=head, align="left")


def number_column(head: str) -> Column:
    """Return a column of numbers."""
    return Column(head=head)


def terminal_width() -> int:
    """Return the columns to write for; a pipe gets 100 unless COLUMNS says otherwise."""
    columns = shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns
    return max(_LEAST_WIDTH, min(columns, _MOST_WIDTH))


def page(title: str, *blocks: Iterable[str]) -> str:
    """Return the whole text: a title, then blocks that are not empty, a blank line before each."""
    lines = [title]
    for number, block in enumerate(blocks):
        held = list(block)
        if held:
            lines += [*([""] if number else []), *held]
    return "\n".join(safe_line(line.rstrip()) for line in lines) + "\n"


def section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a heading and what belongs to it; nothing when that is empty."""
    held = list(lines)
    return [title, *held] if held else []


def prose(text: str, width: int) -> list[str]:
    """Return an indented paragraph."""
    return [_INDENT + line for line in wrap(text, width - len(_INDENT))]


def facts(pairs: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return ``name  value`` lines, values below each other."""
    held = list(pairs)
    column = max((cells(name) for name, _ in held), default=0) + 2
    lines = []
    for name, value in held:
        parts = wrap(value, width - column - len(_INDENT))
        lines.append(_INDENT + _pad(name, column, "left") + parts[0])
        lines += [_INDENT + " " * column + part for part in parts[1:]]
    return lines


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a table with its heading; nothing when it has no rows."""
    if not rows:
        return []
    heads = [column.head.split("\n") for column in columns]
    natural = [max([*map(cells, heads[index]), *(cells(row[index]) for row in rows)]) for index in range(len(columns))]
    widths, gap = _fit(columns, natural, [max(map(cells, head)) for head in heads], width - len(_INDENT))
    depth = max(map(len, heads))
    padded = [[""] * (depth - len(head)) + head for head in heads]
    lines = [_line(columns, [head[level] for head in padded], widths, gap) for level in range(depth)]
    lines.append(_INDENT + gap.join("-" * one for one in widths))
    for row in rows:
        folded = [fold(cell, widths[index]) if columns[index].folds else [cell] for index, cell in enumerate(row)]
        for level in range(max(map(len, folded))):
            parts = [cell[level] if level < len(cell) else "" for cell in folded]
            lines.append(_line(columns, parts, widths, gap))
    return lines


def cells(text: str) -> int:
    """Return how many terminal cells a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, width: int) -> list[str]:
    """Break a text at blanks only: a digest, path or command stays whole, so that it can be copied."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and cells(lines[-1]) + 1 + cells(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def fold(text: str, width: int) -> list[str]:
    """Cut a text into pieces of at most ``width`` cells, after a blank where there is one, else a slash or dash."""
    pieces = []
    rest = text
    while cells(rest) > width:
        stop = len(rest)
        while cells(rest[:stop]) > width:
            stop -= max(1, (cells(rest[:stop]) - width) // 2)
        stop = max(stop, 1)
        while stop < len(rest) and cells(rest[: stop + 1]) <= width:
            stop += 1
        if rest[stop] != " ":
            blank = rest.rfind(" ", 0, stop) + 1
            nice = max(rest.rfind(mark, 0, stop) for mark in _BREAKS) + 1
            stop = next((one for one in (blank, nice) if one > width // 3), stop)
        pieces.append(rest[:stop].rstrip())
        rest = rest[stop:].lstrip()
    return [*pieces, rest] if rest or not pieces else pieces


def shortened(text: str, width: int, *, head: bool = True) -> str:
    """Return a name in at most ``width`` cells, made harmless; of a longer one the end, and a third for the beginning.

    Args:
        text: Any string.
        width: Cells, 8 or more.
        head: Whether to keep the beginning.
    """
    shown = clean(text if len(text) <= 2 * _MOST_WIDTH else text[:_MOST_WIDTH] + text[-_MOST_WIDTH:])
    if cells(shown) <= width:
        return shown
    begin = shown[: width // 3] if head else ""
    while cells(begin) > width // 3:
        begin = begin[:-1]
    end = shown[-(width - cells(begin) - len(_CUT)) :]
    while cells(begin) + len(_CUT) + cells(end) > width:
        end = end[1:]
    return begin + _CUT + end


def _fit(columns: Sequence[Column], natural: Sequence[int], least: Sequence[int], width: int) -> tuple[list[int], str]:
    """Return the widths of the columns and the gap between them."""
    for floor, gap in ((24, 2), (16, 2), (12, 1)):
        widths = list(natural)
        floors = [max(least[index], min(floor, one)) for index, one in enumerate(natural)]
        room = width - gap * (len(columns) - 1)
        folding = [index for index, column in enumerate(columns) if column.folds]
        while sum(widths) > room:
            wide = [index for index in folding if widths[index] > floors[index]]
            if not wide:
                break
            widths[max(wide, key=lambda index: widths[index])] -= 1
        if sum(widths) <= room:
            break
    return widths, " " * gap


def _line(columns: Sequence[Column], parts: Sequence[str], widths: Sequence[int], gap: str) -> str:
    shown = [_pad(part, widths[index], columns[index].align) for index, part in enumerate(parts)]
    return (_INDENT + gap.join(shown)).rstrip()


def _pad(text: str, width: int, align: Literal["left", "right"]) -> str:
    blanks = " " * max(0, width - cells(text))
    return blanks + text if align == "right" else text + blanks
