"""A suspect part, alone in a child process: a crash, a hang or a greedy allocation costs one shard.

The child reads a pickled (function, unit) from its standard input and writes a pickled outcome to a file. It
dies with its parent. The parent watches its memory and its time, and turns whatever happens into a value.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dataaudit.corpus.loss import Reason
from dataaudit.engine.units import Outcome

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.05
_DEATHS = 2
_INPUT_ERRORS = 3
_NO_ANSWER = 75
"""Exit code of a child that cannot write its answer."""


def run_alone(function: Callable[[Any], Outcome], unit: Any, *, memory_limit: int, seconds: float) -> Outcome:
    """Run ``function(unit)`` in a child process; never raises for what the unit does.

    Args:
        function: Picklable.
        unit: Picklable.
        memory_limit: Resident bytes the child may use; 0 for no limit.
        seconds: Time it may take.

    Raises:
        OSError: No child can be started here, or its answer cannot be written: the machine's fault.
    """
    deaths: list[str] = []
    input_errors = 0
    while len(deaths) < _DEATHS and input_errors < _INPUT_ERRORS:
        outcome = _attempt(function, unit, memory_limit, seconds)
        if isinstance(outcome, Outcome):
            return outcome
        if outcome == "input error":
            input_errors += 1
            time.sleep(0.2 * input_errors)
        else:
            deaths.append(outcome)
    if input_errors:
        return Outcome(reason=Reason.IO_ERROR)
    return Outcome(reason=Reason.WORKER_DIED, place=deaths[-1])


def _attempt(function: Callable[[Any], Outcome], unit: Any, memory_limit: int, seconds: float) -> Outcome | str:
    with tempfile.TemporaryDirectory(prefix="dataaudit-") as folder:
        answer = Path(folder) / "outcome"
        child = subprocess.Popen(
            [sys.executable, "-m", "dataaudit.engine.child", str(answer), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert child.stdin is not None
            try:
                child.stdin.write(pickle.dumps((function, unit)))
                child.stdin.close()
            except BrokenPipeError:
                pass
            ended = _watch(child, memory_limit, time.monotonic() + seconds)
        finally:
            child.kill()
            child.wait()
        if isinstance(ended, Outcome):
            return ended
        if ended == _NO_ANSWER:
            raise OSError(errno.ENOSPC, "a child process cannot write its answer", folder)
        if ended == 0 and answer.is_file():
            result: Outcome | str = pickle.loads(answer.read_bytes())  # noqa: S301 - written by our own child
            return result
        return f"signal {signal.Signals(-ended).name}" if ended < 0 else f"exit code {ended}"


def _watch(child: subprocess.Popen[bytes], memory_limit: int, deadline: float) -> int | Outcome:
    while (code := child.poll()) is None:
        if memory_limit and _resident_bytes(child.pid) > memory_limit:
            return Outcome(reason=Reason.OUT_OF_MEMORY)
        if time.monotonic() > deadline:
            return Outcome(reason=Reason.TIMED_OUT)
        time.sleep(_POLL_SECONDS)
    return code


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answer, parent = Path(sys.argv[1]), int(sys.argv[2])
    if os.getppid() != parent:
        sys.exit(1)  # the parent died before the line above
    function, unit = pickle.load(sys.stdin.buffer)  # noqa: S301 - sent by our own parent
    try:
        outcome: Outcome | str = function(unit)
    except MemoryError:
        outcome = Outcome(reason=Reason.OUT_OF_MEMORY)
    except OSError:
        outcome = "input error"
    try:
        answer.write_bytes(pickle.dumps(outcome))
    except OSError:
        sys.exit(_NO_ANSWER)


if __name__ == "__main__":
    _main()
