"""Sum over shards, on workers: the partials of each split, and the rows of the table of shards.

A task reads the partials of some shards, adds the results of link steps, fills the columns of the shards' rows and
merges partials by split and stage. Further tasks merge these sums, a tree of them, until few are left for the driver.
Every merge is lossless, so it does not matter how shards are cut into tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np
import pyarrow as pa

from dataaudit.base.process import give_memory_back, release_arrow
from dataaudit.engine.collect import UNREAD, CollectedShard, CollectedShards, addresses, merge_parts
from dataaudit.engine.runner import (
    PARTIALS,
    ListedUnit,
    Outcome,
    Services,
    listed_partials,
    new_key,
    run_listed,
    take_results,
    write_list,
)
from dataaudit.engine.scan import as_outcome
from dataaudit.engine.store import Damage, Missing, PartialStore
from dataaudit.engine.store_columns import TableWriter
from dataaudit.engine.store_entries import Entry, stream_of
from dataaudit.manifest.metric import Scope, rounded
from dataaudit.manifest.tables import TABLES
from dataaudit.scan.cross_shard.step import LinkResult
from dataaudit.scan.stages.base import Accumulator, Comparing, Context, Stage, merge
from dataaudit.scan.stages.partial import Partial, Reference, empty, fold_table, group

SHARDS_PER_TASK = 64
"""Shards whose partials one unit of work sums: with more of them progress stands still for long."""
_SUMS_PER_TASK = 16
_LISTS, _SUMS, _SHARDS = "sums-of", "sums", "sums-shards"
_ROWS = "rows"
Merged = dict[str, dict[str, Partial]]


@dataclass(slots=True)
class Sums:
    """Rows of shards, and partials merged by split and stage."""

    stages: Mapping[str, Stage]
    rows: list[dict[str, Any]] = field(default_factory=list)
    accumulators: dict[tuple[str, str], Accumulator] = field(default_factory=dict)

    @classmethod
    def of(cls, stages: Iterable[Stage]) -> Sums:
        """Return sums of nothing."""
        return cls({stage.name: stage for stage in stages})

    def add(self, split: str, stage: str, partial: Partial) -> None:
        """Take a partial."""
        place = split, stage
        if place not in self.accumulators:
            self.accumulators[place] = Accumulator(self.stages[stage])
        self.accumulators[place].add(partial)

    def add_shard(self, row: Mapping[str, Any], partials: Mapping[str, Partial], setting: Setting) -> None:
        """Take a shard: its row, of which partials fill what is empty, and the partials."""
        filled = dict(row)
        for name, partial in partials.items():
            columns = stage_columns(self.stages[name], partial, row["split"], setting)
            filled |= {column: value for column, value in columns.items() if filled[column] is None}
            self.add(row["split"], name, partial)
        self.rows.append(filled)

    def add_stored(self, entry: Entry) -> None:
        """Take other sums, as they were stored, without their rows."""
        for number, (split, stage) in enumerate(entry.meta["groups"]):
            names = self.stages[stage].shapes()
            self.add(split, stage, {name: entry.tables[f"{number} {name}"] for name in names})

    def table(self) -> pa.Table:
        """Return the rows, of the schema of the table of shards."""
        return pa.Table.from_pylist(self.rows, schema=SHARDS)

    def merged(self) -> Merged:
        """Return what was merged, by split and stage."""
        by_split: Merged = {}
        for (split, stage), accumulator in sorted(self.accumulators.items()):
            by_split.setdefault(split, {})[stage] = accumulator.result()
        return by_split

    def write(self, store: PartialStore, key: str) -> None:
        """Store all of it."""
        places = sorted(self.accumulators)
        tables = {
            f"{number} {name}": table
            for number, place in enumerate(places)
            for name, table in self.accumulators[place].result().items()
        }
        if self.rows:
            store.write_rows(_SHARDS, key, stream_of(self.table()))
        store.write(_SUMS, key, {"groups": places}, tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumTask:
    """Sums shards, or sums of shards, on a worker."""

    state: Path
    stages: tuple[Stage, ...]
    setting: Setting
    kept: Mapping[str, pa.Array] = field(default_factory=dict)
    """Sources that are kept apart, by stage; the others are folded into `other`."""
    fewer: Mapping[str, pa.Array] = field(default_factory=dict)
    """Fewer of them, once what link steps found is added."""

    @as_outcome
    def __call__(self, unit: ListedUnit) -> Outcome:
        """Sum a unit and store the result."""
        sums, damage = Sums.of(self.stages), Missing()
        if unit.listed and (listed := damage.read(unit.listed)) is not None:
            self._sum_shards(listed, sums, damage)
        for address in unit.results:
            if (stored := damage.read(address)) is not None:
                sums.add_stored(stored)
        if damage.names:
            return Outcome(damaged=tuple(sorted(damage.names)))
        sums.write(PartialStore(self.state), unit.key)
        return Outcome()

    def _sum_shards(self, listed: Entry, sums: Sums, damage: Missing) -> None:
        parts = listed_partials(listed)
        extra = {name: _ByShard.of(table) for name, table in listed.tables.items() if name not in (_ROWS, PARTIALS)}
        for row in listed.tables[_ROWS].to_pylist():
            partials = {}
            for name, places in parts.get(row["shard"], {}).items():
                entries = [damage.read(place) for place in places]
                if not damage.names:
                    stage = sums.stages[name]
                    more = {
                        table: rows.drop_columns(["shard"])
                        for table in stage.shapes()
                        if f"{name} {table}" in extra
                        and (rows := extra[f"{name} {table}"].between(row["shard"], row["shard"])).num_rows
                    }
                    partials[name] = self._partial(stage, entries, more)
            if not damage.names:
                sums.add_shard(row, partials, self.setting)

    def _partial(self, stage: Stage, entries: Sequence[Entry | None], more: Mapping[str, pa.Table]) -> Partial:
        partial = _folded(stage, merge_parts(stage, entries), self.kept)
        if more:
            partial = merge(stage, [partial, _completed(stage, more, self.kept.get(stage.name))])
        return _folded(stage, partial, self.fewer)


@dataclass(frozen=True, slots=True)
class _ByShard:
    """Rows in order of their shards."""

    rows: pa.Table
    ordinals: np.ndarray

    @classmethod
    def of(cls, table: pa.Table) -> _ByShard:
        """Order them."""
        ordered = table.sort_by("shard")
        return cls(ordered, ordered["shard"].to_numpy())

    def between(self, first: int, last: int) -> pa.Table:
        """Return those of the shards from one to another, both included."""
        start, stop = np.searchsorted(self.ordinals, [first, last + 1]).tolist()
        return self.rows.slice(start, stop - start)


def _folded(stage: Stage, partial: Partial, kept: Mapping[str, pa.Array]) -> Partial:
    """Return a partial with the sources that are not kept folded into ``other``."""
    if stage.name not in kept:
        return partial
    shapes = stage.shapes()
    return {name: group(shapes[name], fold_table(table, kept[stage.name])) for name, table in partial.items()}


def _completed(stage: Stage, more: Mapping[str, pa.Table], kept: pa.Array | None) -> Partial:
    """Return the rows that link steps add, as a partial: columns that they do not know are 0."""
    shapes = stage.shapes()
    made = empty(shapes)
    for name, table in more.items():
        schema, rows = shapes[name].schema(), table
        zeros = pa.array(np.zeros(table.num_rows, dtype=np.int64))
        for missing in (column for column in schema.names if column not in table.column_names):
            rows = rows.append_column(missing, zeros)
        rows = rows if kept is None else fold_table(rows, kept)
        made |= {name: rows.select(schema.names).cast(schema)}
    return made


def run_sums(
    shards: CollectedShards,
    summing: SumTask,
    found: Mapping[str, LinkResult],
    services: Services,
) -> tuple[pa.Table, Merged]:
    """Sum all shards on the workers."""
    store = services.store
    extra = {
        f"{stage} {name}": _ByShard.of(table)
        for stage, link_result in found.items()
        for name, table in link_result.extra.items()
    }
    columns = [_ByShard.of(link_result.columns) for link_result in found.values() if link_result.columns is not None]
    names = {stage.name for stage in summing.stages}
    units = []
    starts = range(0, len(shards), SHARDS_PER_TASK)
    for start in services.progress.over("lists", starts, len(starts)):
        some = shards[start : start + SHARDS_PER_TASK]
        rows = {gathered_shard.ordinal: shard_row(gathered_shard) for gathered_shard in some}
        for more in columns:
            for row in more.between(some[0].ordinal, some[-1].ordinal).to_pylist():
                rows[row["shard"]] |= row
        tables = {
            _ROWS: pa.Table.from_pylist(list(rows.values()), schema=SHARDS),
            PARTIALS: addresses(
                shards.plan, [gathered_shard.place for gathered_shard in some if gathered_shard.partials], names, store
            ),
            **{name: table.between(some[0].ordinal, some[-1].ordinal) for name, table in extra.items()},
        }
        units.append(write_list(_LISTS, tables, store))
    firsts = keys = run_listed("sums", summing, units, _LISTS, services)
    while len(keys) > _SUMS_PER_TASK:
        groups = [keys[start : start + _SUMS_PER_TASK] for start in range(0, len(keys), _SUMS_PER_TASK)]
        units = [
            ListedUnit(key=new_key(), results=tuple(store.address(_SUMS, key) for key in group)) for group in groups
        ]
        merged = run_listed("sums", summing, units, _LISTS, services)
        for key in keys:
            store.remove(_SUMS, key)
        keys = merged
    give_memory_back()  # of lists
    sums, damage = Sums.of(summing.stages), Damage(store)
    for stored in take_results(_SUMS, keys, store):
        sums.add_stored(stored)
    whole, table = sums.merged(), TableWriter(store.root, SHARDS)
    for key in firsts:
        if (stored_rows := store.read_rows(_SHARDS, key)) is not None:
            table.append(pa.ipc.open_stream(stored_rows).read_all())
            store.remove(_SHARDS, key)
            del stored_rows
            release_arrow()
        else:
            damage.remove(_SHARDS, key)
    found = table.done()
    damage.tell()
    return found, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What stages get beside the documents."""

    reference: Reference | None = None
    """Token counts of the reference manifest."""
    vocab_size: int = 0
    protects: frozenset[str] = frozenset()
    """As of :class:`~dataaudit.scan.stages.base.Context`."""
    trains: bool = True
    folded: frozenset[str] = frozenset()
    """Stages in whose partials the source `other` stands for several."""

    def context(self, stage: Stage, split: str | None, mixture: Mapping[str, float] | None = None) -> Context:
        """Return the context of a stage in one split, or in all."""
        return Context(
            scope=Scope(split=split),
            mixture=mixture or {},
            reference=self.reference,
            vocab_size=self.vocab_size,
            folded=stage.name in self.folded,
            protects=self.protects,
            trains=self.trains,
        )


