"""Where values and events go: the run log of a monitor, a run log of their own, or a list in memory."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from dataaudit import __version__
from dataaudit.base.async_copy import AsyncCopy, scalar
from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.text import utc_now
from dataaudit.runlog.format import RUN_FILE, RunFile
from dataaudit.runlog.writer import Columns, RankWriter, create_run, event, whole_values

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.metric import Column

_WAITING_ITEMS = 4_096
_FLUSH_SECONDS = 5.0
_LOG = logging.getLogger("dataaudit")


class Sink(Protocol):
    """Takes scalars, histograms and events; it must not keep a loop waiting. All sinks of a run have this form."""

    def add_values(self, columns: Columns) -> None:
        """Take scalars: rows of the table of values of a run log.

        Args:
            columns: ``step``, ``metric``, ``layer`` (-1: the whole model), ``head`` (-1: the whole layer), ``stat``,
                ``value`` (float64); arrays or lists of equal length.
        """

    def add_histogram(self, step: int, metric: str, stat: str, edges: np.ndarray, counts: np.ndarray) -> None:
        """Take how often values lie between edges.

        Args:
            step: Of the run.
            metric: Name of what is counted.
            stat: Of what it is.
            edges: float64[bins + 1], ascending, in the metric's unit; the first and the last may be infinite.
            counts: int64[bins]
        """

    def add_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Take an event; its detail is of plain types."""


class Observer(Protocol):
    """Takes all rows of a rank's log as they are written; it must neither wait nor change them."""

    def joins(self, rank: int, attempt: int) -> None:
        """Take which rank it is, and which start of the run."""

    def take(self, table: str, columns: Columns) -> None:
        """Take rows of a table."""


class Reporter:
    """Hands values and events to sinks, whose failures are no reason to end a run.

    Attributes:
        lost: Times that a sink failed to take what it was given.
        failures: How often something of vitals failed, by what it was: that cost its numbers of the step.
        reported: What was reported once, and is not repeated.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)
        self.lost = 0
        self.failures: Counter[str] = Counter()
        self.reported: set[str] = set()

    def values(self, step: int, columns: Sequence[Column], values: np.ndarray) -> None:
        """Write values of a step, float[columns]."""
        rows: Columns = {
            "step": np.full(len(columns), step),
            "metric": [column.metric for column in columns],
            "layer": np.array([column.layer for column in columns]),
            "head": np.array([column.head for column in columns]),
            "stat": [column.stat for column in columns],
            "value": values.astype(np.float64),
        }
        self.rows(rows)

    def event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Write an event."""
        self._tell(lambda sink: sink.add_event(step, kind, detail))

    def histogram(self, step: int, metric: str, stat: str, edges: np.ndarray, counts: np.ndarray) -> None:
        """Write a histogram."""
        self._tell(lambda sink: sink.add_histogram(step, metric, stat, edges, counts))

    def rows(self, columns: Columns) -> None:
        """Write rows of the table of values as they are."""
        self._tell(lambda sink: sink.add_values(columns))

    def once(self, step: int, kind: str, what: str, why: str) -> None:
        """Write, the first time, that something has no value, and why."""
        if (name := f"{what}: {why}") not in self.reported:
            self.reported.add(name)
            self.event(step, kind, {"what": what, "why": why})

    def failed(self, step: int, what: str, why: str) -> None:
        """Count a failure of vitals' own, and write each once."""
        self.failures[what] += 1
        self.once(step, "not_seen", what, why)

    def _tell(self, write: Callable[[Sink], None]) -> None:
        """Write to every sink; count an error, and log the first."""
        for sink in self._sinks:
            with CatchErrors() as call:
                write(sink)
            if call.error is not None:
                if not self.lost:
                    message = "a sink failed (%s); training goes on, and what it did not take is lost"
                    _LOG.warning(message, call.origin)
                self.lost += 1


def histogram_columns(step: int, metric: str, stat: str, edges: np.ndarray, counts: np.ndarray) -> Columns:
    """Return a histogram as rows of the table of values: how many lie up to each upper edge, ``STAT_le_EDGE``."""
    upper, up_to = edges[1:].tolist(), np.cumsum(counts).tolist()
    rows = [(metric, f"{stat}_le_{edge:g}", number) for edge, number in zip(upper, up_to, strict=True)]
    return whole_values(step, rows)


