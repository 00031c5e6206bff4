"""Tiles of a run log: least, largest and mean value of each number over steps, at several widths, read as it grows.

A :class:`Line` holds a number of the whole model. Its finest level has a bucket a step; further levels, four times as
wide each, appear as the run grows, and every level but the widest keeps its newest buckets alone. So 10^6 steps take a
few megabytes a number, a spike stays visible in the largest value of its bucket, and a page reads a few hundred buckets
whatever it shows. A :class:`HeatTiles` holds the means of layers and heads in at most :data:`COLUMNS` columns.

:class:`Tiles` follows the parts of all ranks by whole batches. Tiles live in the memory of the process that shows them:
nothing is written to the run log.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.live.hours import Hours
from dataaudit.runlog.format import RunFile
from dataaudit.runlog.parts import PartFollower, part_numbers, part_path, rank_folder, ranks_of

KEEP: Final = 32_768
"""Buckets that a level keeps, but the widest."""
FACTOR: Final = 4
COLUMNS: Final = 512
"""Columns of layers and heads, at most."""
MOST_EVENTS: Final = 20_000
"""Newest events that are kept."""
_READ_BYTES = 16 << 20
_TABLES = ("steps", "values", "events", "lengths", "tokens")
Ints = np.ndarray
Floats = np.ndarray


class Buckets(NamedTuple):
    """A line as it is drawn: the middle step of each bucket, its least, mean and largest value."""

    step: Floats
    low: Floats
    mean: Floats
    high: Floats
    width: int
    """Steps of a bucket."""
    number: Ints | None = None
    """Values of it, of all ranks."""


Rows = tuple[Ints, Floats, Floats, Floats, Ints]
"""Buckets by their first steps, ascending: step, total, least and largest value, and how many values."""


def _joined(rows: Rows, width: int) -> Rows:
    """Return buckets of a width, which is a multiple of theirs."""
    steps, total, low, high, count = rows
    steps = steps // width * width
    first = np.concatenate([[0], np.flatnonzero(np.diff(steps)) + 1])
    if len(first) == len(steps):
        return steps, total, low, high, count
    adds = np.add.reduceat
    return (
        steps[first],
        adds(total, first),
        np.minimum.reduceat(low, first),
        np.maximum.reduceat(high, first),
        adds(count, first),
    )


class _Level:
    """Buckets of a width, from a first bucket on."""

    def __init__(self, width: int) -> None:
        self.width, self.start, self.size = width, 0, 0
        self._columns: tuple[Floats, Floats, Floats, Ints] = (np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, int))

    def add(self, rows: Rows) -> None:
        """Add buckets of this width."""
        steps, total, low, high, count = rows
        buckets = steps // self.width
        if not self.size:
            self.start = int(buckets[0])
        self._grow(int(buckets[0]), int(buckets[-1]))
        places = buckets - self.start
        together = places[-1] - places[0] == len(places) - 1  # a view is written in half the time
        at: Any = slice(int(places[0]), int(places[-1]) + 1) if together else places
        totals, lows, highs, counts = self._columns
        totals[at] += total
        lows[at] = np.minimum(lows[at], low)
        highs[at] = np.maximum(highs[at], high)
        counts[at] += count

    def _grow(self, first: int, last: int) -> None:
        before, size = max(0, self.start - first), max(self.size, last - self.start + 1)
        room = len(self._columns[0])
        if before or size > room:
            more = max(0, size - room, (size // 2 if size > room else 0))  # so that most batches copy nothing
            fills = (0.0, np.inf, -np.inf, 0)
            total, low, high, count = (
                np.pad(column, (before, more), constant_values=fill)
                for column, fill in zip(self._columns, fills, strict=True)
            )
            self._columns = total, low, high, count
        self.start, self.size = self.start - before, size + before

    def keep(self, newest: int) -> None:
        """Keep the newest buckets alone."""
        drop = self.size - newest
        total, low, high, count = (column[drop : self.size].copy() for column in self._columns)
        self._columns, self.start, self.size = (total, low, high, count), self.start + drop, newest

    def rows(self) -> Rows:
        """Return the buckets that hold something."""
        total, low, high, count = self._columns
        at = np.flatnonzero(count)
        return (at + self.start) * self.width, total[at], low[at], high[at], count[at]


class Line:
    """A number over steps, in levels."""

    def __init__(self) -> None:
        self.levels = [_Level(1)]
        self.newest: tuple[int, float] = (-1, np.nan)
        """Newest step, and the mean of what came of it last."""

    def add(self, steps: Ints, values: Floats) -> None:
        """Add values of steps, in any order; what is not finite has no bucket."""
        if not len(steps):
            return
        last = int(steps.max())
        if last >= self.newest[0]:
            self.newest = last, float(values[steps == last].mean())
        known = np.isfinite(values)
        steps, values = steps[known], values[known]
        if not len(steps):
            return
        if (np.diff(steps) < 0).any():
            order = np.argsort(steps, kind="stable")
            steps, values = steps[order], values[order]
        rows: Rows = steps, values, values, values, np.ones(len(steps), np.int64)
        for level in self.levels:
            rows = _joined(rows, level.width)
            level.add(rows)
        while (top := self.levels[-1]).size > KEEP:
            self.levels.append(_Level(top.width * FACTOR))
            self.levels[-1].add(_joined(top.rows(), top.width * FACTOR))
        for level in self.levels[:-1]:
            if level.size > 2 * KEEP:
                level.keep(KEEP)

    def read(self, first: int, last: int, most: int) -> Buckets:
        """Return at most about ``most`` buckets of some steps, as narrow as that allows and as are kept."""
        chosen = self.levels[-1]
        for level in self.levels:
            reaches = level is self.levels[-1] or level.start * level.width <= max(first, self._first())
            if reaches and (last - first) / level.width <= most:
                chosen = level
                break
        steps, total, low, high, count = chosen.rows()
        inside = (steps + chosen.width > first) & (steps <= last)
        steps, total, low, high, count = (item[inside] for item in (steps, total, low, high, count))
        width = chosen.width
        if len(steps) > most:
            parts = -(-(int(steps[-1] - steps[0]) // width + 1) // most)
            width *= parts
            steps, total, low, high, count = _joined((steps, total, low, high, count), width)
        middle = np.minimum(steps + (width - 1) / 2, max(last, first))
        return Buckets(middle, low, total / count, high, width, count)

    def _first(self) -> int:
        top = self.levels[-1]
        return top.start * top.width


class HeatTiles:
    """Means of a metric by layer, head and steps."""

    def __init__(self) -> None:
        self.width = 1
        self.places: dict[tuple[int, int], int] = {}
        self.total, self.count = np.zeros((0, COLUMNS)), np.zeros((0, COLUMNS), np.int32)

    def add(self, steps: Ints, layers: Ints, heads: Ints, values: Floats) -> None:
        """Add values; what is not finite is left out."""
        known = np.isfinite(values)
        steps, layers, heads, values = steps[known], layers[known], heads[known], values[known]
        if not len(steps):
            return
        while int(steps.max()) // self.width >= COLUMNS:
            self.width *= 2
            for name in ("total", "count"):
                folded = getattr(self, name).reshape(-1, COLUMNS // 2, 2).sum(2)
                setattr(self, name, np.pad(folded, ((0, 0), (0, COLUMNS // 2))))
        keys, inverse = np.unique(np.stack([layers, heads], 1), axis=0, return_inverse=True)
        rows = [self.places.setdefault((int(a), int(b)), len(self.places)) for a, b in keys]
        more = len(self.places) - len(self.total)
        if more:
            self.total = np.pad(self.total, ((0, more), (0, 0)))
            self.count = np.pad(self.count, ((0, more), (0, 0)))
        at = np.array(rows)[inverse.reshape(-1)], steps // self.width
        np.add.at(self.total, at, values)
        np.add.at(self.count, at, 1)

    def read(self) -> tuple[list[tuple[int, int]], Ints, Floats]:
        """Return (layer, head) of rows, sorted, the last step of columns, and [rows, columns] means."""
        order = sorted(self.places)
        rows = [self.places[place] for place in order]
        columns = np.flatnonzero(self.count[rows].any(axis=0)) if rows else np.zeros(0, np.int64)
        count = self.count[rows][:, columns]
        means = np.divide(self.total[rows][:, columns], count, out=np.full(count.shape, np.nan), where=count > 0)
        return order, columns * self.width + (self.width - 1), means


@dataclass
class _Part:
    follower: PartFollower
    rank: int
    table: str
    done: bool = False
    """Whether a later part follows, and all of it was read."""


class Tiles:
    """Tiles of all numbers of a run log, brought up to date by :meth:`read`.

    Args:
        folder: Of the run log; another machine may write it.
        run: What the run is.
    """

    def __init__(self, folder: Path, run: RunFile) -> None:
        self.folder, self.run = folder, run
        self.generation = 0
        """How often it began anew, since a resumed run superseded steps."""
        self._starts: dict[tuple[int, int], int] = {}
        """First step of each rank and attempt; a rank that came with a later start counts its own from 0."""
        self._begin()

    def _begin(self) -> None:
        self.lines: dict[tuple[str, str], Line] = {}
        """By metric and statistic, of the whole model."""
        self.heats: dict[tuple[str, str], HeatTiles] = {}
        """By metric and statistic, of layers and heads."""
        self.hours = Hours(self.run.sources)
        self.events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        """Newest events, with ``rank`` and their detail as an object."""
        self.damaged: list[str] = []
        """Parts that are not what was written, from some batch on."""
        self.ranks: dict[int, tuple[int, float]] = {}
        """Newest step and its time, seconds since 1970, by rank."""
        self._newest_start = -1, 1 << 62
        """Number of the newest attempt that named its ranks, and how many these are."""
        self.closed: set[int] = set()
        self.new_losses: list[tuple[Ints, Floats]] = []
        """Steps and losses of the lowest rank that were not taken from here yet, batch by batch."""
        self._parts: dict[Path, _Part] = {}

    @property
    def present(self) -> dict[int, tuple[int, float]]:
        """Newest step and its time of the ranks that the newest start has; it may have fewer than one before."""
        return {rank: own for rank, own in self.ranks.items() if rank < self._newest_start[1]}

    @property
    def step(self) -> int:
        """The newest step."""
        return max((step for step, _ in self.ranks.values()), default=0)

    def line(self, metric: str, stat: str = "value") -> Line | None:
        """Return a line; None where there is no value of it."""
        found = self.lines.get((metric, stat))
        return found if found is not None and found.newest[0] >= 0 else None

    def read(self, seconds: float = math.inf) -> bool:
        """Read what came since the last time, for so many seconds at most; return whether more may be there."""
        end = time.monotonic() + seconds
        while True:
            known = self._later()
            for path, part, newest in self._listed():
                if time.monotonic() > end:
                    return True
                empty = True
                for batch in self._batches(path, part):
                    empty = False
                    self._take(part, batch)
                part.done = empty and not newest
            if self._later() == known:
                return False
            self.generation += 1  # a later start supersedes steps that are in tiles already
            self._begin()

    def _later(self) -> dict[tuple[int, int], int]:
        """Return the starts that may supersede steps."""
        return {start: first for start, first in self._starts.items() if start[1] > 0}

    def _listed(self) -> Iterator[tuple[Path, _Part, bool]]:
        """Yield the parts that may have more, and whether each is the newest of its table."""
        for table in _TABLES:
            for rank in ranks_of(self.folder):
                folder = rank_folder(self.folder, rank)
                numbers = part_numbers(folder, table)
                for number in numbers:
                    path = part_path(folder, table, number)
                    part = self._parts.setdefault(path, _Part(PartFollower(path, table), rank, table))
                    if not part.done:
                        yield path, part, number == numbers[-1]

    def _batches(self, path: Path, part: _Part) -> Iterator[pa.RecordBatch]:
        """Yield what came of a part, without what a later start superseded."""
        more = True
        while more:
            try:
                batches, more = part.follower.read(_READ_BYTES)
            except OSError:  # shared storage does not answer: it is read the next time
                return
            if part.follower.damaged and str(path) not in self.damaged:
                self.damaged.append(str(path))
            if (header := part.follower.header) is None:
                return
            first = self._starts.get((part.rank, header.attempt), header.first_step)
            self._starts[part.rank, header.attempt] = min(first, header.first_step)
            later = (
                step
                for (rank, attempt), step in self._starts.items()
                if attempt > header.attempt and (rank == part.rank or step > header.first_step)
            )
            limit = min(later, default=None)
            if batches:  # many are of a few steps: together they are taken at once
                rows = pa.Table.from_batches(batches)
                kept = rows if limit is None else rows.filter(pc.less(rows["step"], limit))
                yield from kept.combine_chunks().to_batches()

    def _take(self, part: _Part, batch: pa.RecordBatch) -> None:
        columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        steps = columns["step"].to_numpy().astype(np.int64)
        if part.table == "steps":
            self._steps(part.rank, steps, columns)
        elif part.table == "values":
            self._values(steps, columns)
        elif part.table == "events":
            self._events(part, batch)
        else:
            self.hours.add(
                part.table, {name: column.to_numpy(zero_copy_only=False) for name, column in columns.items()}
            )

    def _steps(self, rank: int, steps: Ints, columns: dict[str, pa.Array]) -> None:
        ended, targets, scored, total = (
            columns[name].to_numpy().astype(np.float64) for name in ("time", "targets", "scored", "loss_sum")
        )
        user = columns["user_loss"].to_numpy(zero_copy_only=False).astype(np.float64)
        logged = columns["user_loss"].is_valid().to_numpy(zero_copy_only=False)
        mean = np.divide(total, scored, out=np.full(len(steps), np.nan), where=scored > 0)
        loss = np.where(logged, user, mean)
        known = logged | (scored > 0)
        self._add("loss", "value", steps[known], loss[known])
        self._add("tokens", "of_rank", steps, targets)
        self._add("time", "value", steps, ended)
        last = int(np.argmax(steps))
        if rank not in self.ranks or steps[last] >= self.ranks[rank][0]:
            self.ranks[rank] = int(steps[last]), float(ended[last])
        if rank == min(self.ranks):
            self.new_losses.append((steps[known], loss[known]))
            self._add("tokens", "of_first", steps, targets)
        self.hours.add_steps(steps, ended, targets)

    def _values(self, steps: Ints, columns: dict[str, pa.Array]) -> None:
        metrics, stats = (columns[name].dictionary_encode() for name in ("metric", "stat"))
        size = len(stats.dictionary)
        codes = metrics.indices.to_numpy().astype(np.int64) * size + stats.indices.to_numpy()
        layer, head, value = (columns[name].to_numpy() for name in ("layer", "head", "value"))
        pairs = [divmod(code, size) for code in range(len(metrics.dictionary) * size)]
        names = [(metrics.dictionary[at].as_py(), stats.dictionary[of].as_py()) for at, of in pairs]
        # NumPy sorts whole numbers of 16 bits by counting
        order = np.argsort(codes.astype(np.uint16) if len(names) <= 1 << 16 else codes, kind="stable")
        edges = np.searchsorted(codes[order], np.arange(len(names) + 1))
        for code, (metric, stat) in enumerate(names):
            own = order[edges[code] : edges[code + 1]]
            if not len(own):
                continue
            whole = own[(layer[own] < 0) & (head[own] < 0)]
            self._add(metric, stat, steps[whole], value[whole])
            if metric == "positions":
                self.hours.add_positions(steps[whole], value[whole])
            placed = own[layer[own] >= 0]
            if len(placed):
                heat = self.heats.setdefault((metric, stat), HeatTiles())
                heat.add(steps[placed], layer[placed], head[placed], value[placed])

    def _events(self, part: _Part, batch: pa.RecordBatch) -> None:
        rank, attempt = part.rank, -1 if part.follower.header is None else part.follower.header.attempt
        for row in batch.to_pylist():
            try:
                detail = orjson.loads(row["detail"])
            except ValueError:
                detail = {}
            self.events.append({**row, "rank": rank, "detail": detail if isinstance(detail, dict) else {}})
            if row["kind"] == "closed":
                self.closed.add(rank)
            elif row["kind"] in {"started", "resumed"}:
                self.closed.discard(rank)
                if type(ranks := self.events[-1]["detail"].get("ranks")) is int and attempt >= self._newest_start[0]:
                    self._newest_start = attempt, ranks

    def _add(self, metric: str, stat: str, steps: Ints, values: Floats) -> None:
        if len(steps):
            self.lines.setdefault((metric, stat), Line()).add(steps, values.astype(np.float64))
