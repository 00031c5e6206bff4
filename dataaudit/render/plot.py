"""A curve in characters: one column for some steps, those that are pointed out in a character of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence

QUIET, LOUD = ".", "#"
_HEIGHT = 12
_LEAST_COLUMNS = 20


def plot_lines(
    steps: Sequence[int], values: Sequence[float], loud: Sequence[bool], width: int, height: int = _HEIGHT
) -> list[str]:
    """Return a chart of values by step; nothing when no value is finite.

    A column stands for as many steps as have to share it: its mean of quiet values, and its largest loud one.

    Args:
        steps: Ascending.
        values: Those that are not finite are left out.
        loud: Whether a value is pointed out.
        width: Characters of a line.
        height: Lines of the chart, axes not counted.
    """
    points = [one for one in zip(steps, values, loud, strict=True) if math.isfinite(one[1])]
    if not points:
        return []
    low, high = min(value for _, value, _ in points), max(value for _, value, _ in points)
    labels = [f"{value:,.2f}" for value in (high, low)]
    margin = max(map(len, labels))
    columns = max(_LEAST_COLUMNS, width - margin - 2)
    first, span = steps[0], max(1, steps[-1] - steps[0] + 1)
    columns = min(columns, span)
    quiet: dict[int, list[float]] = {}
    marks: dict[int, float] = {}
    for step, value, marked in points:
        column = (step - first) * columns // span
        if marked:
            marks[column] = max(value, marks.get(column, value))
        else:
            quiet.setdefault(column, []).append(value)
    grid = [[" "] * columns for _ in range(height)]
    for column, held in quiet.items():
        grid[_line(sum(held) / len(held), low, high, height)][column] = QUIET
    for column, value in marks.items():
        grid[_line(value, low, high, height)][column] = LOUD
    heads = [labels[0], *[""] * (height - 2), labels[1]]
    lines = [f"{head:>{margin}} |{''.join(row)}".rstrip() for head, row in zip(heads, grid, strict=True)]
    begin, end = f"{steps[0]:,}", f"{steps[-1]:,}"
    blanks = max(1, columns - len(begin) - len(end))
    return [*lines, f"{'':>{margin}} +{'-' * columns}", f"{'':>{margin}}  {begin}{' ' * blanks}{end}"]


def _line(value: float, low: float, high: float, height: int) -> int:
    """Return the line of a value, 0 at the top."""
    share = (value - low) / (high - low) if high > low else 0.5
    return round((1 - share) * (height - 1))
