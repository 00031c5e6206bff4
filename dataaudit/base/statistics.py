"""Robust statistics: medians, spreads and lines that a few far values do not move, and tails that go on beyond them.

Tails are continued in three ways. *Excesses over a threshold* of a healthy curve, in clusters of which each gives its
largest (Coles 2001, *An Introduction to Statistical Modeling of Extreme Values*, sections 4.2 and 5.3.2), have a
generalised Pareto distribution with a posterior on a grid: the scale's prior is flat in its logarithm, that of the
shape is normal (0.05, 0.15), which says that tails of a loss are between those of a uniform distribution and of
Student's t with some three degrees of freedom. The number of clusters is Poisson's, with Jeffreys' prior. Values that
were flagged are in no healthy segment, so the distribution is cut off where the band was. *Values drawn under a null
hypothesis* have such a tail by probability-weighted moments, where it fits them. *The largest of many series a step*
is continued as a power law or an exponential.

The score interval of a share (Wilson 1927, J. Am. Stat. Assoc. 22:209), for builds and for what reads manifests.

Python's own normal distribution is enough for it: ``gate`` and ``diff`` run without scipy.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LEAST_OTHERS = 20
"""Values that a rank, and a tail beyond the largest, are taken of at least."""
_TENTH = 10
SIGMA = 1.4826
"""Standard deviation / median absolute deviation of a normal distribution."""
EXACT_SIGMA = 1.4826022185056018
"""The same to the last digit."""
_MEDIAN_OF_SQUARES = 0.454936423119572
"""Of a standard normal variable."""
LEAST_STEPS = 1_000
"""Healthy steps without which no rate of alarms is claimed."""
THRESHOLD = 0.95
"""Share of the healthy distances below the threshold."""
LEAST_CLUSTERS = 10
PRIOR_SHAPE = (0.05, 0.15)
"""Mean and standard deviation of the shape, before anything is known: of single steps."""
_SHAPES = np.linspace(-0.4, 0.7, 45)
_SCALES = np.exp(np.linspace(-1.6, 1.2, 57))
"""In mean excesses."""
_POINTS = 31
_NORMAL = np.array([NormalDist().inv_cdf((place + 0.5) / _POINTS) for place in range(_POINTS)])
"""Equally likely points of the normal distribution."""
_CHECKS = 99
"""Samples that a fit is compared with."""
_LARGEST = 0.05
"""Share of the largest values that a tail is continued from."""
_LEAST_LARGEST = 10
"""And at least as many."""
_ERRORS = 1.5
"""Standard errors that are added to the index of a tail."""
_DEVIATION = 1.3
"""Standard deviation of a Student's t of 4 degrees of freedom, in scales."""
_MANY = 2_000.0
"""Degrees of freedom above which Student's t is the normal with small corrections."""
_FREEDOM_OF_MEANS = 15.0
_FREEDOM = 4.0
"""Degrees of freedom of the tail that is assumed where it cannot be seen."""


def spread(values: Floats, middle: float | None = None, *, sigma: float = SIGMA) -> float:
    """Return the robust standard deviation of float64[n] about their median, or a given middle; 0 of no value."""
    if not len(values):
        return 0.0
    return sigma * float(np.median(np.abs(values - (np.median(values) if middle is None else middle))))


def row_medians(values: Floats) -> Floats:
    """Return the medians of the numbers of each row, float64[rows]; NaN where there are none."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)
    number = np.count_nonzero(~np.isnan(values), axis=1)
    low = np.take_along_axis(ordered, np.maximum((number - 1) // 2, 0)[:, None], 1)[:, 0]
    high = np.take_along_axis(ordered, np.minimum(number // 2, values.shape[1] - 1)[:, None], 1)[:, 0]
    return np.where(number > 0, (low + high) / 2, np.nan)


def group_medians(code: Ints, values: Floats, size: int) -> Floats:
    """Return the medians of values by code, float64[size]; 0 where there are none."""
    order = np.lexsort((values, code))
    ends = np.cumsum(np.bincount(code, minlength=size))
    starts = np.concatenate([[0], ends[:-1]])
    there = ends > starts
    low, high = starts + (ends - starts - 1) // 2, starts + (ends - starts) // 2
    ordered = values[order]
    found = np.zeros(size)
    found[there] = (ordered[low[there]] + ordered[high[there]]) / 2
    return found


def group_means(code: Ints, values: Floats, weights: Floats, size: int) -> tuple[Floats, Floats]:
    """Return weighted means by code, 0 where there are none, and the sums of the weights: float64[size] each."""
    total = np.bincount(code, weights, minlength=size).astype(np.float64, copy=False)
    mean = np.bincount(code, weights * values, minlength=size).astype(np.float64, copy=False)
    return np.divide(mean, total, out=np.zeros(size), where=total > 0), total


def weighted_median(values: Floats, weights: Floats) -> float:
    """Return the value that half of the weight lies below; the middle of two where it is just half."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    half = below[-1] / 2
    place = int(np.searchsorted(below, half * (1 - 1e-12)))
    last = len(values) - 1
    if math.isclose(below[place], half, rel_tol=1e-9) and place < last:
        return float(values[order[place]] + values[order[place + 1]]) / 2
    return float(values[order[min(place, last)]])


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


Pairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


def pairs_of(number: int) -> Pairs:
    """Return the earlier and the later of all pairs of some values."""
    earlier, later = np.triu_indices(number, 1)
    return earlier, later


def robust_line(steps: npt.NDArray[Any], values: npt.NDArray[Any], pairs: Pairs) -> tuple[float, float, float]:
    """Return slope and value at 0 of the line of Theil and Sen, and the median distance from it."""
    earlier, later = pairs
    slope = median_of((values[later] - values[earlier]) / (steps[later] - steps[earlier]))
    rest = values - slope * steps
    middle = median_of(rest)
    return slope, middle, median_of(np.abs(rest - middle))


def median_of(values: np.ndarray) -> float:
    """Return the median; np.median takes twice as long for as few."""
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    middle = np.partition(values, (half - 1, half))
    return float(middle[half - 1] + middle[half]) / 2


def of_each(rate: float, family: int) -> float:
    """Return the rate of each of a family of independent series that together have a rate (Sidak)."""
    return -math.expm1(math.log1p(-rate) / family)


def one_sided(value: float, others: Floats) -> float:
    """Return the chance of a value as large beside others of its kind: by rank, and by the tail beyond the largest."""
    ordered = np.sort(others)[::-1]
    number = len(ordered)
    tail = max(5, number // _TENTH)
    threshold = ordered[tail]
    if not value > threshold:
        return (1 + int((ordered >= value).sum())) / (1 + number)
    total = float((ordered[:tail] - threshold).sum())
    if total <= 0:
        return 1 / (1 + number)
    return (tail + 1) / (1 + number) * float((1 + (value - threshold) / total) ** (1 - tail))


@lru_cache(maxsize=4096)
def student_quantile(tail: float, freedom: float) -> float:
    """Return what a Student's t exceeds with a probability."""
    if freedom > _MANY:  # by the expansion of Cornish and Fisher
        z = -NormalDist().inv_cdf(tail)
        second, third = 5 * z**5 + 16 * z**3 + 3 * z, 3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z
        return z + (z**3 + z) / (4 * freedom) + second / (96 * freedom**2) + third / (384 * freedom**3)
    nodes, weights = np.polynomial.legendre.leggauss(64)
    constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)

    def beyond(angle: float) -> float:
        """Probability of more than sqrt(freedom) / tan(angle)."""
        return constant * float((weights * np.sin(angle / 2 * (nodes + 1)) ** (freedom - 1)).sum()) * angle / 2

    low, high = -60.0, math.log(math.pi / 2)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(math.exp(middle)) > tail else (middle, high)
    return math.sqrt(freedom) / math.tan(math.exp(high))


@dataclass(frozen=True, slots=True)
class AlarmRate:
    """How many times a healthy curve leaves its band, on one side."""

    value: float
    """Median of the posterior, clusters of flags a step."""
    low: float
    high: float
    """Its central 95 % interval."""


