"""Results that show themselves: as a line at a prompt, as blocks in a notebook, as what a command prints.

What makes line and blocks is named by path, since it knows the result. Names are made harmless here, where the markup
of a notebook is made. It has no script, style sheet or address; colours stand on words, on dark and light alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    Block,
    Cell,
    Facts,
    Figure,
    Points,
    Prose,
    Section,
    Table,
    Tone,
    first,
    left_out,
)
from dataaudit.base.render.line import PLAIN, Line, Style, spell
from dataaudit.base.text import clean


class Result:
    """A result with a line for a prompt, and blocks for a notebook."""

    __slots__ = ()
    line_by = ""
    """Path of what returns the line: ``package.module:function``."""
    blocks_by = ""
    """Path of what returns the section."""

    def __repr__(self) -> str:
        """Return what it comes to, on a line."""
        return f"<{type(self).__name__} {resolve_name(self.line_by)(self)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return to_html(resolve_name(self.blocks_by)(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a command wrote: a line for people, one JSON object for programs."""

    file: Path | str | None
    """Where; None when it is printed instead."""
    data: bytes = field(repr=False)
    """All of it, UTF-8 where it is printed."""
    words: str = ""
    """What it is."""
    facts: dict[str, Any]
    """The same for programs, by name."""

    def shown(self, *, as_json: bool) -> str:
        """Return what the command prints."""
        if not as_json:
            return self.data.decode() if self.file is None else f"{t.clean(str(self.file))}: {self.words}\n"
        place = {"text": self.data.decode()} if self.file is None else {"file": str(self.file)}
        digest = hashlib.sha256(self.data).hexdigest()
        return t.as_json({**place, "bytes": len(self.data), "sha256": digest, **self.facts})


_COLOURS: dict[Tone, str] = {"good": "#2e7d32", "warn": "#b26a00", "bad": "#c62828"}
_WORDS: dict[Tone, str] = {"": "note", "quiet": "note", "good": "good", "warn": "warning", "bad": "problem"}
_ROWS = 20
_LIMIT = 2000
"""Characters of one text."""


def to_html(shown: Section) -> str:
    """Return the HTML of a section; blocks that hold nothing are left out."""
    title = f'<div style="font-size: 1.2em"><b{_style(shown.tone)}>{_text(shown.title)}</b></div>'
    lead = f"<p>{_text(shown.lead)}</p>" if shown.lead else ""
    blocks = "".join(map(_html, shown.blocks))
    return f'<div class="tex2jax_ignore mathjax_ignore" style="max-width: 72em">{title}{lead}{blocks}</div>'


def _html(block: Block) -> str:
    match block:
        case Prose(text=text):
            return f"<p>{_text(text)}</p>" if text else ""
        case Points(items=items, title=title):
            points = "".join(
                f"<li><b{_style(point.tone)}>{_WORDS[point.tone]}</b> {_text(point.text)}</li>" for point in items
            )
            return f"{_title(title)}<ul>{points}</ul>" if points else ""
        case Facts(pairs=pairs, title=title):
            rows = "".join(f"<tr><th{_aligned('name')}>{_text(name)}</th>{_cell(value)}</tr>" for name, value in pairs)
            return f"{_title(title)}<table><tbody>{rows}</tbody></table>" if rows else ""
        case Table():
            return _table(block)
        case Figure(table=table):
            return _table(table)
    return ""


def _table(shown: Table) -> str:
    rows = [*first(shown.rows, _ROWS), *shown.foot]
    if not rows:
        return ""
    kinds = [column.kind for column in shown.columns]
    heads = "".join(f"<th{_aligned(column.kind)}>{_text(column.head)}</th>" for column in shown.columns)
    body = "".join(
        f"<tr>{''.join(_cell(item, kind) for item, kind in zip(row, kinds, strict=True))}</tr>" for row in rows
    )
    notes = "".join(
        f"<p>{_text(item)}</p>" for item in (left_out(shown, len(first(shown.rows, _ROWS))), shown.note) if item
    )
    return f"{_title(shown.title)}<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _title(title: Line) -> str:
    return f"<p><b>{_text(title)}</b></p>" if title else ""


def _cell(line: Line | Cell, kind: str = "name") -> str:
    if not isinstance(line, Cell):
        return f"<td{_aligned(kind)}>{_text(line)}</td>"
    detail = f" ({_text(line.detail)})" if line.detail else ""
    return f"<td{_aligned(kind)}>{_text(line.text)}{detail}</td>"


def _aligned(kind: str) -> str:
    return f' style="text-align: {"right" if kind == "number" else "left"}; vertical-align: top"'


def _style(tone: Tone) -> str:
    return f' style="color: {_COLOURS[tone]}"' if tone in _COLOURS else ""


def _harmless(text: str) -> str:
    """Return a text that is markup of nothing: neither of HTML nor, for notebooks set formulas, of TeX."""
    return escape(text).replace("\\", "<span>\\</span>").replace("$", "<span>$</span>")


_NOTEBOOK = Style(name=_harmless, share=PLAIN.share, words=lambda text: _harmless(clean(text, _LIMIT)))


def _text(line: Line) -> str:
    return spell(line, _NOTEBOOK)
