"""How far the gradient's norm lies above its recent past."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import Column, Metric, Threshold

if TYPE_CHECKING:
    pass


class SpikeScore:
    """The gradient's norm over the average of its earlier ones, which remembers some ten; without the loss's scale."""

    DECAY = 0.9
    LEAST = 8
    """Norms before the first score."""

    def __init__(self) -> None:
        self.norms = 0
        self.average = self.scale = 0.0

    def see(self, norm: float, scale: float) -> float:
        """Take a norm, and what the loss was multiplied by; return its score.

        NaN for the first few, and for what is no positive number. A scale that is not known, NaN, is the last one
        that was; what came before the first one had the same.
        """
        if not 0 < norm < math.inf:
            return math.nan
        if 0 < scale < math.inf:
            self.average /= 1.0 if self.scale else scale
            self.scale = scale
        norm /= self.scale or 1.0
        score = norm / self.average if self.norms >= self.LEAST else math.nan
        self.norms += 1
        self.average += (norm - self.average) * max(1 - self.DECAY, 1 / self.norms)
        return score


class GradientSpikes(Measurement):
    """One number of the whole model, made on the host."""

    METRICS = (
        Metric(
            "gradient_spike_score", thresholds=(Threshold(2.0, "rule of thumb: twice the average of earlier norms"),)
        ),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._score = SpikeScore()

    def columns(self) -> list[Column]:
        return [Column("gradient_spike_score", -1, -1, "ratio")]

    def arrived(self, values: Floats, context: Arrived) -> None:
        """Write the score."""
        values[0] = self._score.see(context.gradient_norm, context.loss_scale)

    def why_not(self) -> str | None:
        from dataaudit.vitals.micro_batches import why_not

        return why_not(self.sources.sharding) if self.sources.optimizers else "no optimizer was given"

    def state(self) -> dict[str, Any]:
        return {"spikes": [self._score.norms, self._score.average, self._score.scale]}

    def load(self, state: Mapping[str, Any]) -> None:
        self._score.norms, self._score.average, self._score.scale = state["spikes"]
