"""Sums over shards: what each stage found in a split, and the rows of the table of shards, made where the workers are.

A task takes some shards: it reads their partials, adds what the link steps found, fills the columns of their rows and
merges the partials by split and stage. Further tasks merge the results of tasks, a tree of them, until few are left for
the driver. Every merge is lossless, so how the shards are cut into tasks changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.engine.gather import GatheredShards
from dataaudit.engine.linking import result_columns
from dataaudit.engine.listed import ListedUnit, addresses, run_listed
from dataaudit.engine.partials import Damage, Missing, fold_partial, merge_parts
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import Entry, PartialStore, entry_of, read_at
from dataaudit.engine.tables import SHARDS, Setting, shard_row, stage_columns
from dataaudit.engine.units import Outcome
from dataaudit.engine.work import as_value
from dataaudit.lean import give_memory_back, release_arrow
from dataaudit.link.step import LinkResult
from dataaudit.manifest.canonical import digest_json
from dataaudit.stages.base import Accumulator, Stage, merge
from dataaudit.stages.partial import Partial, empty, fold_table

SHARDS_PER_TASK = 256
"""Shards whose partials one unit of work sums."""
_SUMS_PER_TASK = 16
_LISTS, _SUMS = "sums-of", "sums"
_ROWS, _PARTIALS = "rows", "partials"

Merged = dict[str, dict[str, Partial]]
"""Partials by split and stage."""


@dataclass(slots=True)
class Sums:
    """Rows of shards, and partials merged by split and stage."""

    stages: Mapping[str, Stage]
    rows: list[dict[str, Any]] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    """Rows that were sums before."""
    held: dict[tuple[str, str], Accumulator] = field(default_factory=dict)

    @classmethod
    def of(cls, stages: Iterable[Stage]) -> Sums:
        """Return sums of nothing."""
        return cls({stage.name: stage for stage in stages})

    def add(self, split: str, stage: str, partial: Partial) -> None:
        """Take one more partial."""
        place = split, stage
        if place not in self.held:
            self.held[place] = Accumulator(self.stages[stage])
        self.held[place].add(partial)

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
        for number, (split, stage) in enumerate(entry.meta["held"]):
            names = self.stages[stage].shapes()
            self.add(split, stage, {name: entry.tables[f"{number} {name}"] for name in names})

    def add_rows(self, stored: pa.Buffer) -> None:
        """Take the rows of other sums, as they were stored; they are copied, so what was read is not held."""
        table = pa.ipc.open_stream(stored).read_all()
        self.tables.append(pa.table([_one_array(column.chunks, column.type) for column in table.columns], SHARDS))

    def table(self) -> pa.Table:
        """Return the rows by ordinal, of the schema of the table of shards; they are held no longer."""
        pieces = [table for table in (pa.Table.from_pylist(self.rows, schema=SHARDS), *self.tables) if table.num_rows]
        pieces.sort(key=lambda table: table["shard"][0].as_py())
        self.rows, self.tables, columns = [], [], []
        for column in SHARDS:  # one column at a time is held twice
            columns.append(
                _one_array([one for piece in pieces for one in piece.column(column.name).chunks], column.type)
            )
            pieces = [piece.drop_columns([column.name]) for piece in pieces]
            release_arrow()
        table = pa.table(columns, schema=SHARDS)
        in_order = bool((np.diff(table["shard"].to_numpy()) > 0).all())
        return table if in_order else table.sort_by("shard")  # which would copy all of it

    def merged(self) -> Merged:
        """Return what was merged, by split and stage."""
        found: Merged = {}
        for (split, stage), held in sorted(self.held.items()):
            found.setdefault(split, {})[stage] = held.result()
        return found

    def write(self, store: PartialStore, key: str) -> None:
        """Store all of it.

        Raises:
            StateFolderError: The folder cannot be written.
        """
        places = sorted(self.held)
        tables = {
            f"{number} {name}": table
            for number, place in enumerate(places)
            for name, table in self.held[place].result().items()
        }
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SHARDS) as writer:
            writer.write_table(self.table())
        store.write_rows(_SUMS, key, sink.getvalue().to_pybytes(), _ROWS)
        store.write(_SUMS, key, {"held": places}, tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summing:
    """Sums shards, or sums of shards, on a worker."""

    state: Path
    stages: tuple[Stage, ...]
    setting: Setting
    kept: Mapping[str, pa.Array] = field(default_factory=dict)
    """Sources that are kept apart, by stage; the others are folded into `other`."""
    fewer: Mapping[str, pa.Array] = field(default_factory=dict)
    """Fewer of them, once what link steps found is added."""

    def __call__(self, unit: ListedUnit) -> Outcome:
        """Sum one unit and store the result."""
        return as_value(lambda: self._sum(unit))

    def _sum(self, unit: ListedUnit) -> Outcome:
        sums, damage = Sums.of(self.stages), Missing()
        if unit.listed and (listed := damage.read(unit.listed)) is not None:
            self._sum_shards(listed, sums, damage)
        for address in unit.results:
            stored, rows = damage.read(address), read_at(f"{address}.{_ROWS}")
            if stored is None or rows is None:
                damage.names.add(entry_of(address))
                continue
            sums.add_stored(stored)
            sums.add_rows(rows)
        if damage.names:
            return Outcome(damaged=tuple(sorted(damage.names)))
        sums.write(PartialStore(self.state), unit.key)
        return Outcome()

    def _sum_shards(self, listed: Entry, sums: Sums, damage: Missing) -> None:
        parts: dict[int, dict[str, list[str]]] = {}
        for row in listed.tables[_PARTIALS].to_pylist():
            parts.setdefault(row["shard"], {}).setdefault(row["stage"], []).append(os.fsdecode(row["address"]))
        extra = {name: _by_shard(table) for name, table in listed.tables.items() if name not in (_ROWS, _PARTIALS)}
        for row in listed.tables[_ROWS].to_pylist():
            partials = {}
            for name, places in parts.get(row["shard"], {}).items():
                entries = [damage.read(place) for place in places]
                if not damage.names:
                    stage = sums.stages[name]
                    more = {
                        table: rows
                        for table in stage.shapes()
                        if (rows := extra.get(f"{name} {table}", _no_rows)(row["shard"])) is not None
                    }
                    partials[name] = self._partial(stage, entries, more)
            if not damage.names:
                sums.add_shard(row, partials, self.setting)

    def _partial(self, stage: Stage, entries: Sequence[Entry | None], more: Mapping[str, pa.Table]) -> Partial:
        partial = _folded(stage, merge_parts(stage, entries), self.kept)
        if more:
            partial = merge(stage, [partial, _completed(stage, more, self.kept.get(stage.name))])
        return _folded(stage, partial, self.fewer)


def _one_array(chunks: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return a copy of chunks, which keeps nothing of what they lie in."""
    return pa.concat_arrays([pa.array([], kind), *chunks])


