"""How much of a step goes into computing and into talking to other ranks: sampled windows of torch's profiler.

A window is one step. ``comm_time_frac`` is the part of it in which a collective was under way, ``compute_time_frac``
that in which an operator, or a kernel of the device, was; both may be at once, and what is left is neither: Python, the
loader. A profiled step is slower, and on a GPU it waits for the device twice, so windows are asked for, and few.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dataaudit.guarded import Guarded

_KERNELS = frozenset({"kernel", "concurrent_kernel"})
_COLLECTIVES = ("gloo:", "mpi:")
_OPERATORS = ("aten::", "Optimizer.step#")
Intervals = npt.NDArray[np.int64]


@dataclass(slots=True)
class Window:
    """A profiled step, whose events nobody has looked at yet."""

    step: int
    seconds: float
    events: Any
    """Of kineto: a list-like of events with name, start_ns, duration_ns."""


class Profiled:
    """Profiles one step in so many.

    Args:
        every: Steps between two windows; 0: none.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.refused = ""
        """Why no window could be opened, once that was so."""
        self._profile: Any = None
        self._began = 0.0

    def begin(self, step: int) -> None:
        """Open a window where the step that begins is one of the sampled ones."""
        if not self.every or step % self.every or self.refused:
            return
        import torch
        from torch import profiler

        if getattr(torch.autograd.profiler, "_is_profiler_enabled", False):
            self.refused = "another profiler is running"
            return
        activities = [profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            activities.append(profiler.ProfilerActivity.CUDA)
        with Guarded() as call:
            held = profiler.profile(activities=activities)
            held.start()
            self._profile, self._began = held, time.perf_counter()
        if call.error is not None:
            self.refused = f"torch's profiler could not be started ({call.kind})"

    def end(self, step: int) -> Window | None:
        """Close the window of a step, if it has one."""
        held, self._profile = self._profile, None
        if held is None:
            return None
        seconds = time.perf_counter() - self._began
        with Guarded() as call:
            held.stop()
            return Window(step, seconds, held.profiler.kineto_results.events())
        self.refused = f"torch's profiler could not be read ({call.kind})"
        return None


def fractions(window: Window) -> dict[tuple[str, str], float]:
    """Return the parts of a window by metric and stat."""
    comm, compute = _intervals(window.events)
    length = max(1.0, window.seconds * 1e9)
    talking, computing = _length(comm), _length(compute)
    both = talking + computing - _length(np.concatenate([comm, compute]))
    return {
        ("comm_time_frac", "value"): min(1.0, talking / length),
        ("comm_time_frac", "exposed"): min(1.0, (talking - both) / length),
        ("compute_time_frac", "value"): min(1.0, computing / length),
    }


def _intervals(events: Iterable[Any]) -> tuple[Intervals, Intervals]:
    """Return first and last nanosecond of collectives and of what computes; on a device where one was used."""
    found: dict[str, list[tuple[int, int]]] = {"comm": [], "compute": [], "device comm": [], "device compute": []}
    for one in events:
        name, start = one.name(), one.start_ns()
        if one.device_type().name != "CPU":
            if str(one.activity_type()) in _KERNELS:
                kind = "device comm" if "nccl" in name.lower() or "rccl" in name.lower() else "device compute"
                found[kind].append((start, start + one.duration_ns()))
        elif name.startswith(_COLLECTIVES):
            found["comm"].append((start, start + one.duration_ns()))
        elif name.startswith(_OPERATORS):
            found["compute"].append((start, start + one.duration_ns()))
    device = found["device comm"] or found["device compute"]
    comm = [*found["device comm"], *found["comm"]]
    compute = found["device compute" if device else "compute"]
    return np.array(comm, np.int64).reshape(-1, 2), np.array(compute, np.int64).reshape(-1, 2)


def _length(intervals: Intervals) -> int:
    """Return the length of the union of some intervals."""
    if not len(intervals):
        return 0
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ordered[:, 1])
    starts = np.maximum(ordered[1:, 0], ends[:-1])
    return int(ends[0] - ordered[0, 0] + np.maximum(ordered[1:, 1] - starts, 0).sum())
