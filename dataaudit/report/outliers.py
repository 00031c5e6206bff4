"""Shards worth a look: far from the others of their split, or with the most duplicates."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


COLUMNS = {"bytes_per_token": 0.0, "filter_reject_rate": 0.02}
"""Columns that are looked at, with the least robust sd of each: a rate of a small shard moves by chance alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A shard with a value that is far from those of its split."""

    shard: int
    split: str
    uri: str
    column: str
    value: float
    median: float
    robust_sd: float
    """1.4826 times the median absolute deviation, at least 0.5 % of the median and the floor of the column."""
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
    """Return shards outside median +- 6 robust sd of a column within their split, farthest first."""
    table = manifest.table("shards", ["shard", "split", "uri", *COLUMNS])
    found = [one for column in COLUMNS for one in _outliers(table, column)]
    return sorted(found, key=lambda one: (-abs(one.deviations), one.shard, one.column))


def _outliers(table: pa.Table, column: str) -> Iterator[Outlier]:
    table = table.filter(pc.is_valid(table[column]))
    for split in pc.unique(table["split"]).to_pylist():
        own = table.filter(pc.equal(table["split"], split))
        values = own[column].to_pylist()
        if len(values) < LEAST_SHARDS:
            continue
        median, spread = robust(values)
        spread = max(spread, COLUMNS[column])
        for index, value in enumerate(values):
            if abs(value - median) > LIMIT_SD * spread:
                row = own.select(["shard", "split", "uri"]).slice(index, 1).to_pylist()[0]
                yield Outlier(
                    **row, column=column, value=value, median=median, robust_sd=spread,
                    deviations=round((value - median) / spread, 3),
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