def _by_shard(table: pa.Table) -> Callable[[int], pa.Table | None]:
    """Return what gives the rows of a shard, without its ordinal; None where there are none."""
    ordered = table.sort_by("shard")
    ordinals, rows = ordered["shard"].to_numpy(), ordered.drop_columns(["shard"])

    def of(ordinal: int) -> pa.Table | None:
        start, stop = np.searchsorted(ordinals, [ordinal, ordinal + 1]).tolist()
        return rows.slice(start, stop - start) if start < stop else None

    return of


def _no_rows(_: int) -> None:
    return None


def _folded(stage: Stage, partial: Partial, kept: Mapping[str, pa.Array]) -> Partial:
    return fold_partial(stage, partial, kept[stage.name]) if stage.name in kept else partial


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
    shards: GatheredShards,
    summing: Summing,
    found: Mapping[str, LinkResult],
    store: PartialStore,
    runner: Runner,
    progress: Progress,
) -> tuple[pa.Table, Merged]:
    """Sum all shards on the workers.

    Args:
        shards: What is known of each.
        summing: How.
        found: What link steps found, by stage.
        store: Where partials are and sums go.
        runner: Where to run.
        progress: Where to report.

    Returns:
        The table of shards, and the merged partials by split and stage.

    Raises:
        ClusterError: The work cannot be done on these workers.
        DamagedEntryError: Partials are absent or damaged.
    """
    extra = {f"{stage} {name}": table for stage, one in found.items() for name, table in one.extra.items()}
    columns = result_columns(found)
    names = {stage.name for stage in summing.stages}
    units = []
    starts = range(0, len(shards), SHARDS_PER_TASK)
    for start in progress.over("lists", starts, len(starts)):
        some = shards[start : start + SHARDS_PER_TASK]
        key = _digest([str(start), *(keys.reading for shard in some for keys in shard.plan.keys(shard.place))])
        rows = [shard_row(one) | dict(columns.get(one.ordinal, {})) for one in some]
        ordinals = pa.array([one.ordinal for one in some], pa.int32())
        tables = {
            _ROWS: pa.Table.from_pylist(rows, schema=SHARDS),
            _PARTIALS: addresses(shards.plan, [one.place for one in some if one.partials], names, store),
            **{name: table.filter(pc.is_in(table["shard"], ordinals)) for name, table in extra.items()},
        }
        store.write(_LISTS, key, {}, tables)
        units.append(ListedUnit(key=key, listed=store.address(_LISTS, key)))
    keys = run_listed("sums", summing, units, _LISTS, store, runner, progress)
    while len(keys) > _SUMS_PER_TASK:
        groups = [keys[start : start + _SUMS_PER_TASK] for start in range(0, len(keys), _SUMS_PER_TASK)]
        units = [
            ListedUnit(key=_digest(group), results=tuple(store.address(_SUMS, key) for key in group))
            for group in groups
        ]
        merged = run_listed("sums", summing, units, _LISTS, store, runner, progress)
        for key in keys:
            store.remove(_SUMS, key)
        keys = merged
    give_memory_back()  # of lists, before the table comes
    sums, damage = Sums.of(summing.stages), Damage(store)
    for key in keys:
        if (stored := damage.read(_SUMS, key)) is not None:
            sums.add_stored(stored)
            del stored
    whole = sums.merged()
    for key in keys:  # after the rest, so that no more is held than the table
        if (held := store.read_rows(_SUMS, key, _ROWS)) is not None:
            sums.add_rows(held)
            del held
            release_arrow()
            store.remove(_SUMS, key)
        elif f"{_SUMS}/{key}" not in damage.names:
            damage.remove(_SUMS, key)
    damage.tell()
    return sums.table(), whole


def _digest(names: list[str]) -> str:
    return digest_json(names).removeprefix("sha256:")
