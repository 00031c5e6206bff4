"""The first rows of the table of shards as text, for readers without JavaScript; the script shows all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataaudit import text as t
from dataaudit.report.html.pieces import Column, name, numbers, percent, word
from dataaudit.report.html.shard_data import EXACT_UP_TO
from dataaudit.report.judged import per_million

ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTable:
    """What stands in the page before any script runs."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """Tone and cells."""
    more: str
    note: str


def shard_table(value: Mapping[str, Any], left_out: Sequence[str]) -> ShardTable:
    """Return the first rows.

    Args:
        value: What is in the page, as :func:`packed_shards` returns it.
        left_out: Heads of the columns that are not.
    """
    columns = value["columns"]
    heads = (
        Column(head="shard"),
        name("split/uri"),
        word("status"),
        *numbers(*(one["head"] for one in columns)),
        Column(head="why it stands out", kind="word"),
    )
    rows = []
    for index in range(min(ROWS, value["number"])):
        shard = value["shard"][index] if value["shard"] else index
        tone, why = value["odd"].get(str(shard), ("", ""))
        cells = [_format(one["values"][index], one["kind"], value["hidden"]) for one in columns]
        uri = f"{value['splits'][value['split'][index]]}/{value['uri'][index]}"
        rows.append((tone, (t.count(shard), uri, value["statuses"][value["status"][index]], *cells, why)))
    more = ""
    if value["number"] < value["all"]:
        more = f"The file holds {value['number']:,} of {value['all']:,} shards: what stands out, then the first ones. "
    if left_out:
        more += f"Left out for size: {', '.join(left_out)}. "
    more += '"dataaudit show DIR --json" and the table "shards" of the manifest have everything.'
    note = "Heads sort. Marked rows stand out."
    if value["all"] > EXACT_UP_TO:
        note += " Numbers are rounded to four digits."
    return ShardTable(columns=heads, rows=tuple(rows), more=more, note=note)


def _format(value: float | None, kind: str, hidden: Sequence[str]) -> str:
    """Return a value as the script shows it."""
    if value is None:
        return t.NOTHING
    if kind == "few":
        return hidden[int(-1 - value)] if value < 0 else per_million(value)
    if kind == "size":
        return t.size(int(value))
    if kind == "share":
        return percent(value)
    if kind == "count":
        return t.count(int(value)) if value == int(value) else f"{value:,.1f}"
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else f"{value:.1e}"
