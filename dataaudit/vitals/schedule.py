"""Whether the learning rate keeps to its schedule: a rate that is three times as large a step later, or a third."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TIMES = 3.0
"""How many times the rate of the step before leaves the schedule, or what part of it."""
_SAME = 1.05
"""How far apart two rates or two steps of a rate may be that are called the same."""


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
        if explained or any(one / _SAME <= ratio <= one * _SAME for one in self._known):
            return None
        self._known = [*self._known[-15:], ratio]
        self._rise = 0.0
        return {"value": rate, "before": before, "times": ratio}

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {"before": self._before, "rise": self._rise, "peak": self._peak, "known": list(self._known)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._before, self._rise, self._peak = (float(state[name]) for name in ("before", "rise", "peak"))
        self._known = [float(one) for one in state["known"]]
