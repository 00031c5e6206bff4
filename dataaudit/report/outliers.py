"""Shards that are far from the others of their split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.render.blocks import Row, Table, names, numbers, rows_of
from dataaudit.render.line import Name, Number, Unit

Floats = npt.NDArray[np.float64]
LIMIT_SD = 6.0
LEAST_SHARDS = 5
"""Fewer shards of a split have no usual value."""
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
class Distances:
    """How far the shards of one split lie from its median, in one column."""

    split: str
    column: str
    shards: Floats
    """Ordinals of those that have a value, float64."""
    values: Floats
    median: float
    robust_sd: float

    @property
    def deviations(self) -> Floats:
        """Distances from the median in robust sd."""
        return (self.values - self.median) / self.robust_sd


def distances(manifest: Manifest) -> list[Distances]:
    """Return the distances of every column and split with enough shards."""
    table = manifest.table("shards", ["split", "documents", "bytes_per_token", "filters"])
    splits = table["split"].combine_chunks().dictionary_encode()
    codes = splits.indices.to_numpy(zero_copy_only=False)
    found = []
    for column, values in _columns(table).items():
        floor = 0.0 if column == "bytes_per_token" else _RATE_FLOOR
        for code in dict.fromkeys(codes.tolist()):
            own = np.flatnonzero((codes == code) & np.isfinite(values))
            if len(own) < LEAST_SHARDS:
                continue
            median, spread = robust(values[own])
            spread = max(spread, floor)
            if spread > 0:
                found.append(
                    Distances(
                        split=splits.dictionary[code].as_py(),
                        column=column,
                        shards=own.astype(np.float64),
                        values=values[own],
                        median=median,
                        robust_sd=spread,
                    )
                )
    return found


def outliers(manifest: Manifest) -> list[Outlier]:
    """Return shards outside median +- 6 robust sd of their split, farthest first."""
    return far(distances(manifest), manifest.table("shards", ["uri"])["uri"])


def far(found: Sequence[Distances], uris: pa.ChunkedArray) -> list[Outlier]:
    """Return the shards that lie outside 6 robust sd, farthest first; ``uris`` names them by ordinal."""
    chosen = []
    for one in found:
        beyond = np.flatnonzero(np.abs(one.values - one.median) > LIMIT_SD * one.robust_sd)
        for index in beyond.tolist():
            shard, value = int(one.shards[index]), float(one.values[index])
            chosen.append(
                Outlier(
                    shard=shard,
                    split=one.split,
                    uri=uris[shard].as_py(),
                    column=one.column,
                    value=value,
                    median=one.median,
                    robust_sd=one.robust_sd,
                    deviations=round((value - one.median) / one.robust_sd, 3),
                )
            )
    return sorted(chosen, key=lambda one: (-abs(one.deviations), one.shard, one.column))


def outlier_table(found: Sequence[Outlier], *, named: bool = True) -> Table:
    """Return shards outside of the limits; of one shard, its columns without its name."""

    def row(one: Outlier) -> Row:
        place: Row = (one.shard, Name(f"{one.split}/{one.uri}")) if named else ()
        away = f"{one.deviations:+,.1f}"
        unit: Unit = "decimal" if one.column == "bytes_per_token" else "share"
        return *place, Name(one.column), Number(one.value, unit), Number(one.median, unit), away

    title = f"Over {LIMIT_SD:g} robust sd from its split's median"
    if named:
        title = f"Shards over {LIMIT_SD:g} robust sd from their split's median (splits of {LEAST_SHARDS} and more)"
    sets = any(one.column != "bytes_per_token" for one in found)
    return Table(
        title=title,
        columns=(
            *((*numbers("shard"), *names("split/uri")) if named else ()),
            *names("what"),
            *numbers("value", "median of the split", "robust sd away"),
        ),
        **rows_of(found, row),
        noun="shard",
        note="a set of quality rules stands for the share of documents that it would reject" if sets else "",
    )


def _columns(table: pa.Table) -> dict[str, Floats]:
    """Return bytes per token and, for each set of rules, the share of documents rejected; NaN without a value."""
    columns = {"bytes_per_token": _floats(table["bytes_per_token"])}
    documents = _floats(table["documents"])
    filters = table["filters"].combine_chunks()
    parents = pc.list_parent_indices(filters).to_numpy(zero_copy_only=False)
    items = pc.list_flatten(filters)
    rules = pc.struct_field(items, "rule").dictionary_encode()
    rejected = _floats(pc.struct_field(items, "documents"))
    rule_codes = rules.indices.to_numpy(zero_copy_only=False)
    names = rules.dictionary.to_pylist()
    for code in sorted((code for code, name in enumerate(names) if "." not in name), key=lambda code: names[code]):
        own = rule_codes == code
        values = np.full(table.num_rows, np.nan)
        shards = parents[own]
        read = documents[shards] > 0
        values[shards[read]] = rejected[own][read] / documents[shards[read]]
        columns[names[code]] = values
    return columns


def _floats(column: pa.ChunkedArray | pa.Array) -> Floats:
    """Return a column as float64, NaN where it is null."""
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def robust(values: npt.ArrayLike) -> tuple[float, float]:
    """Return median and robust sd of some positive values."""
    held = np.asarray(values, dtype=np.float64)
    median = float(np.median(held))
    spread = _TO_SD * float(np.median(np.abs(held - median)))
    return median, max(spread, _FLOOR * median)
