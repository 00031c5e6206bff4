"""Consistency checks: which numbers of a manifest follow from which columns of which tables.

The definition of a family declares them. A manifest whose digests all fit may still contradict itself; then one of its
tables was edited. What a whole corpus determines and no table has (percentiles of density, drift from a reference that
is not there, duplicates of a source) is declared nowhere. No record, and no value, counts as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.tables import HELD_BACK

COUNTS = ("documents", "bytes", "tokens")
LOST = ("quarantined", "skipped")
PAIRED = ("left_shard", "left_row", "right_shard", "right_row")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows; Arrow's expression is made when it is used, as Arrow imports pandas to make one."""

    make: Callable[[], pc.Expression]

    def __and__(self, other: Condition) -> Condition:
        """Return that both hold."""
        return Condition(lambda: self.make() & other.make())

    def __invert__(self) -> Condition:
        """Return that it does not hold."""
        return Condition(lambda: ~self.make())


@cache
def _made(condition: Condition | None) -> tuple[pc.Expression | None, str]:
    """Return Arrow's expression of a condition, and its text."""
    expression = None if condition is None else condition.make()
    return expression, str(expression)


IS_DOCUMENT = Condition(lambda: pc.field("entity") == "document")
"""Which rows of ``overlap`` are of held-out documents; others are of evaluation items."""
_FACTORS = {"bytes/token": 1.0, "ratio": 1.0, "hits per million tokens": 1e-6}
_DIGITS = 1e-11
"""Relative difference of two ways to compute a number that 12 digits are kept of."""
_COLUMNS = {
    "findings": ("detector", "class", "tier", "shard", "row", "reserved"),
    "overlap": ("set", "item", "part", "tier", "rule", "shard", "row", "score", "score_without_common"),
    "hotspot_members": ("hotspot", "shard", "row"),
    "pairs": ("verified", *PAIRED),
}
"""Columns that are read of large tables; all of another."""
_AS_SCOPE = {
    "findings": {"class": "entity"},
    "ledger": {"reason": "rule"},
    "planned": {"reason": "rule"},
    "overlap": {"part": "entity", "rule": "found_by"},
}
"""Columns that are named as the field of a scope that they are."""

Shape = tuple[str, ...]
"""Columns that numbers are counted by: fields of a scope, or a key of a table."""
Numbers = Mapping[tuple[Any, ...], float]
"""A number for each group: 0 for a group that is absent."""


class ManifestTables:
    """Tables of a manifest as quantities read them, each read once."""

    def __init__(self, manifest: Manifest) -> None:
        """Read nothing yet."""
        self.manifest = manifest
        self._made: dict[tuple[Any, ...], Any] = {}

    def once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return what is made of tables, the same for each check that asks for it by a key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def rows(self, name: str) -> pa.Table:
        """Return a table: ``planned`` are all shards, ``shards`` those that were read, ``shards.x`` items of a list.

        ``found`` are the hits and documents of each shard that patterns found, by entity and tier and, where these are
        empty, of all. Rows that name a shard have its ``split``, its ``status`` and whether it is ``held_out`` too.
        """
        rows: pa.Table = self.once(("table", name), lambda: self._read(name))
        return rows

    def _read(self, name: str) -> pa.Table:
        rows = self._raw(name)
        return rows.rename_columns([_AS_SCOPE.get(name, {}).get(n, n) for n in rows.column_names])

    def _raw(self, name: str) -> pa.Table:
        column = name.partition(".")[2]
        if column:
            lists = self.rows("shards")[column].combine_chunks()
            items = pa.Table.from_struct_array(pc.list_flatten(lists))
            return _with(items, self.rows("shards"), pc.list_parent_indices(lists), "shard", "split")
        if name == "found":
            return _by_kind(self.rows("findings").filter(pc.field("tier") != "judged"))
        if name == "shards":
            return self.rows("planned").filter(~pc.field("status").isin(LOST))
        if name == "planned":
            rows = self.manifest.table("shards")
            held_out = [split.name for split in self.manifest.core.splits if split.held_out]
            is_held_out = pc.is_in(rows["split"], pa.array(held_out, pa.string()))
            return rows.append_column("held_out", is_held_out).append_column("set", rows["split"])
        rows = self.manifest.table(name, _COLUMNS.get(name))
        if "shard" not in rows.column_names:
            return rows
        return _with(rows, self.rows("planned"), rows["shard"], "split", "status", "held_out")

    def records(self, metric: str, stat: str, shape: Shape, scope: Mapping[str, str]) -> MetricRows:
        """Return the records of a statistic whose scopes have the fields of a shape, and those of a scope."""
        own = self.once(("records", metric), lambda: self.manifest.metric_rows().where(metric=metric))
        key = (metric, stat, *scope.items())
        of_stat: MetricRows = self.once(("records", *key), lambda: own.where(stat=stat, **scope))
        shapes: np.ndarray = self.once(("shapes", *key), of_stat.shapes)
        return of_stat.take(shapes == MetricRows.shape_of((*shape, *scope)))


