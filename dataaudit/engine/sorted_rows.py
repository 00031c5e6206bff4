"""Rows that are found by a number: few are held in memory, many lie on disk, in order, and are mapped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit.engine.spool import RowWriter

_HELD = 1 << 17
"""Rows that are held and sorted at a time; more lie on disk."""
_RATIO = 4
"""A run that is not this many times as long as what comes is merged with it, so runs stay few."""
_HEADS = 1 << 64


class SortedRows:
    """Rows of fixed width in runs, each in order of ``head``, which is a part of a digest: about evenly spread.

    Args:
        folder: Where many of them lie.
        dtype: Of a row, first the field ``head``, an aligned uint64.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self._folder, self._dtype = folder, dtype
        self._runs: list[np.ndarray] = []

    def add(self, pieces: Iterable[np.ndarray], stay: Callable[[np.ndarray], np.ndarray]) -> None:
        """Take more rows.

        Args:
            pieces: Some after others, ``dtype[n]`` each, held no longer than it takes.
            stay: Tells of rows, when they are merged with others, which are still wanted, bool[n].

        Raises:
            StateFolderError: The folder cannot be written.
        """
        fresh, held = self._sorted(pieces), list(self._runs)
        number = sum(map(len, fresh))
        while held and len(held[-1]) < _RATIO * number:
            fresh.insert(0, held.pop())
            number += len(fresh[0])
        self._runs = held + ([self._merged(fresh, number, stay)] if len(fresh) > 1 else fresh)

    def _sorted(self, pieces: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Return rows in runs: those that are many on disk, one behind the other."""
        writer, ends = None, [0]
        held, number = [np.zeros(0, dtype=self._dtype)], 0
        for piece in pieces:
            held.append(piece)
            number += len(piece)
            if number - ends[-1] >= _HELD:
                writer = writer or RowWriter(self._folder, self._dtype)
                writer.extend(_ordered(held))
                ends.append(number)
                held = held[:1]
        written = held[0] if writer is None else writer.done()
        runs = [written[start:stop] for start, stop in pairwise(ends)]
        return [run for run in (*runs, _ordered(held)) if len(run)]

    def _merged(self, runs: list[np.ndarray], number: int, stay: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the rows of runs as one, in memory where they are few; of equal heads those of the first run first."""
        ranges = -(-number // _HELD)
        writer = RowWriter(self._folder, self._dtype) if ranges > 1 else None
        starts, rows = [0] * len(runs), np.zeros(0, dtype=self._dtype)
        for bound in (_HEADS * place // ranges for place in range(1, ranges + 1)):
            stops = [len(run) if bound == _HEADS else _place(run, bound) for run in runs]
            rows = _ordered([run[start:stop] for run, start, stop in zip(runs, starts, stops, strict=True)])
            rows, starts = rows[stay(rows)], stops
            if writer is not None:
                writer.extend(rows)
        return rows if writer is None else writer.done()

    def at(self, head: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a head."""
        for run in self._runs:
            place = _place(run, head)
            while place < len(run):
                row = run[place].item()
                if row[0] != head:
                    break
                yield row
                place += 1

    def at_all(self, heads: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows of many heads, uint64[n]: int64[k] places of some heads, and ``dtype[k]`` a row of each.

        Of one head the rows come in the order of :meth:`at`.
        """
        order = np.argsort(heads, kind="stable")  # neighbours lie on the same pages
        for run in self._runs:
            which, column = order, run["head"]
            places = column.searchsorted(heads[order])
            while True:
                inside = places < len(run)
                which, places = which[inside], places[inside]
                same = column[places] == heads[which]
                which, places = which[same], places[same]
                if not len(which):
                    break
                yield which, run[places]
                places = places + 1


def _place(run: np.ndarray, head: int) -> int:
    """Return where the rows of a head begin."""
    return int(run["head"].searchsorted(np.uint64(head)))


def _ordered(pieces: list[np.ndarray]) -> np.ndarray:
    """Return rows in order of their heads; equal ones as they come."""
    rows = np.concatenate(pieces)
    return rows[np.argsort(rows["head"], kind="stable")]
