"""Writing a rank's part of a run log.

A log that cannot be written (a full disk, a folder that is gone) raises nothing: what is lost is counted, reported
once, and reported again when writing works.

Stretches are thinned as they age: of steps that are long past a sample stays, and exact sums of all others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import CatchErrors, ConfigError, RunLogError
from dataaudit.base.files import write_whole
from dataaudit.manifest.tables import STRING
from dataaudit.runlog.format import RUN_FILE, SHARDS_FILE, SUMS, TABLES, WINDOW_STEPS, RunFile
from dataaudit.runlog.parts import (
    PartHeader,
    PartWriter,
    attempts_of,
    end_of,
    numbers,
    part_numbers,
    part_path,
    rank_folder,
    ranks_of,
    read_part,
    write_part,
)

_LOG = logging.getLogger("dataaudit")
SAMPLED_STEPS = 16
"""Every such step keeps its stretches."""
AROUND_STEPS = 200
"""Steps before and after a flagged one that keep theirs."""
PART_STEPS = 2_048
"""Steps of a part of the table of stretches, which are thinned part by part."""
KEPT_STEPS = 10_000
"""Newest steps whose stretches are all kept."""
_ORDER = ("stretches", "values", "events", "tokens", "lengths", "steps")
"""A step is written last, so that one that is there has its stretches."""

Columns = Mapping[str, np.ndarray | list[Any] | None]
"""Values of a table's columns, of equal length; null is what a masked array masks, and all of a column that is None."""


def thin_part(
    folder: Path,
    number: int,
    *,
    block_rows: int,
    before: int,
    flagged: Collection[int],
    starts: Collection[tuple[int, int]] = (),
) -> bool:
    """Replace a part of stretches by those that stay, and a part of sums; nothing changes when it is not old enough.

    What later attempts, of ``starts``, supersede goes: sums of a window could not be told apart afterwards.
    The sums are written first and count only once the part says that it is thinned, so a kill in between does no harm.
    """
    path = part_path(folder, "stretches", number)
    try:
        part = read_part(path, "stretches")
    except RunLogError:  # it stays as it is; reading the log raises the error
        return True
    if part is None or part.header.thinned:
        return True
    rows = part.table
    if (end := end_of(part.header.attempt, starts)) is not None:
        rows = rows.filter(pc.less(rows["step"], end))
    steps = rows["step"].to_numpy()
    if len(steps) and int(steps.max()) >= before:
        return False
    stays = _staying(steps, flagged)
    header = PartHeader(attempt=part.header.attempt, first_step=part.header.first_step, thinned=True)
    sums = part_path(folder, "sums", number)
    write_part(sums, "sums", header, summed(rows.filter(pa.array(~stays)), block_rows))
    write_part(path, "stretches", header, rows.filter(pa.array(stays)))
    return True


def _staying(steps: np.ndarray, flagged: Collection[int]) -> np.ndarray:
    """Tell which stretches stay."""
    stays: np.ndarray = steps % SAMPLED_STEPS == 0
    marks = np.array(sorted(flagged), dtype=np.int64)
    if len(marks):
        at = np.searchsorted(marks, steps)
        after = np.abs(marks[np.minimum(at, len(marks) - 1)] - steps)
        earlier = np.abs(marks[np.maximum(at - 1, 0)] - steps)
        stays |= np.minimum(after, earlier) <= AROUND_STEPS
    return stays


