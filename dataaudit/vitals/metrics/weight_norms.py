"""How large weights, gradients and updates of a layer are, whether they and the optimizer's state are finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dataaudit.vitals.measurement import Measurement
from dataaudit.vitals.metric import ALL, Column, Metric, Threshold

if TYPE_CHECKING:
    import torch

_WHOLE_LAYERS = frozenset({"all", "others"})
MOVES_MASTERS = "the optimizer moves masters, and no weight of the model itself"
_RATIO = "rule of thumb: about 1e-3 is healthy"
STATS = (
    ("layer_std", "all"),
    ("grad_norm", "at_step"),
    ("update_to_weight", "all"),
    ("update_to_weight", "matrices"),
    ("update_to_weight", "vectors"),
    ("grad_to_weight", "all"),
    ("opt_state_finite", "share"),
    ("gsnr", "adam_proxy"),
)
_NAMED_OTHERS = frozenset({"matrices", "vectors", "adam_proxy"})


class WeightNorms(Measurement):
    """Norms of the layers whose turn it is."""

    FAMILY = "weights"
    METRICS = (
        Metric("layer_std", "log", rules={"fold": ALL}, chart=("all", "Standard deviation of parameters")),
        Metric("grad_norm", "log", logarithm=True, rules={"fold": ALL}, chart=("at_step", "Gradient norm")),
        Metric(
            "update_to_weight",
            "log",
            exponent=1.0,
            logarithm=True,
            rules={
                "fold": frozenset({"all", "matrices", "others", "others_matrices", "others_vectors"}),
                "frozen": frozenset({"all"}),
            },
            thresholds=(
                Threshold(1e-2, _RATIO, stats=_WHOLE_LAYERS),
                Threshold(1e-4, _RATIO, stats=_WHOLE_LAYERS, above=False, steady_only=True),
            ),
            chart=("all", "Update / weight"),
        ),
        Metric("grad_to_weight", "log", logarithm=True, chart=("all", "Gradient / weight")),
        Metric("opt_state_finite", rules={"state": ALL}),
    )

    def columns(self) -> list[Column]:
        layers = [layer for layer, _ in self.sources.weights.groups]
        return [Column(metric, layer, -1, _stat(stat, layer)) for metric, stat in STATS for layer in layers]

    def values(self) -> list[torch.Tensor]:
        """Return what hooks of the optimizers saw; of ``gsnr`` what Adam's moments say."""
        return [self.sources.weights.finish().flatten()]

    def why_not(self) -> str | None:
        if not self.sources.optimizers:
            return "no optimizer was given"
        return None if self.sources.weights.groups else MOVES_MASTERS

    def state(self) -> dict[str, Any]:
        return {"zeros": self.sources.weights.zeros, "kept": sorted(self.sources.weights.kept)}

    def load(self, state: Mapping[str, Any]) -> None:
        self.sources.weights.mark_zeros(state["zeros"])
        self.sources.weights.kept = {(number, index) for number, index in state.get("kept", ())}


def _stat(stat: str, layer: int) -> str:
    if layer >= 0:
        return stat
    return f"others_{stat}" if stat in _NAMED_OTHERS else "others"


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
