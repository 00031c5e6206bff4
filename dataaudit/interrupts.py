"""Ctrl-C and SIGTERM: what a command that may be stopped does with them.

A signal is raised as :class:`KeyboardInterrupt` wherever the main thread is just then: in the import, the callback or
the destructor of a library, too, and some of these swallow what they do not know. So what has arrived is noted, and
raised again where a command tells of its progress.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from dataaudit.errors import BuildInterrupted

_BOTH = signal.SIGINT, signal.SIGTERM
_arrived: list[int] = []
"""Signals that were taken, in a process whose command takes them. No lock: a handler may interrupt itself."""


@contextmanager
def signals_taken() -> Iterator[None]:
    """Meanwhile SIGTERM is raised as Ctrl-C is; a process that ignores SIGINT, as one in the background, goes on to.

    Raises:
        KeyboardInterrupt: A signal was taken, also where something made another error of it.
    """
    taken = [number for number in _BOTH if number == signal.SIGTERM or callable(signal.getsignal(number))]
    _arrived.clear()
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


def _take(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    _arrived.append(number)
    raise KeyboardInterrupt


def raise_if_interrupted() -> None:
    """Raise again what a signal raised and something swallowed.

    Raises:
        KeyboardInterrupt: A signal was taken.
    """
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
    held = [number for number in _BOTH if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda arrived, _: asked.append(arrived)) for number in held}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)
        for arrived in dict.fromkeys(asked):
            signal.raise_signal(arrived)
