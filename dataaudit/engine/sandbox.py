"""Sandbox: units in a child process, where a crash, a hang or a greedy allocation costs the unit alone.

The child stays warm for the next unit, and is replaced after anything went wrong. The parent watches its memory and
time. A child that has read other units may have been harmed by them, so no unit is blamed before it has failed in a
fresh one.

Calls (function, unit, key of the state folder) and outcomes go through two pipes of :mod:`multiprocessing.connection`.
The command line names their descriptors, the parent, and whether pandas is wanted. A thread takes the answers, so one
that stops halfway is noticed. Answers are pickles, which can run code here; but the child has our rights anyway.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from dataaudit.base.errors import CatchErrors, ClusterError
from dataaudit.base.process import tune_process
from dataaudit.base.sealing import key_here, take_key
from dataaudit.engine.plan import differences, worker_versions
from dataaudit.engine.runner import Outcome, Together, Unit, unit_limit, wants_pandas
from dataaudit.scan.corpus.loss import Reason

READY = "ready "
"""Begins the first answer of all: the child takes calls; the versions that it runs follow, as JSON."""
INPUT_ERROR = "input error"
"""Answer of a call that raised OSError: it may pass, so the parent decides."""
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "268435456",
}
"""Environment of processes that do the work. Memory is not given back at once, as Dask advises: every batch needs the
same arrays again, and getting their pages anew from the kernel was a fifth of a worker's time."""
_PR_SET_PDEATHSIG = 1


def _call(function: Callable[[Any], Outcome | list[Outcome]], unit: Any) -> Outcome | list[Outcome] | str:
    try:
        return function(unit)
    except MemoryError:
        return Outcome(reason=Reason.OUT_OF_MEMORY)
    except OSError:
        return INPUT_ERROR


