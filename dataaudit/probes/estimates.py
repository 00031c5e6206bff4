"""Intervals of what probes measure: a number is a sum over independent units, divided by another sum over them.

A loss per token is nats over tokens, summed over documents; a share is successes over trials. The interval is about
units like these, by the linearised ratio (Cochran 1977, *Sampling Techniques*, 6.4) with Student's quantile, so that
long documents and tokens that belong together count as what they are. A share of single trials has the exact interval
of Clopper and Pearson, and so has a share of tokens that is 0 or 1, as that of its units. The change between two
checkpoints is paired, unit by unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dataaudit.base.statistics import student_quantile, wilson

Floats = npt.NDArray[np.float64]
CONFIDENCE = 0.95
SHUFFLES = 9_999
"""Permutations of a test; its smallest p is 1 / (SHUFFLES + 1)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval; ``low`` and ``high`` are None where one unit alone was measured."""

    value: float
    low: float | None
    high: float | None
    units: int


@dataclass(frozen=True, slots=True)
class Units:
    """Numerators and denominators of independent units: float64[n] each, and int64[n] ids that pair checkpoints."""

    top: Floats
    bottom: Floats
    ids: npt.NDArray[np.int64]

    @classmethod
    def of(cls, top: npt.ArrayLike, bottom: npt.ArrayLike | None = None, ids: npt.ArrayLike | None = None) -> Units:
        """Return units; denominators are 1, and ids count from 0, where none are given."""
        tops = np.asarray(top, dtype=np.float64)
        bottoms = np.ones(len(tops)) if bottom is None else np.asarray(bottom, dtype=np.float64)
        return cls(tops, bottoms, np.arange(len(tops)) if ids is None else np.asarray(ids, dtype=np.int64))

    def where(self, mask: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Units:
        """Return some of the units, by a mask or by their numbers."""
        return Units(self.top[mask], self.bottom[mask], self.ids[mask])

    @property
    def are_trials(self) -> bool:
        """Whether each unit is one trial that succeeded or not."""
        return bool((self.bottom == 1).all() and np.isin(self.top, (0.0, 1.0)).all())

    def estimate(self) -> Estimate | None:
        """Return the ratio of sums with its interval; None where the denominators are 0."""
        total = float(self.bottom.sum())
        if total <= 0:
            return None
        value, number = float(self.top.sum()) / total, len(self.top)
        if self.are_trials:
            return Estimate(value, *share_interval(int(self.top.sum()), number), number)
        if not math.isfinite(value):
            return Estimate(value, None, None, number)
        if number > 1 and value in {0.0, 1.0} and bool(((self.top == 0) | (self.top == self.bottom)).all()):
            return Estimate(value, *share_interval(round(value * number), number), number)
        return _around(value, _half_width(self.top - value * self.bottom, total), number)

    def change_from(self, before: Units) -> Estimate | None:
        """Return how the ratio changed, over the units that both have; None where they share none."""
        _, mine, theirs = np.intersect1d(self.ids, before.ids, return_indices=True)
        now, then = self.where(mine), before.where(theirs)
        sums = float(now.bottom.sum()), float(then.bottom.sum())
        if min(sums) <= 0:
            return None
        values = float(now.top.sum()) / sums[0], float(then.top.sum()) / sums[1]
        value = values[0] - values[1]
        residuals = (now.top - values[0] * now.bottom) / sums[0] - (then.top - values[1] * then.bottom) / sums[1]
        return _around(value, _half_width(residuals, 1.0) if math.isfinite(value) else None, len(mine))


def _around(value: float, half: float | None, units: int) -> Estimate:
    return Estimate(value, None if half is None else value - half, None if half is None else value + half, units)


def _half_width(residuals: Floats, total: float) -> float | None:
    """Return half the width of an interval from residuals of units, which add up to 0."""
    number = len(residuals)
    if number < 2:
        return None
    spread = math.sqrt(float((residuals**2).sum()) * number / (number - 1)) / total
    return spread * student_quantile((1 - CONFIDENCE) / 2, number - 1)


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the exact interval of a share; Wilson's where scipy is not installed."""
    try:
        from dataaudit.scan.kernels.intervals import clopper_pearson

        return clopper_pearson(successes, trials, CONFIDENCE)
    except ImportError:
        return wilson(successes / trials, trials, CONFIDENCE)


@dataclass(frozen=True, slots=True)
class Contrast:
    """How far the scores of a set lie above those of another."""

    auc: float
    """Chance that a score of the set is above one of the other; ties count half."""
    low: float
    high: float
    """Its interval (DeLong 1988)."""
    p: float
    """One-sided chance of as large a sum of ranks where labels are drawn at random."""


def contrast(scores: npt.ArrayLike, others: npt.ArrayLike, *, seed: int = 0) -> Contrast | None:
    """Compare scores with those of another set by ranks; None where a set has fewer than two.

    Args:
        scores: float[n]
        others: float[m]
        seed: Of the permutations.
    """
    mine, theirs = np.asarray(scores, np.float64), np.asarray(others, np.float64)
    if min(len(mine), len(theirs)) < 2:
        return None
    above = (mine[:, None] > theirs).astype(np.float64) + 0.5 * (mine[:, None] == theirs)
    auc = float(above.mean())
    variance = above.mean(1).var(ddof=1) / len(mine) + above.mean(0).var(ddof=1) / len(theirs)
    half = 1.959964 * math.sqrt(float(variance))
    both = np.concatenate([mine, theirs])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    random = np.random.default_rng(seed)
    own = float(ranks[: len(mine)].sum())
    drawn = sum(float(random.permutation(ranks)[: len(mine)].sum()) >= own - 1e-9 for _ in range(SHUFFLES))
    return Contrast(auc, max(0.0, auc - half), min(1.0, auc + half), (1 + drawn) / (1 + SHUFFLES))


def trend(times: npt.ArrayLike, successes: npt.ArrayLike) -> float | None:
    """Return the one-sided p that successes grow with log(1 + ``times``) (Cochran-Armitage, by permutation).

    Args:
        times: float[n], 0 or more: how often the text of each trial stands in training.
        successes: bool[n]

    Returns:
        None where all times, or all outcomes, are alike.
    """
    doses, outcomes = np.log1p(np.asarray(times, np.float64)), np.asarray(successes, np.float64)
    if not len(doses) or np.ptp(doses) == 0 or np.ptp(outcomes) == 0:
        return None
    random = np.random.default_rng(0)
    own = float(doses @ outcomes)
    drawn = sum(float(doses @ random.permutation(outcomes)) >= own - 1e-9 for _ in range(SHUFFLES))
    return (1 + drawn) / (1 + SHUFFLES)
