"""What an object shows in a notebook: a few kinds of blocks, and their HTML.

Names come from the data, so every text is made harmless and escaped here, at the one place where markup is made. There
is no script, no style sheet and no address in it; colours stand on words, so it reads the same on dark and light.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from dataaudit.text import clean

Tone = Literal["", "good", "warn", "bad"]
_COLOURS: dict[Tone, str] = {"": "", "good": "#2e7d32", "warn": "#b26a00", "bad": "#c62828"}
_WORDS: dict[Tone, str] = {"": "note", "good": "good", "warn": "warning", "bad": "problem"}
_LIMIT = 2000
"""Characters of one text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The one line that says it all."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Sentences, each with how grave it is."""

    items: tuple[tuple[Tone, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names with values."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A table."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[Sequence[str], ...]
    numbers: frozenset[int] = frozenset()
    """Columns that stand right."""
    more: str = ""
    """What is left out, in words."""


Block = Heading | Prose | Points | Facts | Rows


def to_html(blocks: Iterable[Block]) -> str:
    """Return the HTML of some blocks; those that hold nothing are left out."""
    shown = "".join(map(_html, blocks))
    return f'<div class="tex2jax_ignore mathjax_ignore" style="max-width: 72em">{shown}</div>'


def _html(block: Block) -> str:
    match block:
        case Heading(text=text, tone=tone):
            return f'<div style="font-size: 1.2em"><b{_style(tone)}>{_text(text)}</b></div>'
        case Prose(text=text):
            return f"<p>{_text(text)}</p>" if text else ""
        case Points(items=items):
            points = "".join(f"<li><b{_style(tone)}>{_WORDS[tone]}</b> {_text(text)}</li>" for tone, text in items)
            return f"<ul>{points}</ul>" if points else ""
        case Facts(pairs=pairs):
            rows = "".join(
                f"<tr><th{_aligned(right=False)}>{_text(name)}</th>{_cell(value)}</tr>" for name, value in pairs
            )
            return f"<table><tbody>{rows}</tbody></table>" if rows else ""
        case Rows():
            return _table(block)


def _table(block: Rows) -> str:
    if not block.rows:
        return ""
    right = block.numbers
    heads = "".join(f"<th{_aligned(right=index in right)}>{_text(head)}</th>" for index, head in enumerate(block.heads))
    body = "".join(
        f"<tr>{''.join(_cell(text, right=index in right) for index, text in enumerate(row))}</tr>" for row in block.rows
    )
    more = f"<p>{_text(block.more)}</p>" if block.more else ""
    title = f"<p><b>{_text(block.title)}</b></p>"
    return f"{title}<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(text: str, *, right: bool = False) -> str:
    return f"<td{_aligned(right=right)}>{_text(text)}</td>"


def _aligned(*, right: bool) -> str:
    return f' style="text-align: {"right" if right else "left"}; vertical-align: top"'


def _style(tone: Tone) -> str:
    return f' style="color: {_COLOURS[tone]}"' if tone else ""


def _text(text: str) -> str:
    """Return a text that is markup of nothing: neither of HTML nor, for notebooks set formulas, of TeX."""
    shown = escape(clean(text, _LIMIT))
    return shown.replace("\\", "<span>\\</span>").replace("$", "<span>$</span>")
