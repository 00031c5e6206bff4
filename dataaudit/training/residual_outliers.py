"""Which blocks and shards are odd by their losses, over the whole run: higher or lower than others of their source.

The loss of a stretch is compared with what its source, length, place in the row, pass, its step's common part and the
stretch before it in the row predict (without a mask between documents a bad one raises its neighbour's loss). What is
left is averaged by document, with weights by the precision of a stretch of its length, and documents by unit. Units of
a source differ by themselves: a random effect, whose variance is estimated so that the median unit is as far off as it
should be (Paule & Mandel 1982, by the median, so that odd units do not count).

The distances are held against those of units whose documents were dealt anew within each source, with a random effect
drawn anew: p = (1 + as far) / (1 + dealt), two-sided, among units of the same source and about as many documents. Below
10 / (1 + dealt) a generalised Pareto tail stands in where it fits the farthest 250 (Knijnenburg et al. 2009). False
discoveries among blocks, and among shards, are held to 5 % (Benjamini & Hochberg 1995).

An odd unit is a finding to look at. Boilerplate and repeats are odd and harmless: by itself it proposes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dataaudit.training.accounting import Stretches

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FALSE_DISCOVERIES = 0.05
LEAST_DOCUMENTS = 3
"""Documents below which a unit is not tested."""
LEAST_UNITS = 20
"""Units of a source below which their random effect is not known, and none of them is tested."""
DEALT = 200_000
"""Units dealt anew in all, about; 20 of each unit at least, 1,000 at most."""
FAR = 4.0
"""Robust standard deviations at which residuals are cut off where something is estimated from them."""
_SWEEPS = 6
_BINS = 32
_MEDIAN_OF_SQUARES = 0.454936423119572
"""Of a standard normal variable."""
_NORMAL_MAD = 1.4826022185056018


@dataclass(frozen=True, slots=True, kw_only=True)
class OddUnit:
    """A unit, how far it is off, and how often chance does as much."""

    unit: int
    """As ``Stretches.units`` has it."""
    documents: int
    mean: float
    """Mean residual, nats/token."""
    distance: float
    """In its standard deviations, random effect and chance together."""
    p: float
    fitted: bool
    """Whether p is of a fitted tail."""
    discovered: bool
    """Whether it is among those of which 5 % at most are false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualTest:
    """What the test says of the units of one size."""

    tested: int
    too_small: int
    """Units with too few documents, or of a source with too few units."""
    documents: int
    beside: float
    """What a nat of the stretch before adds to the next one in the row."""
    left_out: int
    """Stretches behind one of another block that is itself far off."""
    units: tuple[OddUnit, ...]
    """Those with the smallest p, 20 at most; all that were discovered among them, up to 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Residuals of documents."""

    unit: Ints
    source: Ints
    mean: Floats
    precision: Floats
    """Of the mean: 1 / variance, nats/token."""
    beside: float
    left_out: int


def residual_test(documents: Documents, *, seed: int = 0) -> ResidualTest:
    """Test all units of one size.

    Args:
        documents: Of :func:`document_residuals`.
        seed: Of the dealing: the same log gives the same p.
    """
    random = np.random.Generator(np.random.PCG64([seed, len(documents.unit)]))
    units, inverse, sizes = np.unique(documents.unit, return_inverse=True, return_counts=True)
    source = _main_source(inverse, documents.source, len(units))
    among = np.bincount(source[sizes >= LEAST_DOCUMENTS], minlength=int(source.max(initial=0)) + 1)
    tested = (sizes >= LEAST_DOCUMENTS) & (among[source] >= LEAST_UNITS)
    kept = np.flatnonzero(tested[inverse])
    place = np.cumsum(tested) - 1
    member, of = place[inverse[kept]], source[tested]
    mean, precision = documents.mean[kept], documents.precision[kept]
    usual, _ = _averaged(documents.source[kept], mean, precision, int(documents.source.max(initial=0)) + 1)
    mean = mean - usual[documents.source[kept]]
    number = int(tested.sum())
    average, weight = _averaged(member, mean, precision, number)
    effect = _effects(average, weight, of)
    scale = np.sqrt(effect[of] + 1 / np.maximum(weight, 1e-300))
    distance = average / scale
    stratum = of * 64 + np.log2(sizes[tested]).astype(np.int64)
    null = _dealt(member, documents.source[kept], mean, precision, effect[of], random)
    p, fitted = _p_values(np.abs(distance), stratum, null, random)
    discovered = _discovered(p)
    order = np.lexsort((-np.abs(distance), p))
    shown = order[: max(20, min(200, int(discovered.sum())))]
    return ResidualTest(
        tested=number,
        too_small=len(units) - number,
        documents=len(kept),
        beside=documents.beside,
        left_out=documents.left_out,
        units=tuple(
            OddUnit(
                unit=int(units[tested][one]),
                documents=int(sizes[tested][one]),
                mean=float(average[one]),
                distance=float(distance[one]),
                p=float(p[one]),
                fitted=bool(fitted[one]),
                discovered=bool(discovered[one]),
            )
            for one in shown.tolist()
        ),
    )


