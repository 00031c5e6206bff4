"""Which series a tracker gets of rows of values: whole numbers as they are, layers and heads summed up unless asked.

A run of 64 layers with 64 heads has 4,096 series of each statistic of a head, which no tracker shows well. So the
least, the mean and the largest of the newest value of each layer, or head, are series, and each layer or head is a
series of its own only for the metrics that ask for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dataaudit.runlog.writer import Columns
from dataaudit.vitals.metric import Key

OVER = ("min", "mean", "max")
"""What is summed up of the newest values of all layers, or heads."""
BINS = 30
"""Bins of the histogram of these values."""


class Histogram(NamedTuple):
    """How often values lie between edges."""

    metric: str
    stat: str
    edges: np.ndarray
    """float64[bins + 1], ascending; the first and the last may be infinite."""
    counts: np.ndarray
    """int64[bins]"""


@dataclass(slots=True)
class Taken:
    """What a step's rows are for a tracker."""

    numbers: dict[Key, float] = field(default_factory=dict)
    histograms: list[Histogram] = field(default_factory=list)
    rows: int = 0


def name_of(key: Key, prefix: str = "") -> str:
    """Return the name of a series, ``metric[/stat][/layer_3][/head_1]``; the statistic ``value`` has no name."""
    parts = [key.metric.replace(".", "/", 1)]
    parts += [key.stat] if key.stat != "value" else []
    parts += [f"layer_{key.layer}"] if key.layer >= 0 else []
    parts += [f"head_{key.head}"] if key.head >= 0 else []
    return prefix + "/".join(parts)


class Series:
    """Turns rows of values into series.

    Args:
        by_layer: Metrics whose layers are series of their own; ``"all"``: every metric.
        by_head: The same of heads.
        most: Series, at most; values of further ones are left out and counted.
    """

    def __init__(
        self, by_layer: Collection[str] | str = (), by_head: Collection[str] | str = (), most: int = 2_000
    ) -> None:
        self.capped = 0
        """Values of series that were too many."""
        self._asked = (by_layer, by_head)
        self._most = most
        self._known: set[Key] = set()
        self._newest: dict[tuple[str, str, bool], dict[tuple[int, int], float]] = {}

    def take(self, columns: Columns) -> dict[int, Taken]:
        """Return, for each step of some rows, its numbers by series, and histograms of those of layers and heads."""
        rows = zip(
            *(_listed(columns[name]) for name in ("step", "metric", "layer", "head", "stat", "value")), strict=True
        )
        steps: dict[int, Taken] = {}
        changed: dict[tuple[int, tuple[str, str, bool]], None] = {}
        for step, metric, layer, head, stat, value in rows:
            taken = steps.setdefault(step, Taken())
            taken.rows += 1
            if layer < 0 and head < 0:
                self._add(taken.numbers, Key(metric, -1, -1, stat), value)
            elif value == value:  # noqa: PLR0124 - layers without a value at this step keep their last
                group = (metric, stat, head >= 0)
                self._newest.setdefault(group, {})[layer, head] = value
                changed[step, group] = None
                asked = self._asked[head >= 0]
                if asked == "all" or metric in asked:
                    self._add(taken.numbers, Key(metric, layer, head, stat), value)
        for step, group in changed:
            if (histogram := self._sum_up(steps[step].numbers, group)) is not None:
                steps[step].histograms.append(histogram)
        return steps

    def _add(self, numbers: dict[Key, float], key: Key, value: float) -> None:
        if key not in self._known:
            if len(self._known) >= self._most:
                self.capped += 1
                return
            self._known.add(key)
        numbers[key] = value

    def _sum_up(self, numbers: dict[Key, float], group: tuple[str, str, bool]) -> Histogram | None:
        """Add least, mean and largest of a group's newest values; return their histogram."""
        metric, stat, heads = group
        values = np.fromiter(self._newest[group].values(), np.float64)
        beginning = "" if stat == "value" else f"{stat}/"
        of = "heads" if heads else "layers"
        for over, value in zip(OVER, (values.min(), values.mean(), values.max()), strict=True):
            self._add(numbers, Key(metric, -1, -1, f"{beginning}{of}_{over}"), float(value))
        finite = values[np.isfinite(values)]
        if len(finite) < 2:
            return None
        counts, edges = np.histogram(finite, BINS)
        return Histogram(metric, f"{beginning}{of}", edges, counts)


def _listed(column: Any) -> list[Any]:
    return column if isinstance(column, list) else list(np.asarray(column).tolist())


def moments(histogram: Histogram) -> Mapping[str, float]:
    """Return median and 5th and 95th percentile of a histogram, linear within its bins; finite where any edge is."""
    edges = bounded(histogram.edges)
    total = histogram.counts.sum()
    if not total:
        return {}
    reached = np.concatenate([[0.0], np.cumsum(histogram.counts) / total])
    return {f"p{share}": float(np.interp(share / 100, reached, edges)) for share in (5, 50, 95)}


def bounded(edges: np.ndarray) -> np.ndarray:
    """Return edges with an infinite first or last moved to its neighbour."""
    finite = edges[np.isfinite(edges)]
    low, high = (float(finite[0]), float(finite[-1])) if len(finite) else (0.0, 0.0)
    clipped: np.ndarray = np.clip(edges, low, high)
    return clipped
