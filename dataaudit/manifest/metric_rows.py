"""Metric records in columns: millions of them take tens of bytes each, and become objects when somebody asks for them.

A corpus of 15,000 sources has three million records, which differ in few words and numbers. So a column is its distinct
values and, for each row, the code of its value; a struct (the scope) has a column for each field. Order, digest and
filters work on the codes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby
from math import isnan
from typing import Any, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.canonical import digest_columns, flat_columns, one_chunk, plain_floats
from dataaudit.manifest.metric import Metric, Scope, rounded
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.value_checks import check_column, check_records

SPEC = TABLES["metrics"]
_SCOPE = "scope."
LEAVES: dict[str, pa.DataType] = {
    name: kind
    for field in SPEC.schema
    for name, kind in (
        {f"{field.name}.{item.name}": item.type for item in field.type}
        if pa.types.is_struct(field.type)
        else {field.name: field.type}
    ).items()
}
"""Types of all columns, fields of the scope among them, by dotted name."""
TEXTS = [name for name, kind in LEAVES.items() if pa.types.is_string(kind) and not name.startswith(_SCOPE)]
"""Columns that Arrow can read as dictionaries; not those in a struct, which may come in several pieces."""
_OF_SCOPE = [f"{_SCOPE}{name}" for name in Scope.__slots__]
_OF_RECORD = [name for name in LEAVES if name not in _OF_SCOPE]
_FLOATS = frozenset(name for name, kind in LEAVES.items() if pa.types.is_floating(kind))
_BLOCK = 1 << 12
"""Rows that become objects together."""
_PART = 1 << 18
"""Rows that are checked together."""
_FEW = 128
"""Values that Python encodes as fast as Arrow."""
_HANDFUL = 32
"""Values that Python reads one by one as fast as Arrow."""
Given: TypeAlias = Any  # pyarrow has no types: str | int | float | np.ndarray | pa.Array | None
"""The value of a column for all rows, or a value for each row."""


@dataclass(frozen=True, slots=True)
class Column:
    """One value for each row."""

    codes: np.ndarray
    """int8, int16 or int32[n] index of each row's value, -1 for null."""
    values: pa.Array
    """The distinct values, ascending; strings by bytes."""

    @classmethod
    def of(cls, array: pa.Array) -> Column:
        """Encode an array; it may be a dictionary."""
        if len(array) <= _FEW and not pa.types.is_dictionary(array.type):
            return cls.of_few(array.to_pylist(), array.type)
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        ranks = np.full(len(order) + 1, -1, _narrow(len(order)))
        ranks[order] = np.arange(len(order))
        return cls(ranks[codes], encoded.dictionary.take(pa.array(order)))

    @classmethod
    def of_few(cls, given: Sequence[Any], kind: pa.DataType) -> Column:
        """Encode a few values, some None, without Arrow, whose calls would take longer."""
        values = sorted({value for value in given if value is not None})
        codes = {value: code for code, value in enumerate(values)} | {None: -1}
        return cls(np.array([codes[value] for value in given], _narrow(len(values))), pa.array(values, kind))

    @classmethod
    def joined(cls, columns: Sequence[Column]) -> Column:
        """Return columns one after another."""
        distinct = {id(column.values): column.values for column in columns}
        if len(distinct) == 1:
            return cls(np.concatenate([column.codes for column in columns]), columns[0].values)
        whole = cls.of(pa.concat_arrays(list(distinct.values())))
        ends = np.cumsum([len(values) for values in distinct.values()])
        none = whole.codes.dtype.type(-1)
        recoded = {
            key: np.append(codes, none) for key, codes in zip(distinct, np.split(whole.codes, ends[:-1]), strict=True)
        }
        return cls(np.concatenate([recoded[id(column.values)][column.codes] for column in columns]), whole.values)

    def take(self, rows: np.ndarray | slice) -> Column:
        """Return the values of some rows."""
        return Column(self.codes[rows], self.values)

    def encoded(self) -> pa.DictionaryArray:
        """Return the column as Arrow's dictionary, without a copy of the codes."""
        known = np.packbits(self.codes >= 0, bitorder="little")
        kind = pa.from_numpy_dtype(self.codes.dtype)
        buffers = [pa.py_buffer(known), pa.py_buffer(np.ascontiguousarray(self.codes))]
        return pa.DictionaryArray.from_arrays(pa.Array.from_buffers(kind, len(self.codes), buffers), self.values)

    def plain(self) -> pa.Array:
        """Return the values row by row."""
        return self.encoded().dictionary_decode()

    def listed(self) -> list[Any]:
        """Return the values row by row, as Python's."""
        if len(self.codes) <= _HANDFUL:
            return [None if code < 0 else self.values[code].as_py() for code in self.codes.tolist()]
        values: list[Any] = self.plain().to_pylist()
        return values

    def code(self, value: str | int | None) -> int:
        """Return the code of a value: -1 of None, -2 of a value that no row has."""
        if value is None:
            return -1
        index = pc.index(self.values, pa.scalar(value, self.values.type)).as_py()
        return -2 if index < 0 else int(index)