@dataclass(frozen=True, slots=True)
class Tail:
    """One side of a healthy curve's distances beyond a threshold."""

    threshold: float
    """Robust standard deviations."""
    clusters: int
    steps: int
    """Healthy steps."""
    weights: Floats
    """[shapes, scales] posterior, together 1."""
    scales: Floats
    """[scales] robust standard deviations."""
    kept: Floats
    """[shapes, scales] share of the excesses that is not cut off."""

    def _rates(self, k: float) -> tuple[Floats, Floats]:
        """Return how often the distance exceeds k, at each point of the posterior, and the points' weights."""
        shares = _grid_survival(np.array([max(0.0, k - self.threshold)]), self.scales)[..., 0] / self.kept
        count = self.clusters + 0.5
        spread = _NORMAL / (3 * math.sqrt(count))
        numbers = count * np.maximum(1e-3, 1 - 1 / (9 * count) + spread) ** 3 / self.steps  # Wilson and Hilferty
        rates = shares[..., None] * numbers
        return rates, np.broadcast_to(self.weights[..., None] / _POINTS, rates.shape)

    def rate(self, k: float) -> AlarmRate:
        """Return how often the distance exceeds k robust standard deviations, at least the threshold."""
        rates, weights = self._rates(k)
        order = np.argsort(rates, axis=None, kind="stable")
        summed = np.cumsum(weights.ravel()[order])
        at = np.searchsorted(summed, np.array([0.5, 0.025, 0.975]) * summed[-1])
        value, low, high = rates.ravel()[order][at].tolist()
        return AlarmRate(value=value, low=low, high=high)

    def limit(self, rate: float, *, least: float, most: float) -> float:
        """Return the least k, in steps of an eighth, whose rate is at most a given one; ``most`` where none is."""
        first, last = math.ceil(8 * max(least, self.threshold)), math.floor(8 * most)
        return (first + bisect_left(range(first, last), True, key=lambda at: self._is_rarer(at / 8, rate))) / 8

    def _is_rarer(self, k: float, rate: float) -> bool:
        """Return whether the median of the rates is at most a given one: as :meth:`rate`, without sorting them."""
        rates, weights = self._rates(k)
        return bool(weights[rates <= rate].sum() >= 0.5 * weights.sum())


def tail_of(
    steps: Ints,
    distances: Floats,
    bands: Floats,
    *,
    gap: int,
    shape: tuple[float, float] = PRIOR_SHAPE,
    least: int = LEAST_STEPS,
) -> Tail | None:
    """Fit the upper tail of a healthy stretch."""
    if len(steps) < least:
        return None
    threshold = float(np.quantile(distances, THRESHOLD))
    over = np.flatnonzero(distances > threshold)
    if not len(over):
        return None
    starts = np.concatenate([[0], np.flatnonzero(np.diff(steps[over]) > gap) + 1])
    if len(starts) < LEAST_CLUSTERS:
        return None
    excess = np.maximum.reduceat(distances[over] - threshold, starts)
    cut = np.maximum.reduceat(bands[over] - threshold, starts)
    scales = _SCALES * float(excess.mean())
    likelihood = np.zeros((len(_SHAPES), len(scales)))
    likelihood += -len(excess) * np.log(scales)
    for row, item in enumerate(_SHAPES):
        inside = 1 + item * excess[:, None] / scales
        bad = (inside <= 0).any(axis=0)
        logs = np.log(np.where(inside > 0, inside, 1.0))
        powers = excess[:, None] / scales if abs(item) < 1e-9 else (1 / item + 1) * logs
        likelihood[row] -= powers.sum(axis=0)
        likelihood[row, bad] = -np.inf
    kept = 1 - _grid_survival(cut, scales)
    likelihood -= np.log(np.maximum(kept, 1e-12)).sum(axis=-1)
    mean, sd = shape
    likelihood -= (((_SHAPES - mean) / sd) ** 2 / 2)[:, None]
    weights = np.exp(likelihood - likelihood.max())
    return Tail(
        threshold=threshold,
        clusters=len(excess),
        steps=len(steps),
        weights=weights / weights.sum(),
        scales=scales,
        kept=kept.mean(axis=-1),
    )


def _grid_survival(excess: Floats, scales: Floats) -> Floats:
    """Return the share of excesses beyond each of some: float64[shapes, scales, n]."""
    scaled = excess / scales[:, None]
    found = np.empty((len(_SHAPES), *scaled.shape))
    for row, shape in enumerate(_SHAPES):
        if abs(shape) < 1e-9:
            found[row] = np.exp(-scaled)
        else:
            found[row] = np.maximum(0.0, 1 + shape * scaled) ** (-1 / shape)
    return found


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


