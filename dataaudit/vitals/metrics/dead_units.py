"""How many units of an MLP are silent over a window of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metric import ALL, Column, Metric

if TYPE_CHECKING:
    import torch

DEAD_UNIT = 1e-3
"""A unit is dead whose mean |h| lies below."""


class DeadUnits(Measurement):
    """Sums mean |h| of every unit over a window of steps."""

    FAMILY, HOOKED = "activations", True
    METRICS = (Metric("dead_neuron_count", "share", whole=True, rules={"dead": ALL}, chart=("units", "Dead units")),)

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        units, layers = sources.hooks.units, sources.hooks.unit_layers
        count, _, widest = units.shape
        self._sums, self._steps = units.new_zeros(count, widest), units.new_zeros(count)
        self._own = units.new_zeros(count, widest).bool()
        """bool[layers, units]: which a layer has."""
        for row, layer in enumerate(layers):
            self._own[row, : layer.units] = True

    def columns(self) -> list[Column]:
        layers = self.sources.hooks.unit_layers
        return [Column("dead_neuron_count", layer.index, -1, "units", of=layer.units) for layer in layers]

    def values(self) -> list[torch.Tensor]:
        """Add a step's means; return counts of dead units, float32[layers], where a window ends."""
        means = self.sources.hooks.units.nanmean(1)
        measured = means.isfinite().any(1)  # a unit that is not finite is not a dead one
        self._sums.add_(means.where(measured[:, None], 0.0))
        self._steps.add_(measured)
        if not self.sources.window_ends:
            return [self._steps.new_full(self._steps.shape, float("nan"))]
        dead = ((self._sums / self._steps[:, None]) < DEAD_UNIT) & self._own
        counts = dead.sum(1).float().where(self._steps > 0, float("nan"))
        self._sums.zero_()
        self._steps.zero_()
        return [counts]

    def why_not(self) -> str | None:
        structure = self.sources.structure
        return None if self.sources.hooks.unit_layers else structure.missing("units") or "none found"
