"""What is counted in a step: layers whose gradient is not finite, and whether it ended without an update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataaudit.vitals.measurement import Measurement
from dataaudit.vitals.metric import ALL, Column, Metric

if TYPE_CHECKING:
    import torch


class StepCounts(Measurement):
    """Two numbers of the whole model."""

    METRICS = (
        Metric("nan_inf_events", rules={"not_finite": ALL}),
        Metric("skipped_updates", rules={"skipped": ALL}, listed=False),
    )

    def columns(self) -> list[Column]:
        return [Column(metric.name, -1, -1, "count") for metric in self.METRICS]

    def values(self) -> list[torch.Tensor]:
        """Return both counts; that nothing is wrong is known only where gradients were read in full."""
        weights = self.sources.weights
        count = weights.bad[:-1].sum().float()
        if not weights.in_full:
            count = count.where(count > 0, float("nan"))
        return [count[None], weights.skipped[None]]