class MetricRows(Sequence[Metric]):
    """Metric records in columns.

    Args:
        columns: By the names of :data:`LEAVES`, all of the same length.
        parts: In place of columns: rows one after another, which are joined when they are first asked for.
    """

    __slots__ = ("_joined", "_size", "parts")

    def __init__(self, columns: Mapping[str, Column], *, parts: Sequence[MetricRows] = ()) -> None:
        self._joined = dict(columns)
        self.parts = parts
        """Rows that are not joined yet."""
        self._size = sum(map(len, parts)) if parts else len(self._joined["metric"].codes)

    @classmethod
    def of(cls, records: Iterable[Metric]) -> MetricRows:
        """Return the rows of records, in their order."""
        if isinstance(records, MetricRows):
            return records
        rows = list(records)

        def values(name: str) -> list[Any]:
            if name.startswith(_SCOPE):
                return [getattr(record.scope, name.removeprefix(_SCOPE)) for record in rows]
            return [getattr(record, name) for record in rows]

        return cls({name: Column.of(pa.array(values(name), kind)) for name, kind in LEAVES.items()})

    @classmethod
    def of_batches(cls, batches: Iterable[pa.RecordBatch]) -> MetricRows:
        """Return the rows of batches of the table of metrics; strings may be dictionaries in them."""
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        return cls.joined([cls({name: Column.of(leaf) for name, leaf in flat_columns(table)}) for table in tables])

    @classmethod
    def joined(cls, parts: Iterable[Iterable[Metric]]) -> MetricRows:
        """Return records one after another."""
        runs = [(kind, list(run)) for kind, run in groupby(parts, lambda part: isinstance(part, MetricRows))]
        rows = [cls.of(part) for kind, run in runs for part in (run if kind else [chain.from_iterable(run)])]
        if len(rows) < 2:
            return rows[0] if rows else cls.of([])
        return cls({}, parts=[part for item in rows for part in item.parts or [item]])

    @property
    def _columns(self) -> dict[str, Column]:
        if parts := self.parts:  # of two threads that are here at once, each makes all
            self._joined = {name: Column.joined([part.column(name) for part in parts]) for name in LEAVES}
            self.parts = ()
        return self._joined

    def column(self, name: str) -> Column:
        """Return a column by its dotted name."""
        return self._columns[name]

    def __len__(self) -> int:
        """Return the number of records."""
        return self._size

    @overload
    def __getitem__(self, index: int) -> Metric: ...
    @overload
    def __getitem__(self, index: slice) -> MetricRows: ...
    def __getitem__(self, index: int | slice) -> Metric | MetricRows:
        """Return a record, or rows."""
        if isinstance(index, slice):
            return self.take(index)
        row = range(self._size)[index]
        return next(iter(self.take(slice(row, row + 1))))

    def __iter__(self) -> Iterator[Metric]:
        """Make one record after another."""
        for start in range(0, self._size, _BLOCK):
            rows = self.take(slice(start, start + _BLOCK))
            scopes, records = (
                zip(*(rows.column(name).listed() for name in names), strict=True) for names in (_OF_SCOPE, _OF_RECORD)
            )
            for scope, record in zip(scopes, records, strict=True):
                named = dict(zip(Scope.__slots__, scope, strict=True))
                yield Metric(scope=Scope(**named), **dict(zip(_OF_RECORD, record, strict=True)))

    def take(self, rows: np.ndarray | slice) -> MetricRows:
        """Return some rows: a slice, their numbers, or bool[n]."""
        if isinstance(rows, np.ndarray) and rows.dtype == bool:
            rows = np.flatnonzero(rows)
        return MetricRows({name: column.take(rows) for name, column in self._columns.items()})

    def where(self, **values: str | int | None) -> MetricRows:
        """Return the rows with these values, by names of columns or of fields of the scope; None is no value."""
        chosen = np.ones(self._size, dtype=bool)
        for name, value in values.items():
            column = self._columns[name if name in LEAVES else f"{_SCOPE}{name}"]
            chosen &= column.codes == column.code(value)
        return self.take(chosen)

    def shaped(self, *fields: str) -> MetricRows:
        """Return the rows whose scope has these fields and no other."""
        return self.take(self.shapes() == self.shape_of(fields))

    def shapes(self) -> np.ndarray:
        """Return int64[n]: which fields the scope of each row has, as :meth:`shape_of` writes them."""
        shapes = np.zeros(self._size, np.int64)
        for bit, name in enumerate(Scope.__slots__):
            shapes |= self.given(name).astype(np.int64) << bit
        return shapes

    @staticmethod
    def shape_of(fields: Collection[str]) -> int:
        """Return a bit for each field of a scope that is among some."""
        return sum(1 << bit for bit, name in enumerate(Scope.__slots__) if name in fields)

    def of_sources(self, names: Sequence[str]) -> MetricRows:
        """Return the rows of some sources."""
        return self.take(self.among(f"{_SCOPE}source", names))

    def without(self, name: str) -> MetricRows:
        """Return the rows with a field of the scope left out."""
        column = self._columns[f"{_SCOPE}{name}"]
        return MetricRows({**self._columns, f"{_SCOPE}{name}": Column(np.full_like(column.codes, -1), column.values)})

    def among(self, name: str, values: Sequence[str]) -> np.ndarray:
        """Return bool[n]: whether a column of strings has a value among some."""
        column = self._columns[name]
        known = pc.is_in(column.values, pa.array(values, pa.string())).to_numpy(zero_copy_only=False)
        return np.asarray(np.append(known, False)[column.codes])

    def given(self, name: str) -> np.ndarray:
        """Return bool[n]: whether a field of the scope is given."""
        return np.asarray(self._columns[f"{_SCOPE}{name}"].codes >= 0)

    def numbers(self, name: str) -> np.ndarray:
        """Return float64[n], a column of numbers, NaN for null."""
        column = self._columns[name]
        return np.asarray(np.append(column.values.to_numpy().astype(np.float64), np.nan)[column.codes])

    def positive(self) -> MetricRows:
        """Return the rows with a value above 0."""
        column = self._columns["value"]
        above = pc.greater(column.values, 0.0).to_numpy(zero_copy_only=False)
        return self.take(np.append(above, False)[column.codes])

    def names(self, name: str) -> list[str]:
        """Return the values that occur in a column, ascending."""
        column = self._columns[name]
        present = np.unique(column.codes[column.codes >= 0])
        names: list[str] = column.values.take(pa.array(present)).to_pylist()
        return names

    def ordered(self) -> MetricRows:
        """Return the rows in canonical order."""
        keys = self.keys()
        order = np.argsort(keys, kind="stable")
        ranked = keys[order]
        if (same := np.flatnonzero(ranked[1:] == ranked[:-1])).size:
            record = self[int(order[same[0]])]
            raise ValueError(f"two records for {(record.metric, record.stat, record.scope)}")
        return self.take(order)

    def is_ordered(self) -> bool:
        """Return whether the rows are in canonical order."""
        steps = np.diff(self.keys())
        if (steps < 0).any():
            return False
        if twice := int((steps == 0).sum()):
            raise ValueError(f"{twice} rows have the same ({', '.join(SPEC.key)}) as another")
        return True

    def keys(self) -> np.ndarray:
        """Return int64[n], numbers that rise with the key of the rows, nulls last."""
        keys, size = np.zeros(self._size, dtype=np.int64), 1
        for name in SPEC.key:
            column = self._columns[name]
            radix = len(column.values) + 1
            if size * radix >= 2**62:  # numbers of the keys so far, without gaps
                known, keys = np.unique(keys, return_inverse=True)
                size = len(known)
            ranks = np.where(column.codes < 0, radix - 1, column.codes)
            keys, size = keys * radix + ranks, size * radix
        return keys

    def table(self) -> pa.Table:
        """Return the table of metrics with every column as a dictionary, without a copy."""
        whole = {name: column.encoded() for name, column in self._columns.items()}
        columns = []
        for field in SPEC.schema:
            array = whole.get(field.name)
            if array is None:
                children = [whole[f"{field.name}.{child.name}"] for child in field.type]
                array = pa.StructArray.from_arrays(children, names=[child.name for child in field.type])
            columns.append(array)
        return pa.table(columns, names=SPEC.schema.names)

    def plain(self) -> pa.Table:
        """Return the table of metrics, some 200 bytes a row."""
        return self.table().cast(SPEC.schema).combine_chunks()

    def digest(self) -> str:
        """Return the digest of the table, of rows in canonical order."""
        return digest_columns(SPEC.schema, self._size, self.table().column)

    def checked(self, num_shards: int) -> MetricRows:
        """Check all values; return the rows with the same bits for every zero."""
        columns = dict(self._columns)
        for name, column in columns.items():
            field, values = pa.field(name, column.values.type), pa.chunked_array([column.values])
            check_column(SPEC.name, field, values, num_shards)
            columns[name] = Column(column.codes, one_chunk(plain_floats(values, field)))
        rows = MetricRows(columns)
        names = ("status", "method", "reason", "value", "low", "high", "confidence")
        for start in range(0, self._size, _PART):
            part = rows.take(slice(start, start + _PART))
            check_records(pa.table({name: part.column(name).plain() for name in names}))
        return rows


