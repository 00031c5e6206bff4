"""Rows of a run log as columns: of all ranks as it grows, each row once; and the newest stretches of a rank."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import CatchErrors
from dataaudit.runlog.parts import PartFollower, part_numbers, part_path, rank_folder, ranks_of, read_part
from dataaudit.runlog.writer import Columns

_READ_BYTES = 32 << 20
_ORDER = {"values": 0, "lengths": 1, "events": 2, "steps": 3}
"""Tables that are followed. Of a step its row comes last, so that what belongs to it is there."""
_READ = ("steps", "events", "values", "lengths")
"""Read in this order: the values of a step are written before its row, so those of each row are there."""


class Rows(NamedTuple):
    """Rows of a table as they came."""

    table: str
    rank: int
    last_step: int
    columns: Columns
    attempt: int = -1
    heard: float = 0.0
    """When they were written, seconds since 1970."""


@dataclass
class _Part:
    follower: PartFollower
    rank: int
    table: str
    more: bool = False
    last: int = 0


class Follower:
    """Reads a run log of all ranks, or of some, as it grows, and hands each row over once."""

    def __init__(self, folder: Path, ranks: Collection[int] | None = None) -> None:
        self.most = _READ_BYTES
        """Bytes of a part that are read at a time."""
        self.damaged: list[str] = []
        """Parts that are not what was written, from some batch on."""
        self._folder, self._chosen = folder, ranks
        self._parts: dict[Path, _Part] = {}
        self._waiting: list[Rows] = []

    def read(self) -> Iterator[Rows]:
        """Yield what came, step by step, the oldest attempt first, until nothing more is there."""
        more = True
        while more:
            for path, part in self._known():
                self._read_part(path, part)
            ends = [part.last for part in self._parts.values() if part.more]
            more = bool(ends)
            due = [rows for rows in self._waiting if not more or rows.last_step <= min(ends)]
            self._waiting = [rows for rows in self._waiting if more and rows.last_step > min(ends)]
            yield from sorted(due, key=lambda rows: (rows.attempt, rows.last_step, _ORDER[rows.table], rows.rank))

    def _known(self) -> Iterator[tuple[Path, _Part]]:
        for table in _READ:
            for rank in ranks_of(self._folder):
                if self._chosen is not None and rank not in self._chosen:
                    continue
                for number in part_numbers(rank_folder(self._folder, rank), table):
                    path = part_path(rank_folder(self._folder, rank), table, number)
                    yield path, self._parts.setdefault(path, _Part(PartFollower(path, table), rank, table))

    def _read_part(self, path: Path, part: _Part) -> None:
        try:
            batches, part.more = part.follower.read(self.most)
            heard = path.stat().st_mtime
        except OSError:  # it is read the next time
            return
        if part.follower.damaged and str(path) not in self.damaged:
            self.damaged.append(str(path))
        if (header := part.follower.header) is None:
            return
        for batch in batches:
            for step, rows in _by_step(batch):
                self._waiting.append(Rows(part.table, part.rank, step, columns_of(rows), header.attempt, heard))
                part.last = max(part.last, step)


def _by_step(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each step, of rows that lie together."""
    steps = batch.column("step").to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    for begin, end in itertools.pairwise(bounds if len(steps) else ()):
        yield int(steps[begin]), batch.slice(begin, end - begin)


def columns_of(rows: pa.RecordBatch | pa.Table) -> Columns:
    """Return rows of Arrow as columns of a log."""
    columns: dict[str, Any] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if pa.types.is_string(column.type):
            columns[name] = column.to_pylist()
        elif column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            columns[name] = np.ma.masked_array(column.to_numpy(zero_copy_only=False).astype(np.float64), mask=missing)
        else:
            columns[name] = column.to_numpy()
    return columns


def stored_stretches(folder: Path, rank: int, steps: range) -> list[Rows]:
    """Return the stretches that a log holds of some steps of a rank; what cannot be read is left out."""
    found: list[Rows] = []
    for number in reversed(part_numbers(rank_folder(folder, rank), "stretches")):
        with CatchErrors() as call:
            part = read_part(part_path(rank_folder(folder, rank), "stretches", number), "stretches")
        if call.error is not None or part is None:
            continue
        at = part.table["step"].to_numpy()
        if len(own := np.flatnonzero((at >= steps.start) & (at < steps.stop))):
            found.append(Rows("stretches", rank, int(at[own].max()), columns_of(part.table.take(pa.array(own)))))
        if part.header.first_step <= steps.start:
            break
    return found[::-1]
