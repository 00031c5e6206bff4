"""Shards worth a look: far from the others of their split, or with the most duplicates."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest

LIMIT_SD = 6.0
LEAST_SHARDS = 5
"""Fewer shards of a split have no usual value."""
TOP = 5
_TO_SD = 1.4826
_FLOOR = 0.005
"""Least robust sd, as a part of the median: shards that agree to the last digit still differ by chance."""
_RATE_FLOOR = 0.02
"""Least robust sd of a rate: that of a small shard moves by chance alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A shard with a value that is far from those of its split."""

    shard: int
    split: str
    uri: str
    column: str
    """``bytes_per_token``, or the name of a set of quality rules for the share of documents that it rejects."""
    value: float
    median: float
    robust_sd: float
    """1.4826 times the median absolute deviation, at least 0.5 % of the median, of a rate at least 0.02."""
    deviations: float
    """Distance from the median in robust sd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicated:
    """A shard with duplicates."""

    shard: int
    split: str
    uri: str
    documents: int
    exact_dup_rate: float


def outliers(manifest: Manifest) -> list[Outlier]:
    """Return shards outside median +- 6 robust sd of their split, farthest first."""
    rows = manifest.table("shards", ["shard", "split", "uri", "documents", "bytes_per_token", "filters"]).to_pylist()
    columns: dict[str, dict[int, float]] = {"bytes_per_token": {}}
    for row in rows:
        if row["bytes_per_token"] is not None:
            columns["bytes_per_token"][row["shard"]] = row["bytes_per_token"]
        for rule in (row["filters"] or ()) if row["documents"] else ():
            if "." not in rule["rule"]:
                columns.setdefault(rule["rule"], {})[row["shard"]] = rule["documents"] / row["documents"]
    found = [one for column, values in columns.items() for one in _outliers(rows, column, values)]
    return sorted(found, key=lambda one: (-abs(one.deviations), one.shard, one.column))


def _outliers(rows: Sequence[dict[str, Any]], column: str, values: dict[int, float]) -> Iterator[Outlier]:
    """Yield the outliers of one column, whose values stand by shard."""
    floor = 0.0 if column == "bytes_per_token" else _RATE_FLOOR
    for split in dict.fromkeys(row["split"] for row in rows):
        own = [row for row in rows if row["split"] == split and row["shard"] in values]
        if len(own) < LEAST_SHARDS:
            continue
        median, spread = robust([values[row["shard"]] for row in own])
        spread = max(spread, floor)
        for row in own:
            value = values[row["shard"]]
            if abs(value - median) > LIMIT_SD * spread:
                yield Outlier(
                    shard=row["shard"], split=split, uri=row["uri"], column=column, value=value, median=median,
                    robust_sd=spread, deviations=round((value - median) / spread, 3),
                )  # fmt: skip


def most_duplicated(manifest: Manifest) -> list[Duplicated]:
    """Return the shards with the highest exact-duplicate rate, those without any left out."""
    columns = ["shard", "split", "uri", "documents", "exact_dup_rate"]
    table = manifest.table("shards", columns)
    table = table.filter(pc.fill_null(pc.greater(table["exact_dup_rate"], 0), pa.scalar(value=False)))
    order = [("exact_dup_rate", "descending"), ("shard", "ascending")]
    return [Duplicated(**row) for row in table.sort_by(order).slice(0, TOP).to_pylist()]


def robust(values: Sequence[float]) -> tuple[float, float]:
    """Return median and robust sd of some positive values."""
    median = statistics.median(values)
    spread = _TO_SD * statistics.median(abs(value - median) for value in values)
    return median, max(spread, _FLOOR * median)