def _by_kind(findings: pa.Table) -> pa.Table:
    parts, keys = [], ["detector", "shard", "split", "reserved"]
    for empty in ([], ["tier"], ["entity"], ["entity", "tier"]):
        kinds = [name for name in ("entity", "tier") if name not in empty]
        part = findings.group_by([*keys, *kinds]).aggregate([("row", "count"), ("row", "count_distinct")])
        for name in empty:
            part = part.append_column(name, pa.repeat("", len(part)))
        parts.append(part.select([*keys, "entity", "tier", "row_count", "row_count_distinct"]))
    return pa.concat_tables(parts, promote_options="permissive").rename_columns(
        [*keys, "entity", "tier", "hits", "documents"]
    )


def _with(rows: pa.Table, shards: pa.Table, of: pa.Array | pa.ChunkedArray, *names: str) -> pa.Table:
    for name in names:
        rows = rows.append_column(name, shards[name].take(of))
    return rows


Quantity = Callable[[ManifestTables, Shape], Numbers]


@dataclass(frozen=True, slots=True)
class Number:
    """A number of each group of rows: how many there are, how many are different, or the sum of a column."""

    table: str
    column: str | Callable[[pa.Table], pa.ChunkedArray] = ""
    where: Condition | None = None
    distinct: Shape = ()
    """Columns whose different values are counted."""

    def __call__(self, tables: ManifestTables, shape: Shape) -> Numbers:
        """Return the numbers of groups that have rows."""
        condition, text = _made(self.where)
        where = ("rows", self.table, text)
        made: dict[Shape, Numbers] = tables.once(("numbers", *where, self.column, self.distinct), dict)
        if shape not in made:
            finer = None if self.distinct else next((own for own in made if {*shape} < {*own}), None)
            if finer is None:
                made[shape] = self._counted(tables.once(where, lambda: self._rows(tables, condition)), shape)
            else:
                made[shape] = _summed(made[finer], [finer.index(name) for name in shape])
        return made[shape]

    def _rows(self, tables: ManifestTables, condition: pc.Expression | None) -> pa.Table:
        rows = tables.rows(self.table)
        return rows if condition is None else rows.filter(condition)

    def _counted(self, rows: pa.Table, shape: Shape) -> Numbers:
        if self.distinct:
            rows = rows.group_by([*dict.fromkeys((*shape, *self.distinct))]).aggregate([])
        if isinstance(self.column, str):
            values = rows[self.column] if self.column else pa.chunked_array([np.ones(len(rows), np.int64)])
        else:
            values = self.column(rows)
        groups = rows.select([*shape]).append_column("number", values).group_by([*shape])
        summed = groups.aggregate([("number", "sum")])
        keys = zip(*(summed[name].to_pylist() for name in shape), strict=True) if shape else [()]
        return dict(zip(keys, (value or 0 for value in summed["number_sum"].to_pylist()), strict=False))


def _summed(numbers: Numbers, kept: Sequence[int]) -> Numbers:
    """Return numbers by some fields of their groups, by their places in a key."""
    sums: dict[tuple[Any, ...], float] = {} if kept else {(): 0}
    for key, number in numbers.items():
        own = tuple(key[index] for index in kept)
        sums[own] = sums.get(own, 0) + number
    return sums


def product(*names: str, scale: float = 1) -> Callable[[pa.Table], pa.ChunkedArray]:
    """Return what multiplies columns, such as a share with what it is of, to a whole number."""
    return lambda rows: pc.divide(pc.round(reduce(pc.multiply, (rows[name] for name in names), scale)), scale)


def total(left: Quantity, right: Quantity, sign: int = 1) -> Quantity:
    """Return the sum of two quantities, or the difference for a sign of -1."""

    def added(tables: ManifestTables, shape: Shape) -> Numbers:
        record, other = left(tables, shape), right(tables, shape)
        return {key: record.get(key, 0) + sign * other.get(key, 0) for key in {**record, **other}}

    return added


def quotient(left: Quantity, right: Quantity, scale: float = 1) -> Quantity:
    """Return a share; 0 of nothing is 0."""

    def divided(tables: ManifestTables, shape: Shape) -> Numbers:
        record, other = left(tables, shape), right(tables, shape)
        return {key: value / other[key] * scale for key, value in record.items() if other.get(key)}

    return divided


