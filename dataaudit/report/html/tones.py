"""What the verdict leaves of the colours: an area is red only where one of its rules does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from dataaudit.report.html.pieces import Block, Cell, Figure, Finding, Grid, Prose, Section, Tone, worst

_Toned = TypeVar("_Toned", Cell, Prose, Finding)


def judged_section(section: Section, areas: Mapping[str, Tone]) -> Section:
    """Return a section in the colour that the rules of its area leave it.

    Args:
        section: As it looks without a policy.
        areas: The worst tone of the rules of each area; those that no rule speaks of, or whose rules hold, lack.
    """
    held = areas.get(section.id, "")
    if held == "bad":
        return replace(section, tone="bad")
    tone: Tone = worst((held, _softened(section.tone))) if held else _softened(section.tone)
    return replace(section, tone=tone, blocks=tuple(_block(one) for one in section.blocks))


def judged_finding(finding: Finding, areas: Mapping[str, Tone]) -> Finding:
    """Return what stands out besides the verdict, amber at most unless its area is red."""
    return finding if areas.get(finding.section) == "bad" else softer(finding)


def softer(one: _Toned) -> _Toned:
    """Return it in amber where it was red."""
    return replace(one, tone="warn") if one.tone == "bad" else one


def _softened(tone: Tone) -> Tone:
    return "warn" if tone == "bad" else tone


def _block(block: Block) -> Block:
    if isinstance(block, Figure):
        return replace(block, table=_grid(block.table))
    if isinstance(block, Grid):
        return _grid(block)
    return softer(block) if isinstance(block, Prose) else block


def _grid(grid: Grid) -> Grid:
    return replace(grid, rows=tuple(tuple(softer(cell) for cell in row) for row in grid.rows))
