"""What a page is made of: sections of tables, figures and sentences, in words and numbers ready to be read.

Plain values. Names of the data are made harmless here (:func:`named`); markup is escaped by the template.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from dataaudit import text as t

Tone = Literal["", "good", "warn", "bad", "quiet"]
_Item = TypeVar("_Item")
NAME_LIMIT = 120
LABEL_LIMIT = 26
ADDRESS_LIMIT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    text: str
    tone: Tone = ""
    href: str = ""
    """Where it leads within the page."""
    link: str = ""
    """Address that it leads to outside of the page, from :func:`web_address`."""
    detail: str = ""
    """A second line, in small print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    head: str
    kind: Literal["name", "number", "word", "text"] = "number"
    """Names and text are folded, text less; numbers stand right, words are never folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    more: str = ""
    """What is left out, in words."""
    note: str = ""
    """How to read it."""
    empty: str = "Nothing to show."
    """What stands here when there is no row."""
    folded: bool = False
    """Whether it is closed at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose:
    """A paragraph."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names with values."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A bar for each of some names, from the top."""

    labels: tuple[str, ...]
    values: tuple[float, ...]
    shown: tuple[str, ...]
    """The values as people read them."""
    unit: str
    """What the axis measures."""
    marks: tuple[float | None, ...] = ()
    """A value to compare each bar with."""
    marks_mean: str = ""
    spans: tuple[tuple[float, float] | None, ...] = ()
    """Interval of each value."""
    loud: tuple[bool, ...] = ()
    """Bars to point out."""
    percent: bool = False
    """Whether values are ratios, shown in percent on the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Distributions over the same edges, drawn as steps."""

    edges: tuple[float, ...]
    series: tuple[tuple[str, tuple[float, ...]], ...]
    """Name and share in each bin."""
    unit: str
    logarithmic: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A shade for each pair of a row and a column."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[int, int, float, str, bool], ...]
    """Row, column, value, value in words, whether to point it out; pairs without one are left out."""
    row_title: str
    column_title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Points by order and value: a few that are pointed out, and how densely the others lie."""

    unit: str
    order: str
    """What the horizontal axis counts."""
    quiet: tuple[tuple[float, float, str], ...]
    """Order, value, words."""
    loud: tuple[tuple[float, float, str], ...]
    boxes: tuple[tuple[float, float, float, float, int], ...] = ()
    """Left, right, bottom, top, number: in place of points when they are too many."""
    lines: tuple[tuple[float, float, float, float], ...] = ()
    """Order from and to, value of the middle, distance of the limits from it: one for each split."""


Chart = Bars | Steps | Matrix | Points


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with the table that says the same."""

    id: str
    title: str
    chart: Chart
    says: str
    """The chart in a sentence, for those who do not see it."""
    table: Grid
    note: str = ""
    height: int = 0
    """Pixels; 0 for what the chart needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """Where the table of all shards stands."""

    number: int


Block = Grid | Prose | Facts | Figure | Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    lead: str
    """The one thing to know, in a sentence."""
    tone: Tone = ""
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that stands out."""

    tone: Tone
    head: str = ""
    """What stands before it, in bold."""
    text: str
    section: str
    """Id of the section that says more."""
    owner: str = ""
    """Who answers for it."""
    reason: str = ""
    """Why it is asked for."""
    runbook: Cell | None = None
    """What to do."""


def named(text: str, limit: int = NAME_LIMIT) -> str:
    """Return a name of the data, harmless and not endless."""
    return t.clean(text, limit)


def web_address(text: str) -> str:
    """Return an address that may be a link: http or https, a host, printable ASCII, not endless; else nothing."""
    if len(text) > ADDRESS_LIMIT or not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        return ""
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return text if parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc else ""


def label(text: str) -> str:
    """Return a name short enough to stand at an axis; its end tells more than its middle."""
    shown = t.clean(text[:200])
    if len(shown) <= LABEL_LIMIT:
        return shown
    head = LABEL_LIMIT // 2 - 2
    return f"{shown[:head]}...{shown[-(LABEL_LIMIT - head - 3) :]}"


def cell(text: str, tone: Tone = "", **more: Any) -> Cell:
    """Return a cell."""
    return Cell(text=text, tone=tone, **more)


def row(*texts: str | Cell) -> tuple[Cell, ...]:
    """Return cells; a text becomes a plain one."""
    return tuple(one if isinstance(one, Cell) else Cell(text=one) for one in texts)


def numbers(*heads: str) -> tuple[Column, ...]:
    """Return columns of numbers."""
    return tuple(Column(head=head) for head in heads)


def name(head: str) -> Column:
    """Return a column of names."""
    return Column(head=head, kind="name")


def prose(head: str) -> Column:
    """Return a column of sentences."""
    return Column(head=head, kind="text")


def word(head: str) -> Column:
    """Return a column of short words."""
    return Column(head=head, kind="word")


def first(items: Sequence[_Item], limit: int) -> Sequence[_Item]:
    """Return the first items; all when only one more would be left out."""
    return items if len(items) <= limit + 1 else items[:limit]


def more(items: Sequence[object], shown: Sequence[object], noun: str) -> str:
    """Say how many are left out."""
    left = len(items) - len(shown)
    return f"and {t.plural(left, f'more {noun}')}" if left > 0 else ""


def percent(value: float | None) -> str:
    """Return ``21.4 %``, unbroken: two digits at least, never 0 or 100 for what is not."""
    if value is None:
        return t.NOTHING
    shown = value * 100
    if value in {0, 1}:
        return f"{shown:.0f}\xa0%"
    if shown >= 99.95:
        return f"{min(shown, 99.99):.2f}\xa0%"
    if shown >= 10:
        return f"{shown:.1f}\xa0%"
    if shown >= 0.1:
        return f"{shown:.2f}\xa0%"
    return f"{shown:.2g}\xa0%" if shown >= 0.001 else f"{shown:.0e}\xa0%".replace("e-0", "e-")


def worst(tones: Iterable[Tone]) -> Tone:
    """Return the tone that matters most."""
    held = set(tones)
    order: tuple[Tone, ...] = ("bad", "warn", "good")
    return next((tone for tone in order if tone in held), "")
