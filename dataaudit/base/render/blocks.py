"""What a page is made of: sections of tables, figures, facts and sentences, the same for every medium."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from dataaudit.base.render.line import Line, Name, Number, join
from dataaudit.base.text import plural

Tone = Literal["", "good", "warn", "bad", "quiet"]
_Item = TypeVar("_Item")
MOST_ROWS = 50
"""Rows of a table that any medium lists, unless everything is asked for."""
_ADDRESS_LIMIT = 1000
_WEB = re.compile(
    r"https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
    r"(?:[/?#][A-Za-z0-9._~!$&'*+,;=:@%/?#-]*)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a table that says more than a line."""

    text: Line
    tone: Tone = ""
    href: str = ""
    """Id of the section that it leads to."""
    link: str = ""
    """Address that it leads to outside of the page, from :func:`web_address`."""
    detail: Line = ""
    """A second line in small print, or in parentheses."""
    aside: Line = ""
    """A further line in small print, which a terminal has not."""


Row = tuple[Line | Cell, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    head: Line
    kind: Literal["name", "number", "value", "word", "text"] = "number"
    """Names and text are folded, text less; numbers stand right, and are whole; so are words. A value is a number with
    its interval, which may be folded."""
    cell: Callable[[Any], Line | Cell] | None = None
    """Makes the cell of an item, for :func:`table_of`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; a medium lists as many rows as it has room for, and says how many more there are."""

    title: Line
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    foot: tuple[Row, ...] = ()
    """Rows that are always listed, after the others."""
    number: int | None = None
    """Number of all rows, where these are the first."""
    noun: str = "row"
    """What a row is; nothing where that need not be said."""
    rest: str = ""
    """Where all rows are, where the medium's own word for it is not right."""
    note: Line = ""
    """How to read it."""
    empty: str = ""
    """What stands here when there is no row; without it, nothing."""
    folded: bool = False
    """Whether it is closed at first, where a medium can."""
    whole: bool = False
    """Whether a terminal lists all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose:
    """A paragraph."""

    text: Line
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names with values."""

    pairs: tuple[tuple[Line, Line | Cell], ...]
    title: Line = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Something that stands out, or a thing to do."""

    text: Line
    tone: Tone = ""
    head: Line = ""
    """What stands before it."""
    section: str = ""
    """Id of the section that says more."""
    owner: Line = ""
    """Who answers for it."""
    reason: Line = ""
    """Why it is asked for."""
    runbook: Cell | None = None
    """What to do."""
    action: Line = ""
    """What is safe to do at once."""
    incident: str = ""
    """Id of the incident of a live run that it is, where nobody acknowledged it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Sentences, each with how grave it is."""

    items: tuple[Point, ...]
    title: Line = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart."""

    label: Line
    value: float
    shown: Line
    """The value as people read it."""
    mark: float | None = None
    """A value to compare it with."""
    span: tuple[float, float] | None = None
    """Interval of the value."""
    loud: bool = False
    """Whether it is pointed out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A bar for each of some names, from the top."""

    bars: tuple[Bar, ...]
    unit: str
    """What the axis measures."""
    percent: bool = False
    """Whether values are ratios, shown in percent on the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Distributions over the same edges, drawn as steps."""

    edges: tuple[float, ...]
    series: tuple[tuple[Line, tuple[float, ...]], ...]
    """Name and share in each bin."""
    unit: str
    dashed: frozenset[int] = frozenset()
    """Numbers of the series whose lines are dashed, so that ink alone tells them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A shade for each pair of a row and a column."""

    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    values: tuple[tuple[int, int, float, str, bool], ...]
    """Row, column, value, value in words, whether to point it out; pairs without a value are left out."""
    row_title: str
    column_title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Points by order and value: a few that are pointed out, and how densely the others lie."""

    unit: str
    order: str
    """What the horizontal axis counts."""
    quiet: tuple[tuple[float, float, Line], ...]
    """Order, value, words."""
    loud: tuple[tuple[float, float, Line], ...]
    boxes: tuple[tuple[float, float, float, float, int], ...] = ()
    """Left, right, bottom, top, number: in place of points when they are too many."""
    lines: tuple[tuple[float, float, float, float], ...] = ()
    """Order from and to, value of the middle, distance of the limits from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Values over steps."""

    series: tuple[tuple[Line, tuple[float, ...], tuple[float, ...]], ...]
    """Name, steps, values."""
    unit: str
    band: tuple[tuple[float, float, float], ...] = ()
    """Step, lowest and highest value that is expected."""
    spans: tuple[tuple[float, float, Line], ...] = ()
    """First and last step of what is pointed out, and words."""
    stacked: bool = False
    """Whether series are parts of a whole, at the same steps, drawn on top of each other."""
    percent: bool = False
    """Whether values are ratios, shown in percent on the axis."""
    order: str = "step"
    """What the horizontal axis counts."""
    ticks: tuple[tuple[float, Line], ...] = ()
    """Names at the horizontal axis, in place of numbers; values are marked by points then."""
    limits: tuple[tuple[float, Line], ...] = ()
    """Dashed lines: a value, and what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A shade for each row and column of a grid, from the least value to the largest."""

    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    values: tuple[tuple[float | None, ...], ...]
    """By row and column; None where there is none."""
    row_title: str
    column_title: str
    loud: frozenset[int] = frozenset()
    """Rows that are pointed out."""
    marks: tuple[tuple[int, int, Line], ...] = ()
    """Row, column, words: cells that are marked."""
    ticks: tuple[int, ...] | None = None
    """Columns that are named at the axis; None: as many as there is room for."""
    scale: Line = ""
    """What the shades measure; a scale from the least to the largest value stands beside the picture."""


Chart = Bars | Steps | Matrix | Scatter | Curves | Heat


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with the table that says the same; a medium without charts shows the table."""

    id: str
    title: Line
    chart: Chart
    table: Table
    says: Line = ""
    """The chart in a sentence, for those who do not see it; without it, the first bars."""
    note: Line = ""
    height: int = 0
    """Pixels; 0 for what the chart needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The table of all shards, which a page can sort and filter; other media leave it out."""

    values: dict[str, Any]
    """Columns of equal length, of :func:`dataaudit.present.report.shards.shard_values`."""


Block = Table | Prose | Facts | Points | Figure | Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page."""

    id: str
    title: Line
    lead: Line = ""
    """What to know first, in a sentence."""
    tone: Tone = ""
    blocks: tuple[Block, ...] = ()
    side_by_side: bool = False
    """Whether figures stand beside each other where there is room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigure:
    """One key figure of a page."""

    label: str
    value: Line
    detail: Line
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of sections under a headline."""

    title: Line
    version: Line
    meta: str
    """What it is made of, and when."""
    headline: str
    """The verdict, or what stands in its place."""
    tone: Tone
    subline: Line
    """Who judged it."""
    findings: tuple[Point, ...]
    """What stands out, gravest first."""
    others: tuple[Point, ...]
    """What stands out besides, when a verdict stands first."""
    findings_left_out: int
    figures: tuple[KeyFigure, ...]
    sections: tuple[Section, ...]

    @property
    def charts(self) -> tuple[Figure, ...]:
        """All figures of the page, in order."""
        return tuple(block for section in self.sections for block in section.blocks if isinstance(block, Figure))


def numbers(*heads: Line) -> tuple[Column, ...]:
    """Return columns of numbers."""
    return tuple(Column(head) for head in heads)


def names(*heads: Line) -> tuple[Column, ...]:
    """Return columns of names."""
    return tuple(Column(head, "name") for head in heads)


def words(*heads: Line) -> tuple[Column, ...]:
    """Return columns of short words."""
    return tuple(Column(head, "word") for head in heads)


def texts(*heads: Line) -> tuple[Column, ...]:
    """Return columns of sentences."""
    return tuple(Column(head, "text") for head in heads)


def named(name: str) -> Line:
    """Return a name from the data; the empty name stands for all."""
    return Name(name) if name else "(all)"


Declared = tuple[Line, Literal["name", "number", "value", "word", "text"], Callable[[Any], Line | Cell]]
"""A column in short: its head, its kind, and what its cell shows of an item."""


def column(
    head: Line,
    of: str | Callable[[Any], Any] = "",
    shown: Callable[[Any], Line | Cell] | None = None,
    kind: Literal["name", "number", "value", "word", "text"] | None = None,
) -> Column:
    """Return a column of :func:`table_of`: ``of`` is a field of the item, or makes the value; ``shown`` its format."""
    key = of or str(head).replace(" ", "_")
    value = key if callable(key) else lambda item: item[key] if isinstance(item, dict) else getattr(item, key)
    kind = kind or ("name" if shown in {Name, named} else "number")
    return Column(head, kind, value if shown is None else lambda item: shown(value(item)))


def table_of(
    title: Line,
    items: Sequence[Any],
    *columns: Column | Declared,
    foot: Iterable[Any] = (),
    most: int | None = MOST_ROWS,
    **more: Any,
) -> Table:
    """Return a table with a row for each of the first items, by its columns, and those of ``foot``."""
    own = tuple(declared if isinstance(declared, Column) else Column(*declared) for declared in columns)

    def row(item: Any) -> Row:
        return tuple(made.cell(item) for made in own if made.cell is not None)

    rows = items if most is None else first(items, most)
    more = {"number": len(items), **more}
    return Table(title=title, columns=own, rows=tuple(map(row, rows)), foot=tuple(map(row, foot)), **more)


def first(items: Sequence[_Item], limit: int) -> Sequence[_Item]:
    """Return the first items; all when only a single item would be left out."""
    return items if len(items) <= limit + 1 else items[:limit]


def bars(unit: str, made: Iterable[Bar], *, percent: bool = False) -> Bars:
    """Return a chart of bars."""
    return Bars(bars=tuple(made), unit=unit, percent=percent)


def left_out(table: Table, listed: int, rest: str = "") -> str:
    """Return how many rows are not listed, in words; nothing when all are."""
    left = (len(table.rows) if table.number is None else table.number) - listed
    where = f" {table.rest}" if table.rest else rest
    more = f"{left:,} more" if table.noun == "" else plural(left, f"more {table.noun}")
    return f"and {more}{where}" if left > 0 else ""


def toned(text: Line, tone: Tone = "warn", *, when: object = True) -> Cell:
    """Return a cell in a colour, where something holds."""
    return Cell(text=text, tone=tone if when else "")


def bad(value: Line) -> Cell:
    """Return a number that should be 0, pointed out where it is not."""
    return toned(value, "bad", when=value.value if isinstance(value, Number) else value)


def worst(tones: Iterable[Tone]) -> Tone:
    """Return the tone that matters most."""
    present = set(tones)
    order: tuple[Tone, ...] = ("bad", "warn", "good")
    return next((tone for tone in order if tone in present), "")


def empty_section(name: str, title: Line, why: Line) -> Section:
    """Return a section, ``name`` its id, that only says why there is nothing."""
    return Section(id=name, title=title, lead=why, tone="quiet")


def merged(name: str, title: Line, sections: Sequence[Section]) -> Section:
    """Return sections as a single section, ``name`` its id, under the leads of those that have something."""
    measured = [section for section in sections if section.tone != "quiet"]
    spoken = [section.lead for section in measured if section.lead] or [
        section.lead for section in sections if section.lead
    ]
    return Section(
        id=name,
        title=title,
        lead=join(" ", spoken) if len(spoken) > 1 else next(iter(spoken), ""),
        tone=worst(section.tone for section in measured) if measured else "quiet",
        blocks=tuple(block for section in sections for block in section.blocks),
    )


def softened(section: Section) -> Section:
    """Return a section in amber where it was red."""

    def cell(line: Line | Cell) -> Line | Cell:
        return replace(line, tone="warn") if isinstance(line, Cell) and line.tone == "bad" else line

    def rows(table: Table) -> Table:
        return replace(table, rows=tuple(tuple(map(cell, row)) for row in table.rows))

    def block(item: Block) -> Block:
        match item:
            case Table():
                return rows(item)
            case Figure():
                return replace(item, table=rows(item.table))
            case Prose(tone="bad"):
                return replace(item, tone="warn")
        return item

    tone: Tone = "warn" if section.tone == "bad" else section.tone
    return replace(section, tone=tone, blocks=tuple(map(block, section.blocks)))


def web_address(text: str | None) -> str:
    """Return a web address that is safe in a link as it stands; nothing for anything else.

    A name and password in front of the host make it none, nor do brackets, quotes or blanks get in.
    """
    return text if text is not None and len(text) <= _ADDRESS_LIMIT and _WEB.fullmatch(text) else ""
