"""Which blocks and shards are odd by their losses, over the whole run: higher or lower than others of their source.

The loss of a stretch is compared with what its source, length, place in the row, pass, its step's common part and the
stretch before it in the row predict (without a mask between documents a bad document raises its neighbour's loss). What
is left is averaged by document, with weights by the precision of a stretch of its length, and documents by unit. Units
of a source differ by themselves: a random effect (Student's t, with tails as heavy as these units have), whose scale is
estimated so that the median unit is as far off as it should be (Paule & Mandel 1982, by the median, so that odd units
do not count).

The distances are compared with those of units whose documents were dealt anew within each source, with a random effect
drawn anew: p = (1 + as far) / (1 + dealt), two-sided, among units of the same source and about as many documents. Below
10 / (1 + dealt) a generalised Pareto tail stands in where it fits the farthest 250 (Knijnenburg et al. 2009). Nothing
is named unless the smallest p, over blocks and shards alike, is at most .005. Then those are named whose p over the run
is at most .05 by Holm's steps. For that list units of every source differ by as much as those of the source that varies
most, and by what their source may have moved by where few others of it were read at their time.

Units with too few documents are pooled: the small blocks of a shard are one unit, and what is still small is one unit
of its source. Sources of few units have one random effect together.

A step's common part is that of its *other* units: a unit's own losses do not count, or a bad unit would look better and
all that stands beside it worse. Units that are far off (blocks or shards beyond four standard deviations) count in no
estimate at all. Where they leave less than a quarter of a step, or where a step's common part is itself far from that
of the steps around it, its stretches count for nothing: a state that breaks moves each source by an amount of its own,
so no unit is odd by what it is there. What a source moves by over the run is taken away by windows of steps.

An odd unit is a finding to look at. Boilerplate and repeats are odd and harmless: by itself it proposes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from dataaudit.base.statistics import (
    EXACT_SIGMA,
    Floats,
    Ints,
    Mask,
    fit_tail,
    group_means,
    group_medians,
    spread,
    variance_between,
    weighted_median,
)
from dataaudit.training.attribution.findings import Odd, ResidualTestFound
from dataaudit.training.attribution.loss_decomposition import Stretches, block_of, shard_of
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_findings import numbered

RUN_WIDE = 0.005
"""Up to which the smallest p, over all units of the run, names any."""
WITHIN = 0.05
"""Chance that another unit that is named with it is false, at most."""
FAMILIES = 2
"""Blocks and shards."""
LEAST_DOCUMENTS = 3
"""Documents below which a unit is pooled with others."""
LEAST_UNITS = 20
"""Units of a source, or of sources with fewer units together, below which their random effect is not known."""
LEAST_OF_SOURCE = 3
"""Units of a source below which none is tested: there is nothing to compare them with."""
POOLED = (1 << 40) - 1
"""Block number of a shard's small blocks together; the small units of a source are -2 less its code."""
FREEDOMS = ((math.inf, 1.0), (8, 0.9117), (4, 0.8292))
"""Degrees of freedom of Student's t by which units may differ, and the squared median of a normal variable over that of
this t. Real blocks lie farther out than normal numbers: the first t is taken of which no more units lie in the tail
than they should."""
TAIL = 0.03
"""Share of units by which that is asked."""
DEALT = 200_000
"""Units dealt anew in all, about; 20 of each unit at least, 1,000 at most."""
FAR = 4.0
"""Robust standard deviations at which residuals are cut off, and beyond which a unit is far."""
_WINDOW = 64
"""Steps over which a source has one level."""
LEAST_LEFT = 0.25
"""Share of a step's weight that has to be of units that are not far."""
_SWEEPS = 6
_BINS = 32
_SHRINK = 20.0
"""Stretches at which half of a source's own movement is believed."""
_AROUND = 25
"""Steps on either side whose common parts a step's is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Residuals of documents."""

    own: Ints
    unit: Ints
    """The same where small units are pooled: what is tested."""
    source: Ints
    """From 1; 0 where it has no name."""
    mean: Floats
    precision: Floats
    """Of the mean: 1 / variance, nats/token."""
    beside: float
    left_out: int
    overlap: Floats
    """Share of each that was read in steps of a far unit of another shard."""
    steps_left_out: int
    unknown: Floats
    """Variance of what its source moved by in its time, where few others of the source say so."""
    alone: int = 0
    """Units that were never read beside another."""


