"""The base of every sink of a tracker: what it writes, behind a bounded queue and a thread of its own.

A sink of your own is this class and the lines that write::

    class Printed(TrackerSink):
        def write_scalars(self, step, numbers):
            print(step, numbers)

The loop and the run log hand values over and go on. A tracker that is slow, dead or out of space loses values, which
are counted; nothing of it raises into a run or waits for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from dataaudit.base.errors import CatchErrors
from dataaudit.live.sinks.series import Histogram, Series, name_of
from dataaudit.live.sinks.worker import Item, What, Worker
from dataaudit.runlog.writer import Columns
from dataaudit.vitals.metric import Key

_LOG = logging.getLogger("dataaudit")


class TrackerSink:
    """Hands values, histograms and events to a tracker, in a thread of its own.

    Subclasses override what their tracker can take: :meth:`open`, :meth:`write_scalars` (or :meth:`write_values`),
    :meth:`write_histogram`, :meth:`write_event`, :meth:`flush`, :meth:`shut`. All of these run on the sink's thread, in
    this order, and may raise: that costs what they were to write.

    Args:
        by_layer: Metrics whose layers are series of their own, or ``"all"``. Of others, least, mean and largest are.
        by_head: The same of heads.
        most_series: Series, at most; values of further ones are lost, and counted in :attr:`capped`.
        most_waiting: Values, bins of histograms and events that may wait.
        close_seconds: How long :meth:`close` waits for the tracker.
        every: Seconds between two writes.
        histogram_seconds: Seconds between two histograms of the layers, or heads, of a statistic.
        prefix: Of the names of series.
    """

    NAME = "a tracker"

    def __init__(
        self,
        *,
        by_layer: Collection[str] | str = (),
        by_head: Collection[str] | str = (),
        most_series: int = 2_000,
        most_waiting: int = 200_000,
        close_seconds: float = 10.0,
        every: float = 1.0,
        histogram_seconds: float = 10.0,
        prefix: str = "",
    ) -> None:
        self.prefix = prefix
        self._series = Series(by_layer, by_head, most_series, histogram_seconds)
        self._worker = Worker(self.NAME, self, most=most_waiting, every=every, close_seconds=close_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect to the tracker; it is tried again, later and later, until it works."""

    def write_values(self, step: int, numbers: Mapping[Key, float]) -> None:
        """Write numbers of a step by metric, layer, head and statistic."""
        self.write_scalars(step, {name_of(key, self.prefix): value for key, value in numbers.items()})

    def write_scalars(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write numbers of a step by the name of their series."""

    def write_histogram(self, step: int, name: str, histogram: Histogram) -> None:
        """Write a histogram of a step."""

    def write_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Write an event."""

    def flush(self) -> None:
        """Bring to the tracker what was written; an error here costs all of it."""

    def shut(self) -> None:
        """Disconnect from the tracker."""

    @property
    def lost(self) -> Counter[str]:
        """Values, histograms and events that the tracker did not get."""
        return self._worker.lost

    @property
    def written(self) -> Counter[str]:
        """Values, histograms and events that the tracker took."""
        return self._worker.written

    @property
    def failure(self) -> str:
        """What failed last, by class and line; empty when nothing did."""
        return self._worker.failure

    @property
    def capped(self) -> int:
        """Values of series beyond ``most_series``."""
        return self._series.capped

    def add_values(self, columns: Columns) -> None:
        """Take rows of the table of values of a run log."""
        self._worker.put("values", len(columns["metric"] or ()), columns)

    def add_histogram(self, step: int, metric: str, stat: str, edges: np.ndarray, counts: np.ndarray) -> None:
        """Take a histogram."""
        self._worker.put("histograms", len(counts), (step, Histogram(metric, stat, edges, counts)))

    def add_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Take an event."""
        self._worker.put("events", 1, (step, kind, dict(detail)))

    def close(self) -> None:
        """Write what waits, for ``close_seconds`` at most, and end; what is left is counted as lost."""
        if self._worker.close() and (self.lost or self.capped):
            what = ", ".join(f"{number:,} {name}" for name, number in sorted(self.lost.items()))
            beyond = f"{self.capped:,} values of series beyond most_series" if self.capped else ""
            why = f" ({self.failure or 'they came faster than it took them'})" if what else ""
            _LOG.warning("%s did not get %s", self.NAME, ", and ".join(part for part in (what + why, beyond) if part))

    def pieces(self, items: Sequence[Item], *, crowded: bool) -> Iterator[tuple[What, int, Callable[[], None]]]:
        """Yield what is written of items: the numbers of each step together, then histograms and events.

        Args:
            items: In the order of coming.
            crowded: Whether the tracker is behind: no histograms of layers are made until it has caught up.
        """
        numbers: dict[int, dict[Key, float]] = {}
        rows: Counter[int] = Counter()
        further: list[tuple[What, Callable[[], None]]] = []
        for item in items:
            if item.what == "events":
                further.append(("events", partial(self.write_event, *item.given)))
            elif item.what == "histograms":
                further.append(("histograms", partial(self._named_histogram, *item.given)))
            else:
                with CatchErrors() as call:
                    taken = self._series.take(item.given)
                if call.error is not None:  # no rows of values
                    self._worker.fail(call, "values", item.amount)
                    continue
                for step, own in taken.items():
                    numbers.setdefault(step, {}).update(own.numbers)
                    rows[step] += own.rows
                    made: list[Callable[[], None]] = [
                        partial(self._named_histogram, step, each) for each in own.histograms
                    ]
                    if crowded:
                        self._worker.lost["histograms"] += len(made)
                    else:
                        further += [("histograms", write) for write in made]
        for step, own_numbers in numbers.items():
            yield "values", rows[step], partial(self.write_values, step, own_numbers)
        for what, write in further:
            yield what, 1, write

    def _named_histogram(self, step: int, histogram: Histogram) -> None:
        self.write_histogram(step, name_of(Key(histogram.metric, -1, -1, histogram.stat), self.prefix), histogram)
