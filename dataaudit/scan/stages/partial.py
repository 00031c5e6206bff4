"""Partials: the counts that a stage makes of some documents, as tables of integers that merge without loss.

A partial is a dict of Arrow tables. Every table has key columns and integer columns that are summed (or
maximised) when keys meet, so merging is associative and commutative, the empty table is its identity, and
zeros are kept. Ratios exist only after ``finalize``. Tables of token counts by source have a faster merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.divergence import token_spans
from dataaudit.scan.kernels.counting import add_up

OTHER = "other"
"""Name of the sources that are folded together."""
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
    """Merge the rows of equal keys; rows come out sorted by key."""
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
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in zip(*(table[name].to_pylist() for name in schema.names), strict=True):
        key, values = row[:keys], row[keys:]
        if (known := groups.get(key)) is None:
            groups[key] = [*values]
            continue
        for column, value in enumerate(values):
            known[column] = known[column] + value if column < len(shape.sums) else max(known[column], value)
    merged = sorted(groups.items())
    for column, name in enumerate(shape.sums):
        if not all(-(2**63) <= values[column] < 2**63 for _, values in merged):
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


COLUMNS = ("count", "half")


@dataclass(frozen=True, slots=True)
class Counts:
    """Occurrences of each token in some documents."""

    all: np.ndarray
    """int64[size] by token id."""
    half: np.ndarray
    """int64[size] in a random half of the documents, drawn by their digests."""


def token_shape() -> TableShape:
    """Return the shape of a table of token counts."""
    return TableShape(keys={"source": pa.string(), "token": pa.int32()}, sums=COLUMNS, combine=combine)


def token_table(names: list[str], groups: np.ndarray, tokens: np.ndarray, columns: list[np.ndarray]) -> pa.Table:
    """Return a table from the index of each row's source, its token, and its counts."""
    codes = pa.DictionaryArray.from_arrays(pa.array(groups.astype(np.int32)), pa.array(names, pa.string()))
    arrays = [codes.cast(pa.string()), pa.array(tokens.astype(np.int32)), *(pa.array(column) for column in columns)]
    return pa.table(dict(zip(("source", "token", *COLUMNS), arrays, strict=True)))


def combine(table: pa.Table) -> pa.Table:
    """Add up the rows of equal (source, token), sorted: thirty times as fast as grouping them by string."""
    names, groups, tokens = _keys(table)
    sums = add_up(groups, tokens, [table[name].to_numpy() for name in COLUMNS])
    return table.combine_chunks() if sums is None else token_table(names, *sums)


def by_source(table: pa.Table, size: int) -> Iterator[tuple[str, Counts]]:
    """Yield the counts of every source of a merged table, sources in order."""
    names, groups, tokens = _keys(table)
    columns = [table[name].to_numpy() for name in COLUMNS]
    bounds = np.searchsorted(groups, np.arange(len(names) + 1))
    for index, name in enumerate(names):
        rows = slice(bounds[index], bounds[index + 1])
        yield name, Counts(*(dense(tokens[rows], column[rows], size) for column in columns))


def whole(table: pa.Table, size: int) -> Counts:
    """Return the counts over all sources of a merged table."""
    total = Counts(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))
    for _, counts in by_source(table, size):
        np.add(total.all, counts.all, out=total.all)
        np.add(total.half, counts.half, out=total.half)
    return total


def dense(tokens: np.ndarray, counts: np.ndarray, size: int) -> np.ndarray:
    """Return int64[size] with each count at its token; tokens are distinct."""
    filled = np.zeros(size, dtype=np.int64)
    filled[tokens] = counts
    return filled


def _keys(table: pa.Table) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the sources of a table, sorted by bytes, and each row's source (its index) and token."""
    source = table["source"].combine_chunks()
    if isinstance(source, pa.ChunkedArray):  # more text than one array holds
        source = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in source.chunks])
    encoded = source.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    names = sorted(values, key=str.encode)
    ranks = {name: rank for rank, name in enumerate(names)}
    groups = encoded.indices.to_numpy()
    if names != values:
        groups = np.array([ranks[name] for name in values], dtype=np.int32)[groups]
    return names, groups, table["token"].to_numpy()


ABSENT = "absent_in_reference"
FOLDED_THERE = "folded_in_reference"
FOLDED = "folded_sources"
NO_REFERENCE = "no_reference"
OTHER_TOKENIZER = "other_tokenizer"
NO_HISTOGRAM = "no_histogram_in_reference"


class Reference:
    """Token counts of a reference by split and source.

    Args:
        table: Columns split, source, token, count; sorted by the first three, which are unique.
        sources: (split, source) of all its tokens, also where their counts were folded together.
        folded: Whether its source `other` stands for several.
        problem: Code of why nothing can be compared with it; empty when all is well.
    """

    def __init__(
        self, table: pa.Table, *, sources: Iterable[tuple[str, str]] = (), folded: bool = False, problem: str = ""
    ) -> None:
        self.problem = problem
        self.folded = folded
        self._sources = frozenset(sources)
        self._tokens = table["token"].to_numpy()
        self._counts = table["count"].to_numpy()
        self._spans = token_spans(table)
        self._totals: dict[tuple[str | None, str | None, int], np.ndarray] = {}

    @property
    def size(self) -> int:
        """The largest token + 1."""
        return int(self._tokens.max(initial=-1)) + 1

    def counts(self, split: str | None, source: str | None, size: int) -> np.ndarray | None:
        """Return int64[size] counts by token of a split (None: all) and source (None: all), or None without any."""
        key = (split, source, size)
        if key in self._totals:
            return self._totals[key]
        chosen = [span for (own, name), span in self._spans.items() if split in (None, own) and source in (None, name)]
        if not chosen:
            return None
        total = np.zeros(size, dtype=np.int64)
        for rows in chosen:
            total += dense(self._tokens[rows], self._counts[rows], size)
        if source is None:  # few, and every shard reads them
            self._totals[key] = total
        return total

    def absence(self, split: str | None, source: str | None) -> str:
        """Return the code of why there are no counts of a split and source."""
        folded = any(split in (None, own) and source in (None, name) for own, name in self._sources)
        return FOLDED_THERE if folded else ABSENT
