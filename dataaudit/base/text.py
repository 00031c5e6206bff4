"""Strings for a terminal: made harmless, and numbers written one way everywhere.

URIs, sources and messages come from file names and from data. What could steer a terminal (escape sequences,
bidirectional controls, line ends) is shown as an escape, and no line can begin a command of a CI runner.
Numbers: thousands separators for counts, decimal units for bytes, four decimals or more for ratios.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dataaudit.base.redact import without_secrets

NOTHING, NOT_FINITE = "-", "not finite"
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_RUNNER = (("##", "#\\x23"),)
"""Azure and older GitHub runners read ``##[command]`` and ``##vso[...]`` anywhere in a line."""


def clean(text: str, limit: int | None = None) -> str:
    """Return ``text`` with everything that is not plainly printable escaped."""
    rest = 0 if limit is None else max(0, len(text) - limit)
    shown = text[:limit] if rest else text
    if not shown.isprintable():
        shown = "".join(map(_escape, shown))
    for mark, escaped in _RUNNER:
        shown = shown.replace(mark, escaped)
    shown = safe_line(shown)
    return f"{shown}... ({rest:,} more characters)" if rest else shown


def clean_message(text: str) -> str:
    """Return a message of several lines with each line made harmless, and without the secrets of addresses."""
    return "\n".join(safe_line(clean(line)) for line in without_secrets(text).split("\n"))


def safe_line(line: str) -> str:
    """Return a line that no CI runner takes for a ``::command::``."""
    stripped = line.lstrip()
    return line.replace("::", ":\\x3a", 1) if stripped.startswith("::") else line


def as_json(value: Any) -> str:
    """Return indented JSON in ASCII, so that a terminal shows it and a program reads it alike; records as objects."""
    return json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False, default=asdict) + "\n"


def count(number: int | None) -> str:
    """Return ``55,963,661``."""
    return NOTHING if number is None else f"{number:,}"


def size(num_bytes: int) -> str:
    """Return ``214.4 MB``; a megabyte is 10^6 bytes."""
    value, unit = float(num_bytes), 0
    while value >= 999.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{num_bytes} B" if unit == 0 else f"{value:,.1f} {_UNITS[unit]}"


def ratio(value: float | None) -> str:
    """Return ``0.1355``; a small one keeps two digits, ``0.00080``, and a tiny one is ``2.1e-06``."""
    if value is None or not math.isfinite(value):
        return NOTHING if value is None else NOT_FINITE
    if value == 0:
        return "0"
    if abs(value) < 1e-5:
        return f"{value:.1e}"
    return f"{value:.{max(4, 1 - math.floor(math.log10(abs(value))))}f}"


def decimal(value: float | None) -> str:
    """Return ``1,151`` for a whole number and ``3.830`` for another."""
    if value is None or not math.isfinite(value):
        return NOTHING if value is None else NOT_FINITE
    return f"{int(value):,}" if value == int(value) else f"{value:,.3f}"


def plural(number: int, noun: str) -> str:
    """Return ``1 shard`` or ``8 shards``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def some_of(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first texts, and how many more there are."""
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def _escape(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def utc_now() -> str:
    """Return the time in UTC, to the second, ISO 8601."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
