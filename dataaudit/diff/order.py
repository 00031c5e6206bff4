"""In which order changed metrics are read: by what people act on, and within that by how far beyond noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dataaudit.diff.difference import MetricChange, MetricFate
from dataaudit.manifest.metric import rounded
from dataaudit.metrics.family import LAST
from dataaudit.metrics.registry import METRICS

_GRAVITY = {
    MetricFate.BEYOND_NOISE: 0,
    MetricFate.CHANGED: 0,
    MetricFate.LOST: 1,
    MetricFate.GAINED: 1,
    MetricFate.WITHIN_NOISE: 2,
    MetricFate.ADDED: 3,
    MetricFate.REMOVED: 3,
    MetricFate.NOT_COMPARABLE: 4,
}
_BY_CHANCE = 2
_NEXT = 3
"""Rows of a metric that stand in each round after the first."""


def ordered(changes: Sequence[MetricChange]) -> list[MetricChange]:
    """Order by gravity, then in rounds: in each the areas in turn, with a few rows of each metric.

    Otherwise one metric with many statistics hides all others. Within a metric a share that chance or sampling was
    asked of stands by the ratio of its change to half of the interval; then exact shares by points, then counts by the
    relative change. Shares of the mixture and of languages stand by points alone. What says the same of a split or of
    the whole as a row above waits for the last round.
    """
    held = sorted(((_order(change), change) for change in changes), key=lambda pair: pair[0])
    counted: dict[tuple[int, str], int] = {}
    said: set[tuple[Any, ...]] = set()
    found = []
    for key, change in held:
        kind = (key[0], change.metric)
        again = [(*kind, *same) for same in _sayings(change)]
        if any(one in said for one in again):
            turn = len(changes)
        else:
            counted[kind] = counted.get(kind, 0) + 1
            turn = max(0, -(-(counted[kind] - _first_rows(change.metric)) // _NEXT))
        said.update(again)
        found.append(((key[0], turn, *key[1:]), change))
    return [change for _, change in sorted(found, key=lambda pair: pair[0])]


def _order(change: MetricChange) -> tuple[Any, ...]:
    gravity = _BY_CHANCE if change.chance else _GRAVITY[change.fate]
    place = tuple(sorted((name, str(value)) for name, value in change.scope.as_dict().items()))
    kind, strength = _strength(change)
    area = METRICS[change.metric].reading if change.metric in METRICS else LAST
    return gravity, area, kind, -rounded(strength), len(place), change.metric, change.stat, place


def _first_rows(metric: str) -> int:
    return METRICS[metric].first_rows if metric in METRICS else 1


def _is_mixture(metric: str) -> bool:
    """Return whether a metric says which share of the corpus its parts are."""
    return metric in METRICS and any(one.is_amount and one.unit == "ratio" for one in METRICS[metric].statistics)


def _strength(change: MetricChange) -> tuple[int, float]:
    """Return what is compared, the most telling first, and how large the change is in it."""
    if change.difference is None:
        return 2, 0.0
    moved = abs(change.difference)
    if _is_mixture(change.metric):
        return (0 if change.stat == "share" else 1), moved
    low, high = (change.low, change.high) if change.low is not None else (change.chance_low, change.chance_high)
    if low is not None and high is not None and high > low:
        return 0, moved / ((high - low) / 2)
    if change.unit == "ratio":
        return 1, moved
    values = [abs(side.value) for side in (change.old, change.new) if side is not None and side.value is not None]
    return 2, moved / max(values) if moved else 0.0


def _sayings(change: MetricChange) -> list[tuple[Any, ...]]:
    """Return what a row says: its statistic and place, split aside; and its two values, whatever they are of."""
    scope = change.scope.as_dict()
    place = tuple(sorted((name, str(value)) for name, value in scope.items() if name != "split"))
    values = tuple(None if side is None else side.value for side in (change.old, change.new))
    return [("place", change.stat, place), ("values", values)]
