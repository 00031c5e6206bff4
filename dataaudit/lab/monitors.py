"""Monitors, which read vitals, and detectors of loss and gradient norm; their scores, and limits of the same rate.

A monitor's number becomes a series of the whole model over a grid of steps. It is compared with healthy runs of other
seeds: their mean and standard deviation at the step, smoothed. Where a fault comes later, the run's own median over the
span before it is subtracted from both. The score is the least distance of three neighbouring points on the same side.
Each other detector looks at the run alone, as its authors wrote it, and its limit is moved until it has the monitors'
rate of false alarms. Curves of a run are a file, written whole, so that a command that was stopped goes on.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Final

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import write_whole
from dataaudit.base.statistics import SIGMA, Floats

EVERY = 4
"""Steps between the points of the grid, as vitals measure with the preset ``medium``."""
SPAN = 128
"""Steps before an onset whose median is a run's own level."""
FLOOR = 0.5
"""Share of the median deviation of a band that it is wide at least: a few runs may be close to each other by chance."""
SMOOTHED = 9
"""Points of the grid over which a band is averaged."""
IN_A_ROW = 3
RATE = 1e-4
"""False alarms a step that all monitors together may have."""
RISE, AT_LEAST, MEAN = 0.5, 20, 20
"""Nats above the lowest mean of 20 losses so far, for how many steps in a row: then a run has diverged."""
_GUMBEL = 0.5772156649
_MEAN = 16


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
"""What reads the mechanism; loss and gradient norm are judged beside them by detectors."""
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


def divergence(loss: Floats) -> int | None:
    """Return the step at which a run diverged, the last of 20 that are 0.5 nats too high; None: it did not.

    A loss that is not finite counts as too high. The running minimum is that of means over 20 steps that ended before.
    """
    lowest, high = np.inf, 0
    total = np.concatenate([[0.0], np.cumsum(np.where(np.isfinite(loss), loss, 1e6))])
    for step in range(MEAN, len(loss)):
        lowest = min(lowest, (total[step] - total[step - MEAN]) / MEAN)
        high = 0 if loss[step] <= lowest + RISE else high + 1
        if high >= AT_LEAST:
            return step + 1
    return None


def above_past(values: Floats, window: int, *, robust: bool) -> Floats:
    """Return deviations above the last so many values: mean and sd, or median and MAD; float64[steps]."""
    scores = np.zeros(len(values))
    if len(values) <= window:
        return scores
    past = np.lib.stride_tricks.sliding_window_view(values[:-1], window)
    middle = np.median(past, axis=1) if robust else past.mean(axis=1)
    spread = SIGMA * np.median(np.abs(past - middle[:, None]), axis=1) if robust else past.std(axis=1)
    scores[window:] = (values[window:] - middle) / np.maximum(spread, 1e-9)
    return scores


def cusum(values: Floats) -> Floats:
    """Return the sum of deviations from the last 200 values, less 1 each, never below 0: float64[steps]."""
    scores, total = np.zeros(len(values)), 0.0
    for step in range(30, len(values)):
        past = values[max(0, step - 200) : step]
        middle = float(np.median(past))
        spread = max(SIGMA * float(np.median(np.abs(past - middle))), 1e-9)
        total = max(0.0, total + (float(values[step]) - middle) / spread - 1.0)
        scores[step] = total
    return scores


def over_average(values: Floats) -> Floats:
    """Return values over the moving average of some ten earlier ones: float64[steps]."""
    scores, average = np.zeros(len(values)), float(values[0]) if len(values) else 0.0
    for step, value in enumerate(values.tolist()):
        scores[step] = value / max(average, 1e-12) if step >= 8 else 0.0
        average = 0.9 * average + 0.1 * value
    return scores


