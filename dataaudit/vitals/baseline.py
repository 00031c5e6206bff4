"""What a healthy run looks like: of every series a level and a scale, of every metric how far off its series may be.

A series is one metric of one layer, head and statistic. Its level is a median or, of another run, medians of its parts;
its scale is 1.4826 times the median absolute distance from the level, above a floor. z is the distance in scales.

The limit of a metric holds for all of its series together, and over time: in health, one of them begins to be out at
a share of steps that is the stated rate. Simulated for 96 heads with heavy tails, memory, or much in common, windows of
100 to 1,024 steps and a rate of 1 in 10,000, it was twice that at most, mostly less than half; alarms, which are raised
once and follow, were a third of it at most. What has so long a memory that its values are worth fewer than 30
independent ones is not evaluated.

With enough steps the limit comes from the healthy window itself. Each eighth of it is held out in turn, z is taken from
the level and scale of the rest, and the largest |z| over all series of each step is kept: that keeps what heads have in
common. Its tail is continued beyond the window as a power law (Weissman's estimator, the index after Hill, plus one and
a half standard errors), which is too wide for light tails rather than too narrow for heavy ones. With fewer steps it is
Sidak's bound over the series, with the tail of Student's t of 4 degrees of freedom.

A series is judged in two ways, which share the rate. For jumps: the least of its last m values on one side, m the
persistence; chance has to come m times, so the limit is nearer, and single outliers are none. For drifts: the mean of
its last 16 values, each cut off at 8 scales; its tail is continued as an exponential one, and fewer outliers than the
persistence never reach its limit.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.statistics import (
    SIGMA,
    Floats,
    Ints,
    correlation_times,
    heavy_tail,
    light_tail,
    row_medians,
    sidak_limit,
    sidak_limit_of_means,
    tail_index,
)
from dataaudit.runlog.reader import RunLog
from dataaudit.vitals.metric import Key
from dataaudit.vitals.metrics import ESTIMATES, declared

Trend = Literal["level", "trajectory"]
"""One median; medians of parts of a run, lines in between."""

RATE = 1e-4
"""False alarms a step, of a whole metric."""
AVERAGED = 16
"""Measured values of a mean."""
PERSISTENCE = 3
"""Measured values, one after the other, that have to be out on one side."""
FARTHEST_OF_MEAN = 8.0
"""Scales at which a value is cut off before it goes into a mean."""
LEAST_VALUES = 30
"""Values, and independent values that they are worth, below which a series is not evaluated."""
CALIBRATE_FROM = 200
"""Steps from which on a limit comes from the window itself."""
FLOOR = 1e-3
"""Least scale: this share of the level; of a level of 0, of the median level of the metric, or of 1 where that is 0;
of metrics in logarithms, the scale itself."""
KNOTS = 16
"""Parts of a trajectory."""
_FOLDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How far off the series of a metric may be."""

    over: Literal["each", "mean"]
    """Whether it holds for each of several values in a row, or for the mean of several."""
    values: int
    """How many."""
    distance: float
    """In scales."""
    method: Literal["calibrated", "sidak_student"]
    steps: int
    """Healthy steps with a value."""
    family: int
    """Series that it holds for together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baseline:
    """Levels, scales and limits."""

    keys: tuple[Key, ...]
    first: int
    last: int
    steps: int
    """Steps between these with a value."""
    total: int
    """Last step of the run that it is of, where positions are shares of it; 0 where they are steps."""
    at: Floats
    """float64[knots]: positions of the levels, ascending."""
    levels: Floats
    """float64[knots, series]; in logarithms where the metric is."""
    scale: Floats
    """float64[series]; NaN where a series is not evaluated."""
    values: Ints
    """int64[series]: how many each had."""
    effective: Floats
    """float64[series]: independent values that they are worth, by the median of the metric where that is less."""
    reasons: tuple[str, ...]
    """By series, why it is not evaluated; empty where it is."""
    limits: Mapping[str, tuple[Limit, Limit]]
    """By metric, of those with a series that is evaluated: for jumps, for drifts."""
    rate: float
    persistence: int

    @property
    def not_evaluated(self) -> dict[Key, str]:
        """Series that are not judged, and why."""
        return {key: reason for key, reason in zip(self.keys, self.reasons, strict=True) if reason}

    def level(self, step: int, total: int = 0) -> Floats:
        """Return the levels at a step, float64[series]."""
        return _between(self.at, self.levels, np.array([step / total if self.total else step], np.float64))[:, 0]

    def about(self) -> dict[str, int]:
        """Return what an alarm names of its baseline."""
        return {"from": self.first, "to": self.last, "steps": self.steps}


def baseline_of(
    keys: Sequence[Key],
    steps: Ints,
    values: Floats,
    *,
    trend: Trend = "level",
    total: int = 0,
    rate: float = RATE,
    persistence: int = PERSISTENCE,
) -> Baseline:
    """Return the baseline of healthy values."""
    keys = tuple(keys)
    if values.shape != (len(steps), len(keys)) or len(set(keys)) != len(keys):
        raise ValueError(f"{len(steps)} steps of {len(keys)} different series expected, found {values.shape}")
    if not values.size or not 0 < rate < 1 or not 1 <= persistence <= AVERAGED:
        raise ValueError(f"a baseline needs values, a rate between 0 and 1 and a persistence of 1 to {AVERAGED}")
    positions = steps / total if total else steps.astype(np.float64)
    at = _knots(positions, trend)
    metrics = np.array([key.metric for key in keys], object)
    levels, limits = np.empty((len(at), len(keys))), {}
    (scale, effective), counts = np.empty((2, len(keys))), np.empty(len(keys), np.int64)
    reasons = np.empty(len(keys), object)
    for metric in sorted(set(metrics)):
        chosen = np.flatnonzero(metrics == metric)
        log = declared(metric).logarithm
        own = values[:, chosen].T
        seen = np.flatnonzero(~np.isnan(own).all(0))
        seen = seen if len(seen) else np.zeros(1, np.int64)
        own = logarithm(own[:, seen]) if log else own[:, seen]
        measured = _measure(own, positions[seen], at, trend, log, rate, persistence)
        levels[:, chosen], scale[chosen], counts[chosen], effective[chosen], reasons[chosen], limit = measured
        if limit is not None:
            limits[metric] = limit
    return Baseline(
        keys=keys,
        first=int(steps[0]),
        last=int(steps[-1]),
        steps=len(steps),
        total=total,
        at=at,
        levels=levels,
        scale=scale,
        values=counts,
        effective=effective,
        reasons=tuple(reasons.tolist()),
        limits=limits,
        rate=rate,
        persistence=persistence,
    )


def baseline_of_run(
    log: RunLog,
    *,
    first: int,
    last: int,
    by: Literal["step", "position"] = "step",
    rank: int = 0,
    rate: float = RATE,
    persistence: int = PERSISTENCE,
) -> Baseline:
    """Return the baseline of a run that was written down: trajectories.

    Heads of runs that began with other weights have nothing in common but their numbers: take a run of the same seed,
    or judge whole layers.

    Args:
        log: The run.
        first: Step after warm-up.
        last: Last healthy step.
        by: Whether its levels hold at the same step, or at the same share of the run.
        rank: Its values are taken.
        rate: False alarms a step, of a whole metric.
        persistence: Values in a row that have to be out.

    Raises:
        RunLogError: A part of the log cannot be opened.
        ValueError: No value was written between these steps.
    """
    table = log.table("values")
    table = table.filter(pc.equal(table["rank"], rank))
    table = table.filter(pc.invert(pc.is_in(table["stat"], pa.array(sorted(ESTIMATES)))))
    end = max(table["step"].to_pylist(), default=0)
    table = table.filter(pc.and_(pc.greater_equal(table["step"], first), pc.less_equal(table["step"], last)))
    if not len(table):
        raise ValueError(f"{log.folder}: rank {rank} wrote no value from step {first} to {last}")
    rows = [Key(*item) for item in zip(*(table[name].to_pylist() for name in Key._fields), strict=True)]
    keys = sorted(set(rows))
    column = {key: row for row, key in enumerate(keys)}
    steps, row = np.unique(table["step"].to_numpy().astype(np.int64), return_inverse=True)
    values = np.full((len(steps), len(keys)), np.nan)
    values[row, [column[key] for key in rows]] = table["value"].to_numpy()
    total = end if by == "position" else 0
    return baseline_of(keys, steps, values, trend="trajectory", total=total, rate=rate, persistence=persistence)


class Arrays:
    """Keeps its arrays in a checkpoint, in plain types."""

    ARRAYS: ClassVar[tuple[str, ...]]
    """Their names."""

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {name: base64.b64encode(getattr(self, name).tobytes()).decode() for name in self.ARRAYS}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        for name in self.ARRAYS:
            array = getattr(self, name)
            array[...] = np.frombuffer(base64.b64decode(state[name]), array.dtype).reshape(array.shape)


def logarithm(values: Floats) -> Floats:
    """Return logarithms, -inf for what has none; NaN stays NaN."""
    with np.errstate(divide="ignore"):
        return np.log(np.where(values <= 0, 0.0, values))


class Runs:
    """How far each series has been out in its last few values."""

    def __init__(self, series: int, persistence: int) -> None:
        self.persistence = persistence
        self.recent = np.zeros((AVERAGED, series))
        """float64[AVERAGED, series]: the newest z first."""

    def see(self, z: Floats) -> Floats:
        """Take the values of a step and return how far out they are, in scales, float64[2, series].

        The first row is the least of the last ``persistence`` values, 0 where they were on both sides, the second the
        size of the mean of the last ``AVERAGED``; both are 0 where nothing was measured.
        """
        new = ~np.isnan(z)
        recent = self.recent
        for number in range(len(recent) - 1, 0, -1):
            np.copyto(recent[number], recent[number - 1], where=new)
        np.copyto(recent[0], z, where=new)
        newest = recent[: self.persistence]
        far = np.empty((2, len(z)))
        np.maximum(newest.min(0), -newest.max(0), out=far[0])
        np.abs(np.clip(recent, -FARTHEST_OF_MEAN, FARTHEST_OF_MEAN).mean(0), out=far[1])
        far *= new
        return np.maximum(far, 0.0)


def _measure(
    values: Floats, positions: Floats, at: Floats, trend: Trend, log: bool, rate: float, persistence: int
) -> tuple[Floats, Floats, Ints, Floats, list[str], tuple[Limit, Limit] | None]:
    """Return the levels, scales, numbers of values and of independent ones, reasons and limits of a metric."""
    values = np.where(np.isfinite(values), values, np.nan)
    levels = _levels(values, positions, at, trend)
    rest = values - _between(at, levels, positions)
    floor = _floors(levels, log=log)
    scale = _scales(rest, floor)
    number = np.count_nonzero(~np.isnan(values), axis=1)
    correlated = correlation_times(rest / scale[:, None])
    known = number > 0
    correlated = np.maximum(correlated, np.median(correlated[known]) if known.any() else 1.0)
    effective = number / correlated
    reasons = [_reason(*item) for item in zip(number.tolist(), effective.tolist(), strict=True)]
    fit = np.array([not reason for reason in reasons], bool)
    limits = None
    if fit.any():
        steps = int(np.count_nonzero(~np.isnan(values[fit]).all(0)))
        tails = math.nan, math.nan
        if steps >= CALIBRATE_FROM:
            tails = _calibrated(values[fit], positions, trend, floor[fit], rate / 2, persistence)
        bounds = (
            sidak_limit(effective[fit], correlated[fit], rate / 2, persistence),
            sidak_limit_of_means(effective[fit], correlated[fit], rate / 2, averaged=AVERAGED, knots=len(at)),
        )
        ways: tuple[tuple[Literal["each", "mean"], int], ...] = (("each", persistence), ("mean", AVERAGED))
        jumps, drifts = (
            Limit(
                over=over,
                values=many,
                distance=seen if math.isfinite(seen) else bound,
                method="calibrated" if math.isfinite(seen) else "sidak_student",
                steps=steps,
                family=int(fit.sum()),
            )
            for (over, many), seen, bound in zip(ways, tails, bounds, strict=True)
        )
        limits = (jumps, drifts)
    return levels, np.where(fit, scale, np.nan), number, effective, reasons, limits


def _reason(number: int, effective: float) -> str:
    if number < LEAST_VALUES:
        return f"{number} values, {LEAST_VALUES} are needed"
    if effective < LEAST_VALUES:
        return f"values worth {effective:.1f} independent ones, {LEAST_VALUES} are needed"
    return ""


def _knots(positions: Floats, trend: Trend) -> Floats:
    if trend == "level":
        return positions[len(positions) // 2 :][:1]
    edges = np.linspace(positions[0], positions[-1], KNOTS + 1)
    return (edges[1:] + edges[:-1]) / 2


def _levels(values: Floats, positions: Floats, at: Floats, trend: Trend) -> Floats:
    """Return float64[knots, series] of values float64[series, n]."""
    if trend == "level" or len(at) < 2 or at[0] == at[-1]:
        return np.tile(row_medians(values), (len(at), 1))
    part = np.clip(np.floor((positions - at[0]) / (at[1] - at[0]) + 0.5).astype(int), 0, KNOTS - 1)
    medians = np.stack([row_medians(values[:, part == number]) for number in range(KNOTS)])
    return _filled(medians, at)


def _filled(medians: Floats, at: Floats) -> Floats:
    """Return medians with those of parts without a value taken from the parts beside them."""
    for item in np.flatnonzero(np.isnan(medians).any(0) & ~np.isnan(medians).all(0)):
        known = ~np.isnan(medians[:, item])
        medians[:, item] = np.interp(at, at[known], medians[known, item])
    return medians


def _between(at: Floats, levels: Floats, positions: Floats) -> Floats:
    """Return the levels at positions, float64[series, n]: lines between knots, the outer levels beyond them."""
    right = np.clip(np.searchsorted(at, positions), 1, max(len(at) - 1, 1))
    if len(at) == 1:
        return np.repeat(levels.T, len(positions), axis=1)
    gap = at[right] - at[right - 1]
    share = np.clip((positions - at[right - 1]) / np.where(gap > 0, gap, 1), 0, 1)
    return levels[right - 1].T * (1 - share) + levels[right].T * share


def _floors(levels: Floats, *, log: bool) -> Floats:
    """Return float64[series]: the least scale of each."""
    if log:
        return np.full(levels.shape[1], FLOOR)
    size = np.abs(levels).max(0, initial=0.0)
    common = float(row_medians(np.where(np.isfinite(size), size, np.nan)[None])[0])
    return FLOOR * np.where(size > 0, size, common if common > 0 else 1.0)


def _scales(rest: Floats, floor: Floats) -> Floats:
    """Return float64[series]: 1.4826 MAD; the standard deviation where half are equal; at least the floor."""
    spread = SIGMA * row_medians(np.abs(rest))
    number = np.maximum(np.count_nonzero(~np.isnan(rest), axis=1), 1)
    deviation = np.sqrt(np.nansum(rest**2, axis=1) / number)
    return np.fmax(np.where(spread > 0, spread, deviation), np.where(np.isnan(floor), FLOOR, floor))


def _calibrated(
    values: Floats, positions: Floats, trend: Trend, floor: Floats, rate: float, persistence: int
) -> tuple[float, float]:
    """Return the limits of jumps and drifts from the window itself; NaN where a tail is not seen."""
    knots = len(_knots(positions, trend)) if trend == "trajectory" else 1
    fold = np.arange(len(positions)) * _FOLDS * knots // len(positions) % _FOLDS
    z = np.empty_like(values)
    for number in range(_FOLDS):
        out, rest = fold == number, fold != number
        at = _knots(positions[rest], trend)
        levels = _levels(values[:, rest], positions[rest], at, trend)
        scale = _scales(values[:, rest] - _between(at, levels, positions[rest]), floor)
        z[:, out] = (values[:, out] - _between(at, levels, positions[out])) / scale[:, None]
    runs = Runs(len(values), persistence)
    z = z[:, ~np.isnan(z).all(0)]
    far = np.array([runs.see(np.ascontiguousarray(z[:, number])).max(1) for number in range(z.shape[1])])
    most = tail_index(np.nanmax(np.abs(z), axis=0))
    few = (persistence - 1) * FARTHEST_OF_MEAN / AVERAGED
    drifts = max(light_tail(far[AVERAGED - 1 :, 1], rate), few)
    return heavy_tail(far[persistence - 1 :, 0], rate, most), drifts