def summed(stretches: pa.Table, block_rows: int) -> pa.Table:
    """Return the sums of stretches by window, block and source, sorted by these."""
    columns = {name: stretches[name].to_numpy() for name in ("step", "shard", "row", "source", "targets")}
    loss = pc.fill_null(stretches["loss"], 0.0).to_numpy().astype(np.float64)
    known = pc.is_valid(stretches["loss"]).to_numpy()
    keys = np.stack(
        [
            columns["step"] // WINDOW_STEPS * WINDOW_STEPS,
            columns["shard"],
            np.where(columns["row"] < 0, -1, columns["row"] // block_rows),
            columns["source"],
        ]
    )
    groups, inverse = np.unique(keys, axis=1, return_inverse=True)
    size, targets = groups.shape[1], columns["targets"].astype(np.int64)
    values = {
        "window": groups[0],
        "shard": groups[1],
        "block": groups[2],
        "source": groups[3],
        "stretches": np.bincount(inverse, minlength=size),
        "targets": _added(inverse, targets, size),
        "scored": _added(inverse, np.where(known, targets, 0), size),
        "loss_sum": np.bincount(inverse, loss * targets, minlength=size),
    }
    return pa.table([numbers(values[item.name], item) for item in SUMS.schema], schema=SUMS.schema)


def _added(inverse: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, inverse, values)
    return sums


@dataclass(slots=True)
class Losses:
    """What a log could not write."""

    steps: int = 0
    """Steps whose rows are lost."""
    errors: int = 0
    """Times that writing failed."""
    last: str = ""
    """Why, the last time."""


def create_run(folder: Path, run: RunFile, shards: pa.Table | None) -> None:
    """Write what a run is, and its table of shards; its folder must hold no run yet."""
    if (folder / RUN_FILE).exists():
        raise holds_already(folder)
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        stored = None
        if shards is not None:
            with pa.BufferOutputStream() as sink, pa.ipc.new_file(sink, shards.schema) as stream:
                stream.write_table(shards)
            stored = sink.getvalue().to_pybytes()
            write_whole(folder / SHARDS_FILE, stored)
        write_whole(folder / RUN_FILE, run.sealed(stored).to_json() + b"\n")


def holds_already(folder: Path) -> ConfigError:
    """Return the error of a run that would begin in the log of another."""
    return ConfigError(
        f"{folder} holds a run log already",
        "Name another folder, or go on from a checkpoint of the run. `resume=True` begins it again from step 1:"
        " what it holds is not shown any more.",
    )


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Raise what the system refuses in the block as an error that names the run log."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"the run log {folder} cannot be written: {error.strerror or error}") from None


class RankWriter:
    """Writes the tables of a rank, for a single thread; the newest ``kept_steps`` keep all their stretches."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        first_step: int,
        block_rows: int,
        *,
        kept_steps: int = KEPT_STEPS,
        part_steps: int = PART_STEPS,
    ) -> None:
        self.folder = rank_folder(folder, rank)
        self.lost = Losses()
        self.observers: list[Callable[[str, Columns], None]] = []
        """Take the rows of each table as the log does, on its thread; they must not wait, nor change them."""
        self.unobserved = 0
        """Times that an observer failed; its own loss."""
        self._block_rows, self._kept_steps, self._part_steps = block_rows, kept_steps, part_steps
        with writable(folder):
            before = attempts_of(self.folder)
            self.flagged = _flagged(self.folder)
        """Steps around which all stretches are kept; a resumed run thins what it wrote before, too."""
        self.attempt = 1 + max((attempt for attempt, _ in before), default=-1)
        """Which start of the run this is, from 0."""
        self._starts = [*before, (self.attempt, first_step)]
        self._waiting: dict[str, list[Columns]] = {name: [] for name in _ORDER}
        self._parts: dict[str, tuple[int, PartWriter]] = {}
        self._reported = False
        self._unfit: set[str] = set()
        """Tables that were handed rows that do not fit, which an event has reported."""
        self.step = first_step - 1
        """The newest step that was taken."""
        self._thinned: set[int] = set()
        with writable(folder):
            for name in reversed(_ORDER):
                self._open(name, first_step)

    def add(self, table: str, columns: Columns) -> None:
        """Take rows of a table; they are written by :meth:`flush`."""
        self._waiting[table].append(columns)
        for observe in self.observers:
            with CatchErrors() as call:
                observe(table, columns)
            if call.error is not None:
                self.unobserved += 1

    def add_step(self, step: int, columns: Columns) -> None:
        """Take the row of a step, after all else that belongs to it."""
        self.add("steps", columns)
        self.step = step

    @property
    def waiting_steps(self) -> int:
        """Steps that wait to be written."""
        return sum(map(_rows, self._waiting["steps"]))

    def flush(self) -> bool:
        """Write what waits; return whether all of it is written. What fails is lost, and counted."""
        steps = self.waiting_steps
        with CatchErrors() as call:
            for name, waiting in self._waiting.items():
                if any(map(_rows, waiting)) and (batch := self._batch(name, waiting)) is not None:
                    if name not in self._parts:
                        self._open(name, batch.column("step")[0].as_py())
                    self._parts[name][1].append(batch)
            steps = 0  # all are written, whatever becomes of older parts
            self._roll()
        self._waiting = {name: [] for name in _ORDER}
        if call.error is not None:
            self.lose(steps, _why(call))
            for name in [name for name, (_, part) in self._parts.items() if part.gone]:  # new ones are begun
                self._end(name)
            return False
        if self._reported:
            self._reported = False
            self.add("events", event(self.step, "lost", {"steps": self.lost.steps, "why": self.lost.last}))
            _LOG.warning(f"the run log {self.folder} is written again; lost so far: {self.lost.steps:,} steps")
        return True

    def lose(self, steps: int, why: str) -> None:
        """Count steps that are not written, and report the first time."""
        self.lost.steps += steps
        self.lost.errors += 1
        self.lost.last = why
        if not self._reported:
            self._reported = True
            _LOG.warning(f"the run log {self.folder} cannot be written: {why}; training goes on without it")

    def close(self) -> None:
        """Write what waits and close every file."""
        self.flush()
        if self._waiting["events"]:  # that writing works again, and what was lost
            self.flush()
        for name in list(self._parts):
            self._end(name)

    def _end(self, table: str) -> None:
        """Close the part of a table; a network's file system may report no sooner that it did not write."""
        with CatchErrors() as call:
            self._parts.pop(table)[1].close()
        if call.error is not None:
            self.lose(0, _why(call))

    def _batch(self, table: str, waiting: list[Columns]) -> pa.RecordBatch | None:
        """Return all rows that a table can hold: others cost themselves, and no rows of the loop."""
        with CatchErrors() as call:
            return _joined(table, waiting)
        self.lost.errors += 1
        if table not in self._unfit:
            self._unfit.add(table)
            detail = {"what": f"rows of {table}", "why": f"they do not fit ({call.origin})"}
            self._waiting["events"].append(event(self.step, "not_seen", detail))
            _LOG.warning(f"the run log {self.folder}: rows of {table} do not fit ({call.origin}), and are left out")
        fitting = [columns for columns in waiting if _fits(table, columns)]
        return _joined(table, fitting) if fitting else None

    def _open(self, table: str, first_step: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max(part_numbers(self.folder, table), default=-1)
        header = PartHeader(attempt=self.attempt, first_step=first_step)
        self._parts[table] = number, PartWriter(part_path(self.folder, table, number), table, header)

    def _roll(self) -> None:
        """Begin a new part of stretches when the last one is long enough, and thin those that have aged."""
        if "stretches" not in self._parts:
            return
        number, part = self._parts["stretches"]
        if self.step - part.header.first_step + 1 < self._part_steps:
            return
        del self._parts["stretches"]
        part.close()
        self._open("stretches", self.step + 1)
        for item in part_numbers(self.folder, "stretches"):
            if item > number or item in self._thinned:
                continue
            if not thin_part(
                self.folder,
                item,
                block_rows=self._block_rows,
                before=self.step - self._kept_steps,
                flagged=self.flagged,
                starts=self._starts,
            ):
                break
            self._thinned.add(item)


def _flagged(folder: Path) -> set[int]:
    """Return the steps that a rank flagged so far."""
    steps: set[int] = set()
    for number in part_numbers(folder, "events"):
        with CatchErrors():  # of a damaged part, which reading the log reports
            part = read_part(part_path(folder, "events", number), "events")
            rows = [] if part is None else part.table.filter(pc.equal(part.table["kind"], "flagged")).to_pylist()
            for row in rows:
                steps.update(range(int(orjson.loads(row["detail"])["first_step"]), row["step"] + 1))
    return steps


def supersede_ranks(folder: Path, ranks: int, first_step: int, block_rows: int) -> None:
    """Begin an attempt of the ranks that a run lacks since it goes on with fewer: their later steps count no more."""
    for rank in ranks_of(folder):
        if rank >= ranks:
            RankWriter(folder, rank, first_step, block_rows).close()


def _why(call: CatchErrors) -> str:
    return getattr(call.error, "strerror", None) or call.origin


def event(step: int, kind: str, detail: Mapping[str, Any]) -> Columns:
    """Return the row of an event."""
    text = orjson.dumps(dict(detail), option=orjson.OPT_SORT_KEYS).decode()
    return {"step": [step], "time": [time.time()], "kind": [kind], "detail": [text]}


def whole_values(step: int, rows: Sequence[tuple[str, str, float]]) -> Columns:
    """Return rows of the table of values about the whole model, of metric, statistic and value."""
    whole = np.full(len(rows), -1)
    return {
        "step": np.full(len(rows), step),
        "metric": [metric for metric, _, _ in rows],
        "layer": whole,
        "head": whole,
        "stat": [stat for _, stat, _ in rows],
        "value": np.array([value for _, _, value in rows], dtype=np.float64),
    }


def _rows(columns: Columns) -> int:
    return next((len(column) for column in columns.values() if column is not None), 0)


def _fits(table: str, columns: Columns) -> bool:
    with CatchErrors() as call:
        _joined(table, [columns])
    return call.error is None


def _joined(table: str, pieces: Sequence[Columns]) -> pa.RecordBatch:
    schema = TABLES[table].schema
    arrays = []
    for column in schema:
        values = [piece[column.name] for piece in pieces]
        if column.type == STRING:
            arrays.append(pa.array([item for value in values for item in value or ()], STRING))
        elif all(isinstance(value, list) for value in values):
            arrays.append(numbers(np.array([item for value in values for item in value or ()]), column))
        else:
            rows = [_rows(piece) for piece in pieces]
            arrays.append(numbers(_concatenated(values, rows, masked=column.nullable), column))
    return pa.record_batch(arrays, schema=schema)


def _concatenated(values: Sequence[Any], rows: Sequence[int], *, masked: bool) -> np.ndarray:
    parts = [
        np.ma.masked_array(np.zeros(number), mask=True) if value is None else value
        for value, number in zip(values, rows, strict=True)
    ]
    joined = np.concatenate(list(map(np.ma.getdata, parts)))
    return np.ma.masked_array(joined, mask=np.concatenate(list(map(np.ma.getmaskarray, parts)))) if masked else joined
