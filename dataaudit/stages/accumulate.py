"""Merging many partials as they come, in memory that is bounded by the result and not by their number."""

from __future__ import annotations

from dataaudit.stages.base import Stage, merge, nothing
from dataaudit.stages.partial import Partial

_MAX_HELD = 256
_MIN_ROWS = 1_000_000


class Accumulator:
    """Holds one merged partial and some that are not merged yet.

    What is held is merged once it has as many rows as the merged partial, and a million at least: so there
    are never more rows than twice those of the result and two million, and every row is merged a bounded number
    of times. A merge is lossless, so when it happens changes nothing.

    Args:
        stage: Whose partials these are.
        min_rows: Rows below which nothing is merged but for its number of pieces.
    """

    def __init__(self, stage: Stage, *, min_rows: int = _MIN_ROWS) -> None:
        self._stage = stage
        self._min_rows = min_rows
        self._merged: Partial = nothing(stage)
        self._held: list[Partial] = []
        self._rows = 0

    def add(self, partial: Partial) -> None:
        """Take one more partial."""
        self._held.append(partial)
        self._rows += num_rows(partial)
        if self._rows >= max(self._min_rows, num_rows(self._merged)) or len(self._held) >= _MAX_HELD:
            self.result()

    def result(self) -> Partial:
        """Merge what is held and return all that was added."""
        if self._held:
            self._merged = merge(self._stage, [self._merged, *self._held])
            self._held, self._rows = [], 0
        return self._merged


def num_rows(partial: Partial) -> int:
    """Return the rows of all tables of a partial."""
    return sum(table.num_rows for table in partial.values())