def ours(values: Floats, *, log: bool) -> Floats:
    """Return robust deviations above the line of ``dataaudit attribute``: float64[steps]."""
    from dataaudit.training.attribution.spikes import SpikeDetector

    detector, scores = SpikeDetector(log=log, rate=None), np.zeros(len(values))
    for step, value in enumerate(values.tolist()):
        judged = detector.see(step + 1, value)
        scores[step] = judged.distance / judged.limit * judged.k if judged.limit > 0 else 0.0
    return scores


DETECTORS: Final[dict[str, tuple[str, Callable[[Floats], Floats]]]] = {
    "loss.ours": ("loss", lambda loss: ours(loss, log=False)),
    "loss.mad": ("loss", lambda loss: above_past(loss, 50, robust=True)),
    "loss.cusum": ("loss", cusum),
    "loss.mean_6sd": ("loss", lambda loss: above_past(loss, 50, robust=False)),
    "gradient.ours": ("gradient", lambda norm: ours(norm, log=True)),
    "gradient.mad": ("gradient", lambda norm: above_past(np.log(np.maximum(norm, 1e-30)), 50, robust=True)),
    "gradient.gss": ("gradient", over_average),
    "gradient.mean_6sd": ("gradient", lambda norm: above_past(norm, 128, robust=False)),
}
"""By name: the curve that it reads, and its score."""
BANDED: Final = {"loss.band": "loss", "gradient.band": "gradient"}
"""The monitors' own band, of the mean of the last 16 losses, or of the logarithms of norms: only the signal differs."""
MECHANISM: Final = tuple(monitor.name for monitor in MONITORS)
OUTSIDE: Final = (*BANDED, *DETECTORS)
"""What monitors are compared with."""
SIGNALS: Final = (*MECHANISM, *OUTSIDE)


def module_of(signal: str) -> str:
    """Return the module that a signal watches."""
    return next((item.module for item in MONITORS if item.name == signal), signal.partition(".")[0])


