"""Gradients of a step: how noisy those of its micro-batches are, and how far their norm lies above its recent past."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import Column, Metric, Threshold
from dataaudit.vitals.metrics.weight_norms import MOVES_MASTERS

if TYPE_CHECKING:
    import torch

STATS = (
    ("gsnr", "step"),
    ("direction_consistency", "step"),
    ("grad_noise_scale", "ema"),
    ("grad_noise_scale", "low"),
    ("grad_noise_scale", "high"),
)


class GradientNoise(Measurement):
    """Numbers of :class:`dataaudit.vitals.micro_batches.MicroBatches`, of the whole model."""

    FAMILY = "weights"
    METRICS = (
        Metric("gsnr", "plain"),
        Metric("direction_consistency", "plain"),
        Metric("grad_noise_scale", "log", stats=frozenset({"low"})),
    )

    def columns(self) -> list[Column]:
        return [Column(metric, -1, -1, stat) for metric, stat in STATS]

    def values(self) -> list[torch.Tensor]:
        """Return a step's noise, NaN where micro-batches were not told apart."""
        batches = self.sources.micro_batches
        noise = None if batches is None else batches.finish()
        return [self.nothing if noise is None else noise]

    def why_not(self) -> str | None:
        from dataaudit.vitals.micro_batches import why_not

        moves = self.sources.weights.groups or not self.sources.optimizers
        return why_not(self.sources.sharding) or (None if moves else MOVES_MASTERS)

    def reasons(self) -> dict[str, str]:
        """Return by metric why it has no value; under FSDP, of Adam, ``gsnr`` of layers has."""
        from dataaudit.vitals.weights import is_adam

        batches, adam = self.sources.micro_batches, any(map(is_adam, self.sources.optimizers))
        known = {"grad_noise_scale", "gsnr"} if adam else {"grad_noise_scale"}
        reduced = "" if batches is None else batches.reduced
        names = {metric.name for metric in self.METRICS} - known if reduced else ()
        return super().reasons() or dict.fromkeys(names, reduced)

    def gaps(self) -> dict[str, str]:
        """Return why the latest step that was measured gave no noise; ``gsnr`` of layers has numbers all the same."""
        batches = self.sources.micro_batches
        why = (self.why_not() or "") if batches is None else batches.why
        found = dict.fromkeys(("direction_consistency", "grad_noise_scale"), why) if why else {}
        return found | ({"direction_consistency": batches.reduced} if batches is not None and batches.reduced else {})

    def state(self) -> dict[str, Any]:
        batches = self.sources.micro_batches
        return {"noise": None if batches is None else batches.scale.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        if self.sources.micro_batches is not None and state["noise"] is not None:
            self.sources.micro_batches.scale.load_state_dict(state["noise"])


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
