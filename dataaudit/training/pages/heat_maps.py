"""Attention heads and layers over steps, as pictures: what had an alarm first, then what changed most."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Block, Figure, Heat, Section, table_of
from dataaudit.base.render.line import Line
from dataaudit.training.pages.grids import Change, Grid, changes
from dataaudit.training.pages.incident_blocks import Incident, marks_of, where_line
from dataaudit.vitals.metrics import charts

HEADS = charts(of_heads=True)
LAYERS = sorted(charts(of_heads=False), key=lambda chart: chart[0] != "residual_rms")
"""What is drawn, the residual stream first: metric, statistic, title."""
MOST_ROWS = 32
"""Heads of a picture over steps: those that changed most."""


def pictures(
    name: str,
    title: str,
    metrics: Sequence[tuple[str, str, str]],
    grids: dict[tuple[str, str], Grid],
    incidents: Sequence[Incident],
) -> Section | None:
    """Return the section of heads, or of layers, over steps; of heads the newest values, too."""
    blocks: list[Block] = []
    for metric, stat, heading in metrics:
        grid = _only(grids.get((metric, stat)), heads=name == "heads")
        if grid is not None:
            blocks += [_newest(grid, heading)] if name == "heads" else []
            blocks += _over_steps(grid, heading, incidents)
    if not blocks:
        return None
    marks = sum(len(marks_of(incidents, metric)) for metric, *_ in metrics)
    lead = f"{marks:,} series had an alarm; a triangle marks its first step." if marks else "No alarm."
    return Section(id=name, title=title, lead=lead, tone="warn" if marks else "good", blocks=tuple(blocks))


def _only(grid: Grid | None, *, heads: bool) -> Grid | None:
    """Return the rows of layers, or of heads; None where there is none."""
    if grid is None:
        return None
    chosen = [row for row, (layer, head) in enumerate(grid.places) if layer >= 0 and (head >= 0) == heads]
    if not chosen:
        return None
    return Grid(grid.metric, grid.stat, [grid.places[row] for row in chosen], grid.steps, grid.values[chosen])


def _newest(grid: Grid, title: str) -> Figure:
    layers, heads = sorted({place[0] for place in grid.places}), sorted({place[1] for place in grid.places})
    newest = dict(zip(grid.places, grid.last().tolist(), strict=True))
    values = tuple(tuple(_known(newest.get((layer, head))) for head in heads) for layer in layers)
    order = sorted(newest.items(), key=lambda item: (-item[1], item[0]))
    return Figure(
        id=f"{grid.metric}-{grid.stat}-now",
        title=f"{title}: heads by layers, newest values",
        chart=Heat(
            rows=tuple(f"layer {layer}" for layer in layers),
            columns=tuple(f"head {head}" for head in heads),
            values=values,
            row_title="",
            column_title="",
            scale=grid.metric,
        ),
        table=table_of(
            "Newest values, the largest first",
            order,
            ("where", "name", lambda row: where_line(*row[0])),
            ("value", "number", lambda row: f"{row[1]:.4g}"),
            noun="head",
            folded=True,
        ),
        says=f"{grid.metric} of {t.plural(len(order), 'head')}, {order[-1][1]:.3g} to {order[0][1]:.3g}",
    )


def _over_steps(grid: Grid, title: str, incidents: Sequence[Incident]) -> list[Block]:
    """Return the picture of a metric over steps, and its table: series with an alarm first, then what changed most."""
    if len(grid.steps) < 2:
        return []
    result, marks = changes(grid), marks_of(incidents, grid.metric)
    order = [change.row for change in result] or list(range(len(grid.places)))
    order = sorted(order, key=lambda row: grid.places[row] not in marks)
    chosen = sorted(order[:MOST_ROWS])
    spans, means = grid.binned
    ends = np.array([high for _, high in spans])
    at = {row: int(np.searchsorted(ends, marks[place])) for row, place in enumerate(grid.places) if place in marks}
    less = len(grid.places) - len(chosen)
    many = len(grid.steps) // len(spans)
    note = f"A column is the mean of {many} or more measured steps." if len(spans) < len(grid.steps) else ""
    note += f" {t.plural(less, 'other')} changed less and are left out." if less > 0 else ""
    by_row = {change.row: change for change in result}

    def quantile(row: int, part: float) -> str:
        return f"{np.quantile(grid.values[row][np.isfinite(grid.values[row])], part):.3g}"

    def of_change(name: str, form: str) -> Callable[[int], Line]:
        return lambda row: format(getattr(by_row[row], name), form) if row in by_row else ""

    return [
        Figure(
            id=f"{grid.metric}-{grid.stat}-steps",
            title=f"{title}, over steps",
            chart=Heat(
                rows=tuple(where_line(*grid.places[number]) for number in chosen),
                columns=tuple(f"{_rounded(low, high):,}" for low, high in spans),
                values=tuple(tuple(_known(value) for value in means[number].tolist()) for number in chosen),
                row_title="",
                column_title="step",
                marks=tuple(
                    (place, min(at[number], len(spans) - 1), f"alarm, since step {marks[grid.places[number]]:,}")
                    for place, number in enumerate(chosen)
                    if number in at
                ),
                ticks=_round_ticks(spans),
                scale=grid.metric,
            ),
            table=table_of(
                "What changed most first",
                order,
                ("where", "name", lambda row: where_line(*grid.places[row])),
                ("p50", "number", lambda row: quantile(row, 0.5)),
                ("p99", "number", lambda row: quantile(row, 0.99)),
                ("before", "number", of_change("before", ".3g")),
                ("after", "number", of_change("after", ".3g")),
                ("from step", "number", lambda row: by_row[row].step if row in by_row else ""),
                ("robust deviations", "number", of_change("score", ".1f")),
                folded=True,
            ),
            says=_changed_most(grid, result),
            note=note.strip(),
        )
    ]


def _rounded(low: int, high: int) -> int:
    """Return the roundest number from the first to the last step of a column."""
    for size in (10**power * times for power in range(9, -1, -1) for times in (5, 2, 1)):
        result: int = -(-low // size) * size
        if 0 < result <= high:
            return result
    return low


def _round_ticks(spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the columns that hold multiples of a round number of steps, eight of them at most."""
    first, last = spans[0][0], spans[-1][1]
    for size in (10**power * times for power in range(10) for times in (1, 2, 5)):
        if (last - first) // size < 8:
            break
    steps = range(-(-first // size) * size, last + 1, size)
    ends = [high for _, high in spans]
    return tuple(dict.fromkeys(int(np.searchsorted(ends, step)) for step in steps if step))


def _changed_most(grid: Grid, result: Sequence[Change]) -> str:
    if not result:
        return f"{grid.metric} over {len(grid.steps):,} measured steps"
    most = result[0]
    where = where_line(*grid.places[most.row])
    return f"{where} changed most: {most.before:.3g} before step {most.step:,}, {most.after:.3g} after"


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
