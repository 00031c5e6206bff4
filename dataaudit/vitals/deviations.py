"""Series that leave a baseline that was given, the healthy part of another run; baseline.py says how far is too far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dataaudit.robust import Floats, Ints
from dataaudit.vitals.baseline import ESTIMATES, FARTHEST_OF_MEAN, LOGARITHMS, Arrays, Baseline, Key, Runs, logarithm
from dataaudit.vitals.surprise import SHARES

_CALM = 0.5
"""Share of the limit within which a series is inside again."""
_FARTHEST = 1e300


class Deviations(Arrays):
    """Judges series against a baseline.

    Args:
        keys: Of the series.
        baseline: What is healthy; of the same or of other series.
        total: Last step of this run, for a baseline by position.

    Raises:
        ValueError: The baseline is by position and the length of this run is not known.
    """

    ARRAYS = ("open", "_calm", "_began", "_inside")

    def __init__(self, keys: Sequence[Key], baseline: Baseline, total: int) -> None:
        if baseline.total and not total:
            raise ValueError("the baseline is by position: the last step of this run is needed")
        number = len(keys)
        self.baseline, self.total, self.keys = baseline, total, keys
        self.open = np.zeros(number, bool)
        column = {key: place for place, key in enumerate(baseline.keys)}
        self._columns = np.array([column.get(key, -1) for key in keys], np.int64)
        limits = [baseline.limits.get(key.metric) for key in keys]
        fit = np.array([one is not None for one in limits], bool) & (self._columns >= 0)
        fit &= np.array([key.metric not in SHARES for key in keys], bool)
        self._scale = np.where(fit, baseline.scale[self._columns], np.nan)
        none = (math.inf, math.inf)
        self._limits = np.array([none if one is None else [each.distance for each in one] for one in limits]).T
        self._near = _CALM * self._limits.min(0)
        self._logarithms = np.array([key.metric in LOGARITHMS for key in keys], bool)
        self._calm, self._began = np.zeros((2, number), np.int64)
        self._inside = np.ones(number, bool)
        self._runs = Runs(number, baseline.persistence)
        self._out = np.zeros((2, number), bool)
        self._level = np.zeros(number)

    @property
    def judged(self) -> np.ndarray:
        """bool[series]: which the baseline has a scale of."""
        return ~np.isnan(self._scale)

    @property
    def not_evaluated(self) -> dict[Key, str]:
        """Series that are not judged, and why."""
        theirs = self.baseline.not_evaluated
        found = {
            key: "not in the baseline" if column < 0 else theirs.get(key, "")
            for key, column in zip(self.keys, self._columns, strict=True)
        }
        others = {key for key in self.keys if key.stat in ESTIMATES or key.metric in SHARES}
        return {key: why for key, why in found.items() if why and key not in others}

    def see(self, step: int, held: Floats) -> Ints:
        """Take the values of a step and return the places of the series that left the baseline."""
        level = self.baseline.level(step, self.total)[self._columns]
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(self._logarithms, logarithm(held), held) - level
            z = np.clip(z / self._scale, -_FARTHEST, _FARTHEST)
        measured = ~np.isnan(z)
        near = np.abs(z) <= self._near
        self._began[measured & ~near & self._inside] = step
        self._inside = np.where(measured, near, self._inside)
        self._calm = np.where(measured, np.where(near, self._calm + 1, 0), self._calm)
        self._out, self._level = self._runs.see(z) > self._limits, level
        out = self._out.any(0)
        raised = np.flatnonzero(out & ~self.open)
        self.open = out | (self.open & (~measured | (self._calm < self.baseline.persistence)))
        return raised

    def detail(self, place: int) -> dict[str, Any]:
        """Return what a series left: the band of jumps or of drifts; of drifts, the mean that did too."""
        which = int(self._out[:, place].argmax())
        limit = self.baseline.limits[self.keys[place].metric][which]
        level, scale = float(self._level[place]), float(self._scale[place])
        band = {"low": level - limit.distance * scale, "high": level + limit.distance * scale}
        if limit.over == "mean":
            mean = np.clip(self._runs.recent[:, place], -FARTHEST_OF_MEAN, FARTHEST_OF_MEAN).mean()
            band["value"] = level + float(mean) * scale
        if self._logarithms[place]:
            band = {name: math.exp(min(one, 709.0)) for name, one in band.items()}
        return {
            **band,
            "rule": "jump" if limit.over == "each" else "drift",
            "first_step": int(self._began[place]),
            "over": limit.over,
            "values": limit.values,
            "baseline": self.baseline.about(),
            "family": limit.family,
            "false_alarm_rate": self.baseline.rate,
        }

    def go_back(self) -> None:
        """Forget the newest values: the run went back."""
        self._runs.recent[:], self._calm[:], self._inside[:], self.open[:] = 0, 0, True, False

    def state(self) -> dict[str, Any]:
        """Return all that it knows but the baseline, in plain types."""
        return {**super().state(), "recent": self._runs.recent.tolist()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        super().load(state)
        self._runs.recent[:] = np.array(state["recent"], np.float64)
