"""The child process in which hostile bytes are read: takes calls one after another, answers each, stays warm.

Calls (function, unit, key of the state folder) and outcomes go through two pipes of :mod:`multiprocessing.connection`,
whose descriptors the command line names, beside the parent and whether pandas is wanted. The child ends with its
parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from dataaudit.corpus.loss import Reason
from dataaudit.engine.admission import worker_versions
from dataaudit.engine.units import Outcome
from dataaudit.lean import be_lean
from dataaudit.sealing import take_key

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
        be_lean()
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
