"""How far a value goes by chance: tails of what was seen, and of what is assumed where too little was."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
AVERAGED = 16
"""Measured values whose mean is looked at."""
_TAIL = 0.05
"""Share of the largest values that a tail is continued from."""
_TAIL_VALUES = 10
"""And at least as many."""
_ERRORS = 1.5
"""Standard errors that are added to the index of a tail."""
_DEVIATION = 1.3
"""Standard deviation of a Student's t of 4 degrees of freedom, in scales."""
_FREEDOM_OF_MEANS = 15.0
_FREEDOM = 4.0
"""Degrees of freedom of the tail that is assumed where it cannot be seen."""


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
    """Return what a share ``rate`` of steps goes beyond, of the largest distance of each step, by a power law.

    Args:
        maxima: float64[n]
        rate: Share of steps.
        most: Index of the tail of single values, which that of the least of several cannot exceed.

    Returns:
        NaN where no tail is seen.
    """
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
    beyond = max(_TAIL_VALUES, int(_TAIL * len(maxima)))
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


def sidak_limit_of_means(effective: Floats, correlated: Floats, rate: float, *, knots: int) -> float:
    """Return the limit of means of values with heavy tails; what is cut off leaves the mean lighter ones.

    The last part of a trajectory stands for what comes after it. A bound in ``knots`` in place of its square gave nine
    times the alarms that are asked for, of 100 values with memory.
    """
    worth = float(np.median(effective))
    times = min(1.0, float(np.median(correlated)) / AVERAGED)
    spread = _DEVIATION * math.sqrt(times + knots**2 / worth)
    return spread * student_quantile(of_each(rate, len(effective)) / 2, _FREEDOM_OF_MEANS)


def of_each(rate: float, family: int) -> float:
    """Return the rate of each of a family of independent series that together have a rate (Sidak)."""
    return -math.expm1(math.log1p(-rate) / family)


def student_quantile(tail: float, freedom: float) -> float:
    """Return what a Student's t exceeds with a probability.

    Args:
        tail: Probability, above 0 and up to 1/2.
        freedom: Degrees of freedom, 1 or more.
    """
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
