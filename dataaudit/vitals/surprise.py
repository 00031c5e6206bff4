"""Series that leave what is expected of them: jumps and drifts, judged over all series of a model together.

What is looked at are errors of predictions, in scales (:mod:`dataaudit.vitals.expected`). Two ways share the rate of
false alarms. A jump: each of the last three values lies beyond the limit on the same side of what was expected before
the first of them. A drift: the mean of the last 16 errors, each cut off at 4, or an average of some 60, over the size
that such means have had in this series. A series is judged from 64 values on.

The limits are Sidak's over all series that are judged, with tails of Student's t: for jumps of 4 degrees of freedom
and as if the three values were 1.7 independent ones, for drifts of 15; of a series with few values they are wider.
Simulations (benchmarks/vitals_alarms.py) say how often that fails.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dataaudit.robust import Floats, Ints, of_each, student_quantile
from dataaudit.vitals.baseline import AVERAGED, Key
from dataaudit.vitals.expected import FOLLOWED, Covariates, Expected

JUDGED_FROM = 64
"""Values from which on a series is judged."""
PERSISTENCE = 3
INDEPENDENT = 1.7
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
_AMOUNTS = frozenset(
    {
        "activation_mean_abs",
        "residual_rms",
        "layer_std",
        "grad_norm",
        "update_to_weight",
        "grad_to_weight",
        "grad_noise_scale",
    }
)
_ENTROPY = 0.01
"""Added to an entropy before its logarithm is taken."""
_OTHERS = {
    "opt_state_finite": "a fixed rule holds for it",
    "nan_inf_events": "a fixed rule holds for it",
    "skipped_updates": "a fixed rule holds for it",
    "gradient_spike_score": "a fixed rule holds for it",
}
SHARES = frozenset({"dead_neuron_count", "dead_head_rate", "activation_outlier_rate"})
"""Metrics that are k of n."""
_ARRAYS = ("_recent", "_steps", "_expected", "_mean", "_spread", "_doubtful", "open")


def how_judged(key: Key) -> str:
    """Return how a series is judged: ``log``, ``asinh``, ``entropy``, ``plain`` or ``share``; else why it is not."""
    if key.metric in _AMOUNTS and key.stat not in {"low", "high"}:
        return "log"
    if (key.metric, key.stat) == ("max_attn_logit", "sampled"):
        return "asinh"
    if (key.metric, key.stat) == ("attn_entropy", "normalised"):
        return "entropy"
    if key.metric in {"gsnr", "direction_consistency"}:
        return "plain"
    if key.metric in SHARES:
        return "share"
    return _OTHERS.get(key.metric, "another statistic of the metric is judged")


class Surprises:
    """Judges series against their own past.

    Args:
        keys: Of the series.
        rate: False alarms a step, of all series together.

    Attributes:
        places: int64[judged]: places of the series that can be judged.
        open: bool[judged]: which are out.
        others: Series that others judge at the same rate.
    """

    def __init__(self, keys: Sequence[Key], rate: float) -> None:
        how = np.array([how_judged(key) for key in keys], object)
        self._how = {name: np.flatnonzero(how == name) for name in ("log", "asinh", "entropy", "plain")}
        self.places = np.sort(np.concatenate(list(self._how.values())))
        number = len(self.places)
        self._place = np.full(len(keys), -1)
        self._place[self.places] = np.arange(number)
        updates = np.array([keys[one].metric == "update_to_weight" for one in self.places], bool)
        self.expected = Expected(np.where(updates, 1.0, np.nan))
        self.rate, self.others, self.known = rate, 0, Covariates()
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
        found: npt.NDArray[np.bool_] = (self.expected.count >= JUDGED_FROM) & (self.expected.settling == 0)
        return found

    @property
    def limits(self) -> tuple[float, float]:
        """The limits of jumps and drifts."""
        family = self._family
        if family not in self._limits:
            tail = of_each(self.rate / 3, family)
            self._limits = {
                family: (student_quantile(tail ** (1 / INDEPENDENT) / 2, 4.0), student_quantile(tail / 2, 15.0))
            }
        return self._limits[family]

    def see(self, step: int, held: Floats, *, rate: float, tokens: float, alarm: bool = True) -> Ints:
        """Take the values of a step and return the places of the series that left what is expected.

        Args:
            step: Which one.
            held: float64[series]; NaN: not measured.
            rate: Of learning; NaN: not known.
            tokens: Of the step; NaN: not known.
            alarm: Whether anything is raised.
        """
        self.known.see(rate, tokens)
        if not np.isfinite(held[self.places]).any():
            return np.zeros(0, np.int64)
        phi = self.expected.phi.copy()
        z, expected = self.expected.see(self._transformed(held), self.known, self._doubtful)
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
        calm = (far[0] < _CALM * jump_limit) & (far[1] < _CALM * drift_limit)
        raised = np.flatnonzero(out & ~self.open) if alarm else np.zeros(0, np.int64)
        self.open = (self.open & ~(new & calm)) | (out if alarm else False)
        self._jumps = far[0] > jump_limit
        self._doubtful = np.where(new, far[1] > _DOUBT * drift_limit, self._doubtful)
        return self.places[raised]

    def detail(self, place: int) -> dict[str, Any]:
        """Return what a series left: where it began, and the band that was expected there.

        It is the earliest of its last 16 values from which on errors add up to most, over their expected sum.
        """
        own = int(self._place[place])
        sums = np.cumsum(np.clip(self._recent[:, own], -_CUT, _CUT)) / np.sqrt(np.arange(1, AVERAGED + 1))
        at = int(np.abs(sums).argmax())
        jumps, middle = bool(self._jumps[own]), float(self._expected[at, own])
        means = np.sqrt(np.maximum(self._spread[0, own], _VARIANCES[0]))
        reach = float(self.expected.scale[own] * (self.limits[0] if jumps else self.limits[1] * means))
        return {
            "rule": "jump" if jumps else "drift",
            "first_step": int(self._steps[at, own]),
            "low": self._back(place, middle - reach),
            "high": self._back(place, middle + reach),
            "over": "each" if jumps else "mean",
            "values": PERSISTENCE if jumps else AVERAGED,
            "baseline": None,
            "family": self._family,
            "false_alarm_rate": self.rate,
        }

    @property
    def ready(self) -> int:
        """How many series have enough values."""
        return int(np.count_nonzero(self.expected.count >= JUDGED_FROM))

    @property
    def _family(self) -> int:
        return max(self.ready + self.others, 1)

    def _transformed(self, held: Floats) -> Floats:
        found = np.full(len(held), np.nan)
        how = self._how
        with np.errstate(divide="ignore", invalid="ignore"):
            found[how["log"]] = np.where(held[how["log"]] > 0, np.log(held[how["log"]]), np.nan)
            found[how["asinh"]] = np.arcsinh(held[how["asinh"]])
            found[how["entropy"]] = np.log(np.maximum(held[how["entropy"]], 0) + _ENTROPY)
            found[how["plain"]] = held[how["plain"]]
        own: Floats = np.where(np.isfinite(found), found, np.nan)[self.places]
        return own

    def _back(self, place: int, value: float) -> float:
        """Return a value in the unit of its metric."""
        value = max(-700.0, min(value, 700.0))
        if place in self._how["log"]:
            return math.exp(value)
        if place in self._how["entropy"]:
            return max(0.0, math.exp(value) - _ENTROPY)
        return math.sinh(value) if place in self._how["asinh"] else value

    def go_back(self) -> None:
        """Forget the newest values: the run went back."""
        self._recent[:], self._mean[:], self.open[:] = 0, 0, False

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        arrays = {name: base64.b64encode(getattr(self, name).tobytes()).decode() for name in _ARRAYS}
        return {**arrays, "expected": self.expected.state(), "known": self.known.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.expected.load(state["expected"])
        self.known.load(state["known"])
        for name in _ARRAYS:
            held = getattr(self, name)
            held[...] = np.frombuffer(base64.b64decode(state[name]), held.dtype).reshape(held.shape)

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
