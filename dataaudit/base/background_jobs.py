"""Jobs that a thread does in turn, beside a loop that must not wait for them; it ends with the process."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from dataaudit.base.errors import CatchErrors

_LOG = logging.getLogger("dataaudit")


class Jobs:
    """Runs jobs one after another in a thread, which begins with the first; an error costs its job, and is logged."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], object]) -> None:
        """Have a job done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def wait(self, seconds: float) -> bool:
        """Return whether all jobs are done, after so many seconds at most."""
        with self._jobs.all_tasks_done:
            return self._jobs.all_tasks_done.wait_for(lambda: not self._jobs.unfinished_tasks, seconds)

    def close(self, seconds: float) -> None:
        """Wait for all jobs, so many seconds at most, and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(seconds)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            with CatchErrors() as call:
                job()
            if call.error is not None:
                _LOG.warning("%s: a job failed (%s); training goes on", self._name, call.origin)
            self._jobs.task_done()
