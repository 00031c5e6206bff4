"""Which of several findings at one place counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One finding in a document: a place and a class."""

    start: int
    """First byte."""
    end: int
    """Byte after the last."""
    code: int
    """Index of the entity."""
    rule: int
    """Index of the rule over all entities; only decides ties."""
    tier: int
    """Of :class:`dataaudit.corpus.findings.Tier`."""
    score: float
    """Confidence."""
    reserved: bool
    """An example or a reserved value."""


def without_overlaps(found: Iterable[Found]) -> list[Found]:
    """Keep findings that do not overlap: the surer tier, then the longer, the earlier, the higher score.

    Returns:
        The kept ones in order of their places.
    """
    kept: list[Found] = []
    starts: list[int] = []
    for one in sorted(found, key=lambda f: (f.tier, f.start - f.end, f.start, -f.score, f.code, f.rule)):
        place = bisect_left(starts, one.end)
        if place and kept[place - 1].end > one.start:
            continue
        kept.insert(place, one)
        starts.insert(place, one.start)
    return kept
