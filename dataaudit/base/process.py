"""Tuning of processes that run only our code, and the signals that stop a command.

- pyarrow imports pandas, where it is installed, at the first array of NumPy's and at the first of Python's values, to
  see whether they are pandas' own. Ours never are.
- numba imports scipy's linear algebra, to see whether kernels may call it, and the extensions of all packages that
  have one for it: awkward has. No kernel of ours needs either.
- Python looks for cycles of dead objects after every 700 new ones: a twentieth of a scan, which leaves hardly any.

The first two ask once. What cannot be imported at that moment pyarrow and numba never use again; others import it as
ever. So this is for a command, a worker, a child, not for a notebook, and not for a process in which `datasets` reads
rows: it makes its tables of pandas' frames.

Ctrl-C and SIGTERM are raised as :class:`KeyboardInterrupt` wherever the main thread is just then: in the import, the
callback or the destructor of a library, too, and some of these swallow what they do not know. So a signal is noted, and
raised again where a command reports its progress.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import inspect
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from threading import Event
from types import FrameType, ModuleType
from typing import Any, NoReturn

from dataaudit.base.errors import BuildInterrupted


class _Hidden(MetaPathFinder):
    """Finds that there is no such module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Refuse one name, leave the others to other finders."""
        del path, target
        if name == self.name:
            raise ModuleNotFoundError(name)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Hide a module from imports, unless somebody has imported it already."""
    finder = _Hidden(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


_NEW_OBJECTS = 50_000
"""After which cycles are looked for."""
_lean = Event()
"""Set in a process that is lean."""


def tune_process(*, arrow: bool = True) -> None:
    """Do without pandas in pyarrow, from now on without scipy and extensions in numba, and with few collections."""
    _lean.set()
    gc.set_threshold(_NEW_OBJECTS)
    if arrow and "pandas" not in sys.modules:
        import numpy as np
        import pyarrow as pa

        with _hidden("pandas"):
            pa.array(np.zeros(1))
            pa.array([0])


def load_numba() -> Any:
    """Import numba, in a lean process without what our kernels do not need."""
    if not _lean.is_set() or "numba.np.arraymath" in sys.modules or "scipy.linalg" in sys.modules:
        import numba
    else:
        with _hidden("scipy.linalg"):
            import numba
            import numba.np.arraymath  # asks for it
        from numba.core import entrypoints

        entrypoints.init_all = lambda: None  # no setting leaves the extensions out
    return numba


def release_arrow() -> None:
    """Return to the system what Arrow has freed: its allocator keeps that for a while, and counts it as used."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def give_memory_back() -> None:
    """Return free memory to the system: arrays of one kind of work leave holes that do not fit those of another."""
    with contextlib.suppress(OSError, AttributeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


_BOTH = signal.SIGINT, signal.SIGTERM
_arrived: list[int] = []
"""Signals that were taken, in a process whose command takes them. No lock: a handler may interrupt itself."""
_within: list[FrameType] = []
"""What these commands are called in."""


@contextmanager
def signals_taken() -> Iterator[None]:
    """Meanwhile SIGTERM is raised as Ctrl-C is; a process that ignores SIGINT, as one in the background, goes on to."""
    taken = [number for number in _BOTH if number == signal.SIGTERM or callable(signal.getsignal(number))]
    _arrived.clear()
    _within.append(inspect.stack(0)[2].frame)
    before = [(number, signal.signal(number, _take)) for number in taken]
    try:
        yield
    except Exception as error:
        if _arrived and not isinstance(error, BuildInterrupted):
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        _arrived.clear()
        _within.pop()


def _take(number: int, frame: FrameType | None) -> None:
    """Raise Ctrl-C; in an import, once that is done: code in C that imports prints what is raised, and goes on."""
    _arrived.append(number)
    importer = None
    while frame is not None and frame is not _within[-1]:
        importer = frame.f_back if frame.f_code.co_filename.startswith("<frozen importlib") else importer
        frame = frame.f_back
    if importer is None:
        raise KeyboardInterrupt
    importer.f_trace = _interrupt
    sys.settrace(lambda *_: None)


def _interrupt(*_: object) -> NoReturn:
    sys.settrace(None)
    raise KeyboardInterrupt


def raise_if_interrupted() -> None:
    """Raise again what a signal raised and something swallowed."""
    if _arrived:
        raise KeyboardInterrupt


@contextmanager
def signals_held() -> Iterator[None]:
    """While workers start, SIGINT and SIGTERM wait, as far as the caller handles them; then his handlers get them.

    SIGINT is blocked, not ignored: the workers inherit the block (Ctrl-C is the driver's), and what arrives
    meanwhile is delivered when the block is lifted. But a block holds for the calling thread alone: a thread of a
    library that is running already (OpenBLAS has some) takes the signal all the same, so it is noted, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # it lifts the block in the thread that starts it
    asked: list[int] = []
    handled = [number for number in _BOTH if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda arrived, _: asked.append(arrived)) for number in handled}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)
        for arrived in dict.fromkeys(asked):
            signal.raise_signal(arrived)
