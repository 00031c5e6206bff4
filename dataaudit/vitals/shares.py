"""Shares and counts that leave the law of their own healthy steps: jumps and drifts, over all series of a model.

A share is k of n (:mod:`dataaudit.vitals.rates`); n is handed over with it. Its law is learnt from the last
:data:`LEARNT` values before the newest 16. A *jump* is three values in a row beyond the law's limit on one side. A
*drift* is a sum of 16 values, each cut off at its own limit, beyond the limit of such sums. The law of sums is learnt
from sums of 16 values, so their dispersion contains what neighbours have in common. A series is judged from 64 values
on, its sums from ten on; not where its memory makes them worth fewer than 16 independent ones.

Two things make a law wider. Series that are alike share the median of their dispersions, so a head that never had a
dead row is not taken for one that cannot. And what moves the learning rate may move a share: by the power of a half.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dataaudit.robust import Floats, Ints, of_each
from dataaudit.vitals.baseline import AVERAGED, Key
from dataaudit.vitals.expected import Covariates
from dataaudit.vitals.rates import LEAST_STEPS, RateLaw, scatter
from dataaudit.vitals.surprise import INDEPENDENT, JUDGED_FROM, PERSISTENCE, how_judged

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
_WORTH = 16.0
"""Independent values that a law's values have to be worth."""
_ARRAYS = ("_counts", "_trials", "_steps", "_values", "_age", "_moved", "_scatter", "_limits", "open")


