"""Shares and counts that leave the law of their own healthy steps: jumps and drifts, over all series of a model.

A share is k of n; n is handed over with it. Its law is learnt from the last :data:`LEARNT` values before the newest
16. A *jump* is three values in a row beyond the law's limit on one side. A
*drift* is a sum of 16 values, each cut off at its own limit, beyond the limit of such sums. The law of sums is learnt
from sums of 16 values, so their dispersion contains what neighbours have in common. A series is judged from 64 values
on, its sums from ten on; not where its memory makes them worth fewer than 16 independent values.

Three things make a law wider. A share below a thousandth, or as near to 1, is no surprise: outliers that never were
begin with single elements. Series that are alike share the median of their dispersions, so a head that never had a dead
row is not taken for one that cannot. And what moves the learning rate may move a share: by the power of a half.

The law is beta-binomial, its dispersion taken from healthy steps. An outlier rate of a batch's row is k of n elements,
a head's dead share k of n rows. Near 0 such a share has few values, and a band of a normal distribution says nothing:
its lower end is negative, and its upper end is passed by a single element. Counts are also more scattered than a
binomial's, since what makes one element an outlier makes its neighbours outliers, and batches differ.

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
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dataaudit.base.statistics import Floats, Ints, of_each
from dataaudit.vitals.baseline import AVERAGED
from dataaudit.vitals.metric import Key
from dataaudit.vitals.metrics import declared
from dataaudit.vitals.surprise import JUDGED_FROM, PERSISTENCE, Judge

LEAST_STEPS = 10
"""Healthy steps that a law is learnt from."""
_Z = 1.6448536269514722
"""Of a normal distribution, 5 % lie above it."""
_LEAST = 1e-9
"""Of r: below, a beta-binomial is a binomial."""
_CELLS = 1_024
"""Counts that are computed singly; more are in cells of several."""
_REACH = 60.0
"""Standard deviations around the mean in which limits are sought."""
_SHIFT = np.arange(8.0)[:, None]
LEARNT = 256
"""Values that a law is learnt from."""
_REFIT = 32
"""Values after which it is learnt anew."""
_RING = AVERAGED + LEARNT
_EXPONENT = 0.5
"""Of the learning rate: what movement of it may move a share."""
_STALE = 0.1
"""Movement of the rate's logarithm since a law was learnt, from which on it is no measure."""
_FEWER = 0.9
"""Share of the law's n below which a value is not judged."""
_MATTERS = 1e-3
"""Share, or distance from 1, up to which nothing is a surprise: elements that never were, and now are a few."""
_INDEPENDENT = 1.7
"""Independent values that three in a row are worth, without memory."""
_WORTH = 16.0
"""Independent values that a law's values have to be worth."""


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
        """Return the law of some healthy steps."""
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
        logs: np.ndarray = _rises(rest + 1, counts) - _rises(np.ones_like(counts), counts)
        for number, steps in ((alpha, counts), (beta, rest)):
            logs += _rises(np.full_like(counts, number), steps)
        logs -= _rises(np.full_like(counts, total), np.full_like(counts, trials))
        return logs

    def limits(self, trials: int, alpha: float) -> tuple[int, int]:
        """Return the lowest and the highest count that is no surprise; each is passed with probability alpha at most.

        Of more counts than :data:`_CELLS` they are the outer ends of cells, an eighth of a standard deviation wide.
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
        return (int(first[lower[-1]]) + width if len(lower) else least, int(first[passed[0]]) - 1 if len(passed) else n)


def scatter(counts: np.ndarray, trials: np.ndarray, worth: float = 1.0) -> float:
    """Return the dispersion that counts show beyond the binomial's, at the upper end of what chance allows, or 0."""
    mean = (counts.sum() + 0.5) / (trials.sum() + 1)
    variance = mean * (1 - mean)
    pairs = (trials * (trials - 1)).sum() * variance
    if not pairs:
        return 0.0
    freedom = max(worth * (len(counts) - 1), 2.0)
    squares = ((counts - trials * mean) ** 2).sum() * freedom / _low_end(freedom)
    return float(min(max((squares - (trials * variance).sum()) / pairs, 0.0), 0.99))


