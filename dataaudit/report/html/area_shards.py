"""Shards: which ones stand out and why, how far all of them lie from the median, and the table of all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.report.html.oddities import Oddities
from dataaudit.report.html.pieces import (
    Block,
    Figure,
    Finding,
    Grid,
    Points,
    Section,
    Shards,
    cell,
    first,
    more,
    name,
    named,
    numbers,
    prose,
    row,
)
from dataaudit.report.outliers import LIMIT_SD, Distances, Floats

Indexes = npt.NDArray[np.int64]
_ROWS = 30
_POINTS = 1500
"""Points up to which each is drawn."""
_LOUD = 400
_FAR = 20.0
"""Robust sd at which farther points are drawn."""
_ACROSS, _UP = 120, 40
"""Boxes in which many points are counted."""


def shard_section(manifest: Manifest, odd: Oddities) -> tuple[Section, list[Finding]]:
    """Return the shards, and what stands out of them."""
    number = manifest.core.ledger.shards.planned
    found = odd.shards
    lead = f"None of the {t.plural(number, 'shard')} stands out."
    findings = []
    far = sum(any("robust sd" in reason for reason in one.reasons) for one in found)
    if found:
        lead = f"{t.count(len(found))} of {t.plural(number, 'shard')} stand out; the reasons are below."
        if len(found) == 1:
            lead = lead.replace(" stand out", " stands out")
    if far:
        text = f"{t.plural(far, 'shard')} {'lies' if far == 1 else 'lie'} over {LIMIT_SD:.0f} robust sd from the median"
        worst = next(one for one in found if any("robust sd" in reason for reason in one.reasons))
        why = next(reason for reason in worst.reasons if "robust sd" in reason)
        findings.append(
            Finding(tone="warn", section="shards", text=f"{text} of their split, such as {worst.name}: {why}.")
        )
    elif found:
        head = lead.partition(";")[0]
        text = f"{head}; the worst is {found[0].name}: {found[0].reasons[0]}."
        findings.append(Finding(tone=found[0].tone, section="shards", text=text))
    blocks: list[Block] = []
    if found:
        blocks.append(_odd(odd))
    figure = _distances(odd, manifest)
    if figure is not None:
        blocks.append(figure)
    blocks.append(Shards(number=number))
    tone = found[0].tone if found else ""
    return Section(id="shards", title="Shards", lead=lead, tone=tone, blocks=tuple(blocks)), findings


def _odd(odd: Oddities) -> Grid:
    shown = first(odd.shards, _ROWS)
    rows = tuple(row(t.count(one.shard), cell(one.name, one.tone), "; ".join(one.reasons)) for one in shown)
    return Grid(
        title="Shards that stand out, worst first",
        rows=rows,
        more=more(odd.shards, shown, "shard"),
        columns=(*numbers("shard"), name("split/uri"), prose("why")),
        note='"dataaudit inspect DIR SHARD" says all that the manifest knows of one.',
    )


def _distances(odd: Oddities, manifest: Manifest) -> Figure | None:
    """Return how far each shard lies from the median of its split, in the column in which it is farthest."""
    if not odd.distances:
        return None
    number = manifest.core.ledger.shards.planned
    best = np.full(number, np.nan)
    column = np.full(number, -1)
    for index, one in enumerate(odd.distances):
        shards = one.shards.astype(int)
        own = one.deviations
        farther = ~(np.abs(best[shards]) >= np.abs(own))
        best[shards[farther]], column[shards[farther]] = own[farther], index
    known = np.flatnonzero(np.isfinite(best))
    beyond = np.abs(best[known]) > LIMIT_SD
    loud = known[beyond][np.argsort(-np.abs(best[known][beyond]), kind="stable")][:_LOUD]
    quiet = known[~beyond]
    uris = manifest.table("shards", ["uri"])["uri"]

    def point(shard: int) -> tuple[float, float, str]:
        own, away = odd.distances[column[shard]], float(best[shard])
        words = f"{named(own.split, 40)}/{named(uris[shard].as_py(), 100)}: {_what(own)} {away:+.1f} robust sd"
        return float(shard), max(-_FAR, min(_FAR, away)), words

    chart = Points(
        unit="robust sd",
        order="shard, in the manifest's order",
        quiet=tuple(point(one) for one in quiet.tolist()) if len(quiet) <= _POINTS else (),
        loud=tuple(point(one) for one in loud.tolist()),
        boxes=() if len(quiet) <= _POINTS else _boxes(quiet, best[quiet], number),
        lines=((0.0, float(number - 1), 0.0, LIMIT_SD),),
    )
    rows = tuple(row(t.count(int(one)), f"{best[one]:+.1f}", _what(odd.distances[column[one]])) for one in loud[:_ROWS])
    grid = Grid(
        title="Shards beyond the limits",
        columns=(*numbers("shard", "robust sd"), name("in")),
        rows=rows,
        folded=True,
        empty="None.",
        more=more(loud.tolist(), rows, "shard"),
    )
    says = (
        f"{t.plural(len(known), 'shard')} measured, {t.count(int(beyond.sum()))} of them beyond"
        f" {LIMIT_SD:.0f} robust sd. Each point is a shard, in the column in which it is farthest from the median of"
        f" its split; dashed: the limits; drawn at {_FAR:.0f} where it is farther."
    )
    return Figure(
        id="chart-shards",
        title="Distance from the median of the split",
        chart=chart,
        says=says,
        table=grid,
        note=says,
        height=280,
    )


def _boxes(quiet: Indexes, values: Floats, number: int) -> tuple[tuple[float, float, float, float, int], ...]:
    across = np.linspace(-0.5, number - 0.5, _ACROSS + 1)
    up = np.linspace(-LIMIT_SD, LIMIT_SD, _UP + 1)
    counts, _, _ = np.histogram2d(quiet, values, bins=(across, up))
    return tuple(
        (float(across[i]), float(across[i + 1]), float(up[j]), float(up[j + 1]), int(counts[i, j]))
        for i, j in zip(*np.nonzero(counts), strict=True)
    )


def _what(one: Distances) -> str:
    return "bytes per token" if one.column == "bytes_per_token" else f"rejected by {named(one.column, 40)}"
