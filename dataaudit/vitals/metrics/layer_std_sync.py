"""Whether standard deviations of layers move together: oscillations that all layers share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import Column, Metric

WINDOW = 32
"""Rounds through all layers, whose paths are compared; the next window begins after the last of them."""
_STILL = 1e-9
"""Share of its mean below which what moves in a path is rounding."""


def synchrony(steps: Floats, paths: Floats) -> float:
    """Return the mean pairwise correlation of paths without their linear trends; NaN of fewer than two that move.

    Both are float64[values, layers]: at which step each value was measured, and the values. Of independent paths it has
    the mean 0 and, of 32 values and L layers, a standard deviation of about sqrt(2 / (30 L (L - 1))).
    """
    times, moves = steps - steps.mean(0), paths - paths.mean(0)
    rest = moves - times * ((times * moves).sum(0) / (times**2).sum(0))
    sizes = np.sqrt((rest**2).sum(0))
    own = sizes > _STILL * np.abs(paths.mean(0)) * math.sqrt(len(paths))
    number = int(own.sum())
    if number < 2:
        return math.nan
    whole = (rest[:, own] / sizes[own]).sum(1)
    return float((whole @ whole - number) / (number * (number - 1)))


class LayerStdSync(Measurement):
    """Follows ``layer_std``; a round is over when each layer has had its turn again."""

    FAMILY = "weights"
    METRICS = (Metric("layer_std_sync", "plain"),)

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._layers = [layer for layer, _ in sources.weights.groups if layer >= 0]
        self._at: list[int] = []
        self._rounds: list[Floats] = []
        """float64[2, layers]: step and value of each layer, NaN in the round that is open."""
        self._step = 0

    def columns(self) -> list[Column]:
        return [Column("layer_std_sync", -1, -1, "correlation")]

    def arrived(self, values: Floats, context: Arrived) -> None:
        """Add the values of the step; write the correlation where the window is full."""
        if not self._at:
            places = {item.layer: at for at, item in enumerate(context.columns) if item.metric == "layer_std"}
            self._at = [places[layer] for layer in self._layers]
        self._step += 1
        new = context.values[self._at]
        known = np.isfinite(new)
        if not known.any():
            return
        if not self._rounds or np.isfinite(self._rounds[-1]).all():
            self._rounds.append(np.full((2, len(self._at)), np.nan))
        self._rounds[-1][:, known] = np.stack([np.full(len(new), float(self._step)), new])[:, known]
        if len(self._rounds) == WINDOW and np.isfinite(self._rounds[-1]).all():
            steps, paths = np.stack(self._rounds, 1)
            values[0] = synchrony(steps, paths)
            self._rounds = []

    def why_not(self) -> str | None:
        if not self.sources.optimizers:
            return "no optimizer was given"
        return None if len(self._layers) > 1 else "fewer than two layers train"

    def state(self) -> dict[str, Any]:
        return {
            "sync": {"step": self._step, "rounds": [np.nan_to_num(item, nan=-1.0).tolist() for item in self._rounds]}
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._step = int(state["sync"]["step"])
        rounds = [np.array(item, np.float64) for item in state["sync"]["rounds"]]
        self._rounds = [np.where(item < 0, np.nan, item) for item in rounds]
