"""How noisy gradients of a step's micro-batches are: how their directions agree, and the noise scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dataaudit.vitals.measurement import Measurement
from dataaudit.vitals.metric import Column, Metric
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
        Metric("grad_noise_scale", "log", stats=frozenset({"ema"})),
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

    def why_no(self, metric: str) -> str | None:
        """Return why a metric has no value under FSDP: of Adam, ``gsnr`` of layers has."""
        from dataaudit.vitals.weights import is_adam

        batches, adam = self.sources.micro_batches, any(map(is_adam, self.sources.optimizers))
        known = {"grad_noise_scale", "gsnr"} if adam else {"grad_noise_scale"}
        return self.why_not() or (batches.reduced or None if batches is not None and metric not in known else None)

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
