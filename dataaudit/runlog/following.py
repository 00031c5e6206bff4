"""Rows of a run log as columns: of all ranks as it grows, each row once; and the newest stretches of a rank."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import CatchErrors
from dataaudit.runlog.parts import PartFollower, part_numbers, part_path, rank_folder, ranks_of, read_part
from dataaudit.runlog.writer import Columns

_READ_BYTES = 2 << 20
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
class _Piece:
    """Rows of a part that were read at once: groups of neighbouring rows of a step, each handed over by itself."""

    columns: dict[str, Any]
    steps: np.ndarray
    """int64[groups]"""
    bounds: np.ndarray
    """int64[groups + 1], in the rows"""
    attempt: int
    heard: float
    waits: np.ndarray
    """bool[groups]: which are not handed over yet."""

    def rows(self, group: int, part: _Part) -> Rows:
        """Return a group as rows of a part."""
        own = slice(int(self.bounds[group]), int(self.bounds[group + 1]))
        columns = {name: column[own] for name, column in self.columns.items()}
        return Rows(part.table, part.rank, int(self.steps[group]), columns, self.attempt, self.heard)


@dataclass
class _Part:
    follower: PartFollower
    rank: int
    table: str
    more: bool = False
    last: int = 0
    pieces: list[_Piece] = field(default_factory=list)


class Follower:
    """Reads a run log of all ranks, or of some, as it grows, and hands each row over once.

    Of a log that is long already it holds what was read of each part, a few megabytes, and not the whole.
    """

    def __init__(self, folder: Path, ranks: Collection[int] | None = None) -> None:
        self.most = _READ_BYTES
        """Bytes of a part that are read at a time."""
        self.damaged: list[str] = []
        """Parts that are not what was written, from some batch on."""
        self._folder, self._chosen = folder, ranks
        self._parts: dict[Path, _Part] = {}

    def read(self) -> Iterator[Rows]:
        """Yield what came, step by step, the oldest attempt first, until nothing more is there."""
        reached: int | None = None
        while True:
            for path, part in self._known():
                if reached is None or not part.more or part.last <= reached:  # the others are ahead
                    self._read_part(path, part)
            ends = [part.last for part in self._parts.values() if part.more]
            reached = min(ends) if ends else None
            yield from self._due(reached)
            if reached is None:
                return

    def _due(self, reached: int | None) -> Iterator[Rows]:
        """Yield the rows before a step, or all."""
        keys: list[np.ndarray] = []
        places: list[tuple[_Part, _Piece]] = []
        for part in self._parts.values():
            for piece in part.pieces:
                due = np.flatnonzero(piece.waits if reached is None else piece.waits & (piece.steps < reached))
                piece.waits[due] = False
                order = [[number] * len(due) for number in (piece.attempt, _ORDER[part.table], part.rank, len(places))]
                keys.append(np.array([*order, piece.steps[due], due], np.int64))
                places.append((part, piece))
            part.pieces = [piece for piece in part.pieces if piece.waits.any()]
        if keys:
            attempt, table, rank, place, step, group = np.concatenate(keys, axis=1)
            for at in np.lexsort((group, place, rank, table, step, attempt)).tolist():
                part, piece = places[place[at]]
                yield piece.rows(int(group[at]), part)

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
        for batch in pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else ():
            steps = batch.column("step").to_numpy()
            begins = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1))
            part.pieces.append(
                _Piece(
                    columns=dict(columns_of(batch)),
                    steps=steps[begins].astype(np.int64),
                    bounds=np.append(begins, len(steps)),
                    attempt=header.attempt,
                    heard=heard,
                    waits=np.ones(len(begins), bool),
                )
            )
            part.last = max(part.last, int(steps.max()))


def columns_of(rows: pa.RecordBatch | pa.Table) -> Columns:
    """Return rows of Arrow as columns of a log."""
    columns: dict[str, Any] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if pa.types.is_string(column.type):
            coded = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).dictionary_encode()
            texts = coded.dictionary.to_pylist()  # an object for each text, not for each row
            columns[name] = [texts[code] for code in coded.indices.to_pylist()]
        elif column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            columns[name] = np.ma.masked_array(column.to_numpy(zero_copy_only=False).astype(np.float64), mask=missing)
        else:
            columns[name] = column.to_numpy()
    return columns


def stored_stretches(folder: Path, rank: int, steps: range) -> list[Rows]:
    """Return the stretches that a log holds of some steps of a rank; what cannot be read is left out."""
    found: list[Rows] = []
    stop = steps.stop
    for number in reversed(part_numbers(rank_folder(folder, rank), "stretches")):
        with CatchErrors() as call:
            part = read_part(part_path(rank_folder(folder, rank), "stretches", number), "stretches")
        if call.error is not None or part is None:
            continue
        at = part.table["step"].to_numpy()
        if len(own := np.flatnonzero((at >= steps.start) & (at < stop))):
            found.append(Rows("stretches", rank, int(at[own].max()), columns_of(part.table.take(pa.array(own)))))
        stop = min(stop, part.header.first_step)  # what an attempt before wrote of later steps was done again
        if stop <= steps.start:
            break
    return found[::-1]
