"""What a run was trained on by hour: tokens of each source, lengths, padding, counts of tokens.

Steps have times, so an hour is a range of steps; rows of lengths and tokens name the last of the steps that they count,
and belong to its hour. Counts of tokens are kept of the newest :data:`DENSE_HOURS` hours with rows alone; an older hour
keeps what was made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

HOUR: Final = 3_600
DENSE_HOURS: Final = 24
Ints = np.ndarray


@dataclass
class Hour:
    """What came in an hour."""

    begins: int
    """Seconds since 1970, UTC."""
    first_step: int = 1 << 62
    last_step: int = -1
    targets: float = 0.0
    """Tokens that a loss was to be computed of, of all ranks."""
    rows: int = 0
    """Steps of ranks that it counts."""
    positions: float = 0.0
    """Positions of batches, filled or padded,"""
    placed: int = 0
    """and of how many steps of ranks they are."""
    sources: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Targets by source, of tagged documents."""
    lengths: dict[int, int] = field(default_factory=dict)
    """Stretches by length."""
    tokens: Ints | None = None
    """Counts by token; None: none came, or they are no longer kept."""
    half: Ints | None = None
    """Of these, of a random half of the documents."""
    drift: Any = None
    """What was made of the counts."""
    changed: bool = True
    """Whether counts came since that."""

    @property
    def pad_fraction(self) -> float | None:
        """Padding over all positions, a ratio; None where no positions are known."""
        if not self.placed or not self.rows or self.positions <= 0:
            return None
        return min(1.0, max(0.0, 1.0 - (self.targets / self.rows) / (self.positions / self.placed)))

    def quantile(self, part: float) -> int | None:
        """Return the least length that a part of the stretches is no longer than; None without any."""
        if not self.lengths:
            return None
        lengths = np.array(sorted(self.lengths))
        below = np.cumsum([self.lengths[length] for length in lengths.tolist()])
        return int(lengths[int(np.searchsorted(below, part * below[-1]))])


def _groups(keys: Ints) -> list[tuple[int, Ints]]:
    """Return each key, ascending, with the rows that have it."""
    order = np.argsort(keys, kind="stable")
    known, first = np.unique(keys[order], return_index=True)
    return list(zip(known.tolist(), np.split(order, first[1:]), strict=True))


class Hours:
    """Adds rows of the tables ``lengths`` and ``tokens`` to the hours of their steps.

    Args:
        sources: Names of sources, by their places.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self.sources = tuple(sources)
        self.by_time: dict[int, Hour] = {}
        self.late = 0
        """Counts of tokens that came after those of their hour were let go of."""

    def add_steps(self, steps: Ints, times: Ints, targets: Ints) -> None:
        """Take when steps ended, and their targets, [rows] of a rank."""
        for begins, own in _groups((times // HOUR).astype(np.int64)):
            hour = self._hour(begins * HOUR)
            hour.first_step = min(hour.first_step, int(steps[own].min()))
            hour.last_step = max(hour.last_step, int(steps[own].max()))
            hour.targets += float(targets[own].sum())
            hour.rows += len(own)

    def add_positions(self, steps: Ints, positions: Ints) -> None:
        """Take the positions of the batches of steps, filled or padded."""
        for begins, own in self._split(steps):
            hour = self._hour(begins)
            hour.positions += float(positions[own].sum())
            hour.placed += len(own)

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Take rows of ``lengths`` or ``tokens``."""
        for begins, own in self._split(columns["step"].astype(np.int64)):
            hour = self._hour(begins)
            if table == "lengths":
                self._lengths(hour, {name: column[own] for name, column in columns.items()})
            else:
                self._tokens(hour, {name: column[own] for name, column in columns.items()})

    def drifts(self, made: Callable[[Hour], Any]) -> None:
        """Make something of the counts of each hour where they changed, and let go of old counts."""
        dense = [hour for _, hour in sorted(self.by_time.items()) if hour.tokens is not None]
        for place, hour in enumerate(dense):
            if hour.changed:
                hour.drift, hour.changed = made(hour), False
            if place < len(dense) - DENSE_HOURS:
                hour.tokens = hour.half = None

    def _split(self, steps: Ints) -> list[tuple[int, Ints]]:
        """Return the hours of some steps, with their rows: the first hour that reaches the step, else the newest."""
        known = sorted((hour.last_step, begins) for begins, hour in self.by_time.items() if hour.last_step >= 0)
        if not known:
            return []
        ends = np.array([end for end, _ in known])
        at = np.minimum(np.searchsorted(ends, steps), len(known) - 1)
        return [(known[place][1], own) for place, own in _groups(at)]

    def _hour(self, begins: int) -> Hour:
        return self.by_time.setdefault(begins, Hour(begins, sources=np.zeros(len(self.sources), np.int64)))

    def _lengths(self, hour: Hour, rows: Mapping[str, Any]) -> None:
        source, length, number = (rows[name].astype(np.int64) for name in ("source", "length", "stretches"))
        known = (source >= 0) & (source < len(self.sources))
        np.add.at(hour.sources, source[known], (length * number)[known])
        for each in np.unique(length).tolist():
            hour.lengths[each] = hour.lengths.get(each, 0) + int(number[length == each].sum())

    def _tokens(self, hour: Hour, rows: Mapping[str, Any]) -> None:
        token, count, half = (rows[name].astype(np.int64) for name in ("token", "count", "half"))
        if hour.tokens is None and hour.drift is not None:
            self.late += int(count.sum())
            return
        known = token >= 0
        size = int(token.max(initial=-1)) + 1
        before = np.zeros(0, np.int64) if hour.tokens is None else hour.tokens
        halves = np.zeros(0, np.int64) if hour.half is None else hour.half
        if len(before) < size:
            before, halves = (np.pad(item, (0, size - len(item))) for item in (before, halves))
        np.add.at(before, token[known], count[known])
        np.add.at(halves, token[known], half[known])
        hour.tokens, hour.half, hour.changed = before, halves, True
