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
"""Of r: below, a beta-binomial is a binomial."""
_CELLS = 1_024
"""Counts that are looked at one by one; of more, cells of several."""
_REACH = 60.0
"""Standard deviations around the mean in which limits are looked for."""
_SHIFT = np.arange(8.0)[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLaw:
    """The law of a count of n, learnt from healthy steps."""

    mean: float
    """m, of 0 to 1, neither included."""
    dispersion: float
    """r, above 0 and below 1: the correlation of two elements of a step."""

    @classmethod
    def fit(
        cls,
        counts: Sequence[float] | np.ndarray,
        trials: Sequence[float] | np.ndarray | float,
        *,
        least: float = 0.0,
        moved: float = 0.0,
        worth: float = 1.0,
    ) -> Self:
        """Return the law of some healthy steps.

        Args:
            counts: k of each step, float[steps]; a share times its n.
            trials: n of each step, or of all.
            least: Dispersion that is not gone below, such as that of series like it.
            moved: Standard deviation of the logarithm of m since these steps.
            worth: Independent steps that a step is worth.

        Raises:
            ValueError: There are fewer than :data:`LEAST_STEPS` steps, or a count lies outside of 0 to n.
        """
        k = np.asarray(counts, np.float64)
        n = np.broadcast_to(np.asarray(trials, np.float64), k.shape)
        if len(k) < LEAST_STEPS or not np.isfinite(k).all() or not ((k >= 0) & (k <= n) & (n >= 1)).all():
            raise ValueError("a law of rates: expected counts from 0 to n of ten steps or more, n at least 1")
        mean = (k.sum() + 0.5) / (n.sum() + 1)
        within = max(scatter(k, n, worth), least)
        of_mean = (n * (1 + (n - 1) * within)).sum() / n.sum() ** 2 / worth  # variance of m, over m (1 - m)
        dispersion = within + of_mean + moved**2 * mean / (1 - mean)
        return cls(mean=float(mean), dispersion=float(min(max(dispersion, _LEAST), 0.999)))

    def log_pmf(self, trials: int, counts: np.ndarray) -> np.ndarray:
        """Return the logarithm of the probability of some counts, float64[counts]."""
        total = (1 - self.dispersion) / self.dispersion
        alpha, beta, rest = self.mean * total, (1 - self.mean) * total, trials - counts
        found: np.ndarray = _rises(rest + 1, counts) - _rises(np.ones_like(counts), counts)
        for one, steps in ((alpha, counts), (beta, rest)):
            found += _rises(np.full_like(counts, one), steps)
        found -= _rises(np.full_like(counts, total), np.full_like(counts, trials))
        return found

    def limits(self, trials: int, alpha: float) -> tuple[int, int]:
        """Return the lowest and the highest count that is no surprise; each is passed with probability alpha at most.

        Of more counts than :data:`_CELLS` they are the outer ends of cells, an eighth of a standard deviation wide.

        Args:
            trials: n.
            alpha: Of one end, above 0 and below 1.
        """
        n, m = trials, self.mean
        reach = _REACH * (math.sqrt(n * m * (1 - m) * (1 + (n - 1) * self.dispersion)) + 1)
        least, most = (0, n) if n < _CELLS else (max(0, int(n * m - reach)), min(n, int(n * m + reach) + 1))
        width = -(-(most - least + 1) // _CELLS)
        first = np.arange(least, most + 1, width, dtype=np.float64)
        cells = np.exp(self.log_pmf(n, np.minimum(first + (width - 1) // 2, n))) * width
        upper = np.minimum(np.cumsum(cells[::-1])[::-1], 1.0)  # P(K >= first)
        passed = np.flatnonzero(upper <= alpha)
        lower = np.flatnonzero(np.cumsum(cells) <= alpha)
        return (
            int(first[lower[-1]]) + width if len(lower) else least,
            int(first[passed[0]]) - 1 if len(passed) else n,
        )


def scatter(counts: np.ndarray, trials: np.ndarray, worth: float = 1.0) -> float:
    """Return the dispersion that counts show beyond the binomial's, at the upper end of what chance allows, or 0.

    Args:
        counts: k of each step, float[steps].
        trials: n of each step, float[steps].
        worth: Independent steps that a step is worth.
    """
    mean = (counts.sum() + 0.5) / (trials.sum() + 1)
    variance = mean * (1 - mean)
    pairs = (trials * (trials - 1)).sum() * variance
    if not pairs:
        return 0.0
    freedom = max(worth * (len(counts) - 1), 2.0)
    found = ((counts - trials * mean) ** 2).sum() * freedom / _low_end(freedom)
    return float(min(max((found - (trials * variance).sum()) / pairs, 0.0), 0.99))


def _low_end(freedom: float) -> float:
    """Return the quantile of 5 % of a chi-square, by the cube of Wilson and Hilferty."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part - _Z * math.sqrt(part)) ** 3)


def _rises(first: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return log Γ(first + steps) - log Γ(first), by Stirling's series, without the cancellation of large ones."""
    small = np.log1p(steps / (first + _SHIFT)).sum(0)
    x = first + len(_SHIFT)
    y = x + steps
    found: np.ndarray = (x - 0.5) * np.log1p(steps / x) + steps * (np.log(y) - 1) - small
    found += (1 / y - 1 / x) / 12 - (y**-3 - x**-3) / 360 + (y**-5 - x**-5) / 1260
    return found
