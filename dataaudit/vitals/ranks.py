"""Sums of whole numbers over all ranks, taken in a thread: training waits for no other rank.

A rank announces itself in the store of the default group. When all have, they form a group of their own, over gloo, and
sum a table at the end of every window: an all_reduce each. So every rank makes vitals of the same layers, with the same
settings, in the same order. Where a rank does not come within a minute, or adds another window, sums end, and why is
reported.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from dataaudit.base.errors import CatchErrors
from dataaudit.base.statistics import Floats, Ints

_WAITS = timedelta(seconds=60)
_POLLS = 0.1
"""Seconds between two looks at who has come."""
_ENDS = 5.0
"""Seconds that closing waits for a sum."""
_NUMBERS = itertools.count()
"""Of those that a process has made: all ranks make them in one order."""
_ALONE = "counts are of this rank alone: not every rank made vitals of this model with these settings"


def ranks() -> int:
    """Return the ranks of the default group; 1 where there is none."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


class RankSums:
    """Sums tables in the order in which they are handed over; ``name`` is of the settings that ranks share."""

    def __init__(self, name: str) -> None:
        self.why = ""
        """Why tables are of this rank alone; empty where they are of all."""
        self._windows, self._closed = 0, False
        name = f"{next(_NUMBERS)} {name}"
        self._given: queue.Queue[Ints | None] = queue.Queue()
        self._sums: queue.Queue[Ints] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(name,), daemon=True, name="dataaudit-ranks")
        self._thread.start()

    def submit(self, table: Ints) -> None:
        """Take a window's table, int64[n]."""
        self._windows += 1
        self._given.put(np.append(table, self._windows))

    def newest(self, local: Floats) -> Floats:
        """Return a sum that has come and was not returned yet; NaN where none has, ``local`` where ranks do not sum."""
        if self.why:
            return local
        try:
            return self._sums.get_nowait().astype(np.float64)
        except queue.Empty:
            return np.full(len(local), np.nan)

    def close(self) -> None:
        """End the thread, and wait for what it is at."""
        self._closed = True
        self._given.put(None)
        self._thread.join(_ENDS)

    def _run(self, name: str) -> None:
        with CatchErrors() as guarded:
            self._sum(name)
        if guarded.error is not None:
            self.why = f"{_ALONE} ({guarded.origin})"

    def _sum(self, name: str) -> None:
        distributed: Any = torch.distributed
        rank, number = distributed.get_rank(), distributed.get_world_size()
        own = distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no public name for it
        store = distributed.PrefixStore(f"dataaudit/{name}", own)
        store.set(str(rank), "here")
        until = time.monotonic() + _WAITS.total_seconds()
        while not store.check([str(item) for item in range(number)]):
            if self._closed or time.monotonic() > until:
                raise TimeoutError
            time.sleep(_POLLS)
        group = distributed.ProcessGroupGloo(store, rank, number, _WAITS)
        while (table := self._given.get()) is not None:
            total = torch.from_numpy(table.copy())
            group.allreduce([total]).wait()
            if total[-1] != number * table[-1]:
                raise RuntimeError("ranks are in different windows")
            self._sums.put(total[:-1].numpy())
