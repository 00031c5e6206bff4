"""Residuals of stretches: their losses less what step, source, length, position in the row and pass predict.

A step's common part is that of its *other* units: a unit's own losses do not count, or a bad one would look better and
all that stands beside it worse. Units that are far off (blocks or shards beyond four standard deviations) count in no
estimate at all. Where they leave less than a quarter of a step, or where a step's common part is itself far from that
of the steps around it, its stretches count for nothing: a state that breaks moves each source by an amount of its own,
so no unit is odd by what it is there. What a source moves by over the run is taken away by windows of steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.base.statistics import (
    EXACT_SIGMA,
    Floats,
    Ints,
    Mask,
    group_means,
    group_medians,
    spread,
    variance_between,
)
from dataaudit.training.attribution.loss_decomposition import Stretches

FAR = 4.0
"""Robust standard deviations at which residuals are cut off, and beyond which a unit is far."""
WINDOW = 64
"""Steps over which the level of a source is one."""
LEAST_LEFT = 0.25
"""Share of a step's weight that has to be of units that are not far."""
_SWEEPS = 6
_BINS = 32
_SHRINK = 20.0
"""Stretches at which half of a source's own movement is believed."""
_AROUND = 25
"""Steps on either side whose common parts a step's is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Residuals of stretches."""

    rest: Floats
    """Nats/token."""
    weight: Floats
    """1 / variance of it; 0 where its step says nothing."""
    overlap: Mask
    """Whether its step has a far unit of another shard."""
    steps_left_out: int
    """Steps that say nothing."""
    unknown: Floats
    """Variance of what its source moved by in its time, (nats/token)**2, where few others of the source say so."""


def predicted_away(stretches: Stretches, blocks: Ints, units: Ints) -> Predicted:
    """Take away all that predicts the losses of stretches."""
    _, step = np.unique(stretches.step, return_inverse=True)
    _, source = np.unique(stretches.source, return_inverse=True)
    windows = int(stretches.step.max(initial=0)) // WINDOW + 1
    codes = [
        step,
        source,
        np.log2(np.maximum(stretches.targets, 1)).astype(np.int64),
        np.log2(stretches.start + 1).astype(np.int64),
        np.minimum(np.where(stretches.epoch < 0, -1 - stretches.epoch, stretches.epoch), 63),
    ]
    far = np.zeros(len(stretches), dtype=bool)
    moved = source * windows + stretches.step // WINDOW
    rest, weight, common, unknown = _swept(stretches, codes, moved, far, units)
    far = _far(rest, weight, blocks) | _far(rest, weight, stretches.shard)
    if far.any():
        rest, weight, common, unknown = _swept(stretches, codes, moved, far, units)
    steps = int(step.max(initial=-1)) + 1
    total, kept = (np.bincount(step, values, minlength=steps) for values in (weight, weight * ~far))
    silent = (kept < LEAST_LEFT * total) | _up(common)
    return Predicted(
        rest=rest,
        weight=np.where(silent[step], 0.0, weight),
        overlap=_of_others(step, stretches.shard, far, steps),
        steps_left_out=int(silent.sum()),
        unknown=unknown,
    )


def precisions(loss: Floats, targets: Ints) -> Floats:
    """Return 1 / variance of a stretch by how many targets it has: a robust one by powers of two, never rising."""
    bins = np.minimum(np.log2(np.maximum(targets, 1)).astype(np.int64), _BINS - 1)
    variance = np.full(_BINS, np.nan)
    for bin_ in np.unique(bins).tolist():
        inside = loss[bins == bin_]
        if len(inside) >= 20:
            variance[bin_] = max(spread(inside, sigma=EXACT_SIGMA) ** 2, 1e-12)
    known = np.flatnonzero(np.isfinite(variance))
    filled = np.interp(np.arange(_BINS), known, variance[known]) if len(known) else np.ones(_BINS)
    precision: Floats = 1 / np.minimum.accumulate(filled)[bins]
    return precision


