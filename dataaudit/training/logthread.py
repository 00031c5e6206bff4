"""The thread that turns what a loop hands over into rows of the run log, and judges the loss as it passes.

The loop puts a step into a queue and goes on. When the queue is full, because a disk does not answer, the step is lost
and counted: the loop never waits for the log, except where a checkpoint asks that all of it be written.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dataaudit.base.async_copy import AsyncCopy
from dataaudit.base.errors import CatchErrors, TagsError
from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.runlog.writer import Columns, RankWriter, event
from dataaudit.training.attribution.step_detector import Segments, StepDetector
from dataaudit.training.corpus import Corpus
from dataaudit.training.optimizer_watch import NotFinite, RateWatch, jump_line
from dataaudit.training.packing import EPOCH, OFFSET, ROW, SHARD, SOURCE, START, TARGETS, what_is_wrong
from dataaudit.training.segment_losses import TrainedCounts, moved_row, repeated_targets
from dataaudit.training.timing import GpuUse, Window, fractions

BATCH_STEPS = 256
"""Steps that are written at once,"""
BATCH_SECONDS = 10.0
"""unless they take longer than this."""
PAUSE_SECONDS = 0.25
"""Between two reads of the queue: steps that are taken together cost less, as their code and data are still at hand."""
_WAITING_ITEMS = 4_096
_LOG = logging.getLogger("dataaudit")
_KEPT_FLAGS = 64
SPARSE = frozenset({"context", "loss_scale", "opt_state_finite"})
"""Numbers that are written at the steps where they change."""
SPARSE_DEFAULTS = {"opt_state_finite": 1.0, "skipped_updates": 0.0}
"""What numbers of an optimizer are where nothing is written."""


@dataclass(slots=True)
class MicroBatch:
    """Tags of a batch, and the sums of its stretches' losses."""

    tags: np.ndarray | AsyncCopy
    """int64[B, K, 7]"""
    sums: np.ndarray | AsyncCopy | None
    """float64[B, K]; None where it was not scored."""
    counts: np.ndarray | AsyncCopy | None = None
    """int64[B, K] targets of each stretch by the labels, in place of those of the tags."""
    labels: AsyncCopy | None = None
    """int32[B, T], where the loop hands them over."""


@dataclass(slots=True)
class Step:
    """What a loop hands over at the end of a step."""

    number: int
    time: float
    batches: list[MicroBatch]
    loss: float | AsyncCopy | None
    values: Mapping[str, float | AsyncCopy]


@dataclass(slots=True)
class Scores:
    """Losses of an earlier step's batches, scored afterwards."""

    number: int
    sums: list[AsyncCopy]
    updates: int
    """Updates of the weights since."""


@dataclass(slots=True)
class Numbers:
    """Numbers of a step that are no part of it: of a validation, for one."""

    step: int
    values: Mapping[str, float | AsyncCopy]


@dataclass(slots=True)
class Rows:
    """Rows of a table that belong to no step that waits."""

    table: str
    columns: Columns