@dataclass(frozen=True, slots=True)
class Curves:
    """What a run recorded."""

    loss: Floats
    norm: Floats
    """Of the gradient, at each step; empty where it was not recorded."""
    points: dict[str, Any]
    """By monitor: (step, value), float64[n, 2]."""

    def grid(self, steps: int) -> dict[str, Floats]:
        """Return what a band judges, by signal: float64[steps // 4] each."""
        made = {item.name: on_grid(self.points[item.name], steps, logarithm=item.logarithm) for item in MONITORS}
        for name, of in BANDED.items():
            curve = self.loss if of == "loss" else np.log(np.maximum(self.norm, 1e-30))
            own = np.full(steps // EVERY, np.nan)
            for place in range(min(len(own), len(curve) // EVERY)):
                own[place] = curve[max(0, (place + 1) * EVERY - _MEAN) : (place + 1) * EVERY].mean()
            made[name] = own
        return made

    def detected(self, steps: int) -> dict[str, Floats]:
        """Return the largest score of each four steps, by detector; what is no number counts as infinite.

        Detectors of a curve that was not recorded are left out.
        """
        made = {}
        for name, (of, score) in DETECTORS.items():
            if not len(curve := self.loss if of == "loss" else self.norm):
                continue
            scores = score(curve)
            number = min(len(scores), steps) // EVERY
            cells = np.where(np.isnan(scores), np.inf, scores)[: number * EVERY].reshape(number, EVERY)
            made[name] = np.zeros(steps // EVERY)
            made[name][:number] = cells.max(axis=1)
        return made


@dataclass(frozen=True, slots=True)
class Band:
    """Mean and standard deviation of healthy runs: float64[points] each; NaN where there is no number."""

    middle: Floats
    spread: Floats

    @classmethod
    def of(cls, runs: Sequence[Floats]) -> Band:
        """Make the band of some runs, at least two."""
        stacked = np.array(runs)
        known = np.isfinite(stacked).all(axis=0)
        middle, spread = np.full((2, stacked.shape[1]), np.nan)
        middle[known], spread[known] = stacked[:, known].mean(axis=0), stacked[:, known].std(axis=0, ddof=1)
        floor = FLOOR * float(np.median(spread[known])) if known.any() else 0.0
        return cls(_smooth(middle), np.maximum(_smooth(spread), max(floor, 1e-9)))

    def score(self, values: Floats) -> Floats:
        """Return the least distance of three points in a row on the same side, in standard deviations."""
        distance = (values - self.middle) / self.spread
        distance = np.where(np.isposinf(values), np.inf, distance)
        scores = np.zeros(len(values))
        for side in (1.0, -1.0):
            own = np.where(np.isnan(distance), 0.0, side * distance)
            rows = np.array([own[lag : len(own) - (IN_A_ROW - 1 - lag)] for lag in range(IN_A_ROW)])
            scores[IN_A_ROW - 1 :] = np.maximum(scores[IN_A_ROW - 1 :], rows.min(axis=0))
        return scores


def _smooth(values: Floats) -> Floats:
    """Return means of neighbouring points, of those that have a number."""
    weights = np.isfinite(values).astype(np.float64)
    kernel, own = np.ones(SMOOTHED), slice(SMOOTHED // 2, SMOOTHED // 2 + len(values))
    total = np.convolve(np.where(weights > 0, values, 0.0), kernel)[own]
    number = np.convolve(weights, kernel)[own]
    smooth: Floats = np.where(weights > 0, total / np.maximum(number, 1), np.nan)
    return smooth


def less_own(values: Floats, onset: int) -> Floats:
    """Return values less their median over the span before an onset; an onset of 0 leaves them alone."""
    if onset == 0:
        return values
    own = values[max(0, onset - SPAN) // EVERY : onset // EVERY]
    own = own[np.isfinite(own)]
    return values - (float(np.median(own)) if len(own) else np.nan)


def limit_of(maxima: Sequence[float], steps: int, signals: int) -> float:
    """Return the score that a signal exceeds in so few healthy runs that all signals keep to the rate together.

    The largest scores of healthy runs, in logarithms, follow a Gumbel law, fitted by mean and standard deviation.
    """
    logs = np.log(np.maximum(np.asarray(maxima), 1e-3))
    share = RATE * steps / signals
    scale = float(logs.std(ddof=1)) * 6**0.5 / np.pi
    middle = float(logs.mean()) - _GUMBEL * scale
    return float(np.exp(middle - scale * np.log(-np.log1p(-share))))


def run_path(folder: Path, name: str, seed: int) -> Path:
    """Return where a run is kept."""
    return folder / "runs" / f"{name}-{seed}.npz"


def write_run(path: Path, curves: Curves, facts: dict[str, Any]) -> None:
    """Write a run whole: curves, and facts that JSON can hold."""
    stream = io.BytesIO()
    arrays: dict[str, Any] = {
        f"of_{name}": np.asarray(own, dtype=np.float64).reshape(-1, 2) for name, own in curves.points.items()
    }
    np.savez_compressed(stream, loss=curves.loss, norm=curves.norm, facts=np.array(json.dumps(facts)), **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, stream.getvalue())


def read_run(path: Path, plan: str, text: str) -> tuple[Curves, dict[str, Any]]:
    """Read a run that was made by the plan with this digest, on the text with that digest."""
    try:
        with np.load(path, allow_pickle=False) as data:
            facts = json.loads(str(data["facts"]))
            points = {monitor.name: data[f"of_{monitor.name}"] for monitor in MONITORS}
            curves = Curves(data["loss"], data["norm"], points)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        name = quote(str(path))
        raise ConfigError(f"lab: {path} is damaged: {type(error).__name__}", f"Delete it: rm {name}") from None
    for what, own, wanted in (("by the plan", facts["plan"], plan), ("on the text", facts.get("text", "?"), text)):
        if own != wanted:
            raise ConfigError(
                f"lab: {path} was made {what} {own[:12]}, not {wanted[:12]}", "Give another folder by --out."
            )
    return curves, facts
