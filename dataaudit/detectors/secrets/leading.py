"""From a regex of Python to what hyperscan can look for: its leading part, without what hyperscan lacks.

A rule of another project may hold lookarounds, back references and repeats of hundreds. Every match of it begins
with a match of its leading part in which those are left out, so looking for that loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dataaudit.detectors.patterns.parsed import codes, parser

_LONGEST = 44
"""Copies of a repeat that are kept as they are; longer ones make a database too large."""
_SHORT = 24
"""Copies that are kept of a longer one, which is where the pattern then ends."""
_SKIPPED = 64
"""Letters that an item at the start may have to be left out."""
_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}


def leading_part(pattern: re.Pattern[str]) -> tuple[str, int]:
    """Return a pattern without lookarounds and long repeats that every match of ``pattern`` begins with.

    What may be absent at the start is left out as well: it finds nothing and costs most.

    Returns:
        The pattern, and the most letters that a match has before it.

    Raises:
        ValueError: The regex holds something that is not known here.
    """
    parsed = parser.parse(pattern.pattern, pattern.flags & re.VERBOSE)
    before = 0
    while len(parsed) > 1:
        least, most = parsed[:1].getwidth()
        if least or most > _SKIPPED:
            break
        before += most
        parsed = parsed[1:]
    return _sequence(parsed)[0], before


def _sequence(parsed: Any) -> tuple[str, bool]:
    """Return the text of a sequence, and whether it was cut, so that nothing may follow."""
    parts = []
    for code, value in parsed:
        text, cut = _item(code, value)
        parts.append(text)
        if cut:
            return "".join(parts), True
    return "".join(parts), False


def _item(code: Any, value: Any) -> tuple[str, bool]:
    if code not in _KINDS:
        raise ValueError(f"a regex with {code} cannot be searched for")
    return _KINDS[code](value)


def _branch(value: Any) -> tuple[str, bool]:
    branches = [_sequence(branch) for branch in value[1]]
    return "(?:" + "|".join(text for text, _ in branches) + ")", any(cut for _, cut in branches)


def _group(value: Any) -> tuple[str, bool]:
    text, cut = _sequence(value[-1])
    return f"(?:{text})", cut


def _repeat(value: Any) -> tuple[str, bool]:
    low, high, parsed = value
    text, cut = _sequence(parsed)
    if cut:
        return (f"(?:{text})", True) if low else ("", True)
    if high is codes.MAXREPEAT and low <= 1:
        return f"(?:{text}){'+' if low else '*'}", False
    if high > _LONGEST:
        return (f"(?:{text}){{{min(low, _SHORT)}}}", True) if low else ("", True)
    return f"(?:{text}){{{low},{high}}}", False


def _class(items: Any) -> str:
    parts = []
    for code, value in items:
        if code is codes.NEGATE:
            parts.append("^")
        elif code is codes.LITERAL:
            parts.append(_letter(value))
        elif code is codes.RANGE:
            parts.append(f"{_letter(value[0])}-{_letter(value[1])}")
        else:
            parts.append(_CATEGORIES[value])
    return "[" + "".join(parts) + "]"


def _letter(code: int) -> str:
    letter = chr(code)
    return letter if letter.isalnum() and letter.isascii() else f"\\x{code:02x}"


_KINDS: dict[Any, Callable[[Any], tuple[str, bool]]] = {
    codes.LITERAL: lambda value: (_letter(value), False),
    codes.NOT_LITERAL: lambda value: (f"[^{_letter(value)}]", False),
    codes.ANY: lambda _: (".", False),
    codes.IN: lambda value: (_class(value), False),
    codes.ASSERT: lambda _: ("", False),
    codes.ASSERT_NOT: lambda _: ("", False),
    codes.AT: lambda _: ("", False),
    codes.SUBPATTERN: _group,
    codes.BRANCH: _branch,
    codes.MAX_REPEAT: _repeat,
    codes.MIN_REPEAT: _repeat,
}
"""The text of each kind of node, and whether it was cut."""