def main() -> None:
    """Serve calls until the parent closes its end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    calls, answers, parent, with_pandas = map(int, sys.argv[1:])
    if os.getppid() != parent:
        sys.exit(1)  # the parent died before the line above
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if not with_pandas:
        tune_process()
    source, sink = Connection(calls, writable=False), Connection(answers, readable=False)
    sink.send(READY + json.dumps(worker_versions()))
    while True:
        try:
            function, unit, key = source.recv()
        except EOFError:
            break
        take_key(key)
        sink.send(_call(function, unit))
    os._exit(0)


if __name__ == "__main__":
    main()

_POLL_SECONDS = 0.05
_DEATHS = 2
_INPUT_ERRORS = 3
_START_SECONDS = 120.0
_LAST_SECONDS = 5.0
_Outcomes = Outcome | list[Outcome]
_Call = tuple[Callable[[Any], _Outcomes], Any]
_Answer = _Outcomes | str | Exception | None
"""What a child says; an error of ours while that is read, which is raised; None when it says nothing any more."""


def run_alone(function: Callable[[Any], Outcome], unit: Any, *, memory_limit: int, seconds: float) -> Outcome:
    """Run ``function(unit)`` in the child process of this process; never raises for what the unit does."""
    with _LOCK:
        return _run((function, unit), memory_limit, seconds)


def run_together_alone(
    function: Together, units: Sequence[Unit], *, memory_limit: int, unit_seconds: float
) -> list[Outcome] | None:
    """Run several units at once in the child process of this process."""
    seconds = unit_seconds + sum(unit_limit(unit, 0.0) for unit in units)
    with _LOCK:
        child = _warm_child(any(map(wants_pandas, units)))
        answer = child.ask((function.together, list(units)), memory_limit, seconds)
        if isinstance(answer, list):
            return answer
        if answer != INPUT_ERROR:
            _drop()
        return None


def _run(call: tuple[Callable[[Any], Outcome], Any], memory_limit: int, seconds: float) -> Outcome:
    deaths: list[str] = []
    input_errors = 0
    while len(deaths) < _DEATHS and input_errors < _INPUT_ERRORS:
        child = _warm_child(wants_pandas(call[1]))
        fresh = child.calls == 0
        answer = child.ask(call, memory_limit, seconds)
        if isinstance(answer, Outcome):
            if answer.reason in (Reason.OUT_OF_MEMORY, Reason.TIMED_OUT):
                _drop()
                if not fresh:
                    continue
            return answer
        if answer == INPUT_ERROR:
            input_errors += 1
            time.sleep(0.2 * input_errors)
        else:
            assert isinstance(answer, str), "one unit has one outcome"
            _drop()
            deaths.append(answer)
    if len(deaths) == _DEATHS:
        return Outcome(reason=Reason.WORKER_DIED, place=deaths[-1])
    return Outcome(reason=Reason.IO_ERROR)


class _Child:
    """One child process and the pipes to it."""

    def __init__(self, *, with_pandas: bool) -> None:
        self.with_pandas = with_pandas
        self.calls = 0
        self._ready = False
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        their_calls, self._calls = Pipe(duplex=False)
        ours, their_answers = Pipe(duplex=False)
        with their_calls, their_answers:
            threading.Thread(target=_take, args=(ours, self._answers), daemon=True).start()
            theirs = their_calls.fileno(), their_answers.fileno()
            given = (*theirs, os.getpid(), int(with_pandas))
            try:
                self._process = subprocess.Popen(  # -P: nothing is imported from the folder that a build runs in
                    [sys.executable, "-P", "-m", "dataaudit.engine.sandbox", *map(str, given)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, **ONE_THREAD},
                    pass_fds=theirs,
                )
            except BaseException:
                self._calls.close()
                raise

    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, call: _Call, memory_limit: int, seconds: float) -> _Outcomes | str:
        """Return the outcome of a call, or how the child died."""
        self._await_start()
        self.calls += 1
        try:
            self._calls.send((*call, key_here()))
        except BrokenPipeError:
            return self._death()
        return self._answer(memory_limit, time.monotonic() + seconds)

    def _await_start(self) -> None:
        """Wait until the child takes calls."""
        if self._ready:
            return
        answer = self._answer(0, time.monotonic() + _START_SECONDS)
        if not isinstance(answer, str) or not answer.startswith(READY):
            _drop()
            raise OSError(errno.EAGAIN, f"a child process does not start: {answer}")
        if differing := differences(worker_versions(), json.loads(answer.removeprefix(READY))):
            _drop()
            raise ClusterError(
                f"other libraries were installed while the build ran: {differing} in a process that starts now",
                "Run the same command again; what was finished with the old ones is not taken for the new ones'.",
            )
        self._ready = True

    def _answer(self, memory_limit: int, deadline: float) -> _Outcomes | str:
        """Return the child's next answer, or how it died."""
        while True:
            try:
                answer = self._answers.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if memory_limit and _resident_bytes(self._process.pid) + _resident_bytes(os.getpid()) > memory_limit:
                    return Outcome(reason=Reason.OUT_OF_MEMORY)
                if time.monotonic() > deadline:
                    return Outcome(reason=Reason.TIMED_OUT)
            else:
                if isinstance(answer, Exception):
                    _drop()
                    raise answer
                return self._death() if answer is None else answer

    def _death(self) -> str:
        """Return how the child ended; one that says nothing more and stays is ended."""
        try:
            code = self._process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """Kill the process; who waits for its answer learns of its death."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process and close the pipe of calls; the thread closes the other when it has come to its end."""
        self.kill()
        self._process.wait()
        self._calls.close()


def _take(source: Connection, answers: queue.SimpleQueue[_Answer]) -> None:
    """Hand on what a child says until it ends, maybe within an answer."""
    with source:
        while True:
            with CatchErrors() as call:
                answers.put(source.recv())
            if call.error is not None:
                answers.put(None if isinstance(call.error, EOFError | OSError) else call.error)
                return


_LOCK = threading.Lock()
_children: list[_Child] = []


def _warm_child(with_pandas: bool) -> _Child:
    """Return the child of this process; one that has died, or is of the other kind, is replaced."""
    if _children and (not _children[0].alive() or _children[0].with_pandas != with_pandas):
        _drop()
    if not _children:
        _children.append(_Child(with_pandas=with_pandas))
    return _children[0]


def _drop() -> None:
    _children.pop().end()


def end_child() -> None:
    """End the child of this process, if there is one, also while another thread waits for its answer."""
    if not _LOCK.acquire(blocking=False):
        for child in _children:
            child.kill()
        return
    try:
        if _children:
            _drop()
    finally:
        _LOCK.release()


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