def given(quantity: Quantity, condition: Quantity, value: float = 0) -> Quantity:
    """Return a quantity where a condition is not 0, a value where it is."""

    def chosen(tables: ManifestTables, shape: Shape) -> Numbers:
        holds = condition(tables, shape)
        return {key: number if holds.get(key) else value for key, number in quantity(tables, shape).items()}

    return chosen


def unlimited(quantity: Quantity) -> Quantity:
    """Return that there is no limit where a quantity is not 0."""
    return lambda tables, shape: {key: math.inf for key, number in quantity(tables, shape).items() if number}


def recorded(metric: str, stat: str) -> Quantity:
    """Return the values of the records of a statistic."""

    def values(tables: ManifestTables, shape: Shape) -> Numbers:
        rows = tables.records(metric, stat, shape, {})
        return dict(zip(_keys(rows, shape), np.nan_to_num(rows.numbers("value")).tolist(), strict=True))

    return values


@dataclass(frozen=True, slots=True)
class Claim:
    """What stands in a manifest, and between which numbers it has to lie."""

    subject: str
    shape: Shape
    key: tuple[Any, ...]
    recorded: float
    """NaN where there is no record, or no value: it counts as 0."""
    least: float
    most: float
    scope: Mapping[str, str] = field(default_factory=dict)
    """Fields that all scopes of the check have, beside those of the shape."""
    more: str = ""
    """What is said behind the scope."""

    @property
    def what(self) -> str:
        """Return what is claimed about."""
        return f"{self.subject}{_of({**dict(zip(self.shape, self.key, strict=True)), **self.scope})}{self.more}"

    @property
    def text(self) -> str:
        """Return the contradiction in words; empty where there is none."""
        value = 0 if math.isnan(self.recorded) else self.recorded
        if self.least - _DIGITS * abs(self.least) <= value <= self.most + _DIGITS * abs(self.most):
            return ""
        edge = "" if self.least == self.most else " at least" if value < self.least else " at most"
        number = self.least if value < self.least else self.most
        return f"{self.what} is {_shown(self.recorded)}, its tables determine {_shown(number)}{edge}"


@dataclass(frozen=True, slots=True)
class Agrees:
    """Two quantities that are the same in every group."""

    what: str
    left: Quantity
    right: Quantity
    shapes: str = "all, split"
    most_when: Callable[[Manifest], bool] = lambda _: True
    """Whether the left may not be larger."""

    def claims(self, tables: ManifestTables) -> Iterator[Claim]:
        """Yield what has to hold."""
        is_closed = self.most_when(tables.manifest)
        for shape in shapes_of(self.shapes):
            left, right = self.left(tables, shape), self.right(tables, shape)
            for key in {**left, **right}:
                least = right.get(key, 0)
                yield Claim(self.what, shape, key, left.get(key, 0), least, least if is_closed else math.inf)