class LogThread:
    """Writes a rank's log in a thread of its own, but for the newest steps that may still be scored."""

    def __init__(
        self,
        writer: RankWriter,
        detector: StepDetector,
        *,
        corpus: Corpus,
        counts: TrainedCounts,
        rates: RateWatch,
        hold_steps: int = 0,
    ) -> None:
        self.targets = self.merged = 0
        """Targets so far, and those of stretches that did not fit into the tags."""
        self.moved = ""
        """Which label of a step is not the token that its tag names."""
        self.refused = 0
        """Numbers that were none, and are left out."""
        self.flagged: deque[int] = deque(maxlen=_KEPT_FLAGS)
        """Steps whose loss was flagged, newest last."""
        self.detector, self.rates = detector, rates
        self.gpu = GpuUse()
        self._counts, self._finite = counts, NotFinite()
        self._last: dict[str, float] = {}
        """Numbers that are written where they change."""
        self._unread: set[str] = set()
        """What an event has reported as unreadable."""
        self._writer, self._hold_steps = writer, hold_steps
        self._corpus = corpus
        self._shards, self._sources = corpus.table.num_rows, len(corpus.sources)
        self._step = writer.step
        self._waiting: deque[Step] = deque()
        self._queue: queue.Queue[Step | Scores | Numbers | Rows | Window | threading.Event | None] = queue.Queue(
            _WAITING_ITEMS
        )
        self._dropped = 0
        self._hurry = threading.Event()
        """Somebody waits for the queue to be emptied."""
        self._thread = threading.Thread(target=self._run, name="dataaudit-runlog", daemon=True)
        self._thread.start()

    @property
    def lost_steps(self) -> int:
        """Steps that the log lacks: their rows could not be written, or came too fast."""
        return self._writer.lost.steps + self._dropped

    def put(self, item: Step | Scores | Numbers | Rows | Window) -> None:
        """Hand over a step, later losses of one, or rows of another table."""
        try:
            if self._thread.is_alive():
                self._queue.put_nowait(item)
                return
        except queue.Full:
            pass
        self._dropped += isinstance(item, Step)

    def sync(self) -> None:
        """Wait until all that was handed over is written, or counted as lost."""
        done = threading.Event()
        if self._thread.is_alive():
            self._queue.put(done)
            self._hurry.set()
            while not done.wait(0.1) and self._thread.is_alive():
                pass

    def close(self) -> None:
        """Write everything and end the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._hurry.set()
            self._thread.join()

    def _run(self) -> None:
        deadline = time.monotonic() + BATCH_SECONDS
        while True:
            try:
                item = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._writer.flush()
                deadline = time.monotonic() + BATCH_SECONDS
                continue
            with CatchErrors() as call:
                self._handle(item)
                self._sample_gpu()
            if call.error is not None:
                self._miss(self._step, f"a {type(item).__name__.lower()}", call)
            if item is None:
                break
            if isinstance(item, threading.Event):
                self._hurry.clear()
                item.set()
            if self._writer.waiting_steps >= BATCH_STEPS:
                self._writer.flush()
                deadline = time.monotonic() + BATCH_SECONDS
            if not self._hold_steps and self._queue.empty():  # a step that may be scored again cannot wait
                self._hurry.wait(PAUSE_SECONDS)
        self._writer.close()

    def _handle(self, item: Step | Scores | Numbers | Rows | Window | threading.Event | None) -> None:
        """Take an item of the queue. What fails here costs itself: the thread goes on with what comes after it."""
        match item:
            case Step():
                self._take(item)
            case Scores():
                self._score(item)
            case Window():
                self._add_window(item)
            case Numbers():
                self._writer.add("values", value_columns(item.step, self._numbers(item.step, item.values)))
            case threading.Event() | None:
                self._write_waiting(0)
                self._write_counts()
                self._writer.flush()
            case Rows():
                self._writer.add(item.table, item.columns)

    def _take(self, step: Step) -> None:
        """Judge a step and write what is due; a step that cannot be understood is lost, and no other."""
        with CatchErrors(TagsError) as call:
            try:
                for batch in step.batches:
                    batch.tags = array_of(batch.tags)
                    if why := what_is_wrong(batch.tags, self._shards, self._sources):
                        raise TagsError(f"the tags of a batch do not fit: {why}")
                self._judge(step)
            except TagsError as error:
                self._lose(step.number, str(error))
                return
        if call.error is not None:
            self._lose(step.number, f"it cannot be read ({call.origin})")
            return
        self._step = step.number
        self._waiting.append(step)
        self._write_waiting(self._hold_steps)

    def _lose(self, step: int, why: str) -> None:
        """Count a step that the log will lack."""
        self._writer.lose(1, f"step {step}: {why}")
        self._writer.add("events", event(step, "lost", {"steps": 1, "why": why}))

    def _miss(self, step: int, what: str, call: CatchErrors) -> None:
        """Count a number that is none, or rows that cannot be read; an event reports the first time of each."""
        self.refused += 1
        if what not in self._unread:
            self._unread.add(what)
            self._writer.add(
                "events", event(step, "not_seen", {"what": what, "why": f"it cannot be read ({call.origin})"})
            )
            _LOG.warning(
                "step %d: %s cannot be read (%s); such values are left out of the log", step, what, call.origin
            )

    def _numbers(self, step: int, given: Mapping[str, float | AsyncCopy]) -> dict[str, float]:
        """Return numbers that were on their way; what cannot be read is left out and counted."""
        numbers = {}
        for name, value in given.items():
            with CatchErrors() as call:
                numbers[name] = float(array_of(value))
            if call.error is not None:
                self._miss(step, name, call)
        return numbers

    def _judge(self, step: Step) -> None:
        """Compare a step's loss with the steps before it."""
        for batch in step.batches:
            assert isinstance(batch.tags, np.ndarray)
            batch.sums = None if batch.sums is None else array_of(batch.sums)
            if batch.counts is not None:
                batch.tags[..., TARGETS] = array_of(batch.counts)
        totals = _totals(step)
        self.targets += totals.targets
        self.merged += totals.merged
        step.loss = None if step.loss is None else self._numbers(step.number, {"loss": step.loss}).get("loss")
        value = step.loss if step.loss is not None or not totals.scored else totals.loss_sum / totals.scored
        if value is None:
            return
        verdict = self.detector.see(step.number, value, step_segments(step))
        if verdict.flagged:
            first = verdict.since or step.number
            self.flagged.append(step.number)
            self._writer.flagged.update(range(first, step.number + 1))
            self._writer.add("events", event(step.number, "flagged", {"kind": verdict.kind, "first_step": first}))

    def _score(self, scores: Scores) -> None:
        for step in self._waiting:
            if step.number == scores.number:
                for batch, sums in zip(step.batches, scores.sums, strict=True):
                    batch.sums = array_of(sums)
                detail = {"step": scores.number, "updates": scores.updates}
                self._writer.add("events", event(scores.number, "scored", detail))

    def _write_waiting(self, keep: int) -> None:
        while len(self._waiting) > keep:
            step = self._waiting.popleft()
            with CatchErrors() as call:
                self._write_step(step)
            if call.error is not None:
                self._lose(step.number, f"its rows cannot be made ({call.origin})")
            if self._counts.due:
                self._write_counts()

    def _write_step(self, step: Step) -> None:
        """Write the rows of a step: all of them are made before the first is handed over."""
        stretches = [stretch_columns(step.number, index, batch) for index, batch in enumerate(step.batches)]
        row = _step_columns(step)
        values = self._numbers_of(step)
        if repeated := sum(repeated_targets(array_of(batch.tags)) for batch in step.batches):
            values["repeated_targets"] = repeated
        for columns in stretches:
            self._writer.add("stretches", columns)
        if values:
            self._writer.add("values", value_columns(step.number, values))
        self._writer.add_step(step.number, row)
        with CatchErrors() as call:
            for batch in step.batches:
                self._compare(step.number, batch)
            for batch in step.batches:
                labels = None if batch.labels is None else array_of(batch.labels)
                self._counts.add(step.number, array_of(batch.tags), labels)
        if call.error is not None:
            self._miss(step.number, "labels", call)

    def _compare(self, step: int, batch: MicroBatch) -> None:
        """Compare labels of a row of the batch, another row at each step, with the tokens that its tags name."""
        tags = array_of(batch.tags)
        if batch.labels is not None and not self.moved:
            row = step % len(tags)
            if why := moved_row(self._corpus, tags, array_of(batch.labels), range(row, row + 1)):
                self.moved = f"step {step}: {why}"
                self._writer.add("events", event(step, "moved", {"why": why}))

    def _numbers_of(self, step: Step) -> dict[str, float]:
        """Return a step's numbers as they are written; what is wrong with them becomes an event."""
        values = self._numbers(step.number, step.values)
        if "learning_rate" in values and (jump := self.rates.see(values["learning_rate"])) is not None:
            self._writer.add("events", event(step.number, "learning_rate_jump", jump))
            _LOG.warning("step %d: %s", step.number, jump_line(jump))
        for detail in self._finite.see(values):
            self._writer.add("events", event(step.number, "nan_inf", detail))
        for name in SPARSE & values.keys():
            before = self._last.get(name, SPARSE_DEFAULTS.get(name))
            self._last[name] = values[name]
            if before == values[name]:
                del values[name]
        if not values.get("skipped_updates", 1.0):
            del values["skipped_updates"]
        return values

    def _write_counts(self) -> None:
        for table, columns in self._counts.rows().items():
            self._writer.add(table, columns)

    def _add_window(self, window: Window) -> None:
        with CatchErrors() as call:
            for (metric, stat), value in fractions(window).items():
                self._writer.add("values", {**value_columns(window.step, {metric: value}), "stat": [stat]})
        if call.error is not None:
            why = {"what": "comm_time_frac, compute_time_frac", "why": f"{call.kind} where the profile was read"}
            self._writer.add("events", event(window.step, "not_seen", why))

    def _sample_gpu(self) -> None:
        reported = self.gpu.missing
        if use := self.gpu.sample():
            self._writer.add("values", value_columns(self._step, use))
        if self.gpu.missing and not reported:
            detail = {"what": "gpu_util, gpu_mem_used", "why": self.gpu.missing}
            self._writer.add("events", event(self._step, "not_seen", detail))