class Shares:
    """Judges shares and counts against their own past.

    Args:
        keys: Of all series.
        rate: False alarms a step, of all series together.

    Attributes:
        places: int64[n]: places of the series that are shares.
        open: bool[n]: which are out.
        others: Series that others judge at the same rate.
    """

    def __init__(self, keys: Sequence[Key], rate: float) -> None:
        self.places = np.array([one for one, key in enumerate(keys) if how_judged(key) == "share"], np.int64)
        number = len(self.places)
        self._place = {int(place): own for own, place in enumerate(self.places)}
        names = [keys[one].metric + str(keys[one].head >= 0) for one in self.places]
        self._whole = np.array([keys[one].metric == "dead_neuron_count" for one in self.places], bool)
        """Which are counts, not shares."""
        self._alike = np.unique(names, return_inverse=True)[1] if number else np.zeros(0, np.int64)
        self.rate, self.others, self.known = rate, 0, Covariates()
        self.open = np.zeros(number, bool)
        self._counts, self._trials = np.zeros((2, _RING, number), np.float32)
        """k and n of the last values, in a ring."""
        self._steps = np.zeros((_RING, number), np.int64)
        self._values = np.zeros(number, np.int64)
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
        found: npt.NDArray[np.bool_] = np.isfinite(self._limits[0, :, 2])
        return found

    def see(self, step: int, held: Floats, trials: Floats, *, rate: float, tokens: float, alarm: bool = True) -> Ints:
        """Take the shares or counts of a step and return the places of the series that left their law.

        Args:
            step: Which one.
            held: float64[series] of all series; NaN: not measured.
            trials: float64[series]: n of each share, or of a count; NaN: not known.
            rate: Of learning; NaN: not known.
            tokens: Of the step; NaN: not known.
            alarm: Whether anything is raised.
        """
        self.known.see(rate, tokens)
        values, n = held[self.places], trials[self.places]
        new = np.flatnonzero(np.isfinite(values) & (n >= 1))
        if not len(new):
            return np.zeros(0, np.int64)
        at = self._values[new] % _RING
        counts = np.round(values[new] * np.where(self._whole[new], 1, n[new]))
        self._counts[at, new] = np.clip(counts, 0, n[new])
        self._trials[at, new] = n[new]
        self._steps[at, new] = step
        self._values[new] += 1
        self._age[new] += 1
        moved = float(np.abs(self.known.x[0] - self.known.x[1:-1]).max())
        stale = moved > self._moved[new] + _STALE
        due = new[((self._age[new] >= _REFIT) | stale) & (self._values[new] >= JUDGED_FROM)]
        for one in due[np.argsort(-self._age[due], kind="stable")][: -(-len(self.places) // _REFIT)].tolist():
            self._learn(one, moved)
        jumps, drifts = self._beyond(new)
        fresh = moved <= self._moved[new] + _STALE
        out = (jumps.all(0) | drifts) & fresh
        raised = new[out & ~self.open[new]] if alarm else np.zeros(0, np.int64)
        self.open[new] = (self.open[new] & (jumps[0] | drifts)) | (out & alarm)
        return self.places[raised]

    def detail(self, place: int) -> dict[str, Any]:
        """Return what a series left: where it began, and what its law allows."""
        own = self._place[place]
        jumps = bool(self._beyond(np.array([own]))[0].all())
        low, high, of = self._limits[0 if jumps else 1, own].tolist()
        times = of if self._whole[own] and jumps else of / AVERAGED if self._whole[own] else 1.0
        values = PERSISTENCE if jumps else AVERAGED
        return {
            "rule": "jump" if jumps else "drift",
            "first_step": int(self._steps[(self._values[own] - values) % _RING, own]),
            "low": low * times,
            "high": high * times,
            "over": "each" if jumps else "mean",
            "values": values,
            "baseline": None,
            "family": self._family,
            "false_alarm_rate": self.rate,
        }

    def why(self, places: Sequence[int]) -> str:
        """Return why some series are not judged; empty where they have few values."""
        values = self._values[[self._place[one] for one in places]]
        if not values.any():
            return "how many counts it is a share of is not known"
        return "" if values.min() < JUDGED_FROM else "their memory makes them worth too few independent values"

    def go_back(self) -> None:
        """Take that the run went back."""
        self.open[:] = False

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        arrays = {name: base64.b64encode(getattr(self, name).tobytes()).decode() for name in _ARRAYS}
        return {**arrays, "known": self.known.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.known.load(state["known"])
        for name in _ARRAYS:
            held = getattr(self, name)
            held[...] = np.frombuffer(base64.b64decode(state[name]), held.dtype).reshape(held.shape)

    @property
    def ready(self) -> int:
        """How many series have enough values."""
        return int(np.count_nonzero(self._values >= JUDGED_FROM))

    @property
    def _family(self) -> int:
        return max(self.ready + self.others, 1)

    def _newest(self, ring: np.ndarray, own: Ints, number: int) -> np.ndarray:
        """Return the newest values of some series, float[number, own], the newest first."""
        found: np.ndarray = ring[(self._values[own] - 1 - np.arange(number)[:, None]) % _RING, own]
        return found

    def _beyond(self, own: Ints) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which of the newest values lie beyond, all on one side, bool[3, own]; and which sums do, bool[own]."""
        k, n = (self._newest(one, own, AVERAGED).astype(np.float64) for one in (self._counts, self._trials))
        cut = np.minimum(k, (self._limits[0, own, 1] + 0.5 / self._limits[0, own, 2]) * n)
        found = []
        for (low, high, of), counts, trials in zip(
            self._limits[:, own].transpose(0, 2, 1),
            (k[:PERSISTENCE], cut.sum(0)[None]),
            (n[:PERSISTENCE], n.sum(0)[None]),
            strict=True,
        ):
            share, enough = counts / np.maximum(trials, 1), trials >= _FEWER * of
            above = enough & (share > high + 0.5 / of)
            below = enough & (share < low - 0.5 / of)
            found.append(np.where(above[0], above, below & below[0]))
        return found[0], found[1][0]

    def _learn(self, own: int, moved: float) -> None:
        """Learn the law of a series, of its values and of their sums."""
        number = min(int(self._values[own]), _RING)
        rings = (self._newest(one, np.array([own]), number) for one in (self._counts, self._trials))
        k, n = (one[AVERAGED:, 0].astype(np.float64) for one in rings)
        memory, tail = _memory(k / n), of_each(self.rate / 3, self._family) / 2
        times = 1 + (INDEPENDENT - 1) * (1 - memory)
        sums = [one[: len(k) // AVERAGED * AVERAGED].reshape(-1, AVERAGED).sum(1) for one in (k, n)]
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
            low, high = law.limits(of, alpha)
            self._limits[way, own] = low / of, high / of, of
        self._age[own], self._moved[own] = 0, moved


def _memory(shares: np.ndarray) -> float:
    """Return what neighbouring values have in common, at the upper end of what so few can tell, up to 0.95."""
    rest = shares - shares.mean()
    of = float((rest**2).sum())
    found = max(float((rest[1:] * rest[:-1]).sum()) / of, 0.0) if of else 0.0
    return min(found + (1 + 3 * found) / len(shares) + 2 / math.sqrt(len(shares)), 0.95)
