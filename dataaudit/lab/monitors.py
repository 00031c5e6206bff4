"""Monitors: which number of vitals each reads, and how it becomes a series of the whole model over a grid of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dataaudit.base.statistics import Floats

EVERY = 4
"""Steps between the points of the grid, as vitals measure with the preset ``medium``."""


@dataclass(frozen=True, slots=True)
class Monitor:
    """A monitor: a number of some layers and heads as a single number of the model."""

    name: str
    module: str
    """attention, router, optimizer, activations, weights, loss or gradient."""
    metric: str
    stat: str
    over: str
    """``max``, ``min`` or ``mean`` of the latest value of each layer and head."""
    logarithm: bool = True
    """Whether its logarithm is judged."""


MONITORS: Final[tuple[Monitor, ...]] = (
    Monitor("qk_first_order_entropy", "attention", "qk_first_order_entropy", "exp", "min"),
    Monitor("qk_second_order_entropy", "attention", "qk_second_order_entropy", "exp", "min"),
    Monitor("delta_w_entropy.query", "attention", "delta_w_entropy", "query", "min"),
    Monitor("delta_w_entropy.key", "attention", "delta_w_entropy", "key", "min"),
    Monitor("max_attn_logit", "attention", "max_attn_logit", "sampled", "max"),
    Monitor("attn_entropy", "attention", "attn_entropy", "normalised", "min", logarithm=False),
    Monitor("q_norm", "attention", "q_norm", "rms", "max"),
    Monitor("k_norm", "attention", "k_norm", "rms", "max"),
    Monitor("router_token_entropy", "router", "router_token_entropy", "normalised", "min", logarithm=False),
    Monitor("router_weight_similarity", "router", "router_weight_similarity", "mean_cosine", "max", logarithm=False),
    Monitor("router_centered_conditioning", "router", "router_centered_conditioning", "ratio", "max"),
    Monitor("moe_util_entropy", "router", "moe_util_entropy", "normalised", "min", logarithm=False),
    Monitor("moe_load_balance_loss", "router", "moe_load_balance_loss", "switch", "max"),
    Monitor("update_to_weight", "optimizer", "update_to_weight", "matrices", "max"),
    Monitor("gsnr.adam_proxy", "optimizer", "gsnr", "adam_proxy", "min", logarithm=False),
    Monitor("residual_rms", "activations", "residual_rms", "block", "max"),
    Monitor("activation_kurtosis", "activations", "activation_kurtosis", "block", "max"),
    Monitor("spectral_norm", "weights", "spectral_norm", "largest", "max"),
    Monitor("stable_rank", "weights", "stable_rank", "least", "min"),
)
"""What reads the mechanism; loss and gradient norm are judged beside them by :mod:`dataaudit.lab.detectors`."""
BY_NAME: Final = {monitor.name: monitor for monitor in MONITORS}


class Series:
    """A sink of vitals that keeps one number of each monitor at each step that is measured, and first alarms.

    A layer that has no turn at a step counts with its latest value.
    """

    def __init__(self, before: Series | None = None) -> None:
        self.points: dict[str, list[tuple[int, float]]] = {
            monitor.name: list(before.points[monitor.name] if before else []) for monitor in MONITORS
        }
        self.alarms: list[tuple[int, str, str]] = list(before.alarms if before else [])
        """(step, metric, rule) of what opened or joined an incident of severity 0 to 2."""
        self._columns: tuple[Any, dict[str, Any]] = (None, {})
        self.latest: dict[str, Floats] = dict(before.latest if before else {})
        """By monitor, of each layer and head."""

    def add_histogram(self, *_: Any) -> None:
        """Leave a histogram: no monitor is of that kind."""

    def add_values(self, columns: Mapping[str, Any]) -> None:
        """Take a step's values."""
        key = (tuple(columns["metric"]), tuple(columns["stat"]))
        if self._columns[0] != key:
            names = list(zip(*key, strict=True))
            chosen = {
                monitor.name: np.array([at for at, name in enumerate(names) if name == (monitor.metric, monitor.stat)])
                for monitor in MONITORS
            }
            self._columns = key, {name: places for name, places in chosen.items() if len(places)}
        if not len(columns["step"]):
            return
        step, values = int(columns["step"][0]), np.asarray(columns["value"], dtype=np.float64)
        for name, places in self._columns[1].items():
            own = values[places]
            latest = self.latest.get(name)
            latest = own if latest is None or len(latest) != len(own) else np.where(np.isnan(own), latest, own)
            self.latest[name] = latest
            known = latest[~np.isnan(latest)]
            if len(known) and not np.isnan(own).all():
                self.points[name].append((step, float(getattr(np, BY_NAME[name].over)(known))))

    def add_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Take an event."""
        if kind in {"alarm", "warning", "nan_inf"} and detail.get("incident") and detail.get("severity", 3) < 3:
            self.alarms.append((step, str(detail.get("metric", kind)), str(detail.get("rule", ""))))


def on_grid(points: Any, steps: int, *, logarithm: bool) -> Floats:
    """Return the latest value at every fourth step: float64[steps // 4]; NaN before the first.

    ``points`` are (step, value), float64[n, 2], ascending; the logarithm of 0 or less is that of 1e-30.
    """
    grid = np.arange(EVERY, steps + 1, EVERY)
    points = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    place = np.searchsorted(points[:, 0], grid, side="right") - 1
    values: Floats = np.where(place >= 0, points[np.maximum(place, 0), 1] if len(points) else np.nan, np.nan)
    if len(points):
        values[grid >= points[-1, 0] + 16 * EVERY] = np.nan  # the run ended
    return np.log(np.maximum(values, 1e-30)) if logarithm else values