def _swept(
    stretches: Stretches, codes: list[Ints], moved: Ints, far: Mask, units: Ints
) -> tuple[Floats, Floats, Floats, Floats]:
    """Take away means in turn, far units left out; the step's last, of other units; what is far does not move them."""
    rest = stretches.loss.copy()
    weight = precisions(stretches.loss, stretches.targets)
    common = np.zeros(int(codes[0].max(initial=-1)) + 1)
    for sweep in range(_SWEEPS):
        for kind, code in enumerate(codes):
            size = int(code.max(initial=0)) + 1
            part = (
                group_means(code, _clipped(rest), weight * ~far, size)[0]
                if sweep
                else group_medians(code[~far], rest[~far], size)
            )
            rest -= part[code]
            common += part if kind == 0 else 0.0
        weight = precisions(rest, stretches.targets)
    usual = float(np.median(weight)) if len(weight) else 0.0
    shrink = _SHRINK * usual
    movement, known = _by_others(moved, units, _clipped(rest), weight * ~far, shrink)
    unknown = (
        _movement(stretches.step // WINDOW, moved, _clipped(rest), weight * ~far) * (shrink / (known + shrink)) ** 2
    )
    rest -= movement
    by_others, number = _by_others(codes[0], units, _clipped(rest), weight * ~far, 0.0)
    alone = number <= 0
    weight = np.where(alone, 0.0, 1 / (1 / weight + 1 / np.maximum(number, 1e-300)))
    return rest - by_others, weight, common, unknown


def _movement(window: Ints, moved: Ints, values: Floats, weight: Floats) -> Floats:
    """Return the variance by which sources move in the window of each stretch, by itself, the next and the last."""
    code, first = np.unique(moved, return_index=True)
    mean, precision = group_means(np.searchsorted(code, moved), values, weight, len(code))
    at = window[first]
    variance = np.zeros(int(window.max(initial=0)) + 1)
    for value in np.unique(at).tolist():
        near = (np.abs(at - value) <= 1) & (precision > 0)
        variance[value] = variance_between(mean[near], precision[near])
    return variance[window]


def _clipped(rest: Floats) -> Floats:
    bound = FAR * spread(rest, sigma=EXACT_SIGMA)
    return np.clip(rest, -bound, bound)


def _by_others(code: Ints, units: Ints, values: Floats, weight: Floats, shrink: float) -> tuple[Floats, Floats]:
    """Return, for each stretch, the weighted mean of its code's other units, and their weight."""
    size = int(code.max(initial=0)) + 1
    _, unit = np.unique(units, return_inverse=True)
    _, pair = np.unique(code * (int(unit.max(initial=0)) + 1) + unit, return_inverse=True)
    sums, totals = (np.bincount(code, item, minlength=size)[code] for item in (weight * values, weight))
    sums = sums - np.bincount(pair, weight * values)[pair]
    number: Floats = np.maximum(totals - np.bincount(pair, weight)[pair], 0.0)
    number = np.where(number < 1e-9 * totals, 0.0, number)
    return np.divide(sums, number + shrink, out=np.zeros(len(code)), where=number > 0), number


def _far(rest: Floats, weight: Floats, units: Ints) -> Mask:
    """Return which stretches are of a unit that is far off, beside all units."""
    _, code = np.unique(units, return_inverse=True)
    mean, precision = group_means(code, rest, weight, int(code.max(initial=0)) + 1)
    known = precision > 0
    between = variance_between(mean[known], precision[known])
    distance = np.abs(mean) / np.sqrt(between + 1 / np.maximum(precision, 1e-300))
    return (known & (distance > FAR))[code]


def _up(common: Floats) -> Mask:
    """Return which steps' common part is far from that of the steps around it."""
    if len(common) < 2 * _AROUND:
        return np.zeros(len(common), dtype=bool)
    padded = np.pad(common, _AROUND, mode="reflect")
    off = common - np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * _AROUND + 1), axis=1)
    return np.abs(off) > FAR * max(spread(off, sigma=EXACT_SIGMA), 1e-12)


def _of_others(step: Ints, shard: Ints, far: Mask, steps: int) -> Mask:
    """Return which stretches are in a step with a far unit of another shard."""
    low, high = np.full(steps, np.iinfo(np.int64).max), np.full(steps, -1)
    np.minimum.at(low, step[far], shard[far])
    np.maximum.at(high, step[far], shard[far])
    return (high[step] >= 0) & ((low[step] != shard) | (high[step] != shard))
