"""Rows of a run as they come: numbers of a step by name, and events; from the process itself, or from a growing log.

A :class:`Feed` takes rows of the tables of a run log, in the order in which a log is written, and yields what rules
judge: :class:`Numbers` and :class:`Happened`. It adds numbers that no table holds (:data:`DERIVED`), and fills in those
that a log writes only where they change. It keeps the newest rows for evidence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from dataaudit.base.errors import CatchErrors
from dataaudit.runlog.following import Rows
from dataaudit.runlog.writer import Columns

AVERAGED = 64
"""Steps over which times are averaged: tokens per second, the share of waiting, the times of ranks."""
LEAST_AVERAGED = AVERAGED // 4 + 1
"""Steps that an average takes at least."""
_OF_RUN = frozenset({"heartbeat_missing", "metrics_ingest_lag", "restart_rate", "error_event_rate"})
"""Metrics of the whole run, whichever rank's log they stand in."""
ANY_ROW: Final = "*"
"""In place of a metric: any row of a rank."""
DERIVED: Final = {
    "loss": "step rows with a loss: `monitor.step(loss)`",
    "tokens_seen": "step rows with targets: `monitor.batch(tags, ...)`",
    "tokens_per_update": "step rows with targets: `monitor.batch(tags, ...)`",
    "tokens_per_sec": "step rows with targets and their times",
    "dataloader_stall_frac": "waits for batches: `for batch in monitor.loader(loader)`",
    "source_mix_share": "lengths of tagged documents by source: `monitor.batch(tags, ...)`",
    "straggler_ratio": "times of several ranks before they meet, which `dataaudit watch RUNLOG` alone sees together",
    "skipped_updates": "the optimizer: `TrainingMonitor(..., optimizer=)`, with `scaler=` for overflows",
    "opt_state_finite": "the optimizer: `TrainingMonitor(..., optimizer=)`, or vitals",
}
"""What feeds a number that the feed makes or fills in."""
MOST_GAPS = 4
"""Times the distance of the rows before from which on rows are lost between two."""
MOST_ROWS = 400_000
"""Rows that are kept for evidence, of all tables."""
_NEEDED = frozenset({"step_time", "dataloader_wait", "rank_time", "skipped_updates", "opt_state_finite"})


class Numbers(NamedTuple):
    """Values of a statistic of a metric at a step, of all layers and heads that have one."""

    rank: int
    step: int
    metric: str
    stat: str
    layer: np.ndarray
    head: np.ndarray
    value: np.ndarray
    time: float = 0.0
    """When the newest known step ended, seconds since 1970."""
    documents: int = 0
    """That a share is of, so that chance is known; 0: unknown."""
    of_run: bool = False
    """Whether it is of all ranks together; ``rank`` is then the worst, where that is known."""
    no_rank: bool = False
    """Whether it is of no rank, and ``rank`` just whose log it stands in."""


class Happened(NamedTuple):
    """An event."""

    rank: int
    step: int
    kind: str
    detail: dict[str, Any]


class Stepped(NamedTuple):
    """A step ended on a rank; its numbers were handed over before."""

    rank: int
    step: int


class Began(NamedTuple):
    """A rank began a further attempt: what rules know of the attempt before counts no more."""

    rank: int
    attempt: int


Item = Numbers | Happened | Stepped | Began


class Kept:
    """The newest rows, by number of steps and of rows."""

    def __init__(self, steps: int, batches: int) -> None:
        self.dropped = 0
        """Rows that were within the steps, and too many."""
        self._steps, self._batches = steps, batches
        self._rows: deque[Rows] = deque()
        self._stretches: deque[Rows] = deque()
        self._number = 0

    def add(self, rows: Rows) -> None:
        """Keep rows, and let go of the oldest."""
        if rows.table == "stretches":
            self._stretches.append(rows)
            while self._stretches[0].last_step <= rows.last_step - self._batches:
                self._stretches.popleft()
            return
        self._rows.append(rows)
        self._number += _length(rows.columns)
        while self._rows and (self._number > MOST_ROWS or self._rows[0].last_step < rows.last_step - self._steps):
            oldest = self._rows.popleft()
            self._number -= _length(oldest.columns)
            if oldest.last_step >= rows.last_step - self._steps:
                self.dropped += _length(oldest.columns)

    def forget(self, rank: int) -> None:
        """Let go of the rows of a rank, which began again."""
        self._rows = deque(rows for rows in self._rows if rows.rank != rank)
        self._stretches = deque(rows for rows in self._stretches if rows.rank != rank)
        self._number = sum(_length(rows.columns) for rows in self._rows)

    def of(self, table: str) -> list[Rows]:
        """Return the rows of a table, oldest first."""
        return list(self._stretches) if table == "stretches" else [rows for rows in self._rows if rows.table == table]