def array_of(value: np.ndarray | float | AsyncCopy) -> np.ndarray:
    """Return an array that is here."""
    return value.numpy() if isinstance(value, AsyncCopy) else np.asarray(value)


def stretch_columns(step: int, index: int, batch: MicroBatch) -> Columns:
    """Return the rows of a batch in the table of stretches."""
    tags = array_of(batch.tags)
    used = tags[..., SHARD] != UNUSED
    rows = np.nonzero(used)[0]
    named = tags[used]
    targets = named[:, TARGETS]
    loss = None
    if batch.sums is not None:
        none = targets == 0
        loss = (array_of(batch.sums)[used] / np.where(none, 1, targets)).astype(np.float32)
        loss = np.ma.masked_array(loss, mask=none) if none.any() else loss
    return {
        "step": np.full(len(named), step),
        "micro_batch": np.full(len(named), index),
        "batch_row": rows,
        "start": named[:, START],
        "shard": named[:, SHARD],
        "row": named[:, ROW],
        "offset": named[:, OFFSET],
        "source": named[:, SOURCE],
        "epoch": named[:, EPOCH],
        "targets": targets,
        "loss": loss,
    }


def step_segments(step: Step) -> Segments | None:
    """Return the scored segments of a step as its log has them; None where less than half of its targets has a loss."""
    parts = [stretch_columns(step.number, 0, batch) for batch in step.batches if batch.sums is not None]
    totals = _totals(step)
    if not parts or 2 * totals.scored < totals.targets:
        return None
    segments = Segments.of(
        {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in Segments._fields}
    )
    return segments.take((segments.targets > 0) & np.isfinite(segments.loss))


