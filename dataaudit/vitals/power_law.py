"""Power laws fitted to the tails of positive numbers, as Clauset, Shalizi and Newman do (arXiv 0706.1062, section 3).

From each number on but the largest, as xmin, the tail of n numbers has the most likely exponent

    alpha = 1 + n / sum(log(x / xmin))

and the distance D = max|1 - (x / xmin)^(1 - alpha) - k / n| of Kolmogorov, k = 0 .. n - 1 by rank. The tail with the
least distance is taken, the longest of several. This is what ``WWFit`` of WeightWatcher 0.7 does with 20 numbers or
more; here logarithms are taken once, their sums over tails are running ones, and few distances are made in full.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dataaudit.base.statistics import Floats

LEAST = 20
"""Numbers that a fit needs; WeightWatcher fits fewer in another way."""
NOISE = 1e-5
"""Eigenvalues up to it are noise, as WeightWatcher takes them."""
_RANKS = 48
"""Numbers of each tail that are looked at first: a distance is no less than at these."""


class PowerLaw(NamedTuple):
    """A power law of a tail."""

    alpha: float
    xmin: float
    distance: float
    """Of Kolmogorov, between the tail and the law."""
    tail: int
    """Numbers from xmin on."""

    @property
    def error(self) -> float:
        """Standard error of alpha, (alpha - 1) / sqrt(tail), where xmin is taken as known."""
        return (self.alpha - 1) / math.sqrt(self.tail)


def fit_power_law(numbers: Floats) -> PowerLaw | None:
    """Return the power law of numbers, float64[n] in any order; None where fewer than 20 lie above the noise."""
    above = np.sort(numbers[numbers > NOISE])
    total = len(above)
    if total < LEAST:
        return None
    logs = np.log(above)
    starts = np.arange(total - 1)
    tails = total - starts
    sums = np.cumsum((logs - logs[-1])[::-1])[::-1][:-1] - tails * (logs[:-1] - logs[-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        alphas = 1 + tails / sums  # not finite where a tail is a single number, many times
        ranks = starts[:, None] + (np.linspace(0, 1, _RANKS) * (tails - 1)[:, None]).astype(np.int64)
        least = _distances(logs, alphas, starts, ranks).max(1)
    least[~np.isfinite(alphas)] = math.inf
    best, chosen = math.inf, -1
    for start in np.argsort(least, kind="stable").tolist():
        if least[start] > best or least[start] == math.inf:
            break
        own = np.array([start])
        distance = float(_distances(logs, alphas, own, np.arange(start, total)[None]).max())
        if distance < best or (distance == best and start < chosen):
            best, chosen = distance, start
    if chosen < 0:
        return None
    return PowerLaw(float(alphas[chosen]), float(above[chosen]), best, total - chosen)


def _distances(logs: Floats, alphas: Floats, starts: np.ndarray, ranks: np.ndarray) -> Floats:
    """Return how far some numbers of tails are from their laws, float64[tails, ranks]."""
    own = starts[:, None]
    law = -np.expm1((1 - alphas[own]) * (logs[ranks] - logs[own]))
    found: Floats = np.abs(law - (ranks - own) / (len(logs) - own))
    return found
