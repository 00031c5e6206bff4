"""How often a healthy curve leaves its band by chance: peaks over a threshold, with a generalised Pareto tail.

A detector's distances from its line, in robust standard deviations, exceed a threshold in clusters. Of each cluster the
largest excess is kept (declustering by runs), and excesses follow a generalised Pareto distribution (Coles 2001, *An
Introduction to Statistical Modeling of Extreme Values*, sections 4.2 and 5.3.2). Values that were flagged are in no
healthy stretch, so the distribution is cut off where the band was, and what lies beyond is extrapolated.

The posterior is computed on a grid: the scale's prior is flat in its logarithm, that of the shape is normal
(0.05, 0.15), which says that tails of a loss are between those of a uniform distribution and of Student's t with some
three degrees of freedom. The number of clusters is Poisson's, with Jeffreys' prior. Intervals are those of the
posterior; how often they hold the true rate is measured (``dataaudit explain detector``).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

LEAST_STEPS = 1_000
"""Healthy steps without which no rate is claimed."""
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
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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

    def rate(self, k: float) -> AlarmRate:
        """Return how often the distance exceeds k robust standard deviations, at least the threshold."""
        shares = survival(np.array([max(0.0, k - self.threshold)]), self.scales)[..., 0] / self.kept
        count = self.clusters + 0.5
        spread = _NORMAL / (3 * math.sqrt(count))
        numbers = count * np.maximum(1e-3, 1 - 1 / (9 * count) + spread) ** 3 / self.steps  # Wilson and Hilferty
        rates = shares[..., None] * numbers
        weights = np.broadcast_to(self.weights[..., None] / _POINTS, rates.shape)
        order = np.argsort(rates, axis=None, kind="stable")
        summed = np.cumsum(weights.ravel()[order])
        at = np.searchsorted(summed, np.array([0.5, 0.025, 0.975]) * summed[-1])
        value, low, high = rates.ravel()[order][at].tolist()
        return AlarmRate(value=value, low=low, high=high)

    def limit(self, rate: float, *, least: float, most: float) -> float:
        """Return the least k, in steps of an eighth, whose rate is at most a given one; ``most`` where none is."""
        first, last = math.ceil(8 * max(least, self.threshold)), math.floor(8 * most)
        found = bisect_left(range(first, last), True, key=lambda eighths: self.rate(eighths / 8).value <= rate)
        return (first + found) / 8


def tail_of(
    steps: Ints,
    distances: Floats,
    bands: Floats,
    *,
    gap: int,
    shape: tuple[float, float] = PRIOR_SHAPE,
    least: int = LEAST_STEPS,
) -> Tail | None:
    """Fit the upper tail of a healthy stretch.

    Args:
        steps: int64[n] ascending.
        distances: float64[n] from the line, robust standard deviations, positive on the side that is looked at.
        bands: float64[n] distance up to which a value counted as healthy.
        gap: Steps that may lie between two exceedances of a cluster.
        shape: Mean and standard deviation of the shape, before anything is known.
        least: Steps without which nothing is fitted.

    Returns:
        None where there are too few steps, or clusters.
    """
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
    for row, one in enumerate(_SHAPES):
        inside = 1 + one * excess[:, None] / scales
        bad = (inside <= 0).any(axis=0)
        logs = np.log(np.where(inside > 0, inside, 1.0))
        powers = excess[:, None] / scales if abs(one) < 1e-9 else (1 / one + 1) * logs
        likelihood[row] -= powers.sum(axis=0)
        likelihood[row, bad] = -np.inf
    kept = 1 - survival(cut, scales)
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


def survival(excess: Floats, scales: Floats) -> Floats:
    """Return the share of excesses beyond each of some: float64[shapes, scales, n]."""
    scaled = excess / scales[:, None]
    found = np.empty((len(_SHAPES), *scaled.shape))
    for row, shape in enumerate(_SHAPES):
        if abs(shape) < 1e-9:
            found[row] = np.exp(-scaled)
        else:
            found[row] = np.maximum(0.0, 1 + shape * scaled) ** (-1 / shape)
    return found
