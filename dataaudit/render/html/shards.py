"""The table of all shards: packed for the script, and its first rows as text for readers without JavaScript."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataaudit import text as t
from dataaudit.render.blocks import Column, names, numbers, words
from dataaudit.render.line import per_million, percent

BUDGET = 4_200_000
"""Characters that the compressed table may take; beyond it, columns and then rows are left out."""
_LEVEL = 6
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
        *numbers("shard"),
        *names("split/uri"),
        *words("status"),
        *numbers(*(one["head"] for one in columns)),
        *words("why it stands out"),
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
    if value["rounded"]:
        note += " Numbers are rounded to four digits."
    return ShardTable(columns=heads, rows=tuple(rows), more=more, note=note)


def packed_shards(
    whole: Mapping[str, Any], budget: int = BUDGET
) -> tuple[dict[str, str], dict[str, Any], tuple[str, ...]]:
    """Return the parts of the table as base64 of deflated JSON, its values, and the heads of columns left out.

    Args:
        whole: Columns of equal length, and what stands out of them, gravest first: these rows are kept.
        budget: Characters of the result at most; for it, columns are left out, then rows.
    """
    value, left_out = dict(whole), []
    parts = _parts(value)
    for spare in [column for column in value["columns"] if column["spare"]]:
        if _size(parts) > budget:
            left_out.append(spare["head"])
            value["columns"] = [column for column in value["columns"] if column is not spare]
            del parts[spare["key"]]
    while _size(parts) > budget and value["number"] > 1:
        value = _kept(value, max(1, int(value["number"] * budget / _size(parts) * 0.95)))
        parts = _parts(value)
    columns = [{name: one for name, one in column.items() if name != "values"} for column in value["columns"]]
    head = {name: value[name] for name in ("number", "all", "hidden", "splits", "statuses")} | {"columns": columns}
    return {"head": _packed(head), **parts}, value, tuple(left_out)


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


def _kept(value: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return only some rows: those that stand out, gravest first, then the first ones."""
    held = value["shard"] or range(value["number"])
    graves = {int(shard): rank for rank, shard in enumerate(value["odd"])}
    order = sorted(range(value["number"]), key=lambda row: (graves.get(held[row], len(graves)), row))
    chosen = sorted(order[:number])
    shards = [held[row] for row in chosen]
    own = set(shards)
    return {
        **value,
        **{key: [value[key][row] for row in chosen] for key in ("split", "status", "uri")},
        "columns": [column | {"values": [column["values"][row] for row in chosen]} for column in value["columns"]],
        "shard": shards,
        "number": len(shards),
        "odd": {shard: why for shard, why in value["odd"].items() if int(shard) in own},
    }


def _parts(value: Mapping[str, Any]) -> dict[str, str]:
    """Return what there is one of for each row, packed one by one: so each is known by its size."""
    plain = {name: value[name] for name in ("uri", "split", "status", "shard", "odd")}
    return {name: _packed(one) for name, one in (plain | {c["key"]: c["values"] for c in value["columns"]}).items()}


def _size(parts: Mapping[str, str]) -> int:
    return sum(len(part) for part in parts.values())


def _packed(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode("utf-8"), _LEVEL)).decode("ascii")