def document_residuals(stretches: Stretches, epoch: Ints, block_rows: int, *, shards: bool = False) -> Documents:
    """Return what is left of the losses of documents when all that predicts them is taken away.

    Args:
        stretches: Scored ones, of any steps.
        epoch: int64[n] pass of each; those of repeats are negative.
        block_rows: Rows of a block.
        shards: Whether the units are shards.
    """
    finite = np.isfinite(stretches.loss) & (stretches.shard >= 0) & (stretches.targets > 0)
    held = stretches.take(finite)
    order = np.lexsort((held.start, held.batch_row, held.micro_batch, held.rank, held.step))
    held, epoch = held.take(order), epoch[finite][order]
    weight = _precisions(held.loss, held.targets)
    rest, weight = _predicted_away(held, epoch, weight)
    blocks = held.units(block_rows)
    rest, beside, far = _beside(held, rest, weight, blocks)
    weight = np.where(far, 0.0, weight)
    key = np.stack([held.shard, held.row])
    documents, inverse = np.unique(key, axis=1, return_inverse=True)
    inverse = inverse.ravel()
    mean, precision = _averaged(inverse, rest, weight, documents.shape[1])
    first = np.zeros(documents.shape[1], dtype=np.int64)
    first[inverse[::-1]] = np.arange(len(inverse))[::-1]
    known = precision > 0
    mean, precision = mean[known], precision[known]
    own = variance_between(mean, precision)
    return Documents(
        unit=held.units(0 if shards else block_rows)[first][known],
        source=held.source[first][known] + 1,
        mean=mean,
        precision=1 / (own + 1 / precision),
        beside=beside,
        left_out=int(far.sum()),
    )


def _precisions(loss: Floats, targets: Ints) -> Floats:
    """Return 1 / variance of a stretch by how many targets it has: a robust one by powers of two, never rising."""
    bins = np.minimum(np.log2(np.maximum(targets, 1)).astype(np.int64), _BINS - 1)
    variance = np.full(_BINS, np.nan)
    for one in np.unique(bins).tolist():
        inside = loss[bins == one]
        if len(inside) >= 20:
            variance[one] = max(_spread(inside) ** 2, 1e-12)
    known = np.flatnonzero(np.isfinite(variance))
    filled = np.interp(np.arange(_BINS), known, variance[known]) if len(known) else np.ones(_BINS)
    found: Floats = 1 / np.minimum.accumulate(filled)[bins]
    return found


def _predicted_away(held: Stretches, epoch: Ints, weight: Floats) -> tuple[Floats, Floats]:
    """Take away means by step, source, length, place and pass, in turn; what is far off does not move them."""
    _, step = np.unique(held.step, return_inverse=True)
    codes = [
        step.ravel(),
        np.unique(held.source, return_inverse=True)[1].ravel(),
        np.log2(np.maximum(held.targets, 1)).astype(np.int64),
        np.log2(held.start + 1).astype(np.int64),
        np.minimum(np.where(epoch < 0, -1 - epoch, epoch), 63),
    ]
    rest = held.loss.copy()
    for sweep in range(_SWEEPS):
        for code in codes:
            size = int(code.max(initial=0)) + 1
            if sweep == 0:
                rest -= _medians(code, rest, size)[code]
                continue
            bound = FAR * _spread(rest)
            middle, _ = _averaged(code, np.clip(rest, -bound, bound), weight, size)
            rest -= middle[code]
        weight = _precisions(rest, held.targets)
    return rest, weight


