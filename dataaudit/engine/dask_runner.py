"""Runner on a Dask cluster: a sliding window of tasks, and three rounds for what goes wrong.

1. Units are batched by bytes. A batch that returns has an outcome for every unit.
2. A batch that does not return (its worker died twice, it ran out of time or memory, its input kept failing) is split:
   its units run as tasks of their own.
3. A unit that does not return then runs alone in a child process (:mod:`dataaudit.engine.sandbox`). The child's death
   is the unit's fault, the worker's is not.

Units whose bytes go through a native parser that hostile ones can crash (``isolated``) run in the worker's warm child
from the first round on. So a worker that is killed, out of memory or stuck costs time, never a number.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dataaudit.base.errors import CatchErrors, ClusterError
from dataaudit.base.process import raise_if_interrupted
from dataaudit.base.sealing import key_here, take_key
from dataaudit.base.text import plural
from dataaudit.engine.cluster import Cluster, Terms, problem_here
from dataaudit.engine.runner import Outcome, Together, Unit, finish, sizes_of, unit_limit
from dataaudit.engine.sandbox import run_alone, run_together_alone
from dataaudit.scan.detectors.judges import quiet

MAX_TASK_BYTES = 1 << 30
MAX_TASKS = 50_000
MAX_TASK_PIECES = 512
"""Parts, or what takes about as long as one, of a task: some seconds, without progress; and a full batch."""
_TOPIC = "dataaudit-start"
_WINDOW = 4
_ALONE_TRIES = 20
_ATTEMPTS = 2
"""A unit that ran out of time in a warm child has its full time again in a fresh one."""
_DESERTED_SECONDS = 600.0
_FETCH_SECONDS = 30.0


@dataclass(slots=True)
class _Task:
    units: np.ndarray
    """int64[k] their indices."""
    round: int
    tries: int = 0
    future: Any = None
    key: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class DaskRunner:
    """Runs units on a cluster."""

    cluster: Cluster
    unit_seconds: float
    notes: list[str] = field(default_factory=list)
    _started: dict[str, tuple[float, str]] = field(default_factory=dict)
    _token: str = ""
    """In the key of every task of a run: no two runs, of whatever build, may meet under one key, for Dask would
    give the one the other's results."""
    _looked: float = 0.0
    _deserted: float = 0.0

    def __str__(self) -> str:
        dashboard = f", dashboard {self.cluster.dashboard}" if self.cluster.dashboard else ""
        return f"{plural(self.workers, 'worker')} on {', '.join(self.hosts)}{dashboard}"

    @property
    def workers(self) -> int:
        """Worker processes."""
        return self.cluster.num_workers

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where they are."""
        return self.cluster.hosts

    def run(
        self,
        name: str,
        function: Callable[[Any], Outcome],
        units: Sequence[Unit],
        on_outcome: Callable[[int, Outcome], object],
    ) -> None:
        """Run every unit and report each outcome once, in any order."""
        self._token = secrets.token_hex(8)
        self._started.clear()
        client = self.cluster.client
        waiting = deque(_Task(units=batch, round=1) for batch in self._batches(units))
        running: dict[str, _Task] = {}
        client.subscribe_topic(_TOPIC, self._note_start)
        try:
            while waiting or running:
                while waiting and len(running) < self._window(waiting[0]):
                    task = waiting.popleft()
                    self._submit(name, function, units, task)
                    running[task.key] = task
                for task in self._finished(running):
                    del running[task.key]
                    outcomes = self._outcomes(task)
                    if outcomes is None:
                        waiting.extendleft(reversed(self._again(task)))
                        continue
                    for index, outcome in zip(task.units.tolist(), outcomes, strict=True):
                        if outcome.fault is not None:
                            raise ClusterError(*outcome.fault)
                        on_outcome(index, outcome)
        finally:
            futures = [task.future for task in running.values() if task.future is not None]
            with contextlib.suppress(Exception):  # the scheduler may be gone; that is reported already
                client.unsubscribe_topic(_TOPIC)
                client.cancel(futures, force=True)

    def _batches(self, units: Sequence[Unit]) -> list[np.ndarray]:
        """Cut the units into batches of total / (8 x workers) bytes.

        A batch holds at most 1 GiB and 512 parts, unless one unit is larger or there would be over 50,000
        batches. The largest units go first, so that no worker begins one when the others have nothing left to do.
        """
        sizes = sizes_of(units)
        total, shares = int(sizes.sum()), 8 * max(1, self.cluster.num_workers)
        target = max(min(MAX_TASK_BYTES, total // shares + 1), 4 * total // MAX_TASKS + 1)
        pieces = units[0].pieces if len(units) else 1
        most = max(1, min(MAX_TASK_PIECES // pieces, len(units) // shares), 3 * len(units) // MAX_TASKS)
        limit = max(MAX_TASK_BYTES, target)
        order = np.argsort(-sizes, kind="stable")
        starts: list[int] = []
        batch_bytes = target
        for place, size in enumerate(sizes[order].data):
            if batch_bytes >= target or batch_bytes + size > limit or place - starts[-1] >= most:
                starts.append(place)
                batch_bytes = 0
            batch_bytes += size
        return np.split(order, starts[1:]) if starts else []

    def _window(self, task: _Task) -> int:
        return self.cluster.num_workers if task.round == 3 else _WINDOW * self.cluster.num_workers

    def _submit(self, name: str, function: Callable[[Any], Outcome], units: Sequence[Unit], task: _Task) -> None:
        chosen = [units[index] for index in task.units.tolist()]
        task.tries += 1
        task.key = f"{name}-{self._token}-{task.units[0]}-{task.units[-1]}-{task.round}.{task.tries}"
        task.seconds = self.unit_seconds + sum(unit_limit(unit, 0.0) for unit in chosen)
        alone = task.round == 3
        if alone or any(unit.isolated for unit in chosen):  # the children's own limits come first
            task.seconds = 60 + _ATTEMPTS * sum(unit_limit(unit, self.unit_seconds) for unit in chosen)
        call = partial(
            run_batch,
            alone=alone,
            memory_limit=int(self.cluster.memory_limit * 0.95),
            unit_seconds=self.unit_seconds,
            terms=self.cluster.terms,
            state_key=key_here(),
        )
        task.future = self.cluster.client.submit(call, function, chosen, task.key, key=task.key, pure=False, retries=2)

    def _finished(self, running: dict[str, _Task]) -> list[_Task]:
        futures = [task.future for task in running.values()]
        with self.cluster.client.as_current():
            wait_for_any(futures)
        if self.cluster.client.status not in ("running", "connecting"):
            raise ClusterError(
                "the scheduler is gone; what was finished is kept", "Run the same command again to go on."
            )
        self._look_after_workers()
        keys = {task.key for task in running.values() if task.future.status != "pending"}
        now = time.monotonic()
        overdue = [
            task
            for task in running.values()
            if task.key not in keys and now - self._started.get(task.key, (now, ""))[0] > task.seconds
        ]
        for task in overdue:
            self._stop_stuck(task)
        return [task for task in running.values() if task.key in keys] + overdue

    def _look_after_workers(self) -> None:
        """Once a second, have lost workers replaced; give up when there has been none for long."""
        now = time.monotonic()
        if now - self._looked < 1.0:
            return
        self._looked = now
        if self.cluster.heal():
            self._deserted = 0.0
            return
        self._deserted = self._deserted or now
        if now - self._deserted > _DESERTED_SECONDS:
            raise ClusterError(
                f"there has been no worker for {_DESERTED_SECONDS:.0f} s; what was finished is kept",
                "Start workers with the same lock file (one that cannot import dataaudit leaves at its first task), "
                "then run the same command again to go on.",
            )

    def _stop_stuck(self, task: _Task) -> None:
        """Cancel a task that has run out of time and restart its worker."""
        started, worker = self._started.pop(task.key)
        self.notes.append(f"a task was stopped after {time.monotonic() - started:.0f} s and its work repeated")
        self.cluster.client.cancel([task.future], force=True)
        task.future = None
        # The worker may be gone already, or have no nanny; the task is repeated in any case.
        with contextlib.suppress(ValueError, KeyError, TimeoutError, OSError):
            self.cluster.client.restart_workers([worker], timeout=20, raise_for_error=False)

    def _outcomes(self, task: _Task) -> list[Outcome] | None:
        """Return the outcomes of a finished task, or None when it has to be repeated in pieces."""
        self._started.pop(task.key, None)
        future = task.future
        task.future = None
        if future is None:
            return None
        kind = future.status
        if kind == "finished":  # but its worker may die before the result is fetched, and none come in its place
            with CatchErrors() as call:
                outcomes: list[Outcome] = future.result(timeout=_FETCH_SECONDS)
                future.release()
                return outcomes
            kind = call.kind
        elif kind == "error":
            kind = type(future.exception()).__name__
        self.notes.append(f"{len(task.units)} unit(s) of work repeated after {kind}")
        future.release()
        return None

    def _again(self, task: _Task) -> list[_Task]:
        if task.round < 3:
            return [
                _Task(units=task.units[place : place + 1], round=task.round + 1) for place in range(len(task.units))
            ]
        if task.tries < _ALONE_TRIES:
            return [task]
        raise ClusterError(
            f"workers kept dying while one unit ran in a child process ({_ALONE_TRIES} times)",
            "The workers are being killed from outside; give them more memory or time, then run again.",
        )

    def _note_start(self, event: tuple[float, Any]) -> None:
        _, message = event
        if f"-{self._token}-" in message["key"]:  # other builds may use the scheduler too
            self._started[message["key"]] = (time.monotonic(), message["worker"])


def wait_for_any(futures: list[Any]) -> None:
    """Wait until a future has ended in whatever way, a second at most."""
    import distributed

    with contextlib.suppress(TimeoutError, CancelledError):  # a cancelled future has ended too
        distributed.wait(futures, timeout=1.0, return_when="FIRST_COMPLETED")
    raise_if_interrupted()


def run_batch(
    function: Callable[[Any], Outcome],
    units: list[Any],
    key: str,
    *,
    alone: bool,
    memory_limit: int,
    unit_seconds: float,
    terms: Terms,
    state_key: bytes = b"",
) -> list[Outcome]:
    """Run units on this worker, together where that is cheaper; an error of one fails the batch, which is then split.

    Whatever libraries print, warn or log meanwhile is dropped: it may be text of a document.
    """
    worker = _tell_start(key)
    take_key(state_key)
    if problem := problem_here(terms):
        return [Outcome(fault=(f"worker {worker} {problem[0]}", problem[1]))] * len(units)
    try:
        return _run_batch(function, units, alone=alone, memory_limit=memory_limit, unit_seconds=unit_seconds)
    except ClusterError as error:  # of its child: nothing that another try would mend
        return [Outcome(fault=(f"worker {worker}: {error.message}", error.hint))] * len(units)


def _run_batch(
    function: Callable[[Any], Outcome], units: list[Any], *, alone: bool, memory_limit: int, unit_seconds: float
) -> list[Outcome]:
    with quiet():
        done: dict[int, Outcome] = {}
        if isinstance(function, Together) and not alone:
            ours = [index for index, unit in enumerate(units) if not unit.isolated]
            done = dict(zip(ours, function.together([units[index] for index in ours]), strict=True))
            small = [index for index, unit in enumerate(units) if unit.isolated and function.gains(unit)]
            if len(small) > 1:
                theirs = [units[index] for index in small]
                found = run_together_alone(function, theirs, memory_limit=memory_limit, unit_seconds=unit_seconds)
                done |= zip(small, found or [], strict=False)
        outcomes = [
            done[index]
            if index in done
            else run_alone(function, unit, memory_limit=memory_limit, seconds=unit_limit(unit, unit_seconds))
            if alone or unit.isolated
            else function(unit)
            for index, unit in enumerate(units)
        ]
        finish(function, outcomes)
    return outcomes


def _tell_start(key: str) -> str:
    """Say that a task runs; return the worker's address."""
    from distributed import get_worker

    worker = get_worker()
    address: str = worker.address
    worker.log_event(_TOPIC, {"key": key, "worker": address})
    return address
