"""Arrays that may still be on their way from a device: what a loop hands over without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


class Pending:
    """A copy of a tensor, on its way to the host.

    Args:
        tensor: Of torch, on any device; its owner may go on with it at once.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._event = None
        tensor = tensor.detach()
        if tensor.device.type == "cpu":
            self._host = tensor.clone()
            return
        import torch

        pinned = tensor.device.type == "cuda"
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
        self._host.copy_(tensor, non_blocking=True)
        self._event = torch.Event(device=tensor.device)
        self._event.record()

    def ready(self) -> bool:
        """Return whether the array is here."""
        return self._event is None or bool(self._event.query())

    def numpy(self) -> np.ndarray:
        """Return the array; wait until it is here."""
        if self._event is not None:
            self._event.synchronize()
        found: np.ndarray = self._host.numpy()
        return found