def _beside(held: Stretches, rest: Floats, weight: Floats, blocks: Ints) -> tuple[Floats, float, npt.NDArray[np.bool_]]:
    """Take away what the stretch before in the row adds; say which stand behind a far one of another block."""
    same = np.ones(max(0, len(rest) - 1), dtype=bool)
    for name in ("step", "rank", "micro_batch", "batch_row"):
        column = getattr(held, name)
        same &= column[1:] == column[:-1]
    other = (held.shard[1:] != held.shard[:-1]) | (held.row[1:] != held.row[:-1])
    pairs = np.flatnonzero(same & other)
    far = np.zeros(len(rest), dtype=bool)
    if len(pairs) < 100:
        return rest, 0.0, far
    bound = FAR * _spread(rest)
    before, after = np.clip(rest[pairs], -bound, bound), np.clip(rest[pairs + 1], -bound, bound)
    weights = weight[pairs + 1]
    # Less the mean of their step, n residuals have a correlation of -1 / (n - 1) with each other.
    common = before**2 / np.maximum(np.bincount(held.step)[held.step[pairs]] - 1, 1)
    slope = float(np.dot(weights, before * after + common) / max(np.dot(weights, before**2), 1e-300))
    found = rest.copy()
    found[pairs + 1] -= slope * before
    away = np.abs(rest[pairs]) * np.sqrt(weight[pairs]) > FAR
    far[pairs[away & (blocks[pairs] != blocks[pairs + 1])] + 1] = True
    return found, slope, far


def _averaged(code: Ints, values: Floats, weights: Floats, size: int) -> tuple[Floats, Floats]:
    """Return weighted means by code, and the sums of the weights."""
    total = np.bincount(code, weights, minlength=size).astype(np.float64, copy=False)
    mean = np.bincount(code, weights * values, minlength=size).astype(np.float64, copy=False)
    return np.divide(mean, total, out=np.zeros(size), where=total > 0), total


def _medians(code: Ints, values: Floats, size: int) -> Floats:
    order = np.lexsort((values, code))
    ends = np.cumsum(np.bincount(code, minlength=size))
    starts = np.concatenate([[0], ends[:-1]])
    there = ends > starts
    low, high = starts + (ends - starts - 1) // 2, starts + (ends - starts) // 2
    sorted_values = values[order]
    found = np.zeros(size)
    found[there] = (sorted_values[low[there]] + sorted_values[high[there]]) / 2
    return found


def _spread(values: Floats) -> float:
    return _NORMAL_MAD * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def variance_between(mean: Floats, precision: Floats) -> float:
    """Return the variance of true means for which the median of squared standardised ones is a normal's."""
    if len(mean) < 2:
        return 0.0
    squares, chance = mean**2, 1 / precision

    def median(between: float) -> float:
        return float(np.median(squares / (between + chance)))

    if median(0.0) <= _MEDIAN_OF_SQUARES:
        return 0.0
    low, high = 0.0, float(squares.max()) / _MEDIAN_OF_SQUARES
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if median(middle) > _MEDIAN_OF_SQUARES else (low, middle)
    return high


def _effects(average: Floats, weight: Floats, source: Ints) -> Floats:
    """Return the variance of units of each source."""
    found = np.zeros(int(source.max(initial=0)) + 1)
    for one in np.unique(source).tolist():
        inside = source == one
        found[one] = variance_between(average[inside], weight[inside])
    return found


