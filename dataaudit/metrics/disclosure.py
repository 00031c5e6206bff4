"""Small counts of personal data: which cells of a table are not shown, so that none follows from the others.

A count of 1 to 4 documents may point at a person, so it is not shown. Nor is what gives it away: a cell that is hidden
alone is the total less the others. Cells are hidden by one bound, all below it, zeros too, and the bound rises until
the hidden cells differ from each other. Exchanging two of them then gives another table that looks the same, with the
same total: whoever knows this rule cannot tell which one is real. Statisticians call it complementary
suppression.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dataaudit.base.render.line import Line

FEW = 5
"""Documents from which on a count is shown."""
BELOW = f"<{FEW}"
WITHHELD = "*"
ROUNDED = "rounded to tens, and to two digits from 100 on"
SHARED = (
    f"{BELOW}: in fewer than {FEW} documents, none perhaps; {WITHHELD}: withheld, as it would tell such a number."
    " The manifest's tables hold the exact ones."
)
"""The rule, for readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """What is not shown of the cells of a total."""

    cells: frozenset[int]
    """Indexes of the cells."""
    whole: bool = False
    """Whether the total is not shown either."""
    below: bool = True
    """Whether every hidden cell has fewer than :data:`FEW` documents, and may be shown as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Findings of a cell; all None when they are not shown, or when there is nothing to divide by."""

    hits: int | None
    documents: int | None
    """Documents that hold some."""
    per_million: float | None
    """Hits per million tokens."""
    share: float | None
    """Of all documents."""
    suppressed: bool = False
    """Not shown, lest it points at people."""
    fewer_than: int | None = None
    """Of a suppressed count: documents that it certainly does not reach; None where that is not shown."""
    rounded: bool = False
    """Whether hits and documents are rounded, as :func:`about` does."""


def hide(cells: Sequence[tuple[int, int]], forced: Collection[int] = ()) -> Hidden:
    """Decide which cells of a total are hidden."""
    if not forced and not any(0 < documents < FEW for documents, _ in cells):
        return Hidden(cells=frozenset())
    bounds = sorted({documents for documents, _ in cells if documents >= FEW})
    least = max((cells[index][0] for index in forced), default=0)
    for bound in (FEW - 1, *bounds):
        hidden = [index for index, (documents, _) in enumerate(cells) if documents <= bound]
        if bound >= least and all(len({cells[index][measure] for index in hidden}) > 1 for measure in (0, 1)):
            return Hidden(cells=frozenset(hidden), below=bound < FEW)
    return Hidden(cells=frozenset(range(len(cells))), whole=True, below=not bounds)


def suppressed(*, below: bool) -> Count:
    """Return a cell that is not shown."""
    return Count(
        hits=None, documents=None, per_million=None, share=None, suppressed=True, fewer_than=FEW if below else None
    )


def about(number: int) -> int:
    """Round to tens, and to two digits from 100 on: sums of such numbers tell no exact number."""
    step: int = 10 ** max(1, len(str(abs(number))) - 2)
    return (number + step // 2) // step * step


def two_digits(value: float) -> float:
    """Round to two digits: a rate of a rounded number has no more."""
    return float(f"{value:.2g}") if math.isfinite(value) else value


def count_cell(count: Count, number: int | None) -> Line:
    """Return a number of a cell, or what stands in its place when the count is not shown."""
    if not count.suppressed:
        return number
    return BELOW if count.fewer_than else WITHHELD
