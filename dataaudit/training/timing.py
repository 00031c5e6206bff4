"""Where the time of a step goes: the host's clock, how busy its GPU is, and sampled windows of torch's profiler.

A window is one step. ``comm_time_frac`` is the part of it in which a collective was under way, ``compute_time_frac``
that in which an operator, or a kernel of the device, was; both may be at once, and what is left is neither: Python, the
loader. A profiled step is slower, and on a GPU it waits for the device twice, so windows are asked for, and few.

NVIDIA's management library (``nvidia-ml-py``) says how busy a GPU is and how much of its memory is used. Seconds are
read from a clock that no one sets, and go to the log alone: nothing that must be reproducible depends on
them. On a GPU they are the host's: a wait that the device's queue hides is counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dataaudit.base.errors import CatchErrors

T = TypeVar("T")
SECONDS = 10.0
"""Between two samples."""
SET_SECONDS = 1.0
"""By which the clock of the machine was set, or the machine slept: a step ended when others' clocks say so."""
_KERNELS = frozenset({"kernel", "concurrent_kernel"})
_COLLECTIVES = ("gloo:", "mpi:")
_OPERATORS = ("aten::", "Optimizer.step#")
Intervals = npt.NDArray[np.int64]


class StepClock:
    """Times the steps of a process; with several ranks, the time before they meet is kept."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._offset = time.time() - time.perf_counter()
        self._end = time.perf_counter()
        self._since = self._end
        self._waited: float | None = None
        self._batch = self._end
        self._first = True

    def loader(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches of a loader; what it takes until a batch is there is what the loop waits."""
        began = time.perf_counter()
        for batch in batches:
            self.waited(time.perf_counter() - began)
            yield batch
            began = time.perf_counter()

    def waited(self, seconds: float) -> None:
        """Add to what the loop waited in this step."""
        self._waited = (self._waited or 0.0) + seconds

    def arrived(self) -> None:
        """Mark that a batch is there: the loop waited since the last step, or batch, ended."""
        self.waited(time.perf_counter() - self._since)

    def batch(self) -> None:
        """Mark that a batch is handed over, after its forward pass."""
        self._batch = self._since = time.perf_counter()

    def begin(self) -> None:
        """Begin the time of a step now: what was done between steps is no part of it."""
        self._end = self._since = self._batch = time.perf_counter()

    def end_step(self) -> tuple[float, dict[str, float]]:
        """Return when the step ended, seconds since 1970, and its numbers; the first step has none."""
        now = time.perf_counter()
        numbers = {}
        if not self._first:
            numbers["step_time"] = _short(now - self._end)
            if self._waited is not None:
                numbers["dataloader_wait"] = _short(self._waited)
            if self._ranks > 1:
                numbers["rank_time"] = _short(max(0.0, self._batch - self._end))
        self._first = False
        self._end = self._since = self._batch = now
        self._waited = None
        if abs((wall := time.time()) - now - self._offset) > SET_SECONDS:
            self._offset = wall - now
        return self._offset + now, numbers


def _short(seconds: float) -> float:
    """Return seconds with the digits of a float32, which take half the room in the log."""
    return float(np.float32(seconds))


class GpuUse:
    """Samples the process's current GPU now and then; does nothing where none is used.

    Nothing is imported for it but ``pynvml``: whether torch uses a GPU is asked of torch where the loop has loaded it.
    """

    def __init__(self) -> None:
        self.device = 0
        """Number of the GPU among those that the process sees; a thread of its own would ask for another."""
        self.missing = ""
        """Why nothing is seen although a GPU is used."""
        self._next = 0.0
        self._library: Any = None
        self._handle: Any = None

    def sample(self) -> dict[str, float]:
        """Return ``gpu_util`` (share of the last sampling period) and ``gpu_mem_used`` (bytes) if it is time."""
        now = time.monotonic()
        if self.missing or now < self._next or (torch := _torch_on_gpu()) is None:
            return {}
        self._next = now + SECONDS
        with CatchErrors() as call:
            if self._handle is None:
                self._open(torch)
            use = self._library.nvmlDeviceGetUtilizationRates(self._handle)
            memory = self._library.nvmlDeviceGetMemoryInfo(self._handle)
            return {"gpu_util": use.gpu / 100, "gpu_mem_used": float(memory.used)}
        if call.kind in ("ImportError", "ModuleNotFoundError"):
            self.missing = "pip install nvidia-ml-py"
        else:
            self.missing = f"NVML does not answer ({call.kind})"
        return {}

    def _open(self, torch: Any) -> None:
        import pynvml

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(self.device).uuid
        self._library, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")


@dataclass(slots=True)
class Window:
    """A profiled step, whose events are still to be read."""

    step: int
    seconds: float
    events: Any
    """Of kineto: a list-like of events with name, start_ns, duration_ns."""


class Profiled:
    """Profiles a step after so many; 0: none."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.refused = ""
        """Why no window could be opened, once that was so."""
        self._profile: Any = None
        self._began = 0.0

    def begin(self, step: int) -> None:
        """Open a window where the step that begins is sampled."""
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
        with CatchErrors() as call:
            profile = profiler.profile(activities=activities)
            profile.start()
            self._profile, self._began = profile, time.perf_counter()
        if call.error is not None:
            self.refused = f"torch's profiler could not be started ({call.kind})"

    def end(self, step: int) -> Window | None:
        """Close the window of a step, if it has one."""
        profile, self._profile = self._profile, None
        if profile is None:
            return None
        seconds = time.perf_counter() - self._began
        with CatchErrors() as call:
            profile.stop()
            return Window(step, seconds, profile.profiler.kineto_results.events())
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
    """Return first and last nanosecond of collectives and of what computes; on a device where it was used."""
    spans: dict[str, list[tuple[int, int]]] = {"comm": [], "compute": [], "device comm": [], "device compute": []}
    for event in events:
        name, kind = event.name(), ""
        if event.device_type().name != "CPU":
            if str(event.activity_type()) in _KERNELS:
                kind = "device comm" if "nccl" in name.lower() or "rccl" in name.lower() else "device compute"
        elif name.startswith(_COLLECTIVES + _OPERATORS):
            kind = "comm" if name.startswith(_COLLECTIVES) else "compute"
        if kind:
            spans[kind].append((event.start_ns(), event.start_ns() + event.duration_ns()))
    comm = [*spans["device comm"], *spans["comm"]]
    compute = spans["device compute" if spans["device comm"] or spans["device compute"] else "compute"]
    return np.array(comm, np.int64).reshape(-1, 2), np.array(compute, np.int64).reshape(-1, 2)


def _length(intervals: Intervals) -> int:
    """Return the length of the union of some intervals."""
    if not len(intervals):
        return 0
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ordered[:, 1])
    starts = np.maximum(ordered[1:, 0], ends[:-1])
    return int(ends[0] - ordered[0, 0] + np.maximum(ordered[1:, 1] - starts, 0).sum())


def device_number() -> int:
    """Return the number of the GPU that this thread uses; 0 where there is none."""
    torch = _torch_on_gpu()
    return 0 if torch is None else torch.cuda.current_device()


def _torch_on_gpu() -> Any:
    """Return torch where it uses a GPU; None: it does not, or another thread is about to import it."""
    torch = sys.modules.get("torch")
    with CatchErrors():
        return torch if torch is not None and torch.cuda.is_initialized() else None
    return None
