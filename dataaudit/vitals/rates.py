"""What a share of few counts may be: the beta-binomial law, its dispersion taken from healthy steps.

An outlier rate of a batch's row is k of n elements, a head's dead share k of n rows. Near 0 such a share has few
values, and a band of a normal distribution says nothing: its lower end is negative, and its upper end is passed by a
single element. Counts are also more scattered than a binomial's, since what makes one element an outlier makes its
neighbours outliers, and batches differ.

A step's probability is taken to be drawn from a beta distribution with mean m and variance m (1 - m) r. Then
k is beta-binomial with variance n m (1 - m) (1 + (n - 1) r). Of healthy steps, m is the share of all counts with half
a count added (Jeffreys), and r is what their scatter around it leaves beyond the binomial's, or 0. The scatter is taken
at the upper end of what chance allows (95 %, by chi-square). What is not known of m, its own variance over so many
scattered steps, widens r. So the law of few healthy steps is wide. Of fewer than :data:`LEAST_STEPS` there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

LEAST_STEPS = 10
"""Healthy steps that a law is learnt from."""
_Z = 1.6448536269514722
"""Of a normal distribution, 5 % lie above it."""
_LEAST = 1e-9
"""Of r: below, a beta-binomial is a binomial, and lgamma has no digits left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLaw:
    """The law of a count of n, learnt from healthy steps."""

    mean: float
    """m, of 0 to 1, neither included."""
    dispersion: float
    """r, above 0 and below 1: the correlation of two elements of a step."""

    @classmethod
    def fit(cls, counts: Sequence[float] | np.ndarray, trials: Sequence[float] | np.ndarray | float) -> Self:
        """Return the law of some healthy steps.

        Args:
            counts: k of each step, float[steps]; a share times its n.
            trials: n of each step, or of all.

        Raises:
            ValueError: There are fewer than :data:`LEAST_STEPS` steps, or a count lies outside of 0 to n.
        """
        k = np.asarray(counts, np.float64)
        n = np.broadcast_to(np.asarray(trials, np.float64), k.shape)
        if len(k) < LEAST_STEPS or not np.isfinite(k).all() or not ((k >= 0) & (k <= n) & (n >= 1)).all():
            raise ValueError("a law of rates: expected counts from 0 to n of ten steps or more, n at least 1")
        mean = (k.sum() + 0.5) / (n.sum() + 1)
        variance = mean * (1 - mean)
        scatter = ((k - n * mean) ** 2).sum() / _low_end(len(k) - 1) * len(k)
        pairs = (n * (n - 1)).sum() * variance
        within = min(max((scatter - (n * variance).sum()) / pairs, 0.0), 0.99) if pairs else 0.0
        of_mean = (n * (1 + (n - 1) * within)).sum() / n.sum() ** 2  # variance of m, over m (1 - m)
        return cls(mean=float(mean), dispersion=float(min(max(within + of_mean, _LEAST), 0.999)))

    def log_pmf(self, trials: int) -> np.ndarray:
        """Return the logarithm of the probability of each count from 0 to n, float64[n + 1]."""
        total = (1 - self.dispersion) / self.dispersion
        alpha, beta = self.mean * total, (1 - self.mean) * total
        k = np.arange(1, trials + 1)
        # P(k) / P(k - 1), so that large arguments of lgamma do not cancel
        steps = np.log((trials - k + 1) / k) + np.log(alpha + k - 1) - np.log(beta + trials - k)
        first = -np.log1p(alpha / (beta + np.arange(trials))).sum()
        found: np.ndarray = first + np.concatenate([[0.0], np.cumsum(steps)])
        return found

    def at_least(self, trials: int) -> np.ndarray:
        """Return the probability of each count or more, float64[n + 1]."""
        found: np.ndarray = np.minimum(np.cumsum(np.exp(self.log_pmf(trials))[::-1])[::-1], 1.0)
        return found

    def limits(self, trials: int, alpha: float) -> tuple[int, int]:
        """Return the lowest and the highest count that is no surprise; each is passed with probability alpha at most.

        Args:
            trials: n.
            alpha: Of one end, above 0 and below 1.
        """
        upper = self.at_least(trials)  # P(K >= k)
        highest = int(np.searchsorted(-upper, -alpha, side="left")) - 1 if upper[-1] <= alpha else trials
        lower = np.minimum(np.cumsum(np.exp(self.log_pmf(trials))), 1.0)  # P(K <= k)
        return int(np.searchsorted(lower, alpha, side="right")), highest

    def score(self, count: float, trials: int) -> float:
        """Return how surprising a count is, in standard deviations of a normal of the same tail: above 0 where many.

        Half of the count's own probability counts to either side, so counts that are as expected score near 0. A
        finite number: 8 stands for what is rarer than 1e-15.
        """
        k = min(max(round(count), 0), trials)
        pmf = np.exp(self.log_pmf(trials))
        below, above = float(pmf[:k].sum() + pmf[k] / 2), float(pmf[k + 1 :].sum() + pmf[k] / 2)
        tail = max(min(below, above), 1e-15)
        size = math.sqrt(2) * _erfc_inverse(2 * min(tail, 0.5))
        return size if above <= below else -size


def _low_end(freedom: int) -> float:
    """Return the quantile of 5 % of a chi-square, by the cube of Wilson and Hilferty."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part - _Z * math.sqrt(part)) ** 3)


def _erfc_inverse(value: float) -> float:
    """Return x with erfc(x) = value, of 0 to 1, by bisection."""
    low, high = 0.0, 6.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle) > value else (low, middle)
    return (low + high) / 2
