"""The loss beside what was to be expected of it: a power law through its own past, or the course of a healthy run.

``scaling_law_residual``: L0 + A * t^-a is fitted to the healthy steps up to 90 % of the tokens, and the newest 10 % are
compared with it. How far such a fit is off by itself is seen at earlier times of the same run. Learning rates decide
the curve: a run that decays its own comes out below the fit of the time before.

``collapse_residual``: losses of runs with the same schedule, tokens per parameter and time scale of AdamW fall on one
curve when they are divided by the last one (Qiu et al. 2025, arXiv 2507.02119; Bergsma et al. 2025, arXiv 2509.25087,
whose form without an irreducible loss this is). The last loss of an unfinished run is predicted from the reference's by
the ratio of the two in the past.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from dataaudit.base.statistics import SIGMA, Floats, Ints, Mask, spread
from dataaudit.training.attribution.curve import Curve, curve_of, judge_run
from dataaudit.training.attribution.findings import Collapse, ScalingLaw
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.step_detector import ratio

NEWEST = 0.1
"""Part of the tokens that is compared with the past."""
LEAST_STEPS = 200
"""Healthy steps of a fit, and a tenth as many that are compared with it."""
WARM_UP = 0.05
"""Part of the tokens that no law is fitted to where the learning rate's warm-up is not known."""
_BINS = 200
_EXPONENTS = np.geomspace(0.02, 2.0, 60)
_HUBER = 1.345
_ROUNDS = 20
_EARLIER = 20
"""Earlier times at most."""


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """L0 + A * t^-a, t as a part of the run's tokens."""

    irreducible: float
    amplitude: float
    exponent: float

    def at(self, time: Floats) -> Floats:
        """Return the losses at some times: float64[n] nats/token."""
        losses: Floats = self.irreducible + self.amplitude * time**-self.exponent
        return losses


def fit_power_law(time: Floats, value: Floats, weight: Floats) -> PowerLaw:
    """Fit L0 + A * t^-a, L0 and A at least 0, by Huber's loss over exponents from 0.02 to 2, then in between."""
    coarse = int(np.searchsorted(_EXPONENTS, _fitted(time, value, weight, _EXPONENTS).exponent))
    low, high = _EXPONENTS[max(0, coarse - 1)], _EXPONENTS[min(len(_EXPONENTS) - 1, coarse + 1)]
    return _fitted(time, value, weight, np.linspace(low, high, 41))


def _fitted(time: Floats, value: Floats, weight: Floats, exponents: Floats) -> PowerLaw:
    """Return the law with the least sum of distances among some exponents: lines in t^-a, weighted anew each round."""
    shape = time ** -exponents[:, None]
    factor = np.broadcast_to(weight, shape.shape)
    for _ in range(_ROUNDS):
        total = factor.sum(axis=1)
        mean_shape, mean_value = (factor * shape).sum(axis=1) / total, (factor * value).sum(axis=1) / total
        beside = shape - mean_shape[:, None]
        spread = np.maximum((factor * beside**2).sum(axis=1), 1e-300)
        second = np.maximum((factor * beside * value).sum(axis=1) / spread, 0.0)
        first = mean_value - second * mean_shape
        through = (factor * shape * value).sum(axis=1) / (factor * shape**2).sum(axis=1)
        second, first = np.where(first < 0, through, second), np.maximum(first, 0.0)
        off = np.abs(value - first[:, None] - second[:, None] * shape) * np.sqrt(weight)
        scale = np.maximum(SIGMA * np.median(off, axis=1), 1e-12)
        factor = weight * np.minimum(1.0, _HUBER * scale[:, None] / np.maximum(off, 1e-300))
    best = int(np.argmin(off.sum(axis=1)))
    return PowerLaw(float(first[best]), float(second[best]), float(exponents[best]))


def scaling_law(curve: Curve, healthy: Mask, warm: int | None = None) -> ScalingLaw | None:
    """Compare the newest tenth of a run's tokens with the law of the time before; None with too few healthy steps."""
    time = _middles(curve.targets)
    usable = healthy & np.isfinite(curve.value) & (curve.targets > 0)
    usable &= (curve.step >= warm) if warm is not None else (time >= WARM_UP * float(time[-1])) if len(time) else True
    if not usable.any():
        return None
    time = time / max(float(time[-1]), 1.0)
    now = _held_out(time[usable], curve.value[usable], 1.0)
    if now is None:
        return None
    residual, law = now
    fitted = curve.step[usable & (time <= 1 - NEWEST)]
    earlier = []
    for times in range(1, _EARLIER + 1):
        before = _held_out(time[usable], curve.value[usable], (1 - NEWEST) ** times)
        if before is None:
            break
        earlier.append(round(before[0], 9))
    return ScalingLaw(
        first_step=int(fitted[0]),
        last_step=int(fitted[-1]),
        irreducible=round(law.irreducible, 9),
        amplitude=round(law.amplitude, 9),
        exponent=round(law.exponent, 9),
        residual=round(residual, 9),
        earlier=tuple(earlier),
    )


