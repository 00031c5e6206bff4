"""Spikes of a curve, one value at a time: a robust line through the newest healthy values, and a band around it.

The line is that of Theil and Sen: the median of the slopes of all pairs among the last ``window`` values that were not
flagged, and the median of what they leave. A value is flagged when it lies further from the line than ``k`` robust
standard deviations, 1.4826 times the median absolute distance of these values from it. That distance has a floor: a
curve without noise is no reason to flag its last digit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dataaudit.base.statistics import LEAST_STEPS, SIGMA, AlarmRate, Tail, pairs_of, robust_line, tail_of

WINDOW = 50
"""Values that a line is fitted to; until there are as many, nothing is flagged."""
K = 8.0
"""Robust standard deviations; ``dataaudit explain detector`` has how often it flags curves without a spike."""
RATE = 1e-4
"""False alarms a step that are aimed at, on each side of the band."""
LEAST_K, MOST_K = 4.0, 50.0
PAST = 4_000
"""Newest healthy distances that ``k`` follows from,"""
AGAIN = 500
"""and after how many it does so anew."""
GAP = 10
"""Steps that may lie between two flagged steps of one episode, or two exceedances of one cluster."""
LEVEL_AFTER = 50
"""Flags in one direction, in a row, that are a new level: as many as a window has, so that the line through
the new level begins with these very values, and nothing passes unseen in between."""
FLOOR = 1e-3
"""Least median distance from the line: a share of the curve's level; of logarithms, that distance itself."""

Kind = Literal["", "quiet", "loss_spike", "loss_dip", "level_shift", "not_finite"]
"""Nothing; too few values; above the band; below it; flagged for so long that it is the level now; NaN or infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A detector's verdict on a step; of a detector of logarithms, all numbers but ``value`` are logarithms."""

    step: int
    value: float
    kind: Kind
    expected: float = math.nan
    """The line at this step; NaN while it is quiet."""
    slope: float = math.nan
    """Of the line, a step."""
    limit: float = math.nan
    """Distance from the line up to which a value is inside the band."""
    distance: float = math.nan
    """Of the value from the line."""
    k: float = math.nan
    """Robust standard deviations of the band's half width."""
    level: float = math.nan
    """The line without what the composition of the step adds; NaN where that is not known."""
    since: int = 0
    """First of the steps that were judged together with this step, where it is flagged; 0: it was judged alone."""
    limits: tuple[float, ...] = ()
    """Rise over 1, 5, 10 and 20 steps up to which these are inside the band, where the composition is known."""

    @property
    def flagged(self) -> bool:
        """Whether it is out of the band, or no number."""
        return self.kind not in {"", "quiet"}

    def line_at(self, step: int) -> float:
        """Return the line at another step."""
        return self.expected + self.slope * (step - self.step)


def forget(points: MutableSequence[Any], step: int) -> int:
    """Drop points, of which the first number is a step, from a step on; return how many there were."""
    before = len(points)
    while points and points[-1][0] >= step:
        points.pop()
    return before - len(points)