def metrics_table(records: Iterable[Metric]) -> pa.Table:
    """Return the table of metrics of some records, in their order."""
    rows = MetricRows.of(records)
    rows.ordered()
    return rows.plain()


def metric_rows(
    metric: str,
    stat: str,
    *,
    scope: Scope,
    within: Mapping[str, pa.Array],
    unit: str,
    value: np.ndarray,
    known: np.ndarray,
    n: np.ndarray,
    denominator: np.ndarray,
    version: str,
    **more: Given,
) -> MetricRows:
    """Return a record of a statistic for each of n groups; those without a value are not evaluated."""
    size = len(value)
    given: dict[str, Given] = {"metric": metric, "stat": stat, "unit": unit, "version": version, "method": "exact"}
    given |= {f"{_SCOPE}{name}": getattr(scope, name) for name in Scope.__slots__}
    given |= {f"{_SCOPE}{name}": array for name, array in within.items()}
    given |= {"n": n, "denominator": denominator, "low": None, "high": None, "confidence": None, **more}
    given |= {"value": np.where(known, value, np.nan)}
    if not np.isfinite(value[known]).all():
        raise ValueError(f"{metric}.{stat}: a metric value must be finite")
    given.setdefault("reason", "")
    if known.all():
        given["status"] = "ok"
    else:
        given["status"] = _either(known, "ok", "not_evaluated")
        given["reason"] = _either(known, given["reason"], "empty_denominator")
    return MetricRows({name: _column(name, given[name], size) for name in LEAVES})


