"""Work of the host on what a device has sent there: solvers of a device would make the training loop wait.

A device makes small matrices, and copies them; the host solves them. On a CPU that happens at once. Beside a GPU a
thread does it while training goes on, and numbers come with a later step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dataaudit.base.async_copy import AsyncCopy
from dataaudit.base.background_jobs import Jobs
from dataaudit.base.errors import CatchErrors

_DONE = 5.0
"""Seconds that closing waits for work that has begun."""


class Job:
    """Work on copies of some tensors; its result is there when :attr:`done`."""

    def __init__(self, tensors: Sequence[torch.Tensor], work: Callable[..., Any]) -> None:
        self._copies, self._work = [AsyncCopy(item) for item in tensors], work
        self.done = False
        self.result: Any = None
        """None where the work failed, as :attr:`why` says."""
        self.why = ""

    def run(self) -> None:
        """Wait for the copies, and do the work."""
        with CatchErrors() as guarded:
            self.result = self._work(*(np.asarray(item.numpy()) for item in self._copies))
        self.why = "" if guarded.error is None else guarded.origin
        self._copies = []
        self.done = True


class HostWork:
    """Does jobs one after another: on a CPU when they are handed over, beside a GPU in a thread."""

    def __init__(self, device: torch.device) -> None:
        self._jobs = None if device.type == "cpu" else Jobs("dataaudit-vitals")

    def submit(self, tensors: Sequence[torch.Tensor], work: Callable[..., Any]) -> Job:
        """Copy tensors to the host, and do the work there; ``work`` is given NumPy arrays."""
        job = Job(tensors, work)
        if self._jobs is None:
            job.run()
        else:
            self._jobs.put(job.run)
        return job

    def close(self) -> None:
        """End the thread."""
        if self._jobs is not None:
            self._jobs.close(_DONE)
