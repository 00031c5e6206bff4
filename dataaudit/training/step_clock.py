"""When steps end, what a loop waits for its loader, and how long a rank works before it meets the others.

Seconds are read from a clock that no one sets, and go to the log alone: nothing that must be reproducible depends on
them. On a GPU they are the host's: a wait that the device's queue hides is counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class StepClock:
    """Times the steps of one process.

    Args:
        ranks: Of the run; with several, the time before they meet is kept.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._offset = time.time() - time.perf_counter()
        self._end = time.perf_counter()
        self._since = self._end
        self._waited = 0.0
        self._known = False
        self._batch = self._end
        self._first = True

    def loader(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches of a loader; what it takes until one is there is what the loop waits."""
        source = iter(batches)
        while True:
            began = time.perf_counter()
            try:
                batch = next(source)
            except StopIteration:
                return
            self.waited(time.perf_counter() - began)
            yield batch

    def waited(self, seconds: float) -> None:
        """Add to what the loop waited in this step."""
        self._waited += seconds
        self._known = True

    def arrived(self) -> None:
        """Mark that a batch is there: the loop waited since the last step, or batch, ended."""
        self.waited(time.perf_counter() - self._since)

    def batch(self) -> None:
        """Mark that a batch is handed over, after its forward pass."""
        self._batch = self._since = time.perf_counter()

    def end_step(self) -> tuple[float, dict[str, float]]:
        """Return when the step ended, seconds since 1970, and its numbers; the first step has none."""
        now = time.perf_counter()
        numbers = {}
        if not self._first:
            numbers["step_time"] = _short(now - self._end)
            if self._known:
                numbers["dataloader_wait"] = _short(self._waited)
            if self._ranks > 1:
                numbers["rank_time"] = _short(max(0.0, self._batch - self._end))
        self._first = False
        self._end = self._since = self._batch = now
        self._waited, self._known = 0.0, False
        return self._offset + now, numbers


def _short(seconds: float) -> float:
    """Return seconds with the digits of a float32, which take half the room in the log."""
    return float(np.float32(seconds))