def ratio_rows(metric: str, stat: str, numerators: np.ndarray, denominators: np.ndarray, **more: Given) -> MetricRows:
    """Return exact ratios of int64[n] and int64[n]; ``more`` are scope, within, unit and version."""
    known = denominators != 0
    value = numerators / np.where(known, denominators, 1)
    return metric_rows(metric, stat, value=value, known=known, n=denominators, denominator=denominators, **more)


def count_rows(metric: str, stat: str, values: np.ndarray, n: np.ndarray, **more: Given) -> MetricRows:
    """Return exact counts, int64[n] among int64[n]; ``more`` as of :func:`ratio_rows`."""
    known = np.ones(len(values), dtype=bool)
    return metric_rows(metric, stat, value=values.astype(np.float64), known=known, n=n, denominator=n, **more)


def _either(chosen: np.ndarray, name: str, other: str) -> pa.Array:
    return pc.if_else(pa.array(chosen), name, other)


def _column(name: str, given: Given, size: int) -> Column:
    """Return a column of a value for all rows, or of a value for each; numbers are rounded, NaN is null."""
    kind = LEAVES[name]
    if isinstance(given, pa.Array):
        return Column.of(given)
    if given is None or isinstance(given, (str, float, int)):
        return Column(np.full(size, -1 if given is None else 0, np.int8), _constant(given, name))
    if size <= _FEW:
        few = given.tolist()
        return Column.of_few([None if isnan(item) else rounded(item) for item in few] if name in _FLOATS else few, kind)
    values, codes = np.unique(given, return_inverse=True)  # NaN, if any, comes last
    if name in _FLOATS:
        known = [rounded(value) for value in values[~np.isnan(values)]]
        values, recoded = np.unique(np.array(known), return_inverse=True)
        codes = np.where(np.isnan(given), -1, np.append(recoded, -1)[codes])
    return Column(codes.astype(_narrow(len(values))), pa.array(values, kind))


@cache
def _constant(value: str | float | None, name: str) -> pa.Array:
    """Return the values of a column with a single value, the same array each time: joining columns relies on it."""
    return pa.array([] if value is None else [value], LEAVES[name])


def _narrow(size: int) -> type[np.signedinteger[Any]]:
    """Return the smallest type for codes of so many values."""
    return np.int8 if size < 1 << 7 else np.int16 if size < 1 << 15 else np.int32
