"""What is wrong whatever a run was like before: rules that need no baseline, and hold from the first step on.

- *fold*: an amount is 4 times the median of its own last 32 values, or a quarter of it, three values in a row, by more
  than the learning rate explains (to the power of 1.5 of its movement) and by more than 6 robust deviations; metrics
  may declare another factor than 4;
- *collapse*: attention of a head, or of half the heads of a layer, has next to no entropy, and had a fourfold;
- *dead*: half or more of the units of an MLP are silent;
- *unused*: an expert was sent no token in a window whose even share is 32 tokens or more;
- *frozen*: weights of a layer are not moved in two of its turns, at a rate above 0, by updates that were not skipped;
- *state*: an optimizer's state is not finite;
- *rate*: the learning rate leaves its schedule: it is three times as large a step later, or a third.

A value beyond a threshold of the literature is warned of, once until it is healthy again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from dataaudit.base.statistics import SIGMA, Floats, row_medians
from dataaudit.vitals.baseline import Arrays
from dataaudit.vitals.metric import Key, Rule, Threshold
from dataaudit.vitals.metrics import declared

TIMES = 3.0
"""How many times the rate of the step before leaves the schedule, or what part of it."""
_SAME = 1.05
"""How far apart two rates or two steps of a rate may be that are called the same."""
MOST_AT_ONCE = 32
"""Alarms that a step raises of a metric and rule, the farthest out of them; the last counts the others."""
_CLEAR = 0.8
"""Share of a threshold below which a warning is over."""
WINDOW = 32
"""Values of a series whose median is compared with."""
LEAST = 8
"""Of which there have to be so many."""
IN_A_ROW = 3
EXPLAINED = 1.5
"""Power of the movement of the learning rate that may be its work."""
DEVIATIONS = 6.0
COLLAPSED = 0.05
"""Entropy of attention, nats, below which next to none is left."""
DEAD_SHARE = 0.5
TURNS = 2
"""Turns of a layer, one after the other, in which its weights were not moved."""


class Schedule:
    """Follows the rate of a run, step by step.

    A warm-up or a decay explains it where the rate moved the same way a step before, by a third as much or more; so
    does a restart, which returns from a decay to a peak that the run had, and a change as large as an earlier one that
    was reported.
    """

    def __init__(self) -> None:
        self._before = self._rise = self._peak = 0.0
        self._known: list[float] = []
        """Ratios that were reported."""

    def see(self, rate: float) -> dict[str, float] | None:
        """Take a step's rate; return what left the schedule: the rates of both steps and their ratio."""
        if not 0 <= rate < float("inf"):
            return None
        before, rise = self._before, self._rise
        self._before, self._rise = rate, rate - before
        peak, self._peak = self._peak, max(self._peak, rate)
        if before <= 0 or (rate < TIMES * before and rate * TIMES > before):
            return None
        ratio = rate / before
        goes_on = 0 < (rate - before) / rise <= TIMES if rise else False
        restarts = rate > before and peak / _SAME <= rate <= peak * _SAME and before < peak / TIMES
        explained = restarts or (goes_on and (rate < before or before >= peak))
        if explained or any(number / _SAME <= ratio <= number * _SAME for number in self._known):
            return None
        self._known = [*self._known[-15:], ratio]
        self._rise = 0.0
        return {"value": rate, "before": before, "times": ratio}

    def explain(self, times: float) -> None:
        """Take that the rate changes by these times, and that this is no alarm."""
        self._known = [*self._known[-15:], times]

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {"before": self._before, "rise": self._rise, "peak": self._peak, "known": list(self._known)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._before, self._rise, self._peak = (float(state[name]) for name in ("before", "rise", "peak"))
        self._known = [float(item) for item in state["known"]]


class Finding(NamedTuple):
    """An event of the run log."""

    kind: Literal["alarm", "warning", "coverage"]
    detail: dict[str, Any]


class Watched:
    """The series that a threshold holds for, and which of them have a warning."""

    def __init__(self, metric: str, threshold: Threshold, keys: Sequence[Key]) -> None:
        self.threshold = threshold
        places = [
            number
            for number, key in enumerate(keys)
            if key.metric == metric and (not threshold.stats or key.stat in threshold.stats)
        ]
        self.series = np.array(places, np.int64)
        self.open = np.zeros(len(self.series), bool)

    def see(
        self, keys: Sequence[Key], values: Floats, passed: npt.NDArray[np.bool_], *, steady: bool, warms: bool
    ) -> list[dict[str, Any]]:
        """Return the warnings of a step, and mark the series that passed a threshold now."""
        threshold, values = self.threshold, values[self.series]
        if threshold.above:
            beyond, over = values > threshold.value, values < _CLEAR * threshold.value
        else:
            beyond, over = values < threshold.value, values > threshold.value / _CLEAR
        if threshold.steady_only and not steady:
            return []
        new = beyond & ~self.open
        raised = np.flatnonzero(new & ~passed[self.series])
        passed[self.series[new]] = True
        quiet = warms and self.open.any()
        self.open = self.open | beyond if warms else (self.open | beyond) & ~over
        details = [
            {
                **keys[self.series[item]]._asdict(),
                "value": finite(float(values[item])),
                "rule": "limit",
                "threshold": threshold.value,
                "source": threshold.source,
            }
            for item in ([] if quiet else raised)
        ]
        return few(details, most=1) if warms else few(details)


def few(details: Sequence[dict[str, Any]], most: int = MOST_AT_ONCE) -> list[dict[str, Any]]:
    """Return alarms or warnings of a step: of each metric and rule the farthest out, the last with ``others``."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for detail in details:
        groups.setdefault((detail["metric"], detail["rule"]), []).append(detail)
    chosen = []
    for own in groups.values():
        farthest = sorted(range(len(own)), key=lambda at: -_farness(own[at]))[:most]
        chosen += [own[at] for at in sorted(farthest)]
        if len(own) > most:
            chosen[-1] = {**chosen[-1], "others": len(own) - most}
    return chosen


def _farness(detail: dict[str, Any]) -> float:
    """Return how far a value is from what would have been fine, in multiples of it."""
    value = abs(detail["value"])
    limit = abs(detail.get("threshold", detail.get("high" if detail["value"] > detail.get("high", 0) else "low", 0.0)))
    return abs(float(np.log((value + 1e-12) / (limit + 1e-12))))


def finite(value: float) -> float:
    """Return a value as JSON can say it: the largest number in place of an infinite one."""
    return max(-sys.float_info.max, min(value, sys.float_info.max))


class FixedRules(Arrays):
    """Rules without a baseline.

    Attributes:
        open: bool[series]: what was raised, and is not over.
    """

    ARRAYS = ("_recent", "_rates", "_row", "_zeros", "open")

    def __init__(self, keys: Sequence[Key], units: Mapping[int, int]) -> None:
        number = len(keys)
        self.open = np.zeros(number, bool)
        self._of: dict[str, npt.NDArray[np.bool_]] = {
            rule: np.array([declared(key.metric).follows(rule, key.stat) for key in keys], bool)
            for rule in get_args(Rule)
        }
        self._units = np.array([units.get(key.layer, 0) for key in keys], np.float64)
        self._of["frozen"] &= np.array([key.layer >= 0 for key in keys], bool)
        self._amounts = np.flatnonzero(self._of["fold"] | self._of["collapse"] | self._of["rise"])
        self._reach = np.log([declared(keys[at].metric).fold for at in self._amounts.tolist()])
        self._recent = np.full((WINDOW, len(self._amounts)), np.nan)
        """The newest value first, of what is compared with its own past: logarithms."""
        self._rates = np.full((WINDOW, len(self._amounts)), np.nan)
        self._row, self._zeros = np.zeros((2, number), np.int64)
        """Values in a row that were beyond; below 0, on the lower side."""

    def see(self, values: Floats, rate: float) -> dict[int, dict[str, Any]]:
        """Take the values of a step; return by series the rule that was broken, and what it allows."""
        low, high = np.full((2, len(values)), np.nan)
        moves = rate > 0 and not (values[self._of["skipped"]] > 0).any()
        rule = np.full(len(values), "", object)
        half = DEAD_SHARE * self._units
        wrong, fine = self._folds(values, rate, low, high, rule)
        with np.errstate(invalid="ignore"):
            for name, beyond, least, most in (
                ("dead", values >= np.maximum(half, 1.0), 0.0, half),
                ("frozen", (values == 0) & moves, 0.0, math.inf),
                ("state", values < 1, 1.0, 1.0),
                ("unused", values == 0, 0.0, math.inf),
            ):
                own = self._of[name] & beyond
                if name == "frozen":
                    self._zeros = np.where(own, self._zeros + 1, np.where(np.isnan(values), self._zeros, 0))
                    own &= self._zeros >= TURNS
                wrong |= own
                low[own], high[own], rule[own] = least, np.broadcast_to(most, len(values))[own], name
                fine |= self._of[name] & ~np.isnan(values) & ~beyond
        raised = np.flatnonzero(wrong & ~self.open)
        self.open = (self.open | wrong) & ~fine
        return {
            int(item): {"rule": str(rule[item]), "low": float(low[item]), "high": float(high[item])} for item in raised
        }

    def go_back(self, _step: int) -> None:
        """Forget what came later: the run went back."""
        self.open[:], self._row[:], self._zeros[:] = False, 0, 0

    def _folds(self, every: Floats, rate: float, low: Floats, high: Floats, rule: Any) -> tuple[Any, Any]:
        """Return which amounts are far from their own recent median, and which came back."""
        chosen = self._amounts
        values = every[chosen]
        new = np.isfinite(values)
        wrong, fine = np.zeros((2, len(every)), bool)
        if not new.any():
            return wrong, fine
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(new, np.log(np.maximum(values, 1e-30)), np.nan)
            logs = np.where(self._of["rise"][chosen], np.arcsinh(values), logs)
            now = math.log(rate) if rate > 0 else math.nan
        known = np.count_nonzero(~np.isnan(self._recent), axis=0) >= LEAST
        look = np.flatnonzero(new & known)
        if len(look):
            recent = self._recent[:, look]
            middle = row_medians(recent.T)
            spread = SIGMA * row_medians(np.abs(recent - middle).T)
            rates = self._rates[:, look]
            far_rates = (
                np.nanmax(np.abs(rates - now), axis=0) if not math.isnan(now) and not np.isnan(rates).all() else 0.0
            )
            reach = np.maximum(self._reach[look], DEVIATIONS * spread) + EXPLAINED * np.nan_to_num(far_rates)
            off = logs[look] - middle
            own = chosen[look]
            side = np.where(off > reach, 1, np.where(off < -reach, -1, 0))
            entropies = self._of["collapse"][own]
            side = np.where(entropies & ((side > 0) | (every[own] > COLLAPSED)), 0, side)
            side = np.where(self._of["rise"][own] & (side < 0), 0, side)
            row = self._row[own]
            self._row[own] = np.where(side == 0, 0, np.where(np.sign(row) == side, row + side, side))
            beyond = np.abs(self._row[own]) >= IN_A_ROW
            wrong[own] = beyond
            for bound, edge in ((low, middle - reach), (high, middle + reach)):
                own_edge = np.clip(edge, -700, 700)
                bound[own] = np.where(self._of["rise"][own], np.sinh(own_edge), np.exp(own_edge))
            rule[own] = np.where(entropies, "collapse", "fold")
            fine[own] = np.abs(off) < reach / 2
        keep = np.flatnonzero(new & (self._row[chosen] == 0))  # what is beyond is no measure of what is usual
        overdue = np.flatnonzero(new & (np.abs(self._row[chosen]) > WINDOW))
        for own in (keep, overdue):
            self._recent[1:, own], self._rates[1:, own] = self._recent[:-1, own], self._rates[:-1, own]
            self._recent[0, own], self._rates[0, own] = logs[own], now
        return wrong, fine
