"""Rules judged in a process of their own, so that who shows a run is not slowed by who judges it."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from dataaudit.base.errors import CatchErrors
from dataaudit.live.judging import State
from dataaudit.live.rules import Rule, load_alerts
from dataaudit.live.watch import Watch

_CLOSE_SECONDS = 40.0


class WatchProcess:
    """A :class:`Watch` in a child process: evidence and messages are its own, states come through a pipe.

    Args:
        runlog: Folder of the run log.
        file: An ``alerts.yaml``; the shipped rules without a file.
        log: A file whose end is evidence.
        send: Whether messages are sent.
        interval: Seconds between two looks.

    Raises:
        ConfigError: The rules are none.
    """

    def __init__(self, runlog: Path, file: Path | None, *, log: Path | None, send: bool, interval: float) -> None:
        self.rules: tuple[Rule, ...] = load_alerts(file).rules
        self.judged_step = 0
        """The step up to which rules were judged."""
        self.failed = ""
        """What the newest look failed by, if it did; "ended" where the process is gone."""
        self._states: list[State] = []
        context = multiprocessing.get_context("spawn")  # threads of this process are not copied
        self._pipe, other = context.Pipe()
        arguments = (other, runlog, file, log, send, interval)
        self._process = context.Process(target=_judge, args=arguments, name="dataaudit-judge", daemon=True)
        self._process.start()
        other.close()

    def states(self) -> list[State]:
        """Return how each rule stands, as of the newest look that is done; nothing before the first."""
        with suppress(EOFError, OSError):
            while self._pipe.poll():
                self._states, self.judged_step, self.failed = self._pipe.recv()
        if not self._process.is_alive():
            self.failed = "ended"
        return self._states

    def close(self) -> None:
        """End it when what waits is written and sent, or after some seconds."""
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(_CLOSE_SECONDS)
        self._process.terminate()
        self._pipe.close()


def _judge(pipe: Connection, runlog: Path, file: Path | None, log: Path | None, send: bool, interval: float) -> None:
    """Look again and again, until the other side says or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the other side ends this
    watch = Watch(runlog, load_alerts(file), log=log, send=send)
    try:
        while True:
            with CatchErrors() as call:
                watch.look()
            states, step = watch.states(), watch.judged_step
            pipe.send((states, step, "" if call.error is None else call.origin))
            if pipe.poll(interval):
                pipe.recv()
                return
    except (EOFError, OSError):
        return
    finally:
        watch.close()