class SpikeDetector:
    """Judges whether each value of a curve is a spike; ``state`` goes into a checkpoint.

    Args:
        window: Values that a line is fitted to.
        k: Robust standard deviations that the band is wide, on either side, until it follows from the run.
        rate: False alarms a step, on either side, that it is to have then; None keeps ``k``.
        log: Whether the curve is judged in logarithms, as that of a gradient's norm.
    """

    def __init__(self, *, window: int = WINDOW, k: float = K, rate: float | None = RATE, log: bool = False) -> None:
        assert window >= 3
        assert k > 0
        self.window, self.k, self.rate, self.log = window, k, rate, log
        self._past: deque[tuple[int, float, float]] = deque(maxlen=PAST)
        """Step, distance in robust standard deviations, and k of it, of the newest healthy steps."""
        self._seen = 0
        """Healthy steps with a distance, in all."""
        self._healthy: deque[tuple[int, float]] = deque(maxlen=window)
        self._out: list[tuple[int, float]] = []
        self._above = False
        self._pairs = pairs_of(window)

    def see(self, step: int, value: float) -> Verdict:
        """Take the value of a step and return its verdict.

        A step that was seen before replaces itself and all later steps, which are forgotten: the run went
        back. Until the window is full again it is quiet, so a run that is resumed hands over the checkpoint's state.
        """
        self._go_back(step)
        seen = math.log(value) if self.log and 0 < value < math.inf else value
        if not math.isfinite(seen) or (self.log and value <= 0):
            return Verdict(step=step, value=value, kind="not_finite", **self._line(step))
        if len(self._healthy) < self.window:
            self._healthy.append((step, seen))
            return Verdict(step=step, value=value, kind="quiet")
        line = self._line(step, seen)
        distance = seen - line["expected"]
        if abs(distance) <= line["limit"]:
            self._healthy.append((step, seen))
            self._out.clear()
            self._learn(step, distance / line["limit"] * line["k"] if line["limit"] else 0.0)
            return Verdict(step=step, value=value, kind="", distance=distance, **line)
        kind = self._flag(step, seen, above=distance > 0)
        return Verdict(step=step, value=value, kind=kind, distance=distance, **line)

    @property
    def past(self) -> int:
        """Healthy steps that k can follow from."""
        return len(self._past)

    def alarm_rates(self) -> tuple[AlarmRate, AlarmRate] | None:
        """Return how often a healthy curve leaves the band above and below; None with too few healthy steps."""
        tails = self._tails()
        return None if tails is None else (tails[0].rate(self.k), tails[1].rate(self.k))

    def _learn(self, step: int, distance: float) -> None:
        """Keep a healthy distance, and let k follow from them in its turn."""
        self._past.append((step, distance, self.k))
        self._seen += 1
        if self.rate is None or self._seen < LEAST_STEPS or self._seen % AGAIN:
            return
        if (tails := self._tails()) is not None:
            self.k = max(tail.limit(self.rate, least=LEAST_K, most=MOST_K) for tail in tails)

    def _tails(self) -> tuple[Tail, Tail] | None:
        """Return the tails of the healthy distances above the line and below it."""
        if len(self._past) < LEAST_STEPS:
            return None
        steps, distances, bands = np.array(self._past).T
        above, below = (tail_of(steps, sign * distances, bands, gap=GAP) for sign in (1, -1))
        return None if above is None or below is None else (above, below)

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {
            "window": self.window,
            "k": self.k,
            "rate": self.rate,
            "log": self.log,
            "healthy": [list(item) for item in self._healthy],
            "out": [list(item) for item in self._out],
            "above": self._above,
            "past": [list(item) for item in self._past],
            "seen": self._seen,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SpikeDetector:
        """Return the detector that a state was taken of."""
        made = cls(**{name: state[name] for name in ("window", "k", "rate", "log")})
        made._healthy.extend((int(step), float(value)) for step, value in state["healthy"])
        made._out = [(int(step), float(value)) for step, value in state["out"]]
        made._above = bool(state["above"])
        made._past.extend((int(step), float(distance), float(k)) for step, distance, k in state["past"])
        made._seen = int(state["seen"])
        return made

    def _go_back(self, step: int) -> None:
        forget(self._healthy, step)
        forget(self._out, step)
        self._seen -= forget(self._past, step)

    def _flag(self, step: int, seen: float, *, above: bool) -> Kind:
        if above != self._above:
            self._out.clear()
        self._above = above
        self._out.append((step, seen))
        if len(self._out) < LEVEL_AFTER:
            return "loss_spike" if above else "loss_dip"
        self._healthy.clear()
        self._healthy.extend(self._out)
        self._out.clear()
        return "level_shift"

    def _line(self, step: int, seen: float = -math.inf) -> dict[str, Any]:
        """Return the line at a step and the width of the band; nothing while it is quiet.

        Where steps lack in the window, a falling line is, for what is seen, anything between itself and the line over
        the values that are there: a loss that falls fast early in a run flattens, and a line drawn on past an
        episode would leave it behind.
        """
        if len(self._healthy) < self.window:
            return {}
        points = np.array(self._healthy)
        slope, expected, spread = robust_line(points[:, 0] - step, points[:, 1], self._pairs)
        if slope < 0 and step - points[0, 0] > self.window:
            _, there, _ = robust_line(np.arange(-self.window, 0), points[:, 1], self._pairs)
            expected = max(expected, min(seen, there))
        floor = FLOOR if self.log else FLOOR * abs(expected)
        return {"expected": expected, "slope": slope, "limit": self.k * SIGMA * max(spread, floor), "k": self.k}