class MemorySink:
    """Keeps everything in memory: for tests, and to hand on to other trackers."""

    def __init__(self) -> None:
        self.values: list[tuple[int, str, int, int, str, float]] = []
        """(step, metric, layer, head, stat, value)"""
        self.histograms: list[tuple[int, str, str, list[float], list[int]]] = []
        """(step, metric, stat, edges, counts)"""
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        """(step, kind, detail)"""

    def add_values(self, columns: Columns) -> None:
        """Take rows of the table of values."""
        names = ("step", "metric", "layer", "head", "stat", "value")
        self.values += zip(*(np.asarray(columns[name]).tolist() for name in names), strict=True)

    def add_histogram(self, step: int, metric: str, stat: str, edges: np.ndarray, counts: np.ndarray) -> None:
        """Take a histogram."""
        self.histograms.append((step, metric, stat, edges.tolist(), counts.tolist()))

    def add_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Take an event."""
        self.events.append((step, kind, dict(detail)))


class RunLogSink:
    """Writes the run log of a run that opens no manifest; one that does hands over its monitor instead.

    Args:
        folder: Of the run log; ranks share it.
        name: What is trained on, in words.
        rank: Of this process.
        ranks: Processes of the run.
        first_step: The step that this attempt begins with; above 1 a log that the folder holds is gone on with.
        resume: Whether to begin again at ``first_step`` 1 in a folder that holds a log already.
        alerts: Takes what is written, on the log's thread: ``Alerts`` of :mod:`dataaudit.live`.

    Raises:
        ConfigError: The folder holds a log already, and ``first_step`` is 1 without ``resume``; or cannot be written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        name: str = "",
        *,
        rank: int = 0,
        ranks: int = 1,
        first_step: int = 1,
        resume: bool = False,
        alerts: Observer | None = None,
    ) -> None:
        self.folder = Path(folder)
        goes_on = (resume or first_step > 1) and (self.folder / RUN_FILE).exists()
        if rank == 0 and not goes_on:
            run = RunFile(
                manifest=None,
                dataset=name,
                sources=(),
                block_rows=1,
                ranks=ranks,
                started=utc_now(),
                program=__version__,
            )
            create_run(self.folder, run, None)
        try:
            self._writer = RankWriter(self.folder, rank, first_step, 1)
        except OSError as error:
            raise ConfigError(f"the run log {folder} cannot be written: {error.strerror or error}") from None
        if alerts is not None:
            alerts.joins(rank, self._writer.attempt)
            self._writer.observers.append(alerts.take)
        self._queue: queue.Queue[tuple[str, Columns] | None] = queue.Queue(_WAITING_ITEMS)
        self.lost = 0
        """Items that came faster than they were written."""
        self._step = first_step - 1
        begins = event(self._step, "resumed" if self._step else "started", {"program": __version__, "ranks": ranks})
        self._put("events", begins)
        self._thread = threading.Thread(target=self._run, name="dataaudit-values", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._thread.is_alive():
            self.add_event(self._step, "failed", {"error": kind.__name__})
        self.close()

    def add_values(self, columns: Columns) -> None:
        """Take rows of the table of values."""
        self._put("values", columns)

    def add_histogram(self, step: int, metric: str, stat: str, edges: np.ndarray, counts: np.ndarray) -> None:
        """Take a histogram: a row for each bin."""
        self._put("values", histogram_columns(step, metric, stat, edges, counts))

    def add_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Take an event."""
        self._put("events", event(step, kind, detail))

    def add_step(self, step: int, loss: float | torch.Tensor | None) -> None:
        """Take a step's loss, nats, a number or a tensor of one, which is not waited for: what a report draws.

        None: the step has no loss.

        Raises:
            ConfigError: It is neither.
        """
        try:
            value = None if loss is None else scalar(loss)
        except (TypeError, ValueError):
            kind = type(loss).__name__
            raise ConfigError(f"vitals: loss: expected a number, or a tensor of one, found {kind}") from None
        counts = dict.fromkeys(("micro_batches", "targets", "scored", "merged"), np.zeros(1))
        own = None if value is None else [value]
        row: dict[str, Any] = {"step": [step], "time": [time.time()], "loss_sum": [0.0], "user_loss": own}
        self._put("steps", {**counts, **row})
        self._step = step

    @property
    def lost_steps(self) -> int:
        """Steps that the log lacks, because it could not be written."""
        return self._writer.lost.steps

    def close(self) -> None:
        """Write everything, and that the log ended."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _put(self, table: str, columns: Columns) -> None:
        try:
            self._queue.put_nowait((table, columns))
        except queue.Full:
            self.lost += 1

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=_FLUSH_SECONDS)
            except queue.Empty:
                self._writer.flush()
                continue
            if item is None:
                self._writer.flush()  # so that what is lost is counted
                ends = {"lost_steps": self.lost_steps, "refused_values": 0}
                self._writer.add("events", event(self._step, "closed", ends))
                self._writer.close()
                return
            table, columns = item
            loss = columns["user_loss"] if table == "steps" else None
            if loss is not None and isinstance(loss[0], AsyncCopy):
                columns = {**columns, "user_loss": [float(loss[0].numpy())]}
            self._writer.add(table, columns)
            if self._writer.waiting_steps >= 256:
                self._writer.flush()
