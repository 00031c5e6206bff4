"""Hands the rows of a run log to sinks as they are written: numbers, histograms of losses, events.

Numbers of the table of values go on as they are. The others are made of rows of steps, segments and lengths, by the
names of the documented metrics: loss, tokens, rates, shares and losses by source.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from dataaudit.live.feed import DERIVED, Feed, Happened, Item, Numbers
from dataaudit.runlog.format import MERGED
from dataaudit.runlog.writer import Columns
from dataaudit.vitals.sinks import Reporter, Sink

LOSS: Final = "train_loss_raw"
LOSS_EDGES: Final = np.array([0, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 12, 16, np.inf])
"""Bins of the losses of segments, nats/token."""


class Forwarding:
    """Takes the rows of a rank's log, on its thread, and hands them to sinks.

    Args:
        sinks: Must not wait.
        sources: Names of the sources, by their number.
        rank: Of the process.
        attempt: Which start of the run it is.
    """

    def __init__(self, sinks: Sequence[Sink], sources: Sequence[str], rank: int, attempt: int) -> None:
        self.reporter = Reporter(sinks)
        self._feed = Feed(DERIVED, steps=0, batches=0)
        self._sources = self._feed.sources = tuple(sources)
        self._rank, self._attempt = rank, attempt
        self._segments: list[Columns] = []
        """Rows of segments of the step that is not ended yet."""

    def take(self, table: str, columns: Columns) -> None:
        """Take rows of a table."""
        if table == "stretches":
            self._segments.append(columns)
            return
        now = time.time()
        items: list[Item] = [*self._feed.begin(self._rank, self._attempt, now)]
        items += self._feed.take(table, self._rank, columns, now)
        if table == "values":
            self.reporter.rows(columns)
            return
        numbers = [item for item in items if isinstance(item, Numbers)]
        if table == "steps":
            numbers += self._losses(int(np.asarray(columns["step"])[-1]))
        if numbers:
            self.reporter.rows(_rows(numbers))
        for item in items:
            if isinstance(item, Happened):
                self.reporter.event(item.step, item.kind, item.detail)

    def _losses(self, step: int) -> list[Numbers]:
        """Hand over a histogram of the losses of a step's segments; return their means by source, over targets."""
        scored = [item for item in self._segments if item["loss"] is not None]
        self._segments = []
        if not scored:
            return []
        losses = np.concatenate([np.ma.filled(np.ma.asarray(item["loss"], np.float64), np.nan) for item in scored])
        known = np.isfinite(losses)
        if not known.any():
            return []
        columns = (
            np.concatenate([np.asarray(item[name]) for item in scored]) for name in ("targets", "source", "shard")
        )
        targets, source, shard = (column[known] for column in columns)
        losses = losses[known]
        counts, _ = np.histogram(np.maximum(losses, 0), LOSS_EDGES)
        self.reporter.histogram(step, LOSS, "segments", LOSS_EDGES, counts)
        numbers = []
        for each in np.unique(source[shard != MERGED]).tolist():
            own = (source == each) & (shard != MERGED)
            name = self._sources[each] if 0 <= each < len(self._sources) else f"source {each}"
            mean, whole = np.average(losses[own], weights=targets[own]), np.array([-1])
            numbers.append(Numbers(self._rank, step, "loss_by_source", name, whole, whole, np.array([mean])))
        return numbers


def _rows(numbers: Sequence[Numbers]) -> Columns:
    """Return numbers of a whole run as rows of the table of values; the loss has the name of the metric."""
    return {
        "step": np.array([item.step for item in numbers]),
        "metric": [LOSS if item.metric == "loss" else item.metric for item in numbers],
        "layer": np.concatenate([item.layer for item in numbers]),
        "head": np.concatenate([item.head for item in numbers]),
        "stat": [item.stat for item in numbers],
        "value": np.concatenate([item.value for item in numbers]),
    }