def _main_source(unit: Ints, source: Ints, units: int) -> Ints:
    """Return the source that most documents of each unit have; the lowest of several."""
    sources = int(source.max(initial=0)) + 1
    pairs, counts = np.unique(unit * sources + source, return_counts=True)
    order = np.lexsort((pairs, -counts, pairs // sources))
    first = np.unique(pairs[order] // sources, return_index=True)[1]
    found = np.zeros(units, dtype=np.int64)
    found[pairs[order][first] // sources] = pairs[order][first] % sources
    return found


def _dealt(
    member: Ints, source: Ints, mean: Floats, precision: Floats, effect: Floats, random: np.random.Generator
) -> Floats:
    """Return distances of units whose documents were dealt anew within each source: float64[rounds, units]."""
    units = len(effect)
    rounds = int(np.clip(DEALT // max(1, units), 20, 1_000))
    held = [np.flatnonzero(source == one) for one in np.unique(source)]
    found = np.empty((rounds, units))
    for one in range(rounds):
        to = np.empty_like(member)
        for places in held:
            to[places] = random.permutation(places)
        average, weight = _averaged(member, mean[to], precision[to], units)
        chance = effect + 1 / np.maximum(weight, 1e-300)
        found[one] = (average + np.sqrt(effect) * random.standard_normal(units)) / np.sqrt(chance)
    return found


def _p_values(
    distance: Floats, stratum: Ints, null: Floats, random: np.random.Generator
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    p, fitted = np.ones(len(distance)), np.zeros(len(distance), dtype=bool)
    for one in np.unique(stratum).tolist():
        inside = np.flatnonzero(stratum == one)
        drawn = np.sort(np.abs(null[:, inside]).ravel())
        as_far = len(drawn) - np.searchsorted(drawn, distance[inside], "left")
        p[inside] = (1 + as_far) / (1 + len(drawn))
        rare = inside[as_far < 10]
        if len(rare) and (tail := fit_tail(drawn, random)) is not None:
            p[rare], fitted[rare] = tail.beyond(distance[rare]), True
    return p, fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTail:
    """A generalised Pareto tail."""

    threshold: float
    share: float
    """Of the values beyond it."""
    scale: float
    shape: float
    """From 0 on, so that no p is 0."""

    def beyond(self, values: Floats) -> Floats:
        """Return the probability of values as large."""
        return self.share * _survival(np.maximum(values - self.threshold, 0.0), self.scale, self.shape)


def fit_tail(ascending: Floats, random: np.random.Generator, most: int = 250, checks: int = 99) -> FittedTail | None:
    """Fit the largest values by probability-weighted moments; None where no number of them from 250 to 50 fits.

    A fit holds if its Anderson-Darling distance is not among the largest twentieth of those of samples drawn from it
    (Hosking & Wallis 1987; Knijnenburg et al. 2009).
    """
    for number in range(min(most, len(ascending) // 4), 49, -50):
        threshold = float(ascending[-number - 1] + ascending[-number]) / 2
        excess = ascending[-number:] - threshold
        scale, shape = _moments(excess)
        own = _anderson_darling(excess, scale, shape)
        worse = 0
        for _ in range(checks):
            drawn = np.sort(_quantile(random.random(number), scale, shape))
            worse += _anderson_darling(drawn, *_moments(drawn)) >= own
        if worse + 1 > 0.05 * (checks + 1):
            return FittedTail(threshold=threshold, share=number / len(ascending), scale=scale, shape=shape)
    return None


def _moments(excess: Floats) -> tuple[float, float]:
    """Return scale and shape, from 0 to 0.5, of ascending excesses."""
    number = len(excess)
    first = float(excess.mean())
    second = float(np.dot(1 - (np.arange(1, number + 1) - 0.35) / number, excess)) / number
    shape = 2 - first / max(first - 2 * second, 1e-300)
    shape = min(max(shape, 0.0), 0.5)
    return first * (1 - shape), shape


def _survival(excess: Floats, scale: float, shape: float) -> Floats:
    if shape < 1e-9:
        return np.exp(-excess / scale)
    found: Floats = (1 + shape * excess / scale) ** (-1 / shape)
    return found


def _quantile(uniform: Floats, scale: float, shape: float) -> Floats:
    if shape < 1e-9:
        return -scale * np.log1p(-uniform)
    found: Floats = scale * ((1 - uniform) ** -shape - 1) / shape
    return found


def _anderson_darling(ascending: Floats, scale: float, shape: float) -> float:
    survival = np.clip(_survival(ascending, scale, shape), 1e-300, 1.0)
    number = len(ascending)
    odd = 2 * np.arange(1, number + 1) - 1
    below = np.log(np.clip(1 - survival, 1e-300, 1.0))
    return -number - float(np.dot(odd, below + np.log(survival[::-1]))) / number


def _discovered(p: Floats) -> npt.NDArray[np.bool_]:
    """Return which are below the line of Benjamini and Hochberg."""
    ranked = np.sort(p)
    passed = np.flatnonzero(ranked <= FALSE_DISCOVERIES * np.arange(1, len(p) + 1) / max(1, len(p)))
    return p <= ranked[passed[-1]] if len(passed) else np.zeros(len(p), dtype=bool)
