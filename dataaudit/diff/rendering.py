"""The three forms of a difference."""

from __future__ import annotations

from dataaudit.diff.difference import Difference


def render(difference: Difference, form: str, *, everything: bool = False) -> str:
    """Return a difference as ``text``, ``json`` or ``md``.

    Args:
        difference: What changed.
        form: Name of the form.
        everything: Whether every row is listed, in text and Markdown; JSON has them all.
    """
    if form == "json":
        from dataaudit.diff.plain import render_json

        return render_json(difference)
    if form == "md":
        from dataaudit.diff.markdown import render_markdown

        return render_markdown(difference, everything=everything)
    from dataaudit.diff.text import render_text

    return render_text(difference, everything=everything)
