"""Thresholds of the literature: which values are warned of, once until they are healthy again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dataaudit.vitals.baseline import Key
from dataaudit.vitals.tails import Floats

MOST_AT_ONCE = 32
"""Alarms that a step raises of a metric, those that began first, and warnings; the last one counts the others."""
_CLEAR = 0.8
"""Share of a threshold below which a warning is over."""
_AMOUNTS = frozenset({"activation_mean_abs", "residual_rms", "layer_std"})
_TIMES = 4.0
"""How many times its healthy level, or what part of it, is warned of in a series that cannot be judged."""


class Finding(NamedTuple):
    """An event of the run log."""

    kind: Literal["alarm", "warning", "baseline"]
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A fixed threshold from the literature."""

    metric: str
    above: bool
    """Whether it is a value above it that is warned of; below it otherwise."""
    value: float
    source: str
    stats: frozenset[str] = frozenset()
    """Statistics that it holds for; empty: all."""
    heads_only: bool = False
    steady_only: bool = False
    """Whether it holds outside of warm-up and decay of the learning rate alone."""

    def holds_for(self, key: Key) -> bool:
        """Return whether a series is measured against it."""
        return (
            key.metric == self.metric
            and (not self.stats or key.stat in self.stats)
            and (key.head >= 0 or not self.heads_only)
        )


_LOWER_BOUNDS = frozenset({"sampled", "lower"})
_WHOLE_LAYERS = frozenset({"all", "others"})
THRESHOLDS = (
    Threshold(
        metric="max_attn_logit",
        above=True,
        value=100.0,
        stats=_LOWER_BOUNDS,
        source="QK-clip acts at 100: Kimi K2, arXiv 2507.20534",
    ),
    Threshold(
        metric="max_attn_logit",
        above=True,
        value=1000.0,
        stats=_LOWER_BOUNDS,
        source="above 1000 runs became unstable: Kimi K2, arXiv 2507.20534",
    ),
    Threshold(
        metric="update_to_weight",
        above=True,
        value=1e-2,
        stats=_WHOLE_LAYERS,
        source="rule of thumb: about 1e-3 is healthy",
    ),
    Threshold(
        metric="update_to_weight",
        above=False,
        value=1e-4,
        stats=_WHOLE_LAYERS,
        steady_only=True,
        source="rule of thumb: about 1e-3 is healthy",
    ),
    Threshold(
        metric="gradient_spike_score",
        above=True,
        value=2.0,
        source="rule of thumb: twice the average of earlier norms",
    ),
    Threshold(
        metric="dead_head_rate",
        above=True,
        value=0.99,
        heads_only=True,
        source="attention to one key in effect: entropy below log 2 in 99 % of rows",
    ),
)


class FarOff:
    """Amounts that are many times their healthy level, of series with too few values of their own for an alarm.

    A layer's activations drift so smoothly that a healthy stretch may be worth a dozen independent values: no limit
    with a rate can be told from them, and still a tenfold jump is one. These are warnings, outside of any rate.

    Args:
        keys: Of all series.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self.amounts = np.array([key.metric in _AMOUNTS for key in keys], bool)
        self.open = np.zeros(len(keys), bool)

    def see(self, keys: Sequence[Key], held: Floats, level: Floats, judged: npt.NDArray[np.bool_]) -> list[Finding]:
        """Return the warnings of a step.

        Args:
            keys: Of all series.
            held: float64[series]
            level: float64[series], of the baseline; NaN where there is none.
            judged: bool[series]: those that alarms are told of.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(self.amounts & ~judged & (level > 0), held / level, np.nan)
        beyond = (times > _TIMES) | (times < 1 / _TIMES)
        raised = np.flatnonzero(beyond & ~self.open)
        self.open = beyond | (self.open & ~((times < _TIMES * _CLEAR) & (times > 1 / (_TIMES * _CLEAR))))
        return [
            Finding(
                "warning",
                {
                    **keys[one]._asdict(),
                    "value": finite(float(held[one])),
                    "threshold": float(level[one] * (_TIMES if times[one] > 1 else 1 / _TIMES)),
                    "source": f"{_TIMES:g} times its healthy level, or a {_TIMES:g}th; too few values for an alarm",
                    **others,
                },
            )
            for one, others in few(raised)
        ]


class Watched:
    """The series that a threshold holds for, and which of them were warned of."""

    def __init__(self, threshold: Threshold, keys: Sequence[Key]) -> None:
        self.threshold = threshold
        self.places = np.array([one for one, key in enumerate(keys) if threshold.holds_for(key)], np.int64)
        self.open = np.zeros(len(self.places), bool)

    def see(self, keys: Sequence[Key], held: Floats, said: npt.NDArray[np.bool_], *, steady: bool) -> list[Finding]:
        """Return the warnings of a step.

        Args:
            keys: Of all series.
            held: float64[series]
            said: bool[series]: which were warned of by a threshold farther off; those of this one are added.
            steady: Whether the learning rate neither warms up nor decays.
        """
        threshold = self.threshold
        values = held[self.places]
        if threshold.above:
            beyond, over = values > threshold.value, values < _CLEAR * threshold.value
        else:
            beyond, over = values < threshold.value, values > threshold.value / _CLEAR
        if threshold.steady_only and not steady:
            return []
        new = beyond & ~self.open
        raised = np.flatnonzero(new & ~said[self.places])
        said[self.places[new]] = True
        self.open = (self.open | beyond) & ~over
        return [
            Finding(
                "warning",
                {
                    **keys[self.places[one]]._asdict(),
                    "value": finite(float(values[one])),
                    "threshold": threshold.value,
                    "source": threshold.source,
                    **others,
                },
            )
            for one, others in few(raised)
        ]


def few(places: npt.NDArray[np.int64]) -> list[tuple[int, dict[str, int]]]:
    """Return the first few places; with the last of them, how many others there were."""
    few: list[tuple[int, dict[str, int]]] = [(one, {}) for one in places[:MOST_AT_ONCE].tolist()]
    if len(places) > MOST_AT_ONCE:
        few[-1] = few[-1][0], {"others": len(places) - MOST_AT_ONCE}
    return few


def finite(value: float) -> float:
    """Return a value as JSON can say it: the largest number in place of an infinite one."""
    return max(-sys.float_info.max, min(value, sys.float_info.max))
