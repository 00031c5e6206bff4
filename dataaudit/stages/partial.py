"""Partials: what a stage keeps of some documents, as tables of integers that merge without loss.

A partial is a dict of Arrow tables. Every table has key columns and integer columns that are summed (or
maximised) when keys meet, so merging is associative and commutative, the empty table is its identity, and
zeros are kept. Ratios exist only after ``finalize``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

OTHER = "other"
"""Name under which sources are folded together."""
_FEW_ROWS = 128
Partial = Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """Columns of one table of a partial."""

    keys: Mapping[str, pa.DataType]
    """Columns that rows are merged by."""
    sums: tuple[str, ...] = ()
    """int64 columns that are added."""
    maxima: tuple[str, ...] = ()
    """int64 columns of which the largest is kept."""
    settle: Callable[[pa.Table], pa.Table] | None = None
    """Applied after every merge; must commute with merging (coarser buckets, for one)."""
    combine: Callable[[pa.Table], pa.Table] | None = None
    """A faster way to merge rows of equal keys; must give what Arrow's grouping and sorting gives."""
    _schema: pa.Schema = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = [(name, pa.int64()) for name in (*self.sums, *self.maxima)]
        object.__setattr__(self, "_schema", pa.schema([*self.keys.items(), *numbers]))

    def schema(self) -> pa.Schema:
        """Return the table's schema: keys, sums, maxima."""
        return self._schema


def empty(shapes: Mapping[str, TableShape]) -> dict[str, pa.Table]:
    """Return the identity of merging."""
    return {name: shape.schema().empty_table() for name, shape in shapes.items()}


def group(shape: TableShape, table: pa.Table) -> pa.Table:
    """Merge the rows of equal keys; rows come out sorted by key.

    Raises:
        OverflowError: A sum does not fit into int64.
    """
    if table.num_rows == 0:
        return shape.schema().empty_table()
    if shape.combine is not None:
        _check_overflow(shape, table)
        return shape.combine(table)
    few = table.num_rows <= _FEW_ROWS and not any(column.null_count for column in table.columns)
    merged = _by_loop(shape, table) if few else _by_arrow(shape, table)
    if shape.settle is not None:
        settled = shape.settle(merged)
        if settled is not merged:
            return group(_without_settling(shape), settled)
    return merged


def _by_arrow(shape: TableShape, table: pa.Table) -> pa.Table:
    names = list(shape.keys)
    calls = [(name, "sum") for name in shape.sums] + [(name, "max") for name in shape.maxima]
    grouped = table.group_by(names, use_threads=False).aggregate(calls)
    renamed = {name: grouped[name] for name in names}
    renamed |= {name: grouped[f"{name}_{call}"] for name, call in calls}
    merged = pa.table(renamed).select(shape.schema().names).cast(shape.schema())
    _check_overflow(shape, table)
    return merged.take(pc.sort_indices(merged, sort_keys=[(name, "ascending") for name in names]))


def _by_loop(shape: TableShape, table: pa.Table) -> pa.Table:
    """As :func:`_by_arrow` without nulls; its calls alone take five times as long as a loop over few rows."""
    schema, keys = shape.schema(), len(shape.keys)
    held: dict[tuple[Any, ...], list[int]] = {}
    for row in zip(*(table[name].to_pylist() for name in schema.names), strict=True):
        key, values = row[:keys], row[keys:]
        if (known := held.get(key)) is None:
            held[key] = [*values]
            continue
        for place, value in enumerate(values):
            known[place] = known[place] + value if place < len(shape.sums) else max(known[place], value)
    merged = sorted(held.items())
    for place, name in enumerate(shape.sums):
        if not all(-(2**63) <= values[place] < 2**63 for _, values in merged):
            raise OverflowError(_does_not_fit(name))
    columns = zip(*((*key, *values) for key, values in merged), strict=True)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema)


def merge_all(shapes: Mapping[str, TableShape], partials: Sequence[Partial]) -> dict[str, pa.Table]:
    """Merge any number of partials, in any order."""
    return {
        name: group(shape, pa.concat_tables([shape.schema().empty_table(), *(part[name] for part in partials)]))
        for name, shape in shapes.items()
    }


def _check_overflow(shape: TableShape, table: pa.Table) -> None:
    """Arrow's sum wraps silently; the sum of the magnitudes in float64 shows that it may have."""
    for name in shape.sums:
        bounds = pc.min_max(table[name]).as_py()
        if max(-bounds["min"], bounds["max"]) * table.num_rows < 2**62:
            continue
        if float(pc.sum(pc.abs(pc.cast(table[name], pa.float64(), safe=False))).as_py() or 0.0) < 2.0**62:
            continue
        exact: dict[tuple[object, ...], int] = {}
        for *key, value in zip(*(table[column].to_pylist() for column in (*shape.keys, name)), strict=True):
            exact[tuple(key)] = exact.get(tuple(key), 0) + value
        if not all(-(2**63) <= total < 2**63 for total in exact.values()):
            raise OverflowError(_does_not_fit(name))


def _does_not_fit(name: str) -> str:
    return f"a sum of {name} does not fit into int64"


def _without_settling(shape: TableShape) -> TableShape:
    return TableShape(keys=shape.keys, sums=shape.sums, maxima=shape.maxima)


def fold_table(table: pa.Table, kept: pa.Array) -> pa.Table:
    """Replace every source that is not kept by ``other``."""
    index = table.schema.get_field_index("source")
    if index < 0:
        return table
    folded = pc.if_else(pc.is_in(table["source"], kept), table["source"], OTHER)
    return table.set_column(index, "source", folded)
