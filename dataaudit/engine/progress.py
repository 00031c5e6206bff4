"""Progress of a build, on stderr or to a function: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from dataaudit.base.process import raise_if_interrupted
from dataaudit.base.text import clean_message, plural

_PLAIN_SECONDS = 5.0
_LIVE_SECONDS = 0.05
_SHORT_SECONDS = 1.0
"""Steps of one thing that take less share a line."""
MEGABYTE = 1e6
_UNIT_BYTES = 100_000
"""What a piece costs beside its bytes, as bytes. The largest come first: by bytes alone little time would seem left."""
T = TypeVar("T")


class Progress:
    """Reports one phase after another; every method is cheap."""

    def __init__(self, *, quiet: bool = False, tell: Callable[[str], object] | None = None) -> None:
        self.warnings: list[str] = []
        """The important notes so far."""
        self._quiet = quiet
        self._tell = tell
        self._live: Any = None
        self._task: Any = None
        self._phase = ""
        self._units = self._done_units = self._bytes = self._done_bytes = self._failures = 0
        self._began = self._last = time.monotonic()
        self._short, self._short_steps, self._short_seconds = "", 0, 0.0

    def __enter__(self) -> Self:
        if not self._quiet and self._tell is None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Live

            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=28),
                TextColumn("{task.fields[tail]}"),
            )
            self._live = Live(*columns, console=Console(stderr=True), transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell_short()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def note(self, text: str, *, important: bool = False) -> None:
        """Tell a line."""
        self._tell_short()
        shown = clean_message(text)
        if important:
            self.warnings.append(shown)
        if self._quiet and not important:
            return
        if self._tell is not None:
            self._tell(shown)
            return
        with contextlib.suppress(OSError):  # a closed stderr ends the progress, not the build
            if self._live is not None:
                self._live.console.print(shown, markup=False, highlight=False)
            else:
                sys.stderr.write(f"{shown}\n")
                sys.stderr.flush()

    def begin(self, phase: str, units: int, num_bytes: int) -> None:
        """Start a phase of ``units`` pieces and ``num_bytes`` stored bytes.

        A phase named by several words is a step of what the first names: steps of less than a second share a line.
        """
        raise_if_interrupted()
        self._phase, self._units, self._bytes = phase, units, num_bytes
        self._done_units = self._done_bytes = self._failures = 0
        self._began = self._last = time.monotonic()
        if self._live is not None:
            if self._task is not None:
                self._live.remove_task(self._task)
            self._task = self._live.add_task(phase, total=max(units, 1), tail=self._tail())

    def advance(self, num_bytes: int, *, failed: bool = False, units: int = 1) -> None:
        """Count one finished piece, or several."""
        raise_if_interrupted()
        self._done_units += units
        self._done_bytes += num_bytes
        self._failures += failed
        now = time.monotonic()
        if self._live is not None:
            if now - self._last >= _LIVE_SECONDS or self._done_units >= self._units:
                self._last = now
                self._live.update(self._task, completed=self._done_units, tail=self._tail())
        elif now - self._last >= _PLAIN_SECONDS and self._done_units < self._units:
            self._last = now
            self.note(f"{self._phase}: {self._tail()}")

    def over(self, phase: str, items: Iterable[T], units: int, *, each: int = 1) -> Iterator[T]:
        """Yield ``items`` as a phase of the driver's own; a phase of less than a second is not shown."""
        self.begin(phase, units, 0)
        for item in items:
            yield item
            self.advance(0, units=min(each, units - self._done_units))
        self.end(tell_short=False)

    def end(self, *, tell_short: bool = True) -> None:
        """Close the phase with one line, or keep it for the line that short steps share."""
        elapsed = time.monotonic() - self._began
        if self._units and (tell_short or elapsed >= _SHORT_SECONDS):
            whole, _, step = self._phase.partition(" ")
            if step and elapsed < _SHORT_SECONDS and not self._failures:
                if whole != self._short:
                    self._tell_short()
                self._short, self._short_steps = whole, self._short_steps + 1
                self._short_seconds += elapsed
                return
            failures = f", {self._failures} unreadable" if self._failures else ""
            size = f"{self._done_bytes / MEGABYTE:,.1f} MB, " if self._bytes else ""
            self.note(f"{self._phase}: {self._done_units:,} done, {size}{elapsed:.1f} s{failures}")

    def _tell_short(self) -> None:
        """Say how many short steps there were since the last line."""
        if self._short_steps:
            text = f"{self._short}: {plural(self._short_steps, 'short step')}, {self._short_seconds:.1f} s"
            self._short, self._short_steps, self._short_seconds = "", 0, 0.0
            self.note(text)

    def _tail(self) -> str:
        elapsed = max(time.monotonic() - self._began, 1e-6)
        speed = self._done_bytes / elapsed
        parts = [f"{self._done_units:,}/{self._units:,}"]
        if self._bytes:
            parts.append(f"{speed / MEGABYTE:,.1f} MB/s")
            if 0 < self._done_units < self._units:
                done = self._done_bytes + _UNIT_BYTES * self._done_units
                left = elapsed * max(0.0, (self._bytes + _UNIT_BYTES * self._units) / done - 1.0)
                parts.append(f"{int(left // 60)}:{int(left % 60):02d} left")
        if self._failures:
            parts.append(f"{self._failures} unreadable")
        return ", ".join(parts)