def collapse(
    curve: Curve,
    healthy: Mask,
    reference: Curve,
    reference_healthy: Mask,
    *,
    name: str,
    manifest: str | None = None,
) -> Collapse | None:
    """Compare the newest tenth of a run with the course of a reference; None where the past is too short."""
    done, total = int(curve.targets.sum()), int(reference.targets.sum())
    if not done or not total:
        return None
    mine = _by_progress(curve, healthy, total)
    theirs = _by_progress(reference, reference_healthy, total)
    known = np.flatnonzero(np.isfinite(theirs))
    if not len(known):
        return None
    last = float(theirs[known[-1]])
    progress = min(1.0, done / total)
    middle = (np.arange(_BINS) + 0.5) / _BINS
    both = np.isfinite(mine) & np.isfinite(theirs)
    past = both & (middle >= progress / 4) & (middle < (1 - NEWEST) * progress)
    newest = both & (middle >= (1 - NEWEST) * progress)
    if int(past.sum()) < 10 or not newest.any():
        return None
    scale = float(np.median(mine[past] / theirs[past]))
    off = (mine / scale - theirs) / last
    return Collapse(
        reference=name,
        manifest=manifest,
        progress=round(progress, 9),
        scale=round(scale, 9),
        residual=round(float(np.mean(off[newest])), 9),
        spread=round(spread(off[past]), 9),
    )


def _middles(targets: Ints) -> Floats:
    """Return tokens up to the middle of each step: float64[steps]."""
    return np.cumsum(targets) - targets / 2


def _held_out(time: Floats, value: Floats, now: float) -> tuple[float, PowerLaw] | None:
    """Return how far the newest tenth up to a time is off the law of the time before, and that law."""
    past, newest = time <= now * (1 - NEWEST), (time > now * (1 - NEWEST)) & (time <= now)
    if int(past.sum()) < LEAST_STEPS or int(newest.sum()) < LEAST_STEPS // 10:
        return None
    edges = np.geomspace(time[past][0], time[past][-1] * (1 + 1e-12), _BINS + 1)
    bins = np.clip(np.searchsorted(edges, time[past], "right") - 1, 0, _BINS - 1)
    number = np.bincount(bins, minlength=_BINS)
    there = number > 0
    means = [np.bincount(bins, of[past], minlength=_BINS)[there] / number[there] for of in (time, value)]
    law = fit_power_law(means[0], means[1], number[there].astype(np.float64))
    return float(np.mean(value[newest] - law.at(time[newest]))), law


def _by_progress(curve: Curve, healthy: Mask, total: int) -> Floats:
    """Return mean losses of healthy steps by progress: float64[bins], NaN where there is none."""
    usable = healthy & np.isfinite(curve.value) & (curve.targets > 0)
    bins = np.minimum(_middles(curve.targets)[usable] / total * _BINS, _BINS - 1).astype(np.int64)
    number = np.bincount(bins, minlength=_BINS)
    return ratio(np.bincount(bins, curve.value[usable], minlength=_BINS), number, np.nan)


def scaling_law_of(data: Data) -> ScalingLaw | None:
    """Compare the newest steps with a power law of the time before."""
    step, rate = learning_rates(data)
    warm = step[:-1][rate_changes(rate) <= 0]
    return scaling_law(data.curve, data.judged.healthy(), int(warm[0]) if len(warm) else None)


def collapse_of(data: Data) -> Collapse | None:
    """Compare the newest steps with the course of the reference run, if it was named."""
    if data.reference is None:
        return None
    log = data.reference
    curve = curve_of(log.table("steps"), log.table("events"))
    healthy = judge_run(log, curve).healthy()
    name, manifest = log.folder.name, log.run.manifest
    return collapse(data.curve, data.judged.healthy(), curve, healthy, name=name, manifest=manifest)


def learning_rates(data: Data) -> tuple[Ints, Floats]:
    """Return steps and their learning rate."""
    values = data.log.table("values")
    rates = values.filter(pc.equal(values["metric"], "learning_rate")).sort_by("step")
    return rates["step"].to_numpy(), rates["value"].to_numpy()


def rate_changes(rate: Floats) -> Floats:
    """Return 1 where a learning rate rises to the next step, 0 where it stays and -1 where it falls."""
    return np.sign(np.where(np.isclose(rate[1:], rate[:-1], rtol=1e-9), 0.0, np.diff(rate)))
