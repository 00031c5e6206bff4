"""Runner in the caller's process, one unit after another, without Dask: for notebooks, debuggers, small corpora.

The process keeps its threads, limits, signals and output.

- Units whose bytes can crash their reader run in the warm child of :mod:`dataaudit.engine.sandbox`.
- Any other that crashes ends the process. Its marker in the state folder stays, so the next run gives the unit to the
  child, where a crash costs that shard alone. The marker goes when the unit comes back whole.
- An input error is tried again; a unit that runs out of memory here is tried in the child.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataaudit.base.errors import ClusterError
from dataaudit.engine.cluster import ClusterChoice, memory_bytes
from dataaudit.engine.runner import Outcome, Together, Unit, finish, unit_limit
from dataaudit.engine.sandbox import end_child, run_alone, run_together_alone
from dataaudit.engine.store import PartialStore
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.detectors.judges import quiet, silenced

_INPUT_TRIES = 3
_TOGETHER = 64
"""Units that are in work at once, each with its marker."""
_PAUSE_SECONDS = 0.2
_FINISHED_UNITS = 256


@contextmanager
def open_process(
    choice: ClusterChoice, state: Path, *, unit_seconds: float, notes: list[str]
) -> Iterator[ProcessRunner]:
    """Run units in this process; on leaving, its child ends."""
    limit = 0 if choice.memory_limit == "auto" else memory_bytes(choice.memory_limit)
    try:
        yield ProcessRunner(
            store=PartialStore(state),
            unit_seconds=unit_seconds,
            notes=notes,
            memory_limit=limit,
            isolate=choice.isolate,
        )
    finally:
        end_child()


@dataclass(slots=True, kw_only=True)
class ProcessRunner:
    """Runs units in this process."""

    store: PartialStore
    """Its folder ``in-work`` holds a marker for each unit in work."""
    unit_seconds: float
    """Time that a unit may take in the child, beside that for its size; here nothing is stopped."""
    notes: list[str] = field(default_factory=list)
    memory_limit: int = 0
    """Resident bytes that this process and its child may use; 0 for no limit."""
    isolate: bool = True
    """Whether there is a child; without one a debugger sees every unit, and hostile bytes may end the process."""

    def __str__(self) -> str:
        return "none, the work is done in this process"

    @property
    def _folder(self) -> Path:
        return self.store.root / "in-work"

    @property
    def workers(self) -> int:
        """None but this process."""
        return 0

    @property
    def hosts(self) -> tuple[str, ...]:
        """This machine."""
        return (platform.node(),)

    def run(
        self,
        name: str,
        function: Callable[[Any], Outcome],
        units: Sequence[Unit],
        on_outcome: Callable[[int, Outcome], object],
    ) -> None:
        """Run every unit in order; see :meth:`dataaudit.engine.runner.Runner.run`."""
        outcomes: list[Outcome] = []
        with silenced:
            for index, outcome in self._outcomes(name, function, units):
                if outcome.fault is not None:
                    raise ClusterError(*outcome.fault)
                outcomes.append(outcome)
                if len(outcomes) == _FINISHED_UNITS:
                    finish(function, outcomes)
                    outcomes.clear()
                on_outcome(index, outcome)
            finish(function, outcomes)

    def _outcomes(
        self, name: str, function: Callable[[Any], Outcome], units: Sequence[Unit]
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcome of every unit; those that run in this process in groups, if the work is cheaper so."""
        crashed = self._crashed()
        most = _TOGETHER if isinstance(function, Together) else 1
        ours: dict[int, Path] = {}
        theirs: list[int] = []
        for index, unit in enumerate(units):
            marker = self._folder / hashlib.sha256(os.fsencode(f"{name} {unit.name}")).hexdigest()
            if self.isolate and unit.isolated and isinstance(function, Together) and function.gains(unit):
                theirs.append(index)
                if len(theirs) >= most:
                    yield from self._together_in_child(function, units, theirs)
                    theirs = []
                continue
            if self.isolate and (unit.isolated or marker.name in crashed):
                outcome = self._in_child(function, unit)
                if marker.name in crashed:
                    self.notes.append("a unit of work whose process had ended was run in a child process")
                    if outcome.reason is None:
                        marker.unlink(missing_ok=True)
                yield index, outcome
                continue
            ours[index] = marker
            if len(ours) >= most:
                yield from self._together_here(function, units, ours)
                ours = {}
        yield from self._together_here(function, units, ours)
        if theirs:
            yield from self._together_in_child(function, units, theirs)

    def _together_in_child(
        self, function: Callable[[Any], Outcome], units: Sequence[Unit], indices: Sequence[int]
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcomes of some units that only ever run in a child process."""
        outcomes = None
        if isinstance(function, Together) and len(indices) > 1:
            chosen = [units[index] for index in indices]
            outcomes = run_together_alone(
                function, chosen, memory_limit=self.memory_limit, unit_seconds=self.unit_seconds
            )
        yield from zip(indices, outcomes or (self._in_child(function, units[index]) for index in indices), strict=True)

    def _together_here(
        self, function: Callable[[Any], Outcome], units: Sequence[Unit], markers: Mapping[int, Path]
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcomes of some units, each of which has its marker meanwhile."""
        chosen = [units[index] for index in markers]
        with contextlib.ExitStack() as stack:
            for marker in markers.values():
                stack.enter_context(self._marked(marker))
            outcomes = []
            with quiet():
                if isinstance(function, Together) and len(chosen) > 1:
                    with contextlib.suppress(OSError, MemoryError):
                        outcomes = function.together(chosen)
                outcomes = outcomes or [self._here(function, unit) for unit in chosen]
        yield from zip(markers, outcomes, strict=True)

    def _in_child(self, function: Callable[[Any], Outcome], unit: Unit) -> Outcome:
        return run_alone(function, unit, memory_limit=self.memory_limit, seconds=unit_limit(unit, self.unit_seconds))

    def _here(self, function: Callable[[Any], Outcome], unit: Unit) -> Outcome:
        for tries in range(1, _INPUT_TRIES + 1):
            try:
                return function(unit)
            except MemoryError:
                return self._in_child(function, unit) if self.isolate else Outcome(reason=Reason.OUT_OF_MEMORY)
            except OSError:
                time.sleep(_PAUSE_SECONDS * tries)
        return Outcome(reason=Reason.IO_ERROR)

    def _crashed(self) -> frozenset[str]:
        """Return the names of the markers that no living process holds."""
        names = []
        with self.store.writing():
            self._folder.mkdir(exist_ok=True)
            for path in self._folder.iterdir():
                with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as handle:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    names.append(path.name)
        return frozenset(names)

    @contextmanager
    def _marked(self, path: Path) -> Iterator[None]:
        """Keep a marker, locked, while a unit is in work; it stays when the process ends before the unit does."""
        with self.store.writing():
            handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            with contextlib.suppress(OSError):  # another build works on the same unit, or nothing can be locked there
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(handle)
