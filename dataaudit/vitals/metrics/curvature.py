"""How curved the loss is on a probe batch, which the loop hands over from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch

_STATS = (("trace", "others"), ("low", "others_low"), ("high", "others_high"))
"""Of the model and its layers, and of all else: the estimate, the lower and the upper end."""


class Curvature(Measurement):
    """The trace of the Hessian with its 95 % interval, of the whole model, of each layer, and of all else."""

    METRICS = (
        Metric(
            "curvature_trace_est",
            "asinh",
            stats=frozenset({"trace", "others"}),
            flops="(1 + 2.5 x vectors) gradients of the probe batch",
            chart=("trace", "Trace of the Hessian"),
        ),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        from dataaudit.vitals.sharding import why_not
        from dataaudit.vitals.structure import parameters_of

        self._groups = parameters_of(sources.structure, sources.model)
        self._nothing = sources.empty(3, 1 + len(self._groups))
        self._numbers, self._last = self._nothing, float("-inf")
        self.sharded = why_not(sources.model.parameters(), "its vectors are drawn for whole parameters")
        self.why = self.sharded or "vitals.curvature(loss_of, batch) was not called"

    def columns(self) -> list[Column]:
        layers = [layer for layer, _ in self._groups]
        named = [(stat, others, layer) for stat, others in _STATS for layer in (None, *layers)]
        return [
            Column("curvature_trace_est", -1 if layer is None else layer, -1, others if layer == -1 else stat)
            for stat, others, layer in named
        ]

    def due(self, minutes: float) -> bool:
        """Return whether so many minutes passed since the last estimate began, and begin another one."""
        now = time.monotonic()
        if self.sharded or now - self._last < 60 * minutes:
            return False
        self._last = now
        return True

    def estimate(self, loss_of: Callable[[Any], torch.Tensor], batch: Any, vectors: int) -> None:
        """Make an estimate, which the next step hands over."""
        import torch

        from dataaudit.vitals.curvature import as_it_was, traces

        self.why = "the latest estimate failed"
        generator = torch.Generator(self._nothing.device).manual_seed(self.sources.step)
        with as_it_was(self.sources.model):
            self._numbers = traces(loss_of, batch, [own for _, own in self._groups], vectors, generator)
        self.why = ""

    def values(self) -> list[torch.Tensor]:
        """Return an estimate once."""
        numbers, self._numbers = self._numbers, self._nothing
        return [numbers.flatten()]

    def why_not(self) -> str | None:
        return self.why or None

    def gaps(self) -> dict[str, str]:
        """Return why there is no number."""
        return {"curvature_trace_est": self.why} if self.why else {}
