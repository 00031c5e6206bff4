"""The queue and the thread of a sink: bounded, of histograms the oldest go first, and all that is lost is counted."""

from __future__ import annotations

import atexit
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Protocol

from dataaudit.base.errors import CatchErrors

What = Literal["histograms", "values", "events"]
DROPPED_FIRST: Final[tuple[What, ...]] = ("histograms", "values", "events")
_LONGEST_DELAY = 60.0
_LOG = logging.getLogger("dataaudit")


class Item(NamedTuple):
    """What waits to be written."""

    number: int
    """In the order of coming."""
    what: What
    size: int
    """Values, or bins."""
    given: Any

    @property
    def amount(self) -> int:
        """How many values, histograms or events it is."""
        return self.size if self.what == "values" else 1


class Writes(Protocol):
    """What a worker calls, on its thread."""

    def open(self) -> None:
        """Connect."""

    def pieces(self, items: Sequence[Item], *, crowded: bool) -> Iterator[tuple[What, int, Callable[[], None]]]:
        """Yield calls that write, with what they write and how much."""

    def flush(self) -> None:
        """Bring to the tracker what was written."""

    def shut(self) -> None:
        """Disconnect."""


class Worker:
    """Lets items wait, and has them written.

    Args:
        name: Of the tracker.
        writes: What writes.
        most: Values, bins and events that may wait.
        every: Seconds between two writes.
        close_seconds: How long :meth:`close` waits.
    """

    def __init__(self, name: str, writes: Writes, *, most: int, every: float, close_seconds: float) -> None:
        self.lost: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.failure = ""
        """What failed last, by class and line."""
        self._name, self._writes = name, writes
        self._most, self._every, self._close_seconds = most, every, close_seconds
        self._waiting: dict[What, deque[Item]] = {what: deque() for what in DROPPED_FIRST}
        self._size = self._number = 0
        self._under_way: Counter[str] = Counter()
        """What was taken out of the queue, and is not known to be written or lost."""
        self._changed = threading.Condition()
        self._hurry = threading.Event()
        self._closed = self._abandoned = False
        self._thread: threading.Thread | None = None

    def put(self, what: What, size: int, given: Any) -> None:
        """Let an item wait; where too much waits, the oldest histograms go first, then values, then events."""
        with self._changed:
            item = Item(self._number, what, size, given)
            if self._closed:
                self.lost[what] += item.amount
                return
            self._number += 1
            self._waiting[what].append(item)
            self._size += size
            while self._size > self._most:
                oldest = next(queue for queue in self._waiting.values() if queue).popleft()
                self._size -= oldest.size
                self.lost[oldest.what] += oldest.amount
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"dataaudit-{self._name}", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            self._changed.notify()

    def close(self) -> bool:
        """Have written what waits, for a time; return whether this is the first call."""
        with self._changed:
            if self._closed:
                return False
            self._closed = True
            self._changed.notify_all()
        self._hurry.set()
        if self._thread is not None:
            atexit.unregister(self.close)
            self._thread.join(self._close_seconds)
            with self._changed:
                if self._thread.is_alive():
                    self._abandoned = True
                    self.failure = self.failure or f"no answer within {self._close_seconds:g} s"
                    self._take()
                    self.lost.update(self._under_way)
        return True

    def fail(self, call: CatchErrors, what: What, number: int) -> None:
        """Count what an error cost, and log the first."""
        self._log(call)
        self._settle({}, {what: number})

    def _log(self, call: CatchErrors) -> None:
        if not self.failure:
            message = "%s takes no values (%s); training goes on, and what is lost is counted"
            _LOG.warning(message, self._name, call.origin)
        self.failure = call.origin

    def _take(self) -> list[Item]:
        """Take what waits, in the order of coming; it is under way."""
        items = sorted((item for queue in self._waiting.values() for item in queue), key=lambda item: item.number)
        for queue in self._waiting.values():
            queue.clear()
        self._size = 0
        for item in items:
            self._under_way[item.what] += item.amount
        return items

    def _run(self) -> None:
        delay, opened = max(0.1, self._every), False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or any(self._waiting.values()))
            self._hurry.wait(self._every)
            if not opened and not (opened := self._tried(self._writes.open)) and not self._closed:
                self._hurry.wait(delay)
                delay = min(_LONGEST_DELAY, 2 * delay)
                continue
            with self._changed:
                if self._abandoned:
                    return
                ends, crowded = self._closed, 2 * self._size > self._most
                items = self._take()
            if not opened or not self._tried(partial(self._write, items, crowded=crowded)):
                self._settle({}, dict(self._under_way))
            if ends:
                if opened:
                    self._tried(self._writes.shut)
                return

    def _write(self, items: Sequence[Item], *, crowded: bool) -> None:
        """Write items; what fails costs itself, and a flush that fails all that it was to bring."""
        written: Counter[str] = Counter()
        for what, number, write in self._writes.pieces(items, crowded=crowded):
            if self._abandoned:
                return
            with CatchErrors() as call:
                write()
            if call.error is None:
                written[what] += number
            else:
                self.fail(call, what, number)
        if self._tried(self._writes.flush):
            self._settle(written, {})
        else:
            self._settle({}, written)

    def _settle(self, written: Mapping[str, int], lost: Mapping[str, int]) -> None:
        """Count what is not under way any more; where :meth:`close` gave up, that is counted already."""
        with self._changed:
            if not self._abandoned:
                self.written.update(written)
                self.lost.update(lost)
                self._under_way -= Counter(written) + Counter(lost)

    def _tried(self, call: Callable[[], None]) -> bool:
        """Call a method of the tracker's; return whether it worked."""
        with CatchErrors() as attempt:
            call()
        if attempt.error is not None:
            self._log(attempt)
        return attempt.error is None