class _Totals(NamedTuple):
    """Targets of a step, those of segments that did not fit into the tags, those that have a loss, and its sum."""

    targets: int
    merged: int
    scored: int
    loss_sum: float


def _totals(step: Step) -> _Totals:
    targets, merged, scored, loss_sum = 0, 0, 0, 0.0
    for batch in step.batches:
        tags = array_of(batch.tags)
        used, number = tags[..., SHARD] != UNUSED, tags[..., TARGETS]
        targets += int(number[used].sum())
        merged += int(number[tags[..., SHARD] == MERGED].sum())
        if batch.sums is not None:
            scored += int(number[used].sum())
            loss_sum += float(array_of(batch.sums)[used].sum())
    return _Totals(targets, merged, scored, loss_sum)


def _step_columns(step: Step) -> Columns:
    return {
        "step": [step.number],
        "time": [step.time],
        "micro_batches": [len(step.batches)],
        "user_loss": None if step.loss is None else [step.loss],
        **{name: [total] for name, total in _totals(step)._asdict().items()},
    }


def value_columns(step: int, values: Mapping[str, float]) -> Columns:
    """Return the rows of numbers of a step in the table of values: each of the whole run, by metric."""
    return {
        "step": np.full(len(values), step),
        "metric": list(values),
        "layer": np.full(len(values), -1),
        "head": np.full(len(values), -1),
        "stat": ["value"] * len(values),
        "value": np.array(list(values.values()), dtype=np.float64),
    }