NOTHING_BESIDE = Setting()
SHARDS = TABLES["shards"].schema


def shard_row(shard: CollectedShard) -> dict[str, Any]:
    """Return the row of a shard in the table of shards; what stages fill is null."""
    planned, rows_digest = shard.planned, shard.rows_digest
    plan, probe = planned.shard, planned.probe
    streamed = plan.format == "datasets"
    row: dict[str, Any] = dict.fromkeys(SHARDS.names)
    row |= {
        "shard": plan.ordinal,
        "uri": plan.uri,
        "split": plan.split,
        "format": plan.format,
        "compression": plan.compression,
        "size": shard.size,
        "sha256": (rows_digest or "") if streamed else probe.sha256 if probe else "",
        "rows_digest": rows_digest,
        "schema_fingerprint": shard.fingerprint,
        "status": shard.status,
        "reason": str(shard.reason),
        "rows": shard.records,
        "bad_records": shard.bad_records,
    }
    if shard.status in UNREAD:
        row |= {"documents": 0, "bytes": 0, "tokens": 0, "sources": []}
    return row


def _compares(stage: Stage) -> TypeGuard[Comparing]:
    return _compare(type(stage))


@cache
def _compare(kind: type) -> bool:
    """Tell whether stages of a class compare shards: Python takes its time to find out, and is asked for each shard."""
    return issubclass(kind, Comparing)


def stage_columns(stage: Stage, partial: Partial, split: str, setting: Setting) -> dict[str, Any]:
    """Return the columns of the table of shards that a stage fills."""
    values: Mapping[str, Any] = {}
    if not _compares(stage):
        values = stage.shard_columns(partial)
    elif setting.reference is not None:
        values = stage.compare_shard(partial, setting.context(cast("Stage", stage), split))
    columns = {name: rounded(value) if isinstance(value, float) else value for name, value in values.items()}
    if stage.name == "volume":
        columns["sources"] = partial["volume"].drop_columns(["empty"]).to_pylist()
    return columns
