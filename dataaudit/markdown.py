"""Markdown that holds names from data: a name is always a code span, so nothing in it is markup, link or mention.

Inside a code span GitHub and the Hugging Face hub read no HTML, link, image, address, @mention, emoji or formula. The
two characters that could end the span or the cell of a table are shown as escapes, as control characters are.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def cells(values: Sequence[str]) -> str:
    """Return a line of a table; a value with a name from data is made by :func:`code` before."""
    return f"| {' | '.join(values)} |"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> list[str]:
    """Return the lines of a table, none when there is no row.

    Args:
        header: Titles.
        rows: Cells as Markdown; names from data are made by :func:`code`.
        names: How many columns from the left hold text; the others hold numbers and are set to the right.
    """
    if not rows:
        return []
    rule = ["---" if index < names else "---:" for index in range(len(header))]
    return [cells(header), cells(rule), *(cells(row) for row in rows)]