def residual_test(
    documents: Documents,
    *,
    seed: int = 0,
    kind: Literal["block", "shard"] = "block",
    named: Callable[[int], dict[str, Any]] = numbered,
) -> ResidualTestFound:
    """Test all units of one size."""
    random = np.random.Generator(np.random.PCG64([seed, len(documents.unit)]))
    units, inverse, sizes = np.unique(documents.unit, return_inverse=True, return_counts=True)
    source = _main_source(inverse, documents.source)
    enough = sizes >= LEAST_DOCUMENTS
    among = np.bincount(source[enough], minlength=int(source.max(initial=0)) + 1)
    group = np.where(among[source] >= LEAST_UNITS, source, 0)
    together = (group == 0) & enough & (among[source] >= LEAST_OF_SOURCE)
    tested = (enough & (group > 0)) | (together & (int(together.sum()) >= LEAST_UNITS))
    kept = np.flatnonzero(tested[inverse])
    member, of = (np.cumsum(tested) - 1)[inverse[kept]], group[tested]
    number = int(tested.sum())
    mean, precision = documents.mean[kept], documents.precision[kept]
    first, weight = group_means(member, mean, precision, number)
    usual, _ = group_means(documents.source[kept], mean, precision, int(documents.source.max(initial=0)) + 1)
    mean = mean - _of_units(usual, source[tested], first, weight)[documents.source[kept]]
    average, weight = group_means(member, mean, precision, number)
    unknown, _ = group_means(member, documents.unknown[kept], precision, number)
    chance = 1 / np.maximum(weight, 1e-300)
    by_source = _effects(average, 1 / (chance + unknown), of)
    effect, widest = by_source[of] + unknown, by_source.max() + unknown
    distance = average / np.sqrt(effect + chance)
    stratum = of * 64 + np.log2(sizes[tested]).astype(np.int64)
    dealt = _dealt(member, documents.source[kept], mean, precision, number, random)
    p, fitted = _p_values(np.abs(distance), stratum, *dealt, effect, random)
    beside_all, _ = _p_values(np.abs(average) / np.sqrt(widest + chance), stratum, *dealt, widest, random)
    run_p = min(1.0, FAMILIES * max(1, number) * float(beside_all.min(initial=1.0)))
    discovered = _discovered(beside_all)
    own = len(np.unique(documents.own[kept]))
    overlap, _ = group_means(member, documents.overlap[kept], precision, number)
    order = np.lexsort((-np.abs(distance), p))
    shown = order[: max(20, min(200, int(discovered.sum())))]
    return ResidualTestFound(
        kind=kind,
        outcome="outlier_shard" if discovered[shown].any() else "none" if own else "not_evaluated",
        tested=own,
        too_small=len(np.unique(documents.own)) - own + documents.alone,
        pooled=len(np.unique(documents.own[kept][documents.own[kept] != documents.unit[kept]])),
        run_p=run_p,
        limit=RUN_WIDE,
        steps_left_out=documents.steps_left_out,
        documents=len(kept),
        beside=round(documents.beside, 9),
        left_out=documents.left_out,
        units=tuple(
            Odd(
                **named(int(units[tested][value])),
                documents=int(sizes[tested][value]),
                mean=round(float(average[value]), 9),
                distance=round(float(distance[value]), 6),
                p=float(p[value]),
                fitted=bool(fitted[value]),
                overlap=round(float(overlap[value]), 6),
                outlier=bool(discovered[value]),
            )
            for value in shown.tolist()
        ),
    )


def _of_units(usual: Floats, source: Ints, average: Floats, weight: Floats) -> Floats:
    """Return what is usual of each source: the weighted median of its units, which a few odd units do not move."""
    middles = usual.copy()
    for value in np.unique(source).tolist():
        inside = source == value
        middles[value] = weighted_median(average[inside], np.minimum(weight[inside], np.median(weight[inside])))
    return middles


def pooled_up(unit: Ints, source: Ints, *, blocks: bool) -> Ints:
    """Return units, the small of them pooled, by shard and then by source."""
    units = unit.copy()
    for pool in (unit | POOLED, -1 - source) if blocks else (-1 - source,):
        _, inverse, sizes = np.unique(units, return_inverse=True, return_counts=True)
        few = (sizes < LEAST_DOCUMENTS)[inverse]
        units[few] = pool[few]
    return units