def _low_end(freedom: float) -> float:
    """Return the quantile of 5 % of a chi-square, by the cube of Wilson and Hilferty."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part - _Z * math.sqrt(part)) ** 3)


def _rises(first: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return log Γ(first + steps) - log Γ(first), by Stirling's series, without the cancellation of large ones."""
    small = np.log1p(steps / (first + _SHIFT)).sum(0)
    x = first + len(_SHIFT)
    y = x + steps
    series: np.ndarray = (x - 0.5) * np.log1p(steps / x) + steps * (np.log(y) - 1) - small
    series += (1 / y - 1 / x) / 12 - (y**-3 - x**-3) / 360 + (y**-5 - x**-5) / 1260
    return series


class Shares(Judge):
    """Judges shares and counts against their own past.

    Attributes:
        series: int64[n]: indices of those that are shares.
        open: bool[n]: which are out.
    """

    ARRAYS = ("_counts", "_trials", "_steps", "values", "_age", "_moved", "_scatter", "_limits", "open")

    def __init__(self, keys: Sequence[Key], rate: float) -> None:
        self.series = np.array(
            [item for item, key in enumerate(keys) if declared(key.metric).judged == "share"], np.int64
        )
        number = len(self.series)
        self._index = {int(place): own for own, place in enumerate(self.series)}
        names = [keys[place].metric + str(keys[place].head >= 0) for place in self.series]
        self._whole = np.array([declared(keys[place].metric).whole for place in self.series], bool)
        """Which are counts, not shares."""
        self._alike = np.unique(names, return_inverse=True)[1] if number else np.zeros(0, np.int64)
        super().__init__(rate)
        self.open = np.zeros(number, bool)
        self._counts, self._trials = np.zeros((2, _RING, number), np.float32)
        """k and n of the last values, in a ring."""
        self._steps = np.zeros((_RING, number), np.int64)
        self.values = np.zeros(number, np.int64)
        self._age = np.full(number, _REFIT)
        """Values since the law was learnt."""
        self._moved = np.zeros(number)
        """How far the learning rate had moved when it was."""
        self._scatter = np.full((2, number), np.nan)
        """Dispersion of values, and of sums; NaN: none was counted."""
        self._limits = np.tile([[0.0, 1.0, np.inf]], (2, number, 1))
        """Of values and of sums: lowest and highest share, and the n that this is of."""

    @property
    def judged(self) -> npt.NDArray[np.bool_]:
        """bool[n]: which have a law."""
        return np.asarray(np.isfinite(self._limits[0, :, 2]))

    def see(self, step: int, values: Floats, trials: Floats, *, rate: float, tokens: float, alarm: bool = True) -> Ints:
        """Take the shares or counts of a step and return which series left their law."""
        self.known.see(rate, tokens)
        values, n = values[self.series], trials[self.series]
        new = np.flatnonzero(np.isfinite(values) & (n >= 1))
        if not len(new):
            return np.zeros(0, np.int64)
        at = self.values[new] % _RING
        counts = np.round(values[new] * np.where(self._whole[new], 1, n[new]))
        self._counts[at, new] = np.clip(counts, 0, n[new])
        self._trials[at, new] = n[new]
        self._steps[at, new] = step
        self.values[new] += 1
        self._age[new] += 1
        moved = float(np.abs(self.known.x[0] - self.known.x[1:-1]).max())
        stale = moved > self._moved[new] + _STALE
        due = new[((self._age[new] >= _REFIT) | stale) & (self.values[new] >= JUDGED_FROM)]
        for value in due[np.argsort(-self._age[due], kind="stable")][: -(-len(self.series) // _REFIT)].tolist():
            self._learn(value, moved)
        jumps, drifts = self._beyond(new)
        fresh = moved <= self._moved[new] + _STALE
        out = (jumps.all(0) | drifts) & fresh
        raised = new[out & ~self.open[new]] if alarm else np.zeros(0, np.int64)
        self.open[new] = (self.open[new] & (jumps[0] | drifts)) | (out & alarm)
        return self.series[raised]

    def detail(self, number: int) -> dict[str, Any]:
        """Return what a series left: where it began, and what its law allows."""
        own = self._index[number]
        jumps = bool(self._beyond(np.array([own]))[0].all())
        low, high, of = self._limits[0 if jumps else 1, own].tolist()
        times = of if self._whole[own] and jumps else of / AVERAGED if self._whole[own] else 1.0
        first = int(self._steps[(self.values[own] - (PERSISTENCE if jumps else AVERAGED)) % _RING, own])
        return self.alarm(first, low * times, high * times, jumps=jumps)

    def why(self, series: Sequence[int]) -> str:
        """Return why some series are not judged; empty where they have few values."""
        values = self.values[[self._index[at] for at in series]]
        if not values.any():
            return "how many counts it is a share of is not known"
        return "" if values.min() < JUDGED_FROM else "their memory makes them worth too few independent values"

    def go_back(self, step: int) -> None:
        """Forget what is out, and the values of a step and of later ones: the run went back."""
        later = self._steps >= step
        self.values -= later.sum(0)
        self._counts[later], self._trials[later], self._steps[later] = 0, 0, 0
        self.open[:] = False

    def _newest(self, ring: np.ndarray, own: Ints, number: int) -> np.ndarray:
        """Return the newest values of some series, float[number, own], the newest first."""
        return np.asarray(ring[(self.values[own] - 1 - np.arange(number)[:, None]) % _RING, own])

    def _beyond(self, own: Ints) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which of the newest values lie beyond, all on one side, bool[3, own]; and which sums do, bool[own]."""
        k, n = (self._newest(values, own, AVERAGED).astype(np.float64) for values in (self._counts, self._trials))
        cut = np.minimum(k, (self._limits[0, own, 1] + 0.5 / self._limits[0, own, 2]) * n)
        beyond = []
        for (low, high, of), counts, trials in zip(
            self._limits[:, own].transpose(0, 2, 1),
            (k[:PERSISTENCE], cut.sum(0)[None]),
            (n[:PERSISTENCE], n.sum(0)[None]),
            strict=True,
        ):
            share, enough = counts / np.maximum(trials, 1), trials >= _FEWER * of
            above = enough & (share > high + 0.5 / of)
            below = enough & (share < low - 0.5 / of)
            beyond.append(np.where(above[0], above, below & below[0]))
        return beyond[0], beyond[1][0]

    def _learn(self, own: int, moved: float) -> None:
        """Learn the law of a series, of its values and of their sums."""
        number = min(int(self.values[own]), _RING)
        rings = (self._newest(values, np.array([own]), number) for values in (self._counts, self._trials))
        k, n = (ring[AVERAGED:, 0].astype(np.float64) for ring in rings)
        k, n = k[n > 0], n[n > 0]  # of steps that a run went back before there is none
        if len(k) < LEAST_STEPS:
            return
        memory, tail = _memory(k / n), of_each(self.rate / 3, self.family) / 2
        times = 1 + (_INDEPENDENT - 1) * (1 - memory)
        sums = [values[: len(k) // AVERAGED * AVERAGED].reshape(-1, AVERAGED).sum(1) for values in (k, n)]
        ways = ((k, n, tail ** (1 / times), (1 - memory) / (1 + memory)), (*sums, tail, 1.0))
        for way, (counts, trials, alpha, worth) in enumerate(ways):
            if len(counts) < LEAST_STEPS or len(k) * ways[0][-1] < _WORTH:
                self._limits[way, own, 2] = np.inf
                continue
            self._scatter[way, own] = scatter(counts, trials, worth) if counts.any() else math.nan
            alike = self._scatter[way, self._alike == self._alike[own]]
            alike = alike[~np.isnan(alike)]
            least = float(np.median(alike)) if len(alike) else 0.0
            law = RateLaw.fit(counts, trials, least=least, moved=_EXPONENT * moved, worth=worth)
            of = int(np.median(trials))
            few, (low, high) = int(_MATTERS * of), law.limits(of, alpha)
            self._limits[way, own] = min(low, of - few) / of, max(high, few) / of, of
        self._age[own], self._moved[own] = 0, moved


def _memory(shares: np.ndarray) -> float:
    """Return what neighbouring values have in common, at the upper end of what so few can tell, up to 0.95."""
    rest = shares - shares.mean()
    of = float((rest**2).sum())
    memory = max(float((rest[1:] * rest[:-1]).sum()) / of, 0.0) if of else 0.0
    return min(memory + (1 + 3 * memory) / len(shares) + 2 / math.sqrt(len(shares)), 0.95)
