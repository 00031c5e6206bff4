"""How busy a GPU is and how much of its memory is used, as NVIDIA's management library says it (``nvidia-ml-py``)."""

from __future__ import annotations

import sys
import time
from typing import Any

from dataaudit.guarded import Guarded

SECONDS = 10.0
"""Between two looks."""


class GpuUse:
    """Looks at the process's current GPU now and then; does nothing where none is used.

    Nothing is imported for it but ``pynvml``: whether torch uses a GPU is asked of torch where the loop has loaded it.
    """

    def __init__(self) -> None:
        self.device = 0
        """Number of the GPU among those that the process sees; a thread of its own would ask for another one."""
        self.missing = ""
        """Why nothing is seen although a GPU is used."""
        self._next = 0.0
        self._library: Any = None
        self._handle: Any = None

    def look(self) -> dict[str, float]:
        """Return ``gpu_util`` (share of the last sampling period) and ``gpu_mem_used`` (bytes) if it is time."""
        now = time.monotonic()
        torch = sys.modules.get("torch")
        if self.missing or now < self._next or torch is None or not torch.cuda.is_initialized():
            return {}
        self._next = now + SECONDS
        with Guarded() as call:
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
