"""Shards: which stand out and why, how far all of them lie from the median, and the table of all as plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Block, Figure, Prose, Scatter, Section, Shards, column, table_of, toned
from dataaudit.base.render.line import NAME_LIMIT, PERCENT, Line, Name, join, say, spell
from dataaudit.base.text import clean
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.disclosure import BELOW, WITHHELD
from dataaudit.metrics.pii.cells import pii_cells, shard_total
from dataaudit.metrics.registry import SHARD_STATISTICS
from dataaudit.metrics.shown import Floats, floats
from dataaudit.present.report.highlights import LIMIT_SD, Odd, common, distances

Indexes = npt.NDArray[np.int64]
_ROWS = 30
_POINTS = 1500
"""Points up to which each is drawn."""
_LOUD = 400
_FAR = 20.0
"""Robust sd at which farther points are drawn."""
_ACROSS, _UP = 120, 40
"""Boxes in which many points are counted."""


def shard_section(manifest: Manifest, every: Sequence[Odd]) -> Section:
    """Return the shards, and what stands out of them; what most of them share is said once, and marks none."""
    number = t.plural(manifest.core.ledger.shards.planned, "shard")
    odd = [shard for shard in every if shard.tone != "quiet"]
    rest = "It is no mark of a shard: marked is only who has far more of it than the others."
    blocks: list[Block] = [
        Prose(text=say("In {} of {}: {}. {}", t.count(item.shards), number, item.text, rest), tone="quiet")
        for item in common(manifest)
    ]
    lead: Line = f"None of the {number} stands out."
    if odd:
        many = f"{t.count(len(odd))} of {number} {'stands' if len(odd) == 1 else 'stand'} out"
        lead = say("{}; the worst is {}: {}.", many, Name(odd[0].name), odd[0].reasons[0])
        table = table_of(
            "Shards that stand out, worst first",
            odd,
            column("shard"),
            column("split/uri", lambda shard: toned(Name(shard.name), shard.tone), kind="name"),
            column("why", lambda shard: join("; ", shard.reasons), kind="text"),
            most=_ROWS,
            noun="shard",
            note='"dataaudit inspect DIR SHARD" says all that the manifest knows of one.',
        )
        blocks.append(table)
    if (figure := _distances(manifest)) is not None:
        blocks.append(figure)
    blocks.append(Shards(values=shard_values(manifest, every)))
    tone = odd[0].tone if odd else "warn" if every else ""
    return Section(id="shards", title="Shards", lead=lead, tone=tone, blocks=tuple(blocks))


def _distances(manifest: Manifest) -> Figure | None:
    """Return how far each shard lies from the median of its source, in the column in which it is farthest."""
    measured = distances(manifest)
    if not measured:
        return None
    number = manifest.core.ledger.shards.planned
    best = np.full(number, np.nan)
    column_of = np.full(number, -1)
    for index, item in enumerate(measured):
        shards, own = item.shards, item.deviations
        farther = ~(np.abs(best[shards]) >= np.abs(own))
        best[shards[farther]], column_of[shards[farther]] = own[farther], index
    known = np.flatnonzero(np.isfinite(best))
    beyond = np.abs(best[known]) > LIMIT_SD
    loud = known[beyond][np.argsort(-np.abs(best[known][beyond]), kind="stable")][:_LOUD]
    quiet = known[~beyond]
    uris = manifest.table("shards", ["uri"])["uri"]

    def point(shard: int) -> tuple[float, float, Line]:
        own, away = measured[column_of[shard]], float(best[shard])
        name = Name(f"{own.split}/{uris[shard].as_py()}")
        words = say("{}: {}, {} robust sd", name, own.of.text, f"{away:+.1f}")
        return float(shard), max(-_FAR, min(_FAR, away)), words

    chart = Scatter(
        unit="robust sd",
        order="shard, in the manifest's order",
        quiet=tuple(point(value) for value in quiet.tolist()) if len(quiet) <= _POINTS else (),
        loud=tuple(point(value) for value in loud.tolist()),
        boxes=() if len(quiet) <= _POINTS else _boxes(quiet, best[quiet], number),
        lines=((0.0, float(number - 1), 0.0, LIMIT_SD),),
    )
    table = table_of(
        "Shards beyond the limits",
        loud.tolist(),
        column("shard", int),
        column("robust sd", lambda shard: f"{best[shard]:+.1f}"),
        column("in", lambda shard: measured[column_of[shard]].of.text, kind="name"),
        most=_ROWS,
        noun="shard",
        folded=True,
        empty="None.",
    )
    says = (
        f"{t.plural(len(known), 'shard')} measured, {t.count(int(beyond.sum()))} of them beyond"
        f" {LIMIT_SD:.0f} robust sd. Each point is a shard, in the column in which it is farthest from the median of"
        f" its source; dashed: the limits; drawn at {_FAR:.0f} where it is farther."
    )
    return Figure(
        id="chart-shards",
        title="Distance from the median of the source",
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


EXACT_UP_TO = 20_000
"""Shards up to which counts keep all their digits."""
_DIGITS, _DIGITS_OF_SHARE = 4, 3
_URI_LIMIT, _WHY_LIMIT = 200, 400
_COLUMNS = tuple(statistic for statistic in SHARD_STATISTICS if statistic.head)


def shard_values(manifest: Manifest, odd: Sequence[Odd]) -> dict[str, Any]:
    """Return the table as plain values: columns of equal length, whole numbers exact where shards are not too many."""
    table = manifest.table("shards", ["split", "uri", "status", *(statistic.column for statistic in _COLUMNS)])
    exact = table.num_rows <= EXACT_UP_TO
    columns = []
    for statistic in _COLUMNS:
        kind, digits = statistic.shown_as, _digits(statistic.shown_as, exact=exact)
        values = _few(manifest) if kind == "few" else _values(table[statistic.column], digits)
        if any(value is not None for value in values):
            columns.append(
                {
                    "key": statistic.column,
                    "head": statistic.head,
                    "kind": kind,
                    "spare": statistic.spare,
                    "values": values,
                }
            )
    splits, statuses = (table[key].combine_chunks().dictionary_encode() for key in ("split", "status"))
    return {
        "number": table.num_rows,
        "all": table.num_rows,
        "rounded": not exact,
        "hidden": [BELOW, WITHHELD],
        "shard": None,
        "splits": [clean(row, NAME_LIMIT) for row in splits.dictionary.to_pylist()],
        "split": splits.indices.to_pylist(),
        "statuses": statuses.dictionary.to_pylist(),
        "status": statuses.indices.to_pylist(),
        "uri": [clean(row, _URI_LIMIT) for row in table["uri"].to_pylist()],
        "columns": columns,
        "odd": {str(item.shard): [item.tone, spell(join("; ", item.reasons), PERCENT)[:_WHY_LIMIT]] for item in odd},
    }


def _digits(kind: str, *, exact: bool) -> int:
    """Return how many digits are kept; 0 for all. Shares are shown with three at most."""
    if kind == "share" or not exact:
        return _DIGITS_OF_SHARE if kind == "share" and not exact else _DIGITS
    return 0 if kind in {"count", "size"} else _DIGITS


def _values(column: pa.ChunkedArray, digits: int) -> list[float | int | None]:
    """Return a column rounded to some significant digits; all of them when there are none to round to."""
    if not digits:
        exact: list[float | int | None] = column.to_pylist()
        return exact
    values = floats(column)
    some = np.isfinite(values) & (values != 0)
    scale = np.ones(len(values))
    scale[some] = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(values[some]))))
    return [_short(value, digits) for value in (np.round(values * scale) / scale).tolist()]


def _short(value: float, digits: int) -> float | int | None:
    if math.isnan(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.{digits}g}")


def _few(manifest: Manifest) -> list[float | int | None]:
    """Return personal data per million tokens; -1 and -2 stand for numbers that are not shown."""
    sizes = manifest.table("shards", ["documents", "tokens"]).to_pylist()
    shown: list[float | int | None] = [None] * len(sizes)
    if (cells := pii_cells(manifest)) is not None:
        for shard in cells.shards:
            count = shard_total(cells, shard, **sizes[shard])
            shown[shard] = (-1 if count.fewer_than else -2) if count.suppressed else count.per_million
    return shown