@dataclass(frozen=True, slots=True)
class Follows:
    """A statistic that follows from tables, in each scope of some shapes; its unit says what it is of the quantity."""

    metric: str
    stat: str
    value: Quantity | None = None
    """What it counts: the numerator of a share. None where bounds alone are known."""
    of: Quantity | None = None
    """What it is a share of, or is counted among."""
    shapes: str = "all, split"
    least: Quantity | None = None
    """The least that it counts, where that is another number than the value."""
    most: Quantity | None = None
    """The most that it counts, where that is another number than the value."""
    scope: Mapping[str, str] = field(default_factory=dict)
    """Fields that all of its scopes have, beside those of the shapes."""
    drops: frozenset[str] = frozenset({"entity", "rule"})
    """Fields that the denominator does not depend on."""
    adds_up: bool = True
    """Whether the numbers of all sources add up to it."""
    when: Callable[[Manifest], bool] = lambda _: True
    """Whether it follows at all."""
    most_when: Callable[[Manifest], bool] = lambda _: True
    """Whether the most is known."""

    def claims(self, tables: ManifestTables) -> Iterator[Claim]:
        """Yield what has to hold."""
        shapes = shapes_of(self.shapes) if self.when(tables.manifest) else []
        finest_first = [[*self._of_shape(tables, shape)] for shape in reversed(shapes)]
        for shape, claims in zip(shapes, reversed(finest_first), strict=True):
            yield from claims
            if self.value is not None and self.adds_up and "source" not in shape:
                yield from self._of_sources(tables, shape)

    def _of_shape(self, tables: ManifestTables, shape: Shape) -> Iterator[Claim]:
        rows = tables.records(self.metric, self.stat, shape, self.scope)
        values, denominators, shares = rows.numbers("value"), rows.numbers("denominator"), factors(rows)
        columns = (values.tolist(), denominators.tolist(), shares.tolist())
        records = dict(zip(_keys(rows, shape), zip(*columns, strict=True), strict=True))
        below, above = self.least or self.value, self.most or self.value
        above = above if self.most_when(tables.manifest) else None
        least, most = (quantity(tables, shape) if quantity else None for quantity in (below, above))
        kept = tuple(name for name in shape if name not in self.drops)
        indexes = [shape.index(name) for name in kept]
        whole = None if self.of is None else self.of(tables, kept)
        name = f"{self.metric}.{self.stat}"
        for key in dict.fromkeys((*(least or ()), *(most or ()), *records)):
            value, denominator, share = records.get(key, (math.nan, 0.0, 0.0))
            edges = (0 if least is None else least.get(key, 0), math.inf if most is None else most.get(key, 0))
            if self.value is None:
                number = np.rint(value * denominator * share) if share else value
                yield Claim(name, shape, key, number, *edges, self.scope)
                continue
            among = None if whole is None else whole.get(tuple(key[index] for index in indexes), 0)
            if share and among is not None:
                edges = (edges[0] / among / share, edges[1] / among / share) if among else (0, 0)
            yield Claim(name, shape, key, value, *edges, self.scope)
            if among and not math.isnan(value):
                yield Claim(f"the denominator of {name}", shape, key, denominator, among, among, self.scope)

    def _of_sources(self, tables: ManifestTables, shape: Shape) -> Iterator[Claim]:
        """Yield that sources add up to what they are sources of, where there are records of sources."""
        sums: dict[tuple[Any, ...], float] = {}
        rows = tables.records(self.metric, self.stat, (*shape, "source"), self.scope)
        for key, value in zip(_keys(rows, shape), numerators(rows), strict=True):
            sums[key] = sums.get(key, 0) + value
        rows = tables.records(self.metric, self.stat, shape, self.scope) if sums else rows.take(slice(0))
        for key, value in zip(_keys(rows, shape), numerators(rows), strict=True):
            if key in sums:
                about = f"what {self.metric}.{self.stat}", shape, key
                yield Claim(*about, sums[key], value, value, self.scope, " counts of its sources")


def of_shard(column: str, right: Quantity, **more: Any) -> Agrees:
    """Return that a column of ``shards`` is what a quantity is of each shard."""
    return Agrees(f"shards: {column}", Number("shards", column), right, "shard", **more)


def keeps(kind: str) -> tuple[Agrees, Agrees]:
    """Return that every cluster keeps exactly one document."""
    groups, kept = Condition(lambda: pc.field("kind") == kind), Condition(lambda: pc.field("kept"))
    clusters = Number("clusters", "", groups, ("cluster",))
    return (
        Agrees("documents that clusters keep and clusters", Number("clusters", "", groups & kept), clusters, "all"),
        Agrees("clusters that keep a document", Number("clusters", "", groups & kept, ("cluster",)), clusters, "all"),
    )


Check = Follows | Agrees


def factors(rows: MetricRows) -> np.ndarray:
    """float64[n]: what a value times its denominator is multiplied by, to be what is counted; 0 for counts."""
    units = rows.column("unit")
    by_unit = np.array([_FACTORS.get(unit, 0.0) for unit in (*units.values.to_pylist(), "")])
    return np.asarray(by_unit[units.codes])


def numerators(rows: MetricRows) -> list[float]:
    """Return what records count, also where it is shown as a share."""
    shares = factors(rows)
    whole = np.where(shares > 0, rows.numbers("denominator") * shares, 1)
    counts: list[float] = np.rint(np.nan_to_num(rows.numbers("value")) * whole).tolist()
    return counts


def shapes_of(words: str) -> list[Shape]:
    """Return the fields of each of ``all, split, split and source``."""
    return [() if word == "all" else tuple(word.split(" and ")) for word in words.split(", ")]


def held_back(row: Mapping[str, Any]) -> dict[str, int]:
    """Return how many shards, 0 or 1, and documents of a row of ``shards`` the list of the build held back."""
    if row["status"] in LOST:
        return {"shards": int(row["reason"] == HELD_BACK), "documents": 0}
    return {"shards": 0, "documents": row["rows"] - row["documents"] - row["bad_records"]}


def _keys(rows: MetricRows, shape: Shape) -> list[tuple[Any, ...]]:
    columns = [rows.column(f"scope.{name}").listed() for name in shape]
    return [*zip(*columns, strict=True)] if columns else [()] * len(rows)


def _of(scope: Mapping[str, Any]) -> str:
    names = [name for name in (*Scope.__slots__, *scope) if name in scope]
    return f" of {', '.join(f'{name} {scope[name]}' for name in dict.fromkeys(names))}" if scope else ""


def _shown(value: float) -> str:
    return "absent" if math.isnan(value) else f"{value:.12g}"
