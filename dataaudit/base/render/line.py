"""A line of text in parts: words of ours, names from the data, numbers. A medium spells each in its own way.

A string is words of ours. A name comes from the data and is made harmless by whoever spells it; a share is a ratio in
a terminal and percent in a page. A whole number is a count, and None is where there is no number. Beside that: how wide
a text is in a terminal, and how it is broken, folded and shortened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from dataaudit.base import text as t
from dataaudit.base.text import clean

_BREAKS = " /-_="
_CUT = "..."
_MOST = 160


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
    """Cut a text into pieces of at most ``width`` cells, after a blank if there is any, else a slash or dash."""
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
            stop = next((number for number in (blank, nice) if number > width // 3), stop)
        pieces.append(rest[:stop].rstrip())
        rest = rest[stop:].lstrip()
    return [*pieces, rest] if rest or not pieces else pieces


def shortened(text: str, width: int, *, head: bool = True) -> str:
    """Return a name in at most ``width`` cells, made harmless; of a longer name the end, and a third for the beginning.

    Of a path the last folder and the file's name are kept, as far as they fit: `.../source=web/part-00017-3f...`.
    """
    shown = clean(text if len(text) <= 2 * _MOST else text[:_MOST] + text[-_MOST:])
    if cells(shown) <= width:
        return shown
    if "/" in shown and shown.isascii():
        return _short_path(shown, width)
    begin = shown[: width // 3] if head else ""
    while cells(begin) > width // 3:
        begin = begin[:-1]
    end = shown[-(width - cells(begin) - len(_CUT)) :]
    while cells(begin) + len(_CUT) + cells(end) > width:
        end = end[1:]
    return begin + _CUT + end


def _short_path(path: str, width: int) -> str:
    """Return a path's last folders and its file, without endings that others share, else cut in the middle."""
    *folders, file = path.rstrip("/").split("/")
    stem = file[:1] + file[1:].partition(".")[0]
    for first in range(1, len(folders)):
        for last in (file, f"{stem}{_CUT}"):
            shown = "/".join([_CUT, *folders[first:], last])
            if len(shown) <= width:
                return shown
    room = width - len(_CUT) - 2
    folder = folders[-1] if folders else ""
    kept = min(len(folder), max(room // 2, room - len(stem)))
    return f"{_CUT}/{_middle(folder, kept)}/{_middle(stem, room - kept)}"


def _middle(text: str, width: int) -> str:
    """Return a text in ``width`` characters, without its middle where it is longer."""
    if len(text) <= width:
        return text
    begin = max(0, width - len(_CUT) + 1) // 2
    return text[:begin] + _CUT[: width - begin] + text[len(text) - max(0, width - begin - len(_CUT)) :]


Unit = Literal["share", "decimal", "size", "rate", "nats"]
"""Share of a whole; number with decimals; bytes; hits per million tokens; divergence."""
NAME_LIMIT = 120
_PER_MILLION = ((100, 0), (10, 1), (1, 2), (0, 3))


@dataclass(frozen=True, slots=True)
class Name:
    """A name from the data, or what a person wrote."""

    text: str
    limit: int = NAME_LIMIT
    """Characters that are shown."""
    ends: bool = False
    """Whether beginning and end are kept of a name that is too long; else its beginning, and how much is left out."""
    tail: bool = False
    """Whether its end alone is kept."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number that a medium writes with as many digits as it likes."""

    value: float | None
    unit: Unit = "share"
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds; nothing where there are none."""

    low: float | None
    high: float | None
    unit: Unit = "share"
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Parts in their order."""

    parts: tuple[Line, ...]


Line = str | int | None | Name | Number | Interval | Text


def say(words: str, *parts: Line) -> Text:
    """Return a sentence: our words, with a part in the place of each ``{}``."""
    pieces = words.split("{}")
    if len(pieces) != len(parts) + 1:
        raise ValueError(f"{len(pieces) - 1} places for {len(parts)} parts: {words}")
    mixed = [piece for pair in zip(pieces, parts, strict=False) for piece in pair]
    return Text((*mixed, pieces[-1]))


def join(between: str, lines: Iterable[Line]) -> Text:
    """Return lines as a single line, words of ours between them."""
    parts = [part for line in lines for part in (between, line)]
    return Text(tuple(parts[1:]))


def share(value: float | None) -> Number:
    """Return a part of a whole."""
    return Number(value)


def decimal(value: float | None) -> Number:
    """Return a number with decimals."""
    return Number(value, "decimal")


def size(num_bytes: int | None) -> Number:
    """Return a number of bytes."""
    return Number(num_bytes, "size")


def rate(value: float | None) -> Number:
    """Return hits per million tokens."""
    return Number(value, "rate")


def nats(value: float | None, *, signed: bool = False) -> Number:
    """Return a divergence."""
    return Number(value, "nats", signed)


def measured(value: float | None, unit: str, *, signed: bool = False) -> Number:
    """Return the value of a metric by its unit."""
    return Number(value, "share" if unit == "ratio" else "decimal", signed)


def per_million(value: float | None) -> str:
    """Return hits per million tokens, three digits where there are less."""
    if value is None or value == 0:
        return t.NOTHING if value is None else "0"
    return f"{value:,.{next(digits for least, digits in _PER_MILLION if value >= least)}f}"


def percent(value: float | None, *, signed: bool = False) -> str:
    """Return ``21.4 %``, unbroken: two digits at least, never 0 or 100 for what is not; of a difference its points."""
    if value is None:
        return t.NOTHING
    shown = value * 100
    if signed:
        return f"{shown:+.2f} pp" if abs(shown) >= 0.1 or shown == 0 else f"{shown:+.2g} pp"
    if value in {0, 1}:
        return f"{shown:.0f}\xa0%"
    if shown >= 99.95:
        return f"{min(shown, 99.99):.2f}\xa0%"
    digits = ".1f" if shown >= 10 else ".2f" if shown >= 0.1 else ".2g" if shown >= 0.001 else ".0e"
    return f"{shown:{digits}}\xa0%".replace("e-0", "e-")


def ratio(value: float | None, *, signed: bool = False) -> str:
    """Return ``0.2137``; of a difference with its sign."""
    return f"{'+' if signed and (value or 0) > 0 else ''}{t.ratio(value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a medium spells the parts of a line."""

    name: Callable[[str], str]
    """Of a name that is made printable and short: what makes it harmless here."""
    share: Callable[..., str]
    words: Callable[[str], str] = str
    """Of everything else."""
    joined: Callable[[Iterable[str]], str] = "".join


def plain(text: str) -> str:
    """Return a text as it is."""
    return text


PLAIN = Style(name=plain, share=ratio)
"""Of a terminal."""
PERCENT = Style(name=plain, share=percent)
"""Of charts, and of sentences of a page that a program reads."""


def spell(line: Line, style: Style = PLAIN) -> str:
    """Return a line as a medium writes it."""
    match line:
        case Text(parts=parts):
            return style.joined([spell(part, style) for part in parts])
        case Name(text=text, limit=limit, ends=ends, tail=tail):
            return style.name(shortened(text, limit, head=ends) if ends or tail else t.clean(text, limit))
        case Number(value=value, unit=unit, signed=signed):
            return style.words(_number(value, unit, style, signed=signed))
        case Interval(low=low, high=high, unit=unit, signed=signed):
            bounds = [_number(item, unit, style, signed=signed) for item in (low, high)]
            return style.words(t.NOTHING if t.NOTHING in bounds else " to ".join(bounds))
        case str():
            return style.words(line)
        case _:
            return style.words(t.count(line))


def _number(value: float | None, unit: Unit, style: Style, *, signed: bool) -> str:
    if value is not None and not math.isfinite(value):
        return t.NOT_FINITE
    match unit:
        case "share":
            return style.share(value, signed=signed)
        case "size":
            return t.NOTHING if value is None else t.size(int(value))
        case "rate":
            return per_million(value)
        case "nats":
            return ratio(value, signed=signed)
        case "decimal":
            return f"{'+' if signed and (value or 0) > 0 else ''}{t.decimal(value)}"
