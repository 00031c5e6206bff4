"""The table of all shards as data for the page: columns, rounded to what is shown, compressed."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.report.few import BELOW, WITHHELD
from dataaudit.report.html.oddities import Odd
from dataaudit.report.html.pieces import named
from dataaudit.report.pii_cells import pii_cells, shard_total

BUDGET = 4_200_000
"""Characters that the compressed table may take; beyond it, columns and then rows are left out."""
EXACT_UP_TO = 20_000
"""Shards up to which counts keep all their digits."""
_DIGITS, _DIGITS_OF_SHARE = 4, 3
_LEVEL = 6
_URI_LIMIT, _WHY_LIMIT = 200, 400
_COLUMNS = (
    ("documents", "documents", "count"),
    ("tokens", "tokens", "count"),
    ("bytes_per_token", "bytes per token", "number"),
    ("exact_dup_rate", "exact copies", "share"),
    ("near_dup_rate", "near-duplicates", "share"),
    ("held_out_copies", "copies of held-out", "count"),
    ("contaminated", "with evaluation items", "count"),
    ("secret_hits", "secrets", "count"),
    ("token_kl_drift", "drift, nats", "number"),
    ("repeat_token_share", "repeated spans", "share"),
    ("filter_reject_rate", "would reject", "share"),
    ("toxicity_screen", "toxic, screen", "share"),
    ("pii_hits", "PII per 1M tokens", "few"),
    ("seq_len_p50", "median length", "count"),
    ("size", "stored size", "size"),
)
"""Column, heading, kind."""
_LEAST = ("toxicity_screen", "seq_len_p50", "repeat_token_share", "filter_reject_rate", "size", "near_dup_rate")
"""What is left out first, when the table would be too large."""


def packed_shards(
    whole: Mapping[str, Any], odd: Sequence[Odd], budget: int = BUDGET
) -> tuple[dict[str, str], dict[str, Any], tuple[str, ...]]:
    """Return the parts of the table as base64 of deflated JSON, its values, and the heads of columns left out.

    Args:
        whole: Of :func:`shard_values`.
        odd: Shards that stand out: their rows are kept.
        budget: Characters of the result at most; for it, columns are left out, then rows.
    """
    value, left_out = dict(whole), []
    parts = _parts(value)
    for key in _LEAST:
        if _size(parts) > budget and key in parts:
            left_out += [column["head"] for column in value["columns"] if column["key"] == key]
            value["columns"] = [column for column in value["columns"] if column["key"] != key]
            del parts[key]
    while _size(parts) > budget and value["number"] > 1:
        value = _kept(value, max(1, int(value["number"] * budget / _size(parts) * 0.95)), odd)
        parts = _parts(value)
    columns = [{name: one for name, one in column.items() if name != "values"} for column in value["columns"]]
    head = {name: value[name] for name in ("number", "all", "hidden", "splits", "statuses")} | {"columns": columns}
    return {"head": _packed(head), **parts}, value, tuple(left_out)


def shard_values(manifest: Manifest, odd: Sequence[Odd]) -> dict[str, Any]:
    """Return the table as plain values: columns of equal length, whole numbers exact where shards are not too many."""
    table = manifest.table("shards", ["split", "uri", "status", *(key for key, _, _ in _COLUMNS)])
    exact = table.num_rows <= EXACT_UP_TO
    columns = []
    for key, head, kind in _COLUMNS:
        values = _few(manifest) if kind == "few" else _values(table[key], _digits(kind, exact=exact))
        if any(one is not None for one in values):
            columns.append({"key": key, "head": head, "kind": kind, "values": values})
    splits, statuses = (table[key].combine_chunks().dictionary_encode() for key in ("split", "status"))
    return {
        "number": table.num_rows,
        "all": table.num_rows,
        "hidden": [BELOW, WITHHELD],
        "shard": None,
        "splits": [named(one) for one in splits.dictionary.to_pylist()],
        "split": splits.indices.to_pylist(),
        "statuses": statuses.dictionary.to_pylist(),
        "status": statuses.indices.to_pylist(),
        "uri": [named(one, _URI_LIMIT) for one in table["uri"].to_pylist()],
        "columns": columns,
        "odd": {str(one.shard): [one.tone, "; ".join(one.reasons)[:_WHY_LIMIT]] for one in odd},
    }


def _digits(kind: str, *, exact: bool) -> int:
    """Return how many digits are kept; 0 for all. Shares are shown with three at most."""
    if kind == "share" or not exact:
        return _DIGITS_OF_SHARE if kind == "share" and not exact else _DIGITS
    return 0 if kind in {"count", "size"} else _DIGITS


def _values(column: pa.ChunkedArray, digits: int) -> list[float | int | None]:
    """Return a column rounded to some significant digits; all of them when there are none to round to."""
    if not digits:
        found: list[float | int | None] = column.to_pylist()
        return found
    held = np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    some = np.isfinite(held) & (held != 0)
    scale = np.ones(len(held))
    scale[some] = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(held[some]))))
    return [_short(one, digits) for one in (np.round(held * scale) / scale).tolist()]


def _short(value: float, digits: int) -> float | int | None:
    if math.isnan(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.{digits}g}")


def _few(manifest: Manifest) -> list[float | int | None]:
    """Return personal data per million tokens; -1 and -2 stand for numbers that are not shown."""
    sizes = manifest.table("shards", ["documents", "tokens"])
    cells = pii_cells(manifest)
    found: list[float | int | None] = [None] * sizes.num_rows
    if cells is None:
        return found
    documents, tokens = sizes["documents"].to_pylist(), sizes["tokens"].to_pylist()
    for shard in cells.shards:
        count = shard_total(cells, shard, documents[shard], tokens[shard])
        found[shard] = (-1 if count.fewer_than else -2) if count.suppressed else count.per_million
    return found


def _kept(value: Mapping[str, Any], number: int, odd: Sequence[Odd]) -> dict[str, Any]:
    """Return only some rows: those that stand out, gravest first, then the first ones."""
    held = value["shard"] or range(value["number"])
    graves = {one.shard: rank for rank, one in enumerate(odd)}
    order = sorted(range(value["number"]), key=lambda row: (graves.get(held[row], len(graves)), row))
    chosen = sorted(order[:number])
    shards = [held[row] for row in chosen]
    return {
        **value,
        **{key: [value[key][row] for row in chosen] for key in ("split", "status", "uri")},
        "columns": [column | {"values": [column["values"][row] for row in chosen]} for column in value["columns"]],
        "shard": shards,
        "number": len(shards),
        "odd": {str(shard): value["odd"][str(shard)] for shard in shards if str(shard) in value["odd"]},
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
