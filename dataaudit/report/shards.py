"""Shards: which ones stand out and why, how far all of them lie from the median, and the table of all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.render.blocks import (
    Block,
    Figure,
    Scatter,
    Section,
    Shards,
    Table,
    names,
    numbers,
    rows_of,
    texts,
    toned,
)
from dataaudit.render.line import Line, Name, join, say
from dataaudit.report.oddities import Oddities
from dataaudit.report.outliers import LIMIT_SD, Distances, Floats
from dataaudit.report.shard_data import shard_values

Indexes = npt.NDArray[np.int64]
_ROWS = 30
_POINTS = 1500
"""Points up to which each is drawn."""
_LOUD = 400
_FAR = 20.0
"""Robust sd at which farther points are drawn."""
_ACROSS, _UP = 120, 40
"""Boxes in which many points are counted."""


def shard_section(manifest: Manifest, odd: Oddities) -> Section:
    """Return the shards, and what stands out of them."""
    number, found = manifest.core.ledger.shards.planned, odd.shards
    lead: Line = f"None of the {t.plural(number, 'shard')} stands out."
    if found:
        verb = "stands" if len(found) == 1 else "stand"
        many = f"{t.count(len(found))} of {t.plural(number, 'shard')} {verb} out"
        lead = say("{}; the worst is {}: {}.", many, Name(found[0].name), found[0].reasons[0])
    blocks: list[Block] = [_odd(odd)] if found else []
    if (figure := _distances(odd, manifest)) is not None:
        blocks.append(figure)
    blocks.append(Shards(values=shard_values(manifest, found)))
    return Section(id="shards", title="Shards", lead=lead, tone=found[0].tone if found else "", blocks=tuple(blocks))


def _odd(odd: Oddities) -> Table:
    return Table(
        title="Shards that stand out, worst first",
        columns=(*numbers("shard"), *names("split/uri"), *texts("why")),
        **rows_of(odd.shards, lambda one: (one.shard, toned(Name(one.name), one.tone), join("; ", one.reasons)), _ROWS),
        noun="shard",
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

    def point(shard: int) -> tuple[float, float, Line]:
        own, away = odd.distances[column[shard]], float(best[shard])
        name = Name(f"{own.split}/{uris[shard].as_py()}")
        words = say("{}: {} {} robust sd", name, _what(own), f"{away:+.1f}")
        return float(shard), max(-_FAR, min(_FAR, away)), words

    chart = Scatter(
        unit="robust sd",
        order="shard, in the manifest's order",
        quiet=tuple(point(one) for one in quiet.tolist()) if len(quiet) <= _POINTS else (),
        loud=tuple(point(one) for one in loud.tolist()),
        boxes=() if len(quiet) <= _POINTS else _boxes(quiet, best[quiet], number),
        lines=((0.0, float(number - 1), 0.0, LIMIT_SD),),
    )
    table = Table(
        title="Shards beyond the limits",
        columns=(*numbers("shard", "robust sd"), *names("in")),
        **rows_of(loud.tolist(), lambda one: (one, f"{best[one]:+.1f}", _what(odd.distances[column[one]])), _ROWS),
        noun="shard",
        folded=True,
        empty="None.",
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
        table=table,
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


def _what(one: Distances) -> Line:
    return "bytes per token" if one.column == "bytes_per_token" else say("rejected by {}", Name(one.column, 40))
