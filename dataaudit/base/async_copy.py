"""Asynchronous copies of tensors to the host, and the seconds that steps take on their device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


class AsyncCopy:
    """A copy of a tensor, on its way to the host; the tensor may change at once."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._event: Any = None
        tensor = tensor.detach()
        if tensor.device.type == "cpu":
            self._host = tensor.clone()
            return
        import torch

        pinned = tensor.device.type == "cuda"
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
        self._host.copy_(tensor, non_blocking=True)
        self._event = _recorded(tensor.device)

    def ready(self) -> bool:
        """Return whether the array is here."""
        return self._event is None or bool(self._event.query())

    def numpy(self) -> np.ndarray:
        """Return the array; wait until it is here. Of a type that NumPy lacks, float64 holds every value."""
        if self._event is not None and not self._event.query():
            self._event.synchronize()
        try:
            found: np.ndarray = self._host.numpy()
        except TypeError:  # bfloat16, float8: NumPy has no such types
            found = self._host.double().numpy()
        return found


def scalar(value: Any) -> float | AsyncCopy:
    """Return a number, or one that is on its way to the host."""
    if hasattr(value, "detach"):
        full = value.full_tensor() if hasattr(value, "full_tensor") else value
        if full.numel() != 1 or full.is_complex() or full.is_meta:
            raise ValueError(full.shape)
        return AsyncCopy(full.reshape(()))
    if np.iscomplexobj(value):
        raise TypeError("complex")
    return float(value.item() if isinstance(value, np.ndarray) else value)


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device; a GPU copies from pinned memory alone without being waited for."""
    if tensor.device.type == "cpu" and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class Laps:
    """Seconds that steps take, by the clock of the device that does their work.

    A host that hands work to a GPU is ahead of it: what it measures by its own clock is not the step that it is in.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._first = device, self._mark_of(device)
        self._waiting: deque[tuple[int, int, Any, Any]] = deque()

    def begin(self) -> None:
        """Mark the begin of a step."""
        self._first = self._mark_of(self._device)

    def end(self, step: int, every: int) -> Iterator[tuple[int, int, float]]:
        """Mark the end of a step, with its number and cadence; yield these and the seconds of all that are done."""
        self._waiting.append((step, every, self._first, self._mark_of(self._device)))
        while self._waiting and (self._device.type != "cuda" or self._waiting[0][3].query()):
            step, every, first, last = self._waiting.popleft()
            yield step, every, first.elapsed_time(last) / 1e3 if self._device.type == "cuda" else last - first

    @staticmethod
    def _mark_of(device: torch.device) -> Any:
        return _recorded(device, timing=True) if device.type == "cuda" else time.perf_counter()


def _recorded(device: torch.device, *, timing: bool = False) -> Any:
    """Return an event behind all that a device was given, also where it is not the current one."""
    import torch

    event = torch.Event(device=device, enable_timing=timing)
    event.record(torch.accelerator.current_stream(device))
    return event