def document_residuals(stretches: Stretches, block_rows: int, *, shards: bool = False) -> Documents:
    """Return what is left of the losses of documents when all that predicts them is taken away."""
    scored = stretches.take(np.isfinite(stretches.loss) & (stretches.shard >= 0) & (stretches.targets > 0))
    scored = scored.take(np.lexsort((scored.start, scored.batch_row, scored.micro_batch, scored.rank, scored.step)))
    blocks = scored.units(block_rows)
    units = scored.shard if shards else blocks
    predicted = predicted_away(scored, blocks, units)
    rest, beside, behind = _beside(scored, predicted.rest, predicted.weight, blocks)
    weight = np.where(behind, 0.0, predicted.weight)
    _, first, inverse = np.unique(scored.shard << 40 | scored.row, return_index=True, return_inverse=True)
    mean, precision = group_means(inverse, rest, weight, len(first))
    known = precision > 0
    mean, precision = mean[known], precision[known]
    own = variance_between(mean, precision)
    unit, source = units[first][known], scored.source[first][known] + 1
    return Documents(
        own=unit,
        unit=pooled_up(unit, source, blocks=not shards),
        source=source,
        mean=mean,
        precision=1 / (own + 1 / precision),
        beside=beside,
        left_out=int(behind.sum()),
        overlap=group_means(inverse, predicted.overlap.astype(np.float64), weight, len(first))[0][known],
        steps_left_out=predicted.steps_left_out,
        unknown=group_means(inverse, predicted.unknown, weight, len(first))[0][known],
        alone=len(np.setdiff1d(units, unit)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Residuals of stretches."""

    rest: Floats
    weight: Floats
    """1 / variance of it; 0 where its step does not count."""
    overlap: Mask
    """Whether its step has a far unit of another shard."""
    steps_left_out: int
    """Steps that do not count."""
    unknown: Floats
    """Variance of what its source moved by in its time, (nats/token)**2, where few others of the source say so."""


def predicted_away(stretches: Stretches, blocks: Ints, units: Ints) -> Predicted:
    """Take away all that predicts the losses of stretches."""
    _, step = np.unique(stretches.step, return_inverse=True)
    _, source = np.unique(stretches.source, return_inverse=True)
    windows = int(stretches.step.max(initial=0)) // _WINDOW + 1
    codes = [
        step,
        source,
        np.log2(np.maximum(stretches.targets, 1)).astype(np.int64),
        np.log2(stretches.start + 1).astype(np.int64),
        np.minimum(np.where(stretches.epoch < 0, -1 - stretches.epoch, stretches.epoch), 63),
    ]
    far = np.zeros(len(stretches), dtype=bool)
    moved = source * windows + stretches.step // _WINDOW
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
    """Return 1 / variance of a stretch by how many targets it has: robust, by powers of two, never rising."""
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
        _movement(stretches.step // _WINDOW, moved, _clipped(rest), weight * ~far) * (shrink / (known + shrink)) ** 2
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
    others: Mask = (high[step] >= 0) & ((low[step] != shard) | (high[step] != shard))
    return others


def _beside(stretches: Stretches, rest: Floats, weight: Floats, blocks: Ints) -> tuple[Floats, float, Mask]:
    """Take away what the stretch before in the row adds; return which follow a far stretch of another block, too."""
    same = np.ones(max(0, len(rest) - 1), dtype=bool)
    for name in ("step", "rank", "micro_batch", "batch_row"):
        column = getattr(stretches, name)
        same &= column[1:] == column[:-1]
    shard, row = stretches.shard, stretches.row
    other = (shard[1:] != shard[:-1]) | (row[1:] != row[:-1])
    pairs = np.flatnonzero(same & other)
    far = np.zeros(len(rest), dtype=bool)
    if len(pairs) < 100:
        return rest, 0.0, far
    bound = FAR * spread(rest, sigma=EXACT_SIGMA)
    before, after = np.clip(rest[pairs], -bound, bound), np.clip(rest[pairs + 1], -bound, bound)
    weights = weight[pairs + 1]
    # Less the mean of their step, n residuals have a correlation of -1 / (n - 1) with each other.
    common = before**2 / np.maximum(np.bincount(stretches.step)[stretches.step[pairs]] - 1, 1)
    slope = float(np.dot(weights, before * after + common) / max(np.dot(weights, before**2), 1e-300))
    away = np.abs(rest[pairs]) * np.sqrt(weight[pairs]) > FAR
    far[pairs[away & (blocks[pairs] != blocks[pairs + 1])] + 1] = True
    rest = rest.copy()
    rest[pairs + 1] -= slope * before
    return rest, slope, far


def _effects(average: Floats, weight: Floats, source: Ints) -> Floats:
    """Return the variance of units of each source."""
    variance = np.zeros(int(source.max(initial=0)) + 1)
    for value in np.unique(source).tolist():
        inside = source == value
        variance[value] = variance_between(average[inside], weight[inside])
    return variance


def _main_source(unit: Ints, source: Ints) -> Ints:
    """Return the source that most documents of each unit have, 0 to n - 1; the lowest of several."""
    sources = int(source.max(initial=0)) + 1
    pairs, counts = np.unique(unit * sources + source, return_counts=True)
    pairs = pairs[np.lexsort((pairs, -counts, pairs // sources))]
    main: Ints = pairs[np.unique(pairs // sources, return_index=True)[1]] % sources
    return main


def _dealt(
    member: Ints, source: Ints, mean: Floats, precision: Floats, units: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return means of units whose documents were dealt anew within each source, and variances: [rounds, units]."""
    rounds = int(np.clip(DEALT // max(1, units), 20, 1_000))
    by_source = [np.flatnonzero(source == item) for item in np.unique(source)]
    means, chance = np.empty((rounds, units)), np.empty((rounds, units))
    for number in range(rounds):
        to = np.empty_like(member)
        for documents in by_source:
            to[documents] = random.permutation(documents)
        means[number], weight = group_means(member, mean[to], precision[to], units)
        chance[number] = 1 / np.maximum(weight, 1e-300)
    return means, chance


def _p_values(
    distance: Floats, stratum: Ints, dealt: Floats, chance: Floats, effect: Floats, random: np.random.Generator
) -> tuple[Floats, Mask]:
    """Return p of each unit, and whether it is of a fitted tail, beside dealt units whose tails are as heavy."""
    p, drawn = np.ones(len(distance)), {}
    for freedom, narrower in FREEDOMS:
        own = random.standard_normal(dealt.shape) if freedom == math.inf else random.standard_t(freedom, dealt.shape)
        null = np.abs(dealt + np.sqrt(narrower * effect) * own) / np.sqrt(effect + chance)
        drawn = {value: np.sort(null[:, stratum == value].ravel()) for value in np.unique(stratum).tolist()}
        for item, ascending in drawn.items():
            inside = stratum == item
            as_far = len(ascending) - np.searchsorted(ascending, distance[inside], "left")
            p[inside] = (1 + as_far) / (1 + len(ascending))
        if not len(p) or (p <= TAIL).mean() <= TAIL + math.sqrt(TAIL * (1 - TAIL) / len(p)):
            break
    fitted = np.zeros(len(p), dtype=bool)
    for item, ascending in drawn.items():
        rare = np.flatnonzero((stratum == item) & (p * (1 + len(ascending)) < 11))
        if len(rare) and (tail := fit_tail(ascending, random)) is not None:
            p[rare], fitted[rare] = tail.beyond(distance[rare]), True
    return p, fitted


def _discovered(p: Floats) -> Mask:
    """Return which are named, by Holm's steps; the other size may have as many units."""
    ranked = np.sort(p)
    adjusted = FAMILIES * ranked * np.arange(len(p), 0, -1)
    missed = np.flatnonzero(adjusted > WITHIN)
    if not len(p) or adjusted[0] > RUN_WIDE:
        return np.zeros(len(p), dtype=bool)
    return p < ranked[missed[0]] if len(missed) else np.ones(len(p), dtype=bool)


def residual_tests_of(data: Data) -> tuple[ResidualTestFound, ...]:
    """Test which blocks, and which shards, are odd by their losses; the steps of episodes are among them."""
    kinds: tuple[Literal["block", "shard"], ...] = ("block", "shard")
    return tuple(
        residual_test(
            document_residuals(data.stretches, data.log.run.block_rows, shards=kind == "shard"),
            kind=kind,
            named=partial(_tested, data, shards=kind == "shard"),
        )
        for kind in kinds
    )


def _tested(data: Data, unit: int, *, shards: bool) -> dict[str, Any]:
    """Return what names a unit of the residual test: a block, a shard, or what was pooled."""
    if unit < 0:
        source = data.log.run.sources[-2 - unit] if -2 - unit < len(data.log.run.sources) else ""
        return data.named(-1) | {"name": source, "pooled": "source"}
    if shards:
        return data.named(unit)
    return data.named(shard_of(unit)) | {"pooled": "shard"} if block_of(unit) == POOLED else data.named_unit(unit)
