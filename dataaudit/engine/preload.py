"""What every local worker does first: leave Ctrl-C to the driver, serve no pages, keep libraries to one thread."""

from __future__ import annotations

import atexit
import os
import signal
from typing import Any

import pyarrow as pa

from dataaudit.base.process import be_lean
from dataaudit.engine.local_security import serve_no_pages
from dataaudit.engine.sandbox import end_child


def dask_setup(worker: Any) -> None:
    """Called by Dask in the worker's process; the name is Dask's."""
    serve_no_pages(worker)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    be_lean()


def dask_teardown(worker: Any) -> None:
    """Called by Dask when the worker closes; the name is Dask's.

    All that a worker leaves is on disk by then: taking tables of a tokenizer apart piece by piece only keeps the
    command from ending.
    """
    del worker
    end_child()
    atexit.register(os._exit, 0)  # registered last, so it runs first
