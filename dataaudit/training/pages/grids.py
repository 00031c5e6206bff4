"""Numbers of a run log as series over steps: by metric, layer, head and stat, thinned to what a page has room for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.statistics import Floats, Ints, spread
from dataaudit.training.attribution.step_detector import ratio

MOST_BINS = 120
"""Columns of a picture; a column is the mean of the steps that share it."""
LEAST_VALUES = 8
"""Values of a series from which on a change in it is looked for."""


@dataclass(frozen=True)
class Grid:
    """Values of a metric and stat: a row a layer and head, a column a step at which it was measured."""

    metric: str
    stat: str
    places: list[tuple[int, int]]
    """(layer, head) of each row, sorted; -1: of the whole model, of the whole layer."""
    steps: Ints
    values: Floats
    """[rows, steps], the mean over ranks; NaN where it was not measured."""

    @cached_property
    def binned(self) -> tuple[list[tuple[int, int]], Floats]:
        """First and last step of each column that a page shows, and [rows, columns] means."""
        parts = np.array_split(np.arange(len(self.steps)), min(MOST_BINS, len(self.steps)))
        spans = [(int(self.steps[part[0]]), int(self.steps[part[-1]])) for part in parts]
        return spans, np.column_stack([_mean(self.values[:, part]) for part in parts])

    def last(self) -> Floats:
        """Return the newest value of each row."""
        newest = self.values.shape[1] - 1 - np.argmax(np.isfinite(self.values)[:, ::-1], axis=1)
        values: Floats = self.values[np.arange(len(self.places)), newest]
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Where the level of a series changed most."""

    row: int
    step: int
    """The first of the new level."""
    before: float
    after: float
    """Medians."""
    score: float
    """Distance of the medians, in robust standard deviations of what lies before."""


def grids_of(values: pa.Table) -> dict[tuple[str, str], Grid]:
    """Return the table of values as grids, by metric and stat."""
    names = pc.binary_join_element_wise(values["metric"], values["stat"], "\0").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    columns = [values[name].to_numpy()[order] for name in ("step", "layer", "head", "value")]
    edges = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
    grids = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        metric, _, stat = name.partition("\0")
        grids[metric, stat] = _grid(metric, stat, *(column[edges[code] : edges[code + 1]] for column in columns))
    return dict(sorted(grids.items()))


def changes(grid: Grid) -> list[Change]:
    """Return of each row where its level changed most, the largest change first.

    A split is looked for that leaves a quarter of the values on either side at least; the scale is that of neighbouring
    values' differences, which a slow rise does not widen, no less than a hundredth of the row's level.
    """
    changed = []
    for row in range(len(grid.places)):
        known = np.flatnonzero(np.isfinite(grid.values[row]))
        values = grid.values[row, known]
        if len(values) < LEAST_VALUES:
            continue
        cut = _cut(values)
        before, after = float(np.median(values[:cut])), float(np.median(values[cut:]))
        scale = max(spread(np.diff(values)) / math.sqrt(2), 0.01 * float(np.median(np.abs(values))), 1e-12)
        step = int(grid.steps[known[cut]])
        changed.append(Change(row=row, step=step, before=before, after=after, score=abs(after - before) / scale))
    return sorted(changed, key=lambda item: (-item.score, item.row))


def _cut(values: Floats) -> int:
    """Return where a series is cut in two of different means: the largest between-part sum of squares."""
    number = len(values)
    before = np.arange(1, number)
    sums = np.cumsum(values)[:-1]
    gain = (sums / before - (values.sum() - sums) / (number - before)) ** 2 * before * (number - before)
    least = max(1, number // 4)
    allowed = (before >= least) & (before <= number - max(1, number // 10))
    return int(before[np.argmax(np.where(allowed, gain, -1.0))])


def _grid(metric: str, stat: str, step: Ints, layer: Ints, head: Ints, value: Floats) -> Grid:
    steps, columns = np.unique(step, return_inverse=True)
    keys, rows = np.unique(np.stack([layer, head], 1), axis=0, return_inverse=True)
    cells = rows.reshape(-1) * len(steps) + columns
    size = len(keys) * len(steps)
    means = ratio(np.bincount(cells, value, minlength=size), np.bincount(cells, minlength=size), np.nan)
    places = [(int(key[0]), int(key[1])) for key in keys]
    return Grid(metric, stat, places, steps.astype(np.int64), means.reshape(len(keys), len(steps)))


def _mean(values: Floats) -> Floats:
    known = np.isfinite(values)
    return ratio(np.where(known, values, 0.0).sum(1), known.sum(1), np.nan)
