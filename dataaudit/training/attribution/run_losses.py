"""Losses over the whole run: by source, beside a power law of their own past, and beside the course of a healthy run.

``loss_by_source`` is the mean over the scored targets of a source in a window, ``source_loss_tax`` that less the mean
of all other targets of the same window. The stretches of a log and the sums that took their place together have every
scored target once, so both are exact and have no interval.

The tax of each source has a band of its own, as the run's loss has (:mod:`dataaudit.training.attribution.spikes`).
Windows outside of it do not move the line that later windows are compared with.

``scaling_law_residual``: L0 + A * t^-a is fitted to the healthy steps up to 90 % of the tokens, and the newest 10 % are
compared with it. How far such a fit is off by itself is seen at earlier times of the same run. Learning rates decide
the curve: a run that decays its own comes out below the fit of the time before.

``collapse_residual``: losses of runs with the same schedule, tokens per parameter and time scale of AdamW fall on one
curve when they are divided by the last one (Qiu et al. 2025, arXiv 2507.02119; Bergsma et al. 2025, arXiv 2509.25087,
whose form without an irreducible loss this is). The last loss of an unfinished run is predicted from the reference's by
the ratio of the two in the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.statistics import SIGMA, Floats, Ints, Mask, spread
from dataaudit.runlog.format import WINDOW_STEPS
from dataaudit.training.attribution.curve import Curve, curve_of, judge_run, series_of
from dataaudit.training.attribution.findings import Collapse, MovedTax, ScalingLaw, SourceLoss, SourceLosses
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_findings import number
from dataaudit.training.attribution.spikes import SpikeDetector, Verdict
from dataaudit.training.attribution.step_detector import ratio

MOST_WINDOWS = 400
LEAST_PART = 0.25
"""Windows with less than this part of the source's usual targets are not compared with the band: they vary more."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCurves:
    """Scored targets and their losses by window and source."""

    window: int
    first: Ints
    """int64[windows] first step of each, ascending; windows without a scored target are left out."""
    targets: Ints
    """int64[windows, sources]"""
    loss_sum: Floats
    """float64[windows, sources] sum of targets * loss, nats."""

    @property
    def losses(self) -> Floats:
        """float64[windows, sources] nats/token; NaN where a source has no target."""
        return ratio(self.loss_sum, self.targets, np.nan)

    @property
    def taxes(self) -> Floats:
        """float64[windows, sources] nats/token; NaN where the source or the rest has no target."""
        rest_sum = self.loss_sum.sum(axis=1, keepdims=True) - self.loss_sum
        rest = self.targets.sum(axis=1, keepdims=True) - self.targets
        return self.losses - ratio(rest_sum, rest, np.nan)

    def newest(self) -> SourceCurves:
        """Return the newest tenth of the windows as a single window."""
        last = slice(-max(1, len(self.first) // 10), None)
        return SourceCurves(
            window=self.window,
            first=self.first[last][:1],
            targets=self.targets[last].sum(axis=0, keepdims=True),
            loss_sum=self.loss_sum[last].sum(axis=0, keepdims=True),
        )


def source_curves(stretches: pa.Table, sums: pa.Table, sources: int) -> SourceCurves:
    """Return the sums of a log's tables of stretches and of sums.

    A window is 256 steps or a multiple where stretches were summed up, else the least power of two; there are at most
    ``MOST_WINDOWS``. Losses that are no number, and stretches without a source, are left out.
    """
    known = pc.and_(pc.is_finite(pc.fill_null(stretches["loss"], np.nan)), pc.greater(stretches["targets"], 0))
    scored = stretches.filter(known)
    pairs = (("step", "window"), ("source", "source"), ("targets", "scored"))
    step, source, targets = (
        np.concatenate([scored[name].to_numpy(), sums[other].to_numpy()]).astype(np.int64) for name, other in pairs
    )
    loss = scored["loss"].to_numpy().astype(np.float64) * scored["targets"].to_numpy()
    loss = np.concatenate([loss, sums["loss_sum"].to_numpy()])
    inside = (source >= 0) & (source < sources) & (targets > 0) & np.isfinite(loss)
    step, source, targets, loss = step[inside], source[inside], targets[inside], loss[inside]
    window = WINDOW_STEPS if sums.num_rows else 1
    while len(step) and int(step.max()) // window - int(step.min()) // window >= MOST_WINDOWS:
        window *= 2
    first, inverse = np.unique(step // window * window, return_inverse=True)
    cell, size = inverse * sources + source, len(first) * sources
    by_cell = [np.bincount(cell, values, minlength=size).reshape(len(first), sources) for values in (targets, loss)]
    return SourceCurves(
        window=window, first=first, targets=by_cell[0].astype(np.int64), loss_sum=by_cell[1].astype(np.float64)
    )


def source_losses(curves: SourceCurves, names: Sequence[str]) -> SourceLosses:
    """Return the losses of each source that was met, and the windows in which its tax left its band."""
    losses, taxes = curves.losses, curves.taxes
    newest = curves.newest()
    return SourceLosses(
        window_steps=curves.window,
        first_steps=tuple(curves.first.tolist()),
        sources=tuple(
            SourceLoss(
                source=names[code],
                targets=int(targets.sum()),
                loss=number(curves.loss_sum[:, code].sum() / targets.sum()),
                newest_loss=number(newest.losses[0, code]),
                newest_tax=number(newest.taxes[0, code]),
                moved=_moved(curves, taxes[:, code], targets),
                losses=tuple(map(number, losses[:, code].tolist())),
                taxes=tuple(map(number, taxes[:, code].tolist())),
            )
            for code, targets in enumerate(curves.targets.T)
            if targets.any()
        ),
    )


def _moved(curves: SourceCurves, tax: Floats, targets: Ints) -> tuple[MovedTax, ...]:
    """Return the windows whose tax is out of the band, those that follow each other together."""
    windows = np.flatnonzero(np.isfinite(tax) & (targets >= LEAST_PART * float(np.median(targets[targets > 0]))))
    detector = SpikeDetector(rate=None)
    runs: list[list[Verdict]] = []
    for order, window in enumerate(windows.tolist()):
        verdict = detector.see(order, float(tax[window]))
        if verdict.flagged and runs and runs[-1][-1].step == order - 1:
            runs[-1].append(verdict)
        elif verdict.flagged:
            runs.append([verdict])
    return tuple(
        MovedTax(
            first_step=int(curves.first[windows[run[0].step]]),
            last_step=int(curves.first[windows[run[-1].step]]) + curves.window - 1,
            tax=number(np.mean([verdict.value for verdict in run])),
            expected=number(np.mean([verdict.expected for verdict in run])),
            band=number(np.mean([verdict.limit for verdict in run])),
        )
        for run in runs
    )


def source_losses_of(data: Data) -> SourceLosses | None:
    """Return losses by source of the whole run; None where no loss of a stretch is known."""
    names = data.log.run.sources
    curves = source_curves(data.log.table("stretches"), data.log.table("sums"), len(names))
    return source_losses(curves, names) if len(curves.first) else None


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
    curve: Curve, healthy: Mask, reference: Curve, reference_healthy: Mask, *, name: str, manifest: str | None = None
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
    many = np.bincount(bins, minlength=_BINS)
    there = many > 0
    means = [np.bincount(bins, of[past], minlength=_BINS)[there] / many[there] for of in (time, value)]
    law = fit_power_law(means[0], means[1], many[there].astype(np.float64))
    return float(np.mean(value[newest] - law.at(time[newest]))), law


def _by_progress(curve: Curve, healthy: Mask, total: int) -> Floats:
    """Return mean losses of healthy steps by progress: float64[bins], NaN where there is none."""
    usable = healthy & np.isfinite(curve.value) & (curve.targets > 0)
    bins = np.minimum(_middles(curve.targets)[usable] / total * _BINS, _BINS - 1).astype(np.int64)
    many = np.bincount(bins, minlength=_BINS)
    return ratio(np.bincount(bins, curve.value[usable], minlength=_BINS), many, np.nan)


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
    """Return steps and their learning rate, which every rank writes."""
    return series_of(data.log.table("values"), "learning_rate")


def rate_changes(rate: Floats) -> Floats:
    """Return 1 where a learning rate rises to the next step, 0 where it stays and -1 where it falls."""
    return np.sign(np.where(np.isclose(rate[1:], rate[:-1], rtol=1e-9), 0.0, np.diff(rate)))
