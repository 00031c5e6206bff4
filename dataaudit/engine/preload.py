"""What every local worker does first: leave Ctrl-C to the driver, and keep libraries to one thread."""

from __future__ import annotations

import signal
from typing import Any

import pyarrow as pa


def dask_setup(worker: Any) -> None:
    """Called by Dask in the worker's process; the name is Dask's."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
