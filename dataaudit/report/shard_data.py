"""The table of all shards as plain values for the page: columns, rounded to what is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.metrics.disclosure import BELOW, WITHHELD
from dataaudit.metrics.pii.cells import pii_cells, shard_total
from dataaudit.render.line import NAME_LIMIT, PERCENT, join, spell
from dataaudit.report.oddities import Odd
from dataaudit.text import clean

EXACT_UP_TO = 20_000
"""Shards up to which counts keep all their digits."""
_DIGITS, _DIGITS_OF_SHARE = 4, 3
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
        "rounded": not exact,
        "hidden": [BELOW, WITHHELD],
        "shard": None,
        "splits": [clean(one, NAME_LIMIT) for one in splits.dictionary.to_pylist()],
        "split": splits.indices.to_pylist(),
        "statuses": statuses.dictionary.to_pylist(),
        "status": statuses.indices.to_pylist(),
        "uri": [clean(one, _URI_LIMIT) for one in table["uri"].to_pylist()],
        "columns": columns,
        "odd": {str(one.shard): [one.tone, spell(join("; ", one.reasons), PERCENT)[:_WHY_LIMIT]] for one in odd},
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
