"""Events of a run, as a table: what the run wrote beside its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dataaudit.base.render.blocks import Section, table_of
from dataaudit.base.render.line import Name


def happened(events: Sequence[dict[str, Any]]) -> Section | None:
    """Return the run's events, newest last."""
    if not events:
        return None
    rows = sorted(events, key=lambda item: (item["step"], item["time"]))
    listed = table_of(
        "Events",
        [row for row in rows if row["kind"] not in {"vitals", "coverage"}],
        ("step", "number", lambda row: row["step"]),
        ("rank", "number", lambda row: row["rank"]),
        ("kind", "name", lambda row: Name(row["kind"], 40)),
        ("detail", "text", lambda row: Name(words_of(row["detail"]), 200)),
        empty="There is none.",
    )
    return Section(id="events", title="Events", lead="What the run wrote, newest last.", blocks=(listed,))


def words_of(detail: dict[str, Any]) -> str:
    """Return what an event holds, as words."""
    return "; ".join(f"{name} {_value(value)}" for name, value in sorted(detail.items()))


def _value(value: Any) -> str:
    """Return what an event holds under a name, without the marks of a programming language."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(_value, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)
