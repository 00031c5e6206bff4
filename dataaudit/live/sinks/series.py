"""Which series a tracker gets of rows of values: whole numbers as they are, layers and heads summed up unless asked.

A run of 64 layers with 64 heads has 4,096 series of each statistic of a head, which no tracker shows well. So the
least, the mean and the largest of the newest value of each layer, or head, are series, and each layer or head is a
series of its own only for the metrics that ask for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dataaudit.runlog.writer import Columns
from dataaudit.vitals.metric import Key

OVER = ("min", "mean", "max")
"""What is summed up of the newest values of all layers, or heads."""
_LAYOUTS = 256
"""Forms of rows that are known; vitals have some for each turn of layers."""
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


@dataclass(slots=True)
class _Group:
    """The newest values of a statistic of all layers, or heads."""

    name: tuple[str, str]
    """Metric, and the beginning of its statistics."""
    keys: list[Key]
    """Of least, mean and largest; none where they are too many series."""
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    newest: np.ndarray = field(default_factory=lambda: np.zeros(0))
    drawn: float = float("-inf")
    """When its latest histogram was made."""


@dataclass(slots=True)
class _Layout:
    """What rows of the same metrics, layers, heads and statistics are for."""

    whole: list[tuple[int, Key]] = field(default_factory=list)
    asked: list[tuple[int, Key]] = field(default_factory=list)
    groups: list[tuple[_Group, np.ndarray, np.ndarray]] = field(default_factory=list)
    """Each with its rows, and their slots among its newest values."""
    capped: int = 0


class Series:
    """Turns rows of values into series.

    Args:
        by_layer: Metrics whose layers are series of their own; ``"all"``: every metric.
        by_head: The same of heads.
        most: Series, at most; values of further ones are left out and counted.
        histogram_seconds: Between two histograms of the same layers or heads.
    """

    def __init__(
        self,
        by_layer: Collection[str] | str = (),
        by_head: Collection[str] | str = (),
        most: int = 2_000,
        histogram_seconds: float = 10.0,
    ) -> None:
        self.capped = 0
        """Values of series that were too many."""
        self._asked = (by_layer, by_head)
        self._most, self._histogram_seconds = most, histogram_seconds
        self._known: set[Key] = set()
        self._groups: dict[tuple[str, str, bool], _Group] = {}
        self._layouts: dict[Hashable, _Layout] = {}

    def take(self, columns: Columns) -> dict[int, Taken]:
        """Return, for each step of some rows, its numbers by series, and histograms of those of layers and heads."""
        metric, stat = (_texts(columns[name]) for name in ("metric", "stat"))
        step, layer, head = (np.asarray(columns[name], np.int64) for name in ("step", "layer", "head"))
        value = np.asarray(columns["value"], np.float64)
        if len({len(column) for column in (metric, stat, step, layer, head, value)}) > 1:
            raise ValueError("columns of unequal length")
        taken = {}
        for each in np.unique(step).tolist():
            rows = np.flatnonzero(step == each)
            if len(rows) < len(step):
                own, named = ([column[row] for row in rows.tolist()] for column in (metric, stat))
                layout = self._layout(own, named, layer[rows], head[rows])
            else:
                layout = self._layout(metric, stat, layer, head)
            taken[each] = self._taken(layout, value[rows])
        return taken

    def _taken(self, layout: _Layout, values: np.ndarray) -> Taken:
        listed = values.tolist()
        taken = Taken({key: listed[row] for row, key in layout.whole}, rows=len(listed))
        taken.numbers |= {key: listed[row] for row, key in layout.asked if not math.isnan(listed[row])}
        self.capped += layout.capped
        now = time.monotonic()
        for group, rows, slots in layout.groups:
            own = values[rows]
            measured = ~np.isnan(own)  # layers without a value at this step keep their last
            if not measured.any():
                continue
            group.newest[slots[measured]] = own[measured]
            newest = group.newest[~np.isnan(group.newest)]
            numbers = (newest.min(), newest.mean(), newest.max())
            taken.numbers |= {key: float(number) for key, number in zip(group.keys, numbers, strict=False)}
            finite = newest[np.isfinite(newest)]
            if len(finite) > 1 and now - group.drawn >= self._histogram_seconds:
                group.drawn = now
                counts, edges = np.histogram(finite, BINS)
                taken.histograms.append(Histogram(*group.name, edges, counts))
        return taken

    def _layout(self, metric: list[str], stat: list[str], layer: np.ndarray, head: np.ndarray) -> _Layout:
        known = (tuple(metric), tuple(stat), layer.tobytes(), head.tobytes())
        if known in self._layouts:
            return self._layouts[known]
        layout = _Layout()
        members: dict[tuple[str, str, bool], tuple[list[int], list[int]]] = {}
        for row, own in enumerate(zip(metric, layer.tolist(), head.tolist(), stat, strict=True)):
            key = Key(*own)
            heads = key.head >= 0
            if key.layer < 0 and not heads:
                layout.whole += self._allowed(layout, row, key)
                continue
            group = self._group(layout, key.metric, key.stat, heads=heads)
            slot = group.slots.setdefault((key.layer, key.head), len(group.slots))
            rows, slots = members.setdefault((key.metric, key.stat, heads), ([], []))
            rows.append(row)
            slots.append(slot)
            if self._asked[heads] == "all" or key.metric in self._asked[heads]:
                layout.asked += self._allowed(layout, row, key)
        for name, (rows, slots) in members.items():
            group = self._groups[name]
            more = np.full(len(group.slots) - len(group.newest), np.nan)
            group.newest = np.concatenate([group.newest, more])
            layout.groups.append((group, np.array(rows), np.array(slots)))
        if len(self._layouts) >= _LAYOUTS:
            self._layouts.clear()
        self._layouts[known] = layout
        return layout

    def _group(self, layout: _Layout, metric: str, stat: str, *, heads: bool) -> _Group:
        if (metric, stat, heads) not in self._groups:
            beginning = ("" if stat == "value" else f"{stat}/") + ("heads" if heads else "layers")
            keys = [Key(metric, -1, -1, f"{beginning}_{over}") for over in OVER]
            allowed = [key for key in keys if self._allowed(layout, 0, key)]
            self._groups[metric, stat, heads] = _Group((metric, beginning), allowed)
        return self._groups[metric, stat, heads]

    def _allowed(self, layout: _Layout, row: int, key: Key) -> list[tuple[int, Key]]:
        """Return a row and its series in a list; nothing where that series is too many."""
        if key not in self._known and len(self._known) >= self._most:
            layout.capped += 1
            return []
        self._known.add(key)
        return [(row, key)]


def _texts(column: Any) -> list[str]:
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