@dataclass
class _Rank:
    """What is known of a rank."""

    attempt: int = -1
    step: int = 0
    heard: float = 0.0
    """When a row of it came, seconds since 1970."""
    began: float = 0.0
    """When the first row of the attempt came."""
    started: float = 0.0
    """When its first step of the attempt ended; 0: none did."""
    ended: float = 0.0
    """When its newest known step ended."""
    closed: bool = False
    tokens: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Steps, some apart, and the tokens up to each: a further attempt does the last of them again."""
    times: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=AVERAGED + 1))
    counted: int = 0
    """The newest step whose row came."""
    gap: int = 1
    """Steps between that and the row before."""
    waits: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=AVERAGED))
    sparse: dict[str, float] = field(default_factory=dict)
    """Numbers that are written where they differ from this."""
    met: set[int] = field(default_factory=set)
    """Sources that had a share."""
    at_step: dict[int, dict[str, float]] = field(default_factory=dict)
    """Needed numbers of steps whose row did not come yet."""


class Feed:
    """Turns rows of tables into what rules judge.

    Args:
        wanted: Metrics that rules name; values of others are only kept for evidence.
        ranks: Processes of the run; None where only this process's own rows come.
        steps: Newest steps that are kept for evidence.
        batches: Newest steps whose stretches are kept.
    """

    def __init__(
        self, wanted: Collection[str], ranks: int | None = None, *, steps: int = 200, batches: int = 8
    ) -> None:
        self.ranks: dict[int, _Rank] = {}
        self.kept = Kept(steps, batches)
        self._wanted = frozenset(wanted) | _NEEDED
        self._beginnings = tuple(name.removesuffix("*") for name in wanted if name.endswith(".*"))
        self.expected = ranks
        """Processes of the newest attempt; None where other ranks are not seen."""
        self.sources: Sequence[str] = ()
        """Names of sources, by their places."""
        self._rank_times: dict[int, dict[int, float]] = {}
        self._means: dict[int, deque[float]] = {}

    def begin(self, rank: int, attempt: int, now: float) -> Iterator[Item]:
        """Take that a rank is there, at an attempt."""
        known = self.ranks.get(rank)
        if known is None or known.attempt != attempt:
            self.kept.forget(rank)
            known = known or _Rank()
            marks = [*known.marks, (known.counted, known.tokens)]
            self.ranks[rank] = _Rank(attempt=attempt, heard=now, began=now, tokens=known.tokens, marks=marks)
            yield Began(rank, attempt)

    def follow(self, rows: Iterable[Rows]) -> Iterator[Item]:
        """Take rows of a log that is followed, and yield what rules judge."""
        for own in rows:
            yield from self.begin(own.rank, own.attempt, own.heard)
            yield from self.take(own.table, own.rank, own.columns, own.heard)

    def take(self, table: str, rank: int, columns: Columns, heard: float) -> Iterator[Item]:
        """Take rows of a table that :meth:`begin` announced the rank of, and yield what rules judge."""
        steps = np.asarray(columns["step"]) if "step" in columns else np.zeros(0)
        if not len(steps):
            return
        own = self.ranks[rank]
        own.heard, own.step = max(own.heard, heard), max(own.step, int(steps.max()))
        self.kept.add(Rows(table, rank, int(steps.max()), columns))
        if table == "values":
            yield from self._values(rank, own, steps, columns)
        elif table == "events":
            yield from self._events(rank, own, columns)
        elif table == "steps":
            yield from self._steps(rank, own, columns)
        elif table == "lengths":
            yield from self._shares(rank, own, steps, columns)

    def around(self, columns: Columns, worst: Mapping[str, int]) -> Iterator[Item]:
        """Take values of the run that lie around its log, with the rank that each is worst of, where it has one."""
        first = min(self.ranks)
        self.kept.add(Rows("values", first, self.newest_step, columns))
        for item in self._values(first, self.ranks[first], np.asarray(columns["step"]), columns):
            rank = worst.get(item.metric, first)
            rank = rank if rank in self.ranks else first
            yield item._replace(rank=rank, of_run=True, no_rank=item.metric not in worst)

    @property
    def newest_step(self) -> int:
        """The newest step of any rank."""
        return max((own.step for own in dict(self.ranks).values()), default=0)

    def runs(self, rank: int) -> bool:
        """Return whether a rank is of the newest attempt, which may have fewer."""
        return self.expected is None or rank < self.expected

    def _shares(self, rank: int, own: _Rank, steps: np.ndarray, columns: Columns) -> Iterator[Item]:
        """Yield the share of each source in the targets since the counts before; 0 of a source that is gone."""
        source = np.asarray(columns["source"])
        targets = np.asarray(columns["length"]) * np.asarray(columns["stretches"])
        begun = np.asarray(columns["begun"])
        for step in np.unique(steps).tolist():
            of = steps == step
            if not (total := float(targets[of].sum())):
                continue
            own.met.update(source[of].tolist())
            for each in sorted(own.met):
                name = self.sources[each] if 0 <= each < len(self.sources) else f"source {each}"
                share = float(targets[of & (source == each)].sum()) / total
                documents = int(begun[of].sum())
                yield _whole(rank, step, "source_mix_share", share)._replace(stat=name, documents=documents)

    def _values(self, rank: int, own: _Rank, steps: np.ndarray, columns: Columns) -> Iterator[Numbers]:
        metrics, stats = _texts(columns["metric"]), _texts(columns["stat"])
        groups: dict[tuple[int, str, str], list[int]] = {}
        for at, metric in enumerate(metrics):
            if metric in self._wanted or (self._beginnings and metric.startswith(self._beginnings)):
                groups.setdefault((int(steps[at]), metric, stats[at]), []).append(at)
        layers, heads, values = (np.asarray(columns[name]) for name in ("layer", "head", "value"))
        for (step, metric, stat), places in groups.items():
            if metric in _NEEDED and stat == "value":
                own.at_step.setdefault(step, {})[metric] = float(values[places[-1]])
                if metric in own.sparse and metric != "skipped_updates":
                    own.sparse[metric] = float(values[places[-1]])
            own_values = values[places].astype(np.float64)
            given = (layers[places], heads[places], own_values, own.ended)
            yield Numbers(rank, step, metric, stat, *given, no_rank=metric in _OF_RUN)

    def _events(self, rank: int, own: _Rank, columns: Columns) -> Iterator[Item]:
        rows = zip(
            np.asarray(columns["step"]).tolist(), _texts(columns["kind"]), _texts(columns["detail"]), strict=True
        )
        for step, kind, text in rows:
            with CatchErrors() as call:
                detail = orjson.loads(text)
            known = detail if call.error is None and isinstance(detail, dict) else {}
            if kind in {"started", "resumed"}:
                given, ranks = known.get("sparse"), known.get("ranks")
                numbers = given.items() if isinstance(given, dict) else ()
                own.sparse = {name: float(value) for name, value in numbers if isinstance(value, int | float)}
                newest = max(item.attempt for item in self.ranks.values())
                if self.expected is not None and type(ranks) is int and own.attempt == newest:
                    if ranks < self.expected:  # those that are gone are not waited for
                        self._means = {each: own for each, own in self._means.items() if each < ranks}
                        self._rank_times.clear()
                        for each, gone in self.ranks.items():
                            if each >= ranks:
                                gone.tokens = _tokens_before([*gone.marks, (gone.counted, gone.tokens)], int(step) + 1)
                    self.expected = ranks
            measured = known.get("metrics")
            if kind == "vitals" and isinstance(measured, dict) and "opt_state_finite" in measured:
                own.sparse.pop("opt_state_finite", None)  # vitals measure it in place of the monitor
            own.closed = kind == "closed"
            yield Happened(rank, int(step), kind, known)

    def _steps(self, rank: int, own: _Rank, columns: Columns) -> Iterator[Item]:
        loss = columns["user_loss"]
        losses = [None] * _length(columns) if loss is None else np.ma.asarray(loss, np.float64).tolist()
        rest = (np.asarray(columns[name]).tolist() for name in ("step", "time", "targets", "scored", "loss_sum"))
        for given, step, ended, targets, scored, total in zip(losses, *rest, strict=True):
            own.ended, numbers = float(ended), {}
            own.started = own.started or own.ended
            if given is not None or scored:
                numbers["loss"] = total / scored if given is None else given
            numbers |= own.sparse
            known = own.at_step.pop(int(step), {})
            numbers |= _derived(own, int(step), own.ended, int(targets), known)
            for stale in [item for item in own.at_step if item < step - AVERAGED]:
                del own.at_step[stale]
            for metric, value in numbers.items():
                if metric in self._wanted and not (metric in own.sparse and metric in known):
                    yield _whole(rank, int(step), metric, value)._replace(time=own.ended)
            yield from self._straggler(rank, int(step), known)
            yield Stepped(rank, int(step))

    def _straggler(self, rank: int, step: int, known: Mapping[str, float]) -> Iterator[Item]:
        """Yield how much longer the slowest rank works than the median of ranks, where all of them are known."""
        if self.expected is None or self.expected < 2 or "rank_time" not in known:
            return
        times = self._rank_times.setdefault(step, {})
        times[rank] = known["rank_time"]
        if len(times) < self.expected:
            while len(self._rank_times) > 4 * AVERAGED:
                del self._rank_times[min(self._rank_times)]
            return
        del self._rank_times[step]
        for each, seconds in times.items():
            self._means.setdefault(each, deque(maxlen=AVERAGED)).append(seconds)
        means = {each: float(np.median(values)) for each, values in self._means.items()}
        middle = float(np.median(list(means.values())))
        if middle > 0:
            slowest = max(means, key=lambda each: (means[each], -each))
            number = _whole(slowest, step, "straggler_ratio", means[slowest] / middle)
            yield number._replace(time=self.ranks[rank].ended, of_run=True)


def _derived(own: _Rank, step: int, ended: float, targets: int, known: Mapping[str, float]) -> dict[str, float]:
    """Return numbers of a step that no table holds."""
    numbers = {}
    if not own.counted:
        own.tokens = _tokens_before(own.marks, step)
    gap, own.counted = step - own.counted, step
    took = known.get("step_time", 0.0)
    was_set = gap == 1 and took and own.times and abs(ended - own.times[-1][0] - took) > max(1.0, took)
    if was_set or gap > MOST_GAPS * own.gap:  # a clock was; the tokens of lost rows are not known, and their time is
        own.times.clear()
    own.gap = max(1, gap)
    if targets or own.tokens:
        own.tokens += targets
        own.times.append((ended, own.tokens))
        if not own.marks or step - own.marks[-1][0] >= AVERAGED:
            own.marks.append((step, own.tokens))
        numbers = {"tokens_seen": float(own.tokens), "tokens_per_update": float(targets)}
        (first, before), (last, now) = own.times[0], own.times[-1]
        if len(own.times) >= LEAST_AVERAGED and last > first:
            numbers["tokens_per_sec"] = (now - before) / (last - first)
    if "dataloader_wait" in known and known.get("step_time", 0.0) > 0:
        own.waits.append((known["dataloader_wait"], known["step_time"]))
        waited, took = (sum(item) for item in zip(*own.waits, strict=True))
        if len(own.waits) >= LEAST_AVERAGED:
            numbers["dataloader_stall_frac"] = waited / took
    return numbers


def _tokens_before(marks: list[tuple[int, int]], step: int) -> int:
    """Return the tokens before a step, and let go of the marks from it on."""
    steps, tokens = zip((0, 0), *marks, strict=True)
    marks[:] = [mark for mark in marks if mark[0] < step]
    return round(float(np.interp(step - 1, steps, tokens)))


def _whole(rank: int, step: int, metric: str, value: float) -> Numbers:
    return Numbers(rank, step, metric, "value", np.array([-1]), np.array([-1]), np.array([value]))


def _length(columns: Columns) -> int:
    return next((len(column) for column in columns.values() if column is not None), 0)


def _texts(column: Any) -> Sequence[str]:
    return column if isinstance(column, list) else column.tolist()
