"""Fitting a Markdown page into a platform's limit: whole rows only, and what is left out is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataaudit.text import plural

Measure = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page: rows of a table or a list, of which some may be left out from the end."""

    before: tuple[str, ...]
    """Lines above the rows: title, head of the table."""
    rows: Sequence[str]
    after: tuple[str, ...] = ()
    """Lines below, for what was opened above."""
    total: int
    """Rows that there are in all; more than ``rows`` where a writer made some of them only."""
    noun: str
    """What a row is, in the singular."""


def num_bytes(text: str) -> int:
    """Return the length in UTF-8, as the step summary counts."""
    return len(text.encode("utf-8", "backslashreplace"))


def num_characters(text: str) -> int:
    """Return the length in UTF-16 units, the larger of the ways to count characters."""
    return len(text) + sum(character > "\uffff" for character in text)


def fit(head: str, sections: Sequence[Section], tail: str, limit: int, measure: Measure) -> str | None:
    """Return the page; None when not even head and tail fit.

    Sections come in the order of their worth: an earlier one takes what it needs before a later one gets room.
    """
    room = limit - measure(head) - measure(tail)
    if room < 0:
        return None
    parts = [head]
    for section in sections:
        text = _section(section, room, measure)
        parts.append(text)
        room -= measure(text)
    return "".join([*parts, tail])


def _section(section: Section, room: int, measure: Measure) -> str:
    frame = "".join(f"{line}\n" for line in (*section.before, *section.after, _left(section, section.total), ""))
    free = room - measure(frame)
    rows = []
    for row in section.rows:
        free -= measure(row) + 1
        if free < 0:
            break
        rows.append(row)
    if not rows:
        return ""
    left = section.total - len(rows)
    note = ["", _left(section, left)] if left else []
    return "".join(f"{line}\n" for line in (*section.before, *rows, *note, *section.after))


def _left(section: Section, number: int) -> str:
    return f"{plural(number, f'more {section.noun}')} not shown here; `--out gate.json` writes them to a file."
