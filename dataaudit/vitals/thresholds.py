"""Thresholds of the literature: which values are warned of, once until they are healthy again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dataaudit.robust import Floats
from dataaudit.vitals.baseline import Key

MOST_AT_ONCE = 32
"""Alarms that a step raises of a metric and rule, the farthest out of them; the last one counts the others."""
_CLEAR = 0.8
"""Share of a threshold below which a warning is over."""


class Finding(NamedTuple):
    """An event of the run log."""

    kind: Literal["alarm", "warning", "coverage"]
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
    steady_only: bool = False
    """Whether it holds outside of warm-up and decay of the learning rate alone."""

    def holds_for(self, key: Key) -> bool:
        """Return whether a series is measured against it."""
        return key.metric == self.metric and (not self.stats or key.stat in self.stats)


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
)


class Watched:
    """The series that a threshold holds for, and which of them were warned of."""

    def __init__(self, threshold: Threshold, keys: Sequence[Key]) -> None:
        self.threshold = threshold
        self.places = np.array([one for one, key in enumerate(keys) if threshold.holds_for(key)], np.int64)
        self.open = np.zeros(len(self.places), bool)

    def see(
        self, keys: Sequence[Key], held: Floats, said: npt.NDArray[np.bool_], *, steady: bool, warms: bool = False
    ) -> list[dict[str, Any]]:
        """Return the warnings of a step.

        Args:
            keys: Of all series.
            held: float64[series]
            said: bool[series]: which were warned of by a threshold farther off; those of this one are added.
            steady: Whether the learning rate neither warms up nor decays.
            warms: Whether it warms up: then one series is warned of, and no other one while it does.
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
        quiet = warms and self.open.any()
        self.open = self.open | beyond if warms else (self.open | beyond) & ~over
        found = [
            {
                **keys[self.places[one]]._asdict(),
                "value": finite(float(values[one])),
                "rule": "limit",
                "threshold": threshold.value,
                "source": threshold.source,
            }
            for one in ([] if quiet else raised)
        ]
        return few(found, most=1) if warms else few(found)


def few(details: Sequence[dict[str, Any]], most: int = MOST_AT_ONCE) -> list[dict[str, Any]]:
    """Return alarms or warnings of a step: of each metric and rule the farthest out, in their own order.

    The last of a metric and rule says how many others there were.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in details:
        groups.setdefault((one["metric"], one["rule"]), []).append(one)
    found = []
    for own in groups.values():
        kept = sorted(sorted(range(len(own)), key=lambda at: -_farness(own[at]))[:most])
        chosen = [own[at] for at in kept]
        if len(own) > most:
            chosen[-1] = {**chosen[-1], "others": len(own) - most}
        found += chosen
    return found


def _farness(detail: dict[str, Any]) -> float:
    """Return how far a value is from what would have been fine, in multiples of it."""
    value = abs(detail["value"])
    limit = abs(detail.get("threshold", detail.get("high" if detail["value"] > detail.get("high", 0) else "low", 0.0)))
    return abs(float(np.log((value + 1e-12) / (limit + 1e-12))))


def finite(value: float) -> float:
    """Return a value as JSON can say it: the largest number in place of an infinite one."""
    return max(-sys.float_info.max, min(value, sys.float_info.max))
