"""Regexes whose time doubles with each letter: a repeat inside a repeat that can cut one text in many ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dataaudit.detectors.patterns.parsed import codes, parser

_MANY = 16
"""Copies from which a repeat counts: 2 to this power ways are many."""
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)


def runs_away(regex: str) -> bool:
    """Tell whether a repeat holds, in one of its ways, another repeat and nothing that must stand beside it.

    ``(a+)+`` and ``(?:[a-z]+[.-]?)+`` do; ``(?:[a-z]+-)+`` does not, nor do possessive repeats and atomic groups.
    Branches that begin alike, ``(?:a|ab)+``, are not looked for.
    """
    return any(
        code in _REPEATS and _is_many(value) and any(map(_is_loose, _ways(value[2])))
        for code, value in _items(parser.parse(regex.encode()))
    )


def _is_many(repeat: Any) -> bool:
    low, high, _ = repeat
    return bool(high >= _MANY and high > low)


def _is_loose(way: Any) -> bool:
    """Tell whether a sequence is one repeat and, beside it, only what may be absent."""
    for place, (code, value) in enumerate(way):
        if _least(way[:place]) + _least(way[place + 1 :]):
            continue
        if code in _REPEATS and (_is_many(value) or any(map(_is_loose, _ways(value[2])))):
            return True
        if code is codes.SUBPATTERN and any(map(_is_loose, _ways(value[-1]))):
            return True
    return False


def _least(part: Any) -> int:
    return int(part.getwidth()[0])


def _ways(parsed: Any) -> Iterator[Any]:
    """Yield the branches of a sequence that is one choice, else the sequence."""
    if len(parsed) == 1 and parsed[0][0] is codes.BRANCH:
        yield from parsed[0][1][1]
    elif len(parsed) == 1 and parsed[0][0] is codes.SUBPATTERN:
        yield from _ways(parsed[0][1][-1])
    else:
        yield parsed


def _items(parsed: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every item, those inside of others too; a possessive repeat and an atomic group are never cut again."""
    for code, value in parsed:
        yield code, value
        if code in _REPEATS:
            yield from _items(value[2])
        elif code is codes.SUBPATTERN:
            yield from _items(value[-1])
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from _items(branch)
        elif code in {codes.ASSERT, codes.ASSERT_NOT}:
            yield from _items(value[1])
