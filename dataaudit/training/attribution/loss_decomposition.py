"""The division of an episode's excess: what each block of documents adds to a loss that is too high.

Of every stretch i of the episode, w is its share of the scored targets, and r = loss - m what it is above the loss m
that the healthy past predicts: the line through the steps' losses, plus offsets of its source, of its length and of its
place in the row, each shrunk towards 0 by n / (n + 20), n the effective number of healthy stretches. Then, for any
number c,

    excess = sum of w * r = c + sum over blocks of (sum of w * (r - c) in the block)

exactly. c is what all blocks have in common: the weighted median over blocks of their mean r, less the same median of
healthy blocks (losses are skewed, so that is not 0). For a unit, its own blocks are left out of the
median.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dataaudit.base.statistics import Floats, Ints, Mask, pairs_of, robust_line, weighted_median
from dataaudit.training.attribution.curve import Judged
from dataaudit.training.attribution.spikes import WINDOW
from dataaudit.training.attribution.step_detector import SHRINK, log2, ratio

_LINE = 6 / WINDOW
"""Variance of the detector's line a few steps ahead, in variances of a step: (pi / 2 + 12 * 0.6^2) / 50."""
_SWEEPS = 10
"""Times that the offsets are fitted in turn."""
_BINS = 64
_LEAST_STEPS = 20
"""Healthy steps below which the detector's line is taken as it is."""
Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """Scored stretches, as columns of equal length."""

    step: Ints
    rank: Ints
    micro_batch: Ints
    batch_row: Ints
    start: Ints
    shard: Ints
    """Ordinal; of shards with equal bytes the lowest; -1: merged."""
    row: Ints
    offset: Ints
    source: Ints
    epoch: Ints
    targets: Ints
    loss: Floats

    def __len__(self) -> int:
        return len(self.step)

    def take(self, chosen: Any) -> Stretches:
        """Return some of them: a mask, a slice or indices."""
        return Stretches(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def units(self, block_rows: int = 0) -> Ints:
        """Return what each belongs to, as one number: its block of so many rows, or its shard for 0."""
        if not block_rows:
            return self.shard
        return np.where(self.shard < 0, -1, (self.shard << 40) | (np.maximum(self.row, 0) // block_rows))


def shard_of(unit: int) -> int:
    """Return the shard of a block's number."""
    return unit >> 40


def block_of(unit: int) -> int:
    """Return the block within its shard of a block's number."""
    return unit & ((1 << 40) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A block, or all blocks of a shard, in the stretches of an episode."""

    number: int
    """As :meth:`Stretches.units` has it."""
    rows: int
    """Rows of a block; 0 for a shard."""

    @property
    def shard(self) -> int:
        """Ordinal of the shard; -1 for merged stretches."""
        return shard_of(self.number) if self.rows else self.number

    @property
    def first_row(self) -> int | None:
        """First row of a block; None for a shard."""
        return block_of(self.number) * self.rows if self.rows and self.shard >= 0 else None

    def of(self, stretches: Stretches) -> Mask:
        """Return which stretches belong to it."""
        chosen: Mask = stretches.units(self.rows) == self.number
        return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Stretches added up by unit, sorted by it."""

    unit: Ints
    weight: Floats
    """Share of the scored targets."""
    mean: Floats
    """Weighted mean of r, nats/token."""
    inverse: Ints

    def as_heavy(self, weight: float, least: int) -> tuple[Floats, float]:
        """Return the means of those of some weight or more, but of so many at least, and the least weight of these."""
        bound = min(weight, float(np.sort(self.weight)[::-1][:least][-1]))
        return self.mean[self.weight >= bound], bound


def _grouped(units: Ints, weights: Floats, residuals: Floats) -> Groups:
    """Add up weights and residuals by unit."""
    unit, inverse = np.unique(units, return_inverse=True)
    weight = _added(inverse, weights, len(unit))
    total = _added(inverse, weights * residuals, len(unit))
    return Groups(unit=unit, weight=weight, mean=total / weight, inverse=inverse)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the healthy past predicts of a stretch, and how far off it is."""

    mean: float
    """Of healthy stretches above the line, nats/token."""
    sources: Floats
    """float64[sources + 1]: offset by source; the first is of those without a name."""
    lengths: Floats
    """Offset by log2 of the targets."""
    positions: Floats
    """Offset by log2 of the start in the row."""
    past: Floats
    """Healthy stretches by source, as ``sources``: how many, and at most twice those of the newer half of the steps. A
    model forgets a source that it does not read, and losses of the first steps say nothing of later ones."""
    common: float
    """Weighted median of healthy blocks' residuals."""
    spread: Floats
    """Standard deviation of a block's mean residual in a step, by log2 of its targets there."""
    step_variance: float
    """Of steps' residuals, beyond what their blocks' spread comes to."""

    def of(self, stretches: Stretches, level: Floats) -> Floats:
        """Return m of stretches."""
        source, length, position = _codes(stretches, len(self.sources))
        expected: Floats = level + self.mean + self.sources[source] + self.lengths[length] + self.positions[position]
        return expected

    def past_of(self, stretches: Stretches) -> Floats:
        """Return how many healthy stretches the source of each has."""
        past: Floats = self.past[_codes(stretches, len(self.sources))[0]]
        return past


def step_weights(stretches: Stretches) -> Floats:
    """Return the share that each stretch has in the scored targets of its own step."""
    _, inverse = np.unique(stretches.step, return_inverse=True)
    totals = np.bincount(inverse, stretches.targets.astype(np.float64))
    weights: Floats = stretches.targets / totals[inverse]
    return weights


def fit(healthy: Stretches, level: Floats, sources: int, block_rows: int) -> Expectation:
    """Fit what is expected of a stretch on those of healthy steps.

    Offsets are fitted in turn, ten times: the mean, weighted by targets, of what the other offsets leave, times
    n / (n + 20), where n = (sum of targets)^2 / (sum of targets^2).
    """
    above, weights = healthy.loss - level, healthy.targets.astype(np.float64)
    mean = float(np.average(above, weights=weights))
    codes = _codes(healthy, sources + 1)
    sizes = (sources + 1, _BINS, _BINS)
    totals = [_added(code, weights, size) for code, size in zip(codes, sizes, strict=True)]
    squares = [_added(code, weights**2, size) for code, size in zip(codes, sizes, strict=True)]
    numbers = [ratio(total**2, square) for total, square in zip(totals, squares, strict=True)]
    offsets = [np.zeros(size) for size in sizes]
    rest = above - mean
    for _ in range(_SWEEPS):
        for place, code in enumerate(codes):
            own = rest + offsets[place][code]
            sums = _added(code, weights * own, sizes[place])
            offsets[place] = ratio(sums, totals[place]) * (numbers[place] / (numbers[place] + SHRINK))
            rest = own - offsets[place][code]
    spread, common, variance = _noise(healthy, rest, block_rows)
    lately = healthy.step >= np.median(np.unique(healthy.step))
    past, newer = (
        np.bincount(values, minlength=sizes[0]).astype(np.float64) for values in (codes[0], codes[0][lately])
    )
    return Expectation(
        mean=mean,
        sources=offsets[0],
        lengths=offsets[1],
        positions=offsets[2],
        past=np.minimum(past, 2 * newer),
        common=common,
        spread=spread,
        step_variance=variance,
    )


def _trend(healthy: Stretches, level: Floats, expectation: Expectation, at: Ints) -> tuple[Floats, float] | None:
    """Return the line through the newest healthy steps' losses less their offsets, at later steps, and its variance."""
    steps, inverse = np.unique(healthy.step, return_inverse=True)
    if len(steps) < _LEAST_STEPS:
        return None
    levels = np.zeros(len(steps))
    levels[inverse] = level
    levels += _added(inverse, step_weights(healthy) * (healthy.loss - expectation.of(healthy, level)), len(steps))
    past, values = (steps[-WINDOW:] - at[0]).astype(np.float64), levels[-WINDOW:]
    slope, middle, _ = robust_line(past, values, pairs_of(len(past)))
    noise = float(((values - middle - slope * past) ** 2).sum()) / (len(past) - 2)
    ahead = float(at.mean() - at[0] - past.mean()) ** 2 / float(((past - past.mean()) ** 2).sum())
    return middle + slope * (at - at[0]), noise * (math.pi / 2 / len(past) + ahead)


def healthy_units(healthy: Stretches, residuals: Floats, block_rows: int) -> Groups:
    """Return the units of every healthy step: blocks of so many rows, or shards for 0; merged stretches left out."""
    kept = healthy.shard >= 0
    groups, _, _ = _in_steps(healthy.take(kept), step_weights(healthy)[kept], residuals[kept], block_rows)
    return groups


def _noise(healthy: Stretches, rest: Floats, block_rows: int) -> tuple[Floats, float, float]:
    """Return the spread by size, the usual common part, and the steps' own variance."""
    groups, steps, targets = _in_steps(healthy, step_weights(healthy), rest, block_rows)
    bins = log2(targets)
    number = np.bincount(bins, minlength=_BINS)
    second = np.bincount(bins, groups.mean**2, minlength=_BINS)
    variance = (second + SHRINK * float(np.mean(groups.mean**2))) / (number + SHRINK)
    sums = np.bincount(steps, groups.weight * groups.mean)
    expected = np.bincount(steps, groups.weight**2 * variance[bins])
    own = max(0.0, float(np.mean(sums**2 - expected)))
    return np.sqrt(variance), weighted_median(groups.mean, groups.weight), own


def _in_steps(stretches: Stretches, weights: Floats, residuals: Floats, block_rows: int) -> tuple[Groups, Ints, Floats]:
    """Return the units of every step, the step of each as a number from 0, and its targets."""
    _, unit = np.unique(stretches.units(block_rows), return_inverse=True)
    _, step = np.unique(stretches.step, return_inverse=True)
    many = int(unit.max(initial=0)) + 1
    groups = _grouped(step.astype(np.int64) * many + unit, weights, residuals)
    targets = _added(groups.inverse, stretches.targets.astype(np.float64), len(groups.unit))
    return groups, groups.unit // many, targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An episode's stretches with what each adds to the excess."""

    stretches: Stretches
    weights: Floats
    """w, which add up to 1."""
    residuals: Floats
    """r, nats/token."""
    expectation: Expectation
    block_rows: int
    band: float
    """Distance from the line up to which the episode would be inside the band, nats/token."""
    line_variance: float

    def take(self, chosen: Mask) -> Account:
        """Return the account of some of the stretches, at least one."""
        weights = self.weights[chosen]
        return replace(
            self,
            stretches=self.stretches.take(chosen),
            weights=weights / weights.sum(),
            residuals=self.residuals[chosen],
        )

    @property
    def excess(self) -> float:
        """Sum of w * r."""
        return float(np.dot(self.weights, self.residuals))

    def common(self, left_out: Mask | None = None) -> float:
        """Return c, the blocks of some stretches left out; 0 when no other is there."""
        kept = np.ones(len(self.stretches), bool) if left_out is None else ~left_out
        if not kept.any():
            return 0.0
        groups = _grouped(self.stretches.units(self.block_rows)[kept], self.weights[kept], self.residuals[kept])
        return weighted_median(groups.mean, groups.weight) - self.expectation.common

    def parts(self, common: float) -> Floats:
        """Return w * (r - c) of every stretch: with c they add up to the excess."""
        parts: Floats = self.weights * (self.residuals - common)
        return parts

    def part(self, unit: Mask) -> Part:
        """Return what a unit adds, the others being as they are."""
        weight = float(self.weights[unit].sum())
        common = self.common(unit)
        rest = float(np.dot(self.weights[~unit], self.residuals[~unit]))
        left = 1 - weight
        return Part(
            weight=weight,
            common=common,
            excess=float(self.parts(common)[unit].sum()),
            mean=float(np.dot(self.weights[unit], self.residuals[unit])) / weight,
            rest=rest / left if left > 1e-12 else math.nan,
            rest_band=self.band / math.sqrt(left) if left > 1e-12 else math.nan,
        )

    def interval(self, unit: Mask, part: Part) -> tuple[float, float] | None:
        """Return the 95 % interval of a unit's share of the excess, by Fieller; None where it has no bounds.

        The share is a ratio of two sums that are both noisy: part / excess. Each block's sum has the variance that
        blocks of its size have in healthy steps; the common part that of a weighted median of the other blocks, with
        their covariance; the excess that of the line, and of steps beyond their blocks.
        """
        groups = _grouped(self.stretches.units(self.block_rows), self.weights, self.residuals)
        spread = self._spread(groups)
        inside = np.zeros(len(groups.unit), bool)
        inside[groups.inverse[unit]] = True
        own, others = groups.weight[inside], groups.weight[~inside]
        own_spread, spread = spread[inside], spread[~inside]
        density = float((others / spread).sum())
        if density <= 0:
            return None
        own_variance = float((own**2 * own_spread**2).sum())
        variance = float((others**2 * spread**2).sum())
        median_variance = math.pi / 2 * float((others**2).sum()) / density**2
        covariance = float((others**2 * spread).sum()) / density
        steps = len(np.unique(self.stretches.step))
        line = self.line_variance + self.expectation.step_variance / steps
        square = Z95**2
        excess, weight = self.excess, part.weight
        quadratic = excess**2 - square * (own_variance + variance + line)
        linear = part.excess * excess - square * (own_variance - weight * covariance)
        constant = part.excess**2 - square * (own_variance + weight**2 * median_variance)
        root = linear**2 - quadratic * constant
        if quadratic <= 0 or root < 0:
            return None
        half = math.sqrt(root)
        return (linear - half) / quadratic, (linear + half) / quadratic

    def _spread(self, groups: Groups) -> Floats:
        """Return the standard deviation of each group's mean residual, from its sizes in the steps."""
        in_steps, _, targets = _in_steps(self.stretches, self.weights, self.residuals, self.block_rows)
        variance = in_steps.weight**2 * self.expectation.spread[log2(targets)] ** 2
        first = np.zeros(len(in_steps.unit), np.int64)
        first[in_steps.inverse] = groups.inverse
        total = np.bincount(first, variance, minlength=len(groups.unit))
        spread: Floats = np.sqrt(np.maximum(total, 1e-24)) / groups.weight
        return spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a unit adds to the excess."""

    weight: float
    common: float
    """What all other blocks have in common, nats/token."""
    excess: float
    """Its part of the excess, nats/token."""
    mean: float
    rest: float
    """Excess of the episode without it; NaN when nothing else is there."""
    rest_band: float
    """Band of what is left: wider, as it is fewer tokens."""

    @property
    def inside(self) -> bool:
        """Whether the episode without it lies inside the band."""
        return abs(self.rest) <= self.rest_band


def _codes(stretches: Stretches, sources: int) -> tuple[Ints, Ints, Ints]:
    """Return the codes of source, length and position; a source that is new or has no name is 0."""
    known = (stretches.source >= 0) & (stretches.source < sources - 1)
    return np.where(known, stretches.source + 1, 0), log2(stretches.targets), log2(stretches.start + 1)


def _added(codes: Ints, values: Floats, size: int) -> Floats:
    """Return the sum of the values of each code, as numbers with decimals also where there is nothing to add."""
    sums: Floats = np.bincount(codes, values, minlength=size).astype(np.float64)
    return sums


def account_of(
    stretches: Stretches, healthy: Stretches, judged: Judged, sources: int, block_rows: int
) -> tuple[Account, float, Floats]:
    """Return the account of an episode, its loss above the detector's line, and the residuals of healthy stretches.

    There is at least one stretch of either kind; healthy stretches are of steps before the episode.
    """
    at = np.searchsorted(judged.step, stretches.step)
    level, healthy_level = judged.level[at], judged.level[np.searchsorted(judged.step, healthy.step)]
    expectation = fit(healthy, healthy_level, sources, block_rows)
    weights = stretches.targets / stretches.targets.sum()
    limit, k = (float(np.dot(weights, values[at])) for values in (judged.limit, judged.k))
    newest = healthy.step > judged.last_shift(int(stretches.step[0]))
    own = _trend(healthy.take(newest), healthy_level[newest], expectation, stretches.step)
    line, variance = own or (level, (limit / k) ** 2 * _LINE)
    account = Account(
        stretches=stretches,
        weights=weights,
        residuals=stretches.loss - expectation.of(stretches, line),
        expectation=expectation,
        block_rows=block_rows,
        band=limit,
        line_variance=variance,
    )
    above_line = float(np.dot(weights, stretches.loss - level))
    return account, above_line, healthy.loss - expectation.of(healthy, healthy_level)
