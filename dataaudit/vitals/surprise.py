"""Series that leave what is expected of them: jumps and drifts, judged over all series of a model together.

Judged are errors of predictions, in scales. Two ways share the rate of false alarms. A *jump*: each of the last three
values lies beyond the limit on the same side of what was expected before the first of them. A *drift*: the mean of the
last 16 errors, each cut off at 4, or an average of some 60, over the size that such means have had in this series. A
series is judged from 64 values on.

The limits are Sidak's over all series that are judged, with tails of Student's t: for jumps of 4 degrees of freedom
and as if the three values were 1.85 independent ones, for drifts of 15; of a series with few values they are wider.
Simulations (benchmarks/vitals_alarms.py) say how often that fails.

What each series should be follows from its own past and from what the loop knows. A value y (a logarithm where its
metric is an amount) is taken as

    y = level + b·x + noise,    level = level before + slope · u

x is what the loop knows: the logarithm of the learning rate, now and as two moving averages, since a model answers a
change of its rate late, and the logarithm of the tokens of a step. u is the sum of the rate since the last value, so a
trend moves as fast as the rate lets it. The noise remembers a share phi of its last value. A Kalman filter follows
level, slope and b on the differences y - phi·(y before), so that errors of predictions, over their own expected size,
have no memory.

What was never seen is no surprise: until the rate has moved, b is known from its prior alone, and the expected size of
an error contains that. Where the rate jumps or decays fast, the level is let loose by a share of its movement.
Series whose band is three times their noise or more are *settling*: they are followed, and not judged.

Errors are cut off at 3 before they move anything, so a fault is followed slowly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dataaudit.base.statistics import Floats, Ints, of_each, student_quantile
from dataaudit.vitals.baseline import AVERAGED, Arrays
from dataaudit.vitals.metric import Key
from dataaudit.vitals.metrics import declared, how_judged

RATE_MEMORY = np.array([16.0, 128.0])
"""Steps that the moving averages of the rate look back."""
FOLLOWED = 256.0
"""Values that scale and memory are averaged over; the level follows within half as many."""
SETTLES = 8
"""Values that a series is not judged for after its band was wide."""
_WIDE = 3.0
"""Band over noise from which on a series is settling."""
_FARTHEST = 3.0
_PRIOR_LEVEL, _PRIOR_SLOPE, _PRIOR_B = 10.0, 0.01, 0.5
"""Standard deviations: of a first level, of a trend in a step at the full rate, of an exponent."""
_LATE, _AT_ONCE = 0.5, 0.2
"""Shares of a movement of the rate, averaged and at once, that no exponent explains."""
_DETRENDED = 64.0
"""Values of the average that memory is measured around."""
_FLOOR = 1e-3
"""Least noise: a thousandth of a value."""
_PHI, _PHI_VALUES, _MOST_PHI = 0.5, 8.0, 0.95
"""Memory that is assumed at first, values that this is worth, and the most that is believed."""
JUDGED_FROM = 64
"""Values from which on a series is judged."""
_LOST = 1.5
"""Mean of its last 16 errors, in scales, from which on a series that is not judged yet begins anew."""
PERSISTENCE = 3
INDEPENDENT = 1.85
"""Independent values that three in a row are worth."""
_UNSURE = 8.0
"""Over the values of a series: the share by which its limits are wider."""
_CUT = 4.0
_DOUBT = 0.35
"""Share of the limit of drifts from which on noise and memory of a series are not learned."""
_FORGETS = 1 / 32
"""Share of an error in the average that forgets."""
_VARIANCES = np.array([1 / AVERAGED, _FORGETS / (2 - _FORGETS)])
"""Mean squares of means of independent errors."""
_CALM = 0.5
"""Share of the limits within which a series is inside again."""
_ENTROPY = 0.01
"""Added to an entropy before its logarithm is taken."""


class Covariates:
    """Numbers of the loop that predict values.

    Attributes:
        x: float64[4]: logarithms of the rate, of its averages over 16 and 128 steps, and of the tokens; from 0.
        clock: Sum of the rates so far, each over the largest until then: steps at the full rate.
        wandered: Variance of a level that movements of rate and tokens have let loose so far.
    """

    def __init__(self) -> None:
        self.x = np.zeros(len(RATE_MEMORY) + 2)
        self.clock = self.wandered = 0.0
        self._origin: list[float] = [np.nan, np.nan]
        self._largest = 0.0

    def see(self, rate: float, tokens: float) -> None:
        """Take a step's learning rate and tokens; NaN: not known."""
        before = self.x.copy()
        now = [np.log(number) if number > 0 else np.nan for number in (rate, tokens)]
        self._origin = [new if np.isnan(old) else old for old, new in zip(self._origin, now, strict=True)]
        if rate > 0:
            self._largest = max(self._largest, rate)
            self.x[0] = now[0] - self._origin[0]
        if tokens > 0:
            self.x[-1] = now[1] - self._origin[1]
        self.clock += rate / self._largest if rate >= 0 and self._largest else 1.0
        self.x[1:-1] += (self.x[0] - self.x[1:-1]) / RATE_MEMORY
        late = float((np.abs(self.x[0] - self.x[1:-1]) / RATE_MEMORY).max())
        at_once = float(np.abs(self.x - before)[[0, -1]].max())
        self.wandered += (_LATE * late) ** 2 + (_AT_ONCE * at_once) ** 2

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        origin = [None if np.isnan(number) else float(number) for number in self._origin]
        return {"x": self.x.tolist(), "origin": origin, "sums": [self.clock, self.wandered, self._largest]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.x[:] = state["x"]
        self._origin = [np.nan if item is None else float(item) for item in state["origin"]]
        self.clock, self.wandered, self._largest = map(float, state["sums"])


class Expected(Arrays):
    """Predicts the next value of every series.

    Attributes:
        count: int64[series]: values that each had.
        scale: float64[series]: noise of a value that its past does not explain; NaN before the second.
        phi: float64[series]: memory of the noise from one value to the next.
        settling: int64[series]: values until a series may be judged again.
    """

    ARRAYS = ("count", "scale", "phi", "settling", "_state", "_cover", "_last", "_clocks", "_products", "_slow")

    def __init__(self, exponents: Floats) -> None:
        number, size = len(exponents), 2 + len(RATE_MEMORY) + 2
        self.count, self.settling = np.zeros((2, number), np.int64)
        self.scale, self.phi = np.full(number, np.nan), np.full(number, _PHI)
        self._state = np.zeros((number, size))
        """Level, slope, and b of each covariate."""
        self._state[:, 2] = np.nan_to_num(exponents)
        prior = np.tile([_PRIOR_LEVEL, _PRIOR_SLOPE, *[_PRIOR_B] * (size - 2)], (number, 1))
        prior[~np.isnan(exponents), 2] /= 4
        self._prior, self._exponents = prior**2, np.nan_to_num(exponents)
        self._cover = self._prior[:, :, None] * np.eye(size)
        self._last = np.zeros((number, size - 1))
        """Of the last value: itself, then its covariates."""
        self._clocks = np.zeros((number, 2))
        self._products = np.zeros((number, 2))
        self._slow = np.zeros((number, 2))
        """An average of each series, and how far its last value lay from it."""

    def see(self, values: Floats, known: Covariates, doubtful: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Take the values of a step; return errors in scales, and what was expected.

        Noise and memory of doubtful series are not learned.
        """
        z, expected = np.full((2, len(values)), np.nan)
        new = np.flatnonzero(np.isfinite(values))
        own, first = new[self.count[new] > 0], new[self.count[new] == 0]
        self._state[first, 0] = values[first] - self._state[first, 2:] @ known.x
        self._slow[first, 0] = self._state[first, 0]
        if len(own):
            learnt = self.scale, self.phi, self._products
            before = [item[doubtful] for item in learnt]
            z[own], expected[own] = self._update(own, values[own], known)
            for item, old in zip(learnt, before, strict=True):
                item[doubtful] = old
        self._last[new, 0], self._last[new, 1:] = values[new], known.x
        self._clocks[new] = known.clock, known.wandered
        self.count[new] += 1
        return z, expected

    def forget(self, which: Ints) -> None:
        """Begin some series anew."""
        self.count[which], self.settling[which], self.scale[which], self.phi[which] = 0, 0, np.nan, _PHI
        self._state[which], self._products[which], self._slow[which] = 0, 0, 0
        self._state[which, 2] = self._exponents[which]
        self._cover[which] = self._prior[which, :, None] * np.eye(self._prior.shape[1])

    def _update(self, own: Ints, y: Floats, known: Covariates) -> tuple[Floats, Floats]:
        """Predict the values of some series, and learn from them."""
        state, cover, phi, before = self._state[own], self._cover[own], self.phi[own], self._last[own, 0]
        count, x_before = self.count[own].astype(np.float64), self._last[own, 1:]
        u = np.clip(known.clock - self._clocks[own, 0], 0, FOLLOWED)
        begins = np.isnan(self.scale[own])
        noise = np.maximum(np.nan_to_num(self.scale[own]), _FLOOR) ** 2
        rest_before = before - state[:, 0] - (state[:, 2:] * x_before).sum(1)
        state[:, 0] += state[:, 1] * u
        cover[:, 0, :] += u[:, None] * cover[:, 1, :]
        cover[:, :, 0] += u[:, None] * cover[:, :, 1]
        slow = noise / (1 - phi) ** 2 / (FOLLOWED / 2) ** 2
        moved = slow + np.maximum(known.wandered - self._clocks[own, 1], 0)
        cover[:, 0, 0] += moved
        cover[:, 1, 1] += slow / (FOLLOWED / 2) ** 2 / np.maximum(u, 1e-3) ** 2
        step = np.column_stack([1 - phi, phi * u, known.x - phi[:, None] * x_before])
        expected = state[:, 0] + state[:, 2:] @ known.x + phi * rest_before
        error = y - expected
        spread = (cover @ step[:, :, None])[:, :, 0]
        of_state = (spread * step).sum(1) + phi * (2 - phi) * moved
        spread[:, 0] += phi * moved  # the value before is of the level before
        size = np.sqrt(of_state + noise)
        size = np.where(begins, np.maximum(size, np.abs(error)), size)
        z = error / size
        wide = ~begins & (size > _WIDE * np.sqrt(noise))
        self.settling[own] = np.where(wide, SETTLES, np.maximum(self.settling[own] - 1, 0))
        settled = self.settling[own] == 0
        cut = np.clip(z, -_FARTHEST, _FARTHEST)
        gain = spread / size[:, None] ** 2
        state += gain * (np.where(settled, cut, z) * size)[:, None]
        cover -= gain[:, :, None] * spread[:, None, :]
        within = np.sqrt(np.minimum(1.0, self._prior[own] / np.maximum(np.einsum("sii->si", cover), 1e-30)))
        cover *= within[:, :, None] * within[:, None, :]
        self._learn_noise(own, noise, begins, np.where(begins, error, cut * size) ** 2, of_state)
        self._learn_memory(own, y - state[:, 2:] @ known.x, count)
        self._state[own], self._cover[own] = state, cover
        return np.where(settled, z, np.nan), expected

    def _learn_noise(
        self, own: Ints, noise: Floats, begins: npt.NDArray[np.bool_], squares: Floats, of_state: Floats
    ) -> None:
        """Let the noise follow the squares of errors, by as much as these are noise."""
        share = np.maximum(1 / self.count[own], 1 / FOLLOWED) * noise / (noise + of_state)
        noise = np.where(begins, squares / 2, noise + share * (np.maximum(squares - of_state, 0) - noise))
        self.scale[own] = np.maximum(np.sqrt(noise), _FLOOR)

    def _learn_memory(self, own: Ints, y: Floats, count: Floats) -> None:
        """Let phi follow the products of neighbouring values, each less an average of its own, corrected for few."""
        phi, products, slow = self.phi[own], self._products[own], self._slow[own]
        slow[:, 0] += np.maximum(1 / count, 1 / _DETRENDED) * (y - slow[:, 0])
        reach = _FARTHEST * self.scale[own] / np.sqrt(np.maximum(1 - phi**2, 0.04))
        now, then = np.clip(y - slow[:, 0], -reach, reach), slow[:, 1].copy()
        slow[:, 1] = now
        share = np.maximum(1 / count, 1 / FOLLOWED)[:, None]
        products += share * (np.column_stack([now * then, then * then]) - products)
        worth = np.minimum(count, FOLLOWED)
        raw = products[:, 0] / np.maximum(products[:, 1], 1e-30)
        raw += (1 + 3 * raw) / np.maximum(worth, 8)
        self.phi[own] = np.clip((worth * raw + _PHI_VALUES * _PHI) / (worth + _PHI_VALUES), 0, _MOST_PHI)
        self._products[own], self._slow[own] = products, slow


class Judge(Arrays):
    """Judges series against their own past, at a rate of false alarms that is one for all who judge.

    Attributes:
        others: Series that other judges have at the same rate.
        values: int64[series]: values that each had.
    """

    values: Ints

    def __init__(self, rate: float) -> None:
        self.rate, self.others, self.known = rate, 0, Covariates()

    @property
    def ready(self) -> int:
        """How many series have enough values."""
        return int(np.count_nonzero(self.values >= JUDGED_FROM))

    @property
    def family(self) -> int:
        """Series that the rate is of."""
        return max(self.ready + self.others, 1)

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {**super().state(), "known": self.known.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        super().load(state)
        self.known.load(state["known"])

    def alarm(self, first_step: int, low: float, high: float, *, jumps: bool) -> dict[str, Any]:
        """Return what a series left: where it began, and the band."""
        return {
            "rule": "jump" if jumps else "drift",
            "first_step": first_step,
            "low": low,
            "high": high,
            "over": "each" if jumps else "mean",
            "values": PERSISTENCE if jumps else AVERAGED,
            "baseline": None,
            "family": self.family,
            "false_alarm_rate": self.rate,
        }


class Surprises(Judge):
    """Judges series against their own past.

    Attributes:
        series: int64[judged]: indices of those that can be judged.
        open: bool[judged]: which are out.
    """

    ARRAYS = ("_recent", "_steps", "_expected", "_mean", "_spread", "_doubtful", "open")

    def __init__(self, keys: Sequence[Key], rate: float) -> None:
        how = np.array([how_judged(key.metric, key.stat) for key in keys], object)
        self._how = {name: np.flatnonzero(how == name) for name in ("log", "asinh", "entropy", "plain")}
        self.series = np.sort(np.concatenate(list(self._how.values())))
        number = len(self.series)
        self._index = np.full(len(keys), -1)
        self._index[self.series] = np.arange(number)
        self.expected = Expected(np.array([declared(keys[place].metric).exponent for place in self.series]))
        super().__init__(rate)
        self.values = self.expected.count
        self.open = np.zeros(number, bool)
        self._recent, self._expected = np.zeros((2, AVERAGED, number))
        """float64[AVERAGED, series]: the newest error first, in scales; what was expected."""
        self._steps = np.zeros((AVERAGED, number), np.int64)
        self._mean = np.zeros((2, number))
        """Means of errors: of the last 16, and an average that forgets."""
        self._spread = np.tile(_VARIANCES[:, None], number)
        """Mean squares of these means."""
        self._jumps, self._doubtful = np.zeros((2, number), bool)
        self._limits: dict[int, tuple[float, float]] = {}

    @property
    def judged(self) -> npt.NDArray[np.bool_]:
        """bool[series]: which have enough values, and are not settling."""
        return np.asarray((self.expected.count >= JUDGED_FROM) & (self.expected.settling == 0))

    @property
    def limits(self) -> tuple[float, float]:
        """The limits of jumps and drifts."""
        family = self.family
        if family not in self._limits:
            tail = of_each(self.rate / 3, family)
            self._limits = {
                family: (student_quantile(tail ** (1 / INDEPENDENT) / 2, 4.0), student_quantile(tail / 2, 15.0))
            }
        return self._limits[family]

    def see(self, step: int, values: Floats, *, rate: float, tokens: float, alarm: bool) -> Ints:
        """Take the values of a step and return which series left what is expected."""
        self.known.see(rate, tokens)
        if not np.isfinite(values[self.series]).any():
            return np.zeros(0, np.int64)
        phi = self.expected.phi.copy()
        z, expected = self.expected.see(self._transformed(values), self.known, self._doubtful)
        new = ~np.isnan(z)
        if not new.any():
            return np.zeros(0, np.int64)
        for ring in (self._recent, self._steps, self._expected):
            ring[1:, new] = ring[:-1, new]
        self._recent[0, new], self._steps[0, new], self._expected[0, new] = z[new], step, expected[new]
        far, jump_limit, drift_limit = self._far(phi, new), *self.limits
        far /= 1 + _UNSURE / np.maximum(self.expected.count, 1)
        ready = new & (self.expected.count >= JUDGED_FROM)
        out = ready & ((far[0] > jump_limit) | (far[1] > drift_limit))
        lost = np.flatnonzero(new & ~ready & (np.abs(self._mean[0]) > _LOST))
        self.expected.forget(lost)
        self._recent[:, lost], self._mean[:, lost], self._spread[:, lost], far[:, lost] = 0, 0, _VARIANCES[:, None], 0
        calm = (far[0] < _CALM * jump_limit) & (far[1] < _CALM * drift_limit)
        raised = np.flatnonzero(out & ~self.open) if alarm else np.zeros(0, np.int64)
        self.open = (self.open & ~(new & calm)) | (out if alarm else False)
        self._jumps = far[0] > jump_limit
        self._doubtful = np.where(new, far[1] > _DOUBT * drift_limit, self._doubtful)
        return self.series[raised]

    def detail(self, number: int) -> dict[str, Any]:
        """Return what a series left: where it began, and the band that was expected there.

        It is the earliest of its last 16 values from which on errors add up to most, over their expected sum.
        """
        own = int(self._index[number])
        sums = np.cumsum(np.clip(self._recent[:, own], -_CUT, _CUT)) / np.sqrt(np.arange(1, AVERAGED + 1))
        at = int(np.abs(sums).argmax())
        jumps, middle = bool(self._jumps[own]), float(self._expected[at, own])
        means = np.sqrt(np.maximum(self._spread[0, own], _VARIANCES[0]))
        reach = float(self.expected.scale[own] * (self.limits[0] if jumps else self.limits[1] * means))
        low, high = self._back(number, middle - reach), self._back(number, middle + reach)
        return self.alarm(int(self._steps[at, own]), low, high, jumps=jumps)

    def _transformed(self, values: Floats) -> Floats:
        own, how = values.copy(), self._how
        with np.errstate(divide="ignore", invalid="ignore"):
            own[how["log"]] = np.where(values[how["log"]] > 0, np.log(values[how["log"]]), np.nan)
            own[how["asinh"]] = np.arcsinh(values[how["asinh"]])
            own[how["entropy"]] = np.log(np.maximum(values[how["entropy"]], 0) + _ENTROPY)
        own = own[self.series]
        return np.where(np.isfinite(own), own, np.nan)

    def _back(self, number: int, value: float) -> float:
        """Return a value in the unit of its metric."""
        value = max(-700.0, min(value, 700.0))
        if number in self._how["log"]:
            return math.exp(value)
        if number in self._how["entropy"]:
            return max(0.0, math.exp(value) - _ENTROPY)
        return math.sinh(value) if number in self._how["asinh"] else value

    def go_back(self, _step: int) -> None:
        """Forget the newest values: the run went back."""
        self._recent[:], self._mean[:], self.open[:] = 0, 0, False

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {**super().state(), "expected": self.expected.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.expected.load(state["expected"])
        super().load(state)

    def _far(self, phi: Floats, new: npt.NDArray[np.bool_]) -> Floats:
        """Return how far out series are, float64[2, series]: as jumps, and as drifts."""
        newest, second, third = self._recent[:PERSISTENCE]
        ahead = np.stack(
            [
                third,
                (second + phi * third) / np.sqrt(1 + phi**2),
                (newest + phi * second + phi**2 * third) / np.sqrt(1 + phi**2 + phi**4),
            ]
        )
        jumps = np.maximum(np.maximum(ahead.min(0), -ahead.max(0)), 0)
        self._mean[0] = np.clip(self._recent, -_CUT, _CUT).mean(0)
        self._mean[1] += np.where(new, _FORGETS * (np.clip(newest, -_CUT, _CUT) - self._mean[1]), 0.0)
        drifts = np.abs(self._mean) / np.sqrt(np.maximum(self._spread, _VARIANCES[:, None]))
        share = (new & ~self._doubtful) / np.clip(self.expected.count, AVERAGED, FOLLOWED)
        self._spread += share * (np.minimum(self._mean**2, 9 * self._spread) - self._spread)
        return np.stack([jumps, drifts.max(0)])