def fit_tail(ascending: Floats, random: np.random.Generator) -> FittedTail | None:
    """Fit the largest values by probability-weighted moments; None where no number of them from 250 to 50 fits.

    A fit holds if its Anderson-Darling distance is not among the largest twentieth of those of samples drawn from it
    (Hosking & Wallis 1987; Knijnenburg et al. 2009).
    """
    for number in range(min(250, len(ascending) // 4), 49, -50):
        threshold = float(ascending[-number - 1] + ascending[-number]) / 2
        excess = ascending[-number:] - threshold
        scale, shape = _moments(excess)
        own = _anderson_darling(excess, scale, shape)
        worse = 0
        for _ in range(_CHECKS):
            drawn = np.sort(_quantile(random.random(number), scale, shape))
            worse += _anderson_darling(drawn, *_moments(drawn)) >= own
        if worse + 1 > 0.05 * (_CHECKS + 1):
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


def correlation_times(z: Floats) -> Floats:
    """Return float64[series]: values that one independent one is worth, 1 or more, in values that were measured.

    Sums of neighbouring autocorrelations are added up as long as they are positive (Geyer's initial sequence).
    """
    z = np.clip(np.take_along_axis(z, np.argsort(np.isnan(z), axis=1, kind="stable"), 1), -3, 3)
    number = np.maximum(np.count_nonzero(~np.isnan(z), axis=1), 1)[:, None]
    mean = np.nansum(z, axis=1, keepdims=True) / number
    z = np.where(np.isnan(z), 0.0, z - mean)
    length = z.shape[1]
    power = np.abs(np.fft.rfft(z, 2 * length)) ** 2
    lags = np.fft.irfft(power, 2 * length)[:, : length // 2 // 2 * 2]
    variance = lags[:, :1]
    pairs = (lags / np.where(variance > 0, variance, 1)).reshape(len(z), -1, 2).sum(2)
    taken = np.minimum.accumulate(pairs > 0, axis=1)
    times: Floats = np.maximum(2 * np.where(taken, pairs, 0.0).sum(1) - 1, 1.0)
    return times


def heavy_tail(maxima: Floats, rate: float, most: float) -> float:
    """Return what a share ``rate`` of steps goes beyond, of the largest distance of each step, by a power law."""
    ordered, beyond, _ = _largest(maxima)
    if rate * len(maxima) >= beyond:
        return float(ordered[int(rate * len(maxima))])
    if not ordered[beyond] > 0:
        return math.nan
    return float(ordered[beyond] * (beyond / (rate * len(maxima))) ** min(tail_index(maxima), most))


def light_tail(maxima: Floats, rate: float) -> float:
    """Return the same by an exponential tail: means of values that are cut off have no heavier one."""
    ordered, beyond, wider = _largest(maxima)
    if rate * len(maxima) >= beyond:
        return float(ordered[int(rate * len(maxima))])
    excess = float((ordered[:beyond] - ordered[beyond]).mean()) * wider
    return float(ordered[beyond] + excess * math.log(beyond / (rate * len(maxima))))


def tail_index(maxima: Floats) -> float:
    """Return the index of a power law in the tail (Hill), and so many standard errors; infinite where none is seen."""
    ordered, beyond, wider = _largest(maxima)
    if not ordered[beyond] > 0:
        return math.inf
    return float(np.log(ordered[:beyond] / ordered[beyond]).mean()) * wider


def _largest(maxima: Floats) -> tuple[Floats, int, float]:
    """Return values in descending order, how many of them are the tail, and 1 plus its relative standard errors."""
    beyond = max(_LEAST_LARGEST, int(_LARGEST * len(maxima)))
    ordered = np.sort(maxima)[::-1]
    inside = (maxima > ordered[beyond]).astype(np.float64)
    worth = beyond / float(correlation_times(inside[None])[0])
    return ordered, beyond, 1 + _ERRORS / math.sqrt(max(worth, 1.0))


def sidak_limit(effective: Floats, correlated: Floats, rate: float, persistence: int) -> float:
    """Return the limit that independent series with heavy tails would have.

    Values in a row count as many times as they are independent: persistence / correlation time, at least once.
    """
    worth = float(np.median(effective))
    times = max(1.0, persistence / float(np.median(correlated)))
    tail = of_each(rate, len(effective)) ** (1 / times)
    return student_quantile(tail / 2, _FREEDOM) * math.sqrt(1 + 1 / worth)


def sidak_limit_of_means(effective: Floats, correlated: Floats, rate: float, *, averaged: int, knots: int) -> float:
    """Return the limit of means of so many values with heavy tails; what is cut off leaves the mean lighter ones.

    The last part of a trajectory stands for what comes after it. A bound in ``knots`` in place of its square gave nine
    times the alarms that are asked for, of 100 values with memory.
    """
    worth = float(np.median(effective))
    times = min(1.0, float(np.median(correlated)) / averaged)
    wide = _DEVIATION * math.sqrt(times + knots**2 / worth)
    return wide * student_quantile(of_each(rate, len(effective)) / 2, _FREEDOM_OF_MEANS)


def wilson(share: float, trials: float, confidence: float) -> tuple[float, float]:
    """Return the interval of a share of independent trials, without correction."""
    assert trials > 0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrunk = z * z / trials
    middle = (share + shrunk / 2) / (1 + shrunk)
    half = z / (1 + shrunk) * sqrt(max(0.0, share * (1 - share)) / trials + shrunk / (4 * trials))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))
