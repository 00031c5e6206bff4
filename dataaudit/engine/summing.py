"""Sums over shards: what each stage found in a split, and the rows of the table of shards, made where the workers are.

A task takes some shards: it reads their partials, adds what the link steps found, fills the columns of their rows and
merges the partials by split and stage. Further tasks merge the sums of tasks, a tree of them, until few are left for
the driver; rows stay where the first tasks put them until the driver writes the table. Every merge is lossless, so how
the shards are cut into tasks changes nothing.

A table as long as the corpus: its rows are written to disk as they come, and it is mapped, each column in one piece.

A file of Parquet depends on how the columns that are written lie in memory: its pages end where a piece of a column
does. So the pieces are put together, on disk, buffer by buffer: of each type what Arrow's columnar format says.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.process import give_memory_back, release_arrow
from dataaudit.engine.disk_columns import RowWriter
from dataaudit.engine.gather import Damage, GatheredShards, Missing, fold_partial, merge_parts
from dataaudit.engine.joins import ListedUnit, addresses, run_listed
from dataaudit.engine.manifest_tables import SHARDS, Setting, shard_row, stage_columns
from dataaudit.engine.progress import Progress
from dataaudit.engine.store import Entry, PartialStore
from dataaudit.engine.units import Outcome, Runner
from dataaudit.engine.work import as_value
from dataaudit.manifest.canonical import list_items
from dataaudit.manifest.publish import GROUP_ROWS
from dataaudit.scan.link.step import LinkResult
from dataaudit.scan.stages.base import Accumulator, Stage, merge
from dataaudit.scan.stages.partial import Partial, empty, fold_table

_ALIGN = 64
_PIECE_ROWS = 1024
_BYTE = np.dtype("u1")


class TableWriter:
    """Writes the rows of a table, some at a time.

    Args:
        folder: Where the files lie.
        schema: Of fixed-width numbers, strings, lists and structs.

    Raises:
        StateFolderError: The folder cannot be written; so do all methods.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._schema = folder, schema
        self._file = _File(folder)
        self._held = schema.empty_table()
        self._pieces: list[slice] = []

    def append(self, table: pa.Table) -> None:
        """Write some rows."""
        self._held = pa.concat_tables([self._held, table])
        while self._held.num_rows >= _PIECE_ROWS:
            self._write(self._held.slice(0, _PIECE_ROWS))
            self._held = self._held.slice(_PIECE_ROWS)

    def _write(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            writer.write_table(table.combine_chunks())
        self._pieces.append(self._file.put([np.frombuffer(sink.getvalue(), dtype=_BYTE)]))

    def done(self) -> pa.Table:
        """Return all of them, each column in pieces of as many rows as a row group; nothing more can be written."""
        self._write(self._held)
        pieces, whole = self._file.mapped(), _File(self._folder)
        step = GROUP_ROWS // _PIECE_ROWS
        groups = [self._pieces[start : start + step] for start in range(0, len(self._pieces), step)]
        columns = [
            [
                whole.join(field.type, [chunk for at in group for chunk in _column(pieces, at, place)])
                for group in groups
            ]
            for place, field in enumerate(self._schema)
        ]
        data = whole.mapped()
        arrays = [pa.chunked_array([joined.array(data) for joined in column]) for column in columns]
        return pa.table(arrays, schema=self._schema)


def _column(pieces: pa.Buffer, at: slice, place: int) -> list[pa.Array]:
    """Return a column of some rows; all columns of all rows at once would be many objects."""
    options = pa.ipc.IpcReadOptions(included_fields=[place])
    chunks: list[pa.Array] = (
        pa.ipc.open_stream(pieces.slice(at.start, at.stop - at.start), options=options).read_all().column(0).chunks
    )
    return chunks


@dataclass(frozen=True, slots=True)
class _Joined:
    """An array that was written: where its buffers lie."""

    kind: pa.DataType
    length: int
    nulls: int
    buffers: list[slice | None]
    children: list[_Joined]

    def array(self, data: pa.Buffer) -> pa.Array:
        """Return it, of the mapped file."""
        buffers = [None if at is None else data.slice(at.start, at.stop - at.start) for at in self.buffers]
        children = [child.array(data) for child in self.children]
        return pa.Array.from_buffers(self.kind, self.length, buffers, self.nulls, children=children)


class _File:
    """Buffers, one behind the other, each where Arrow wants it: at a multiple of 64 bytes."""

    def __init__(self, folder: Path) -> None:
        self._writer = RowWriter(folder, _BYTE)
        self._end = 0

    def put(self, pieces: Iterable[np.ndarray]) -> slice:
        """Write a buffer, in pieces; return where it lies."""
        start = self._end
        for piece in pieces:
            self._writer.extend(piece.view(_BYTE))
            self._end += piece.nbytes
        stop = self._end
        self._writer.extend(np.zeros(-stop % _ALIGN, dtype=_BYTE))
        self._end += -stop % _ALIGN
        return slice(start, stop)

    def mapped(self) -> pa.Buffer:
        """Return all of them; nothing more can be written."""
        return pa.py_buffer(self._writer.done())

    def join(self, kind: pa.DataType, chunks: list[pa.Array]) -> _Joined:
        """Write chunks as one array."""
        nulls = sum(chunk.null_count for chunk in chunks)
        valid = self.put([_bits(chunks)]) if nulls else None
        buffers, children = [valid], list[_Joined]()
        if pa.types.is_struct(kind):
            opened = [chunk.flatten() for chunk in chunks]
            children = [self.join(field.type, [item[place] for item in opened]) for place, field in enumerate(kind)]
        elif pa.types.is_list(kind):
            buffers.append(self.put(_ends(chunks, pc.list_value_length)))
            children = [self.join(kind.value_type, [list_items(chunk) for chunk in chunks])]
        elif pa.types.is_string(kind):
            buffers += [self.put(_ends(chunks, pc.binary_length)), self.put(map(_text, chunks))]
        else:
            buffers.append(self.put(_numbers(chunk) for chunk in chunks))
        return _Joined(kind, sum(map(len, chunks)), nulls, buffers, children)


def _bits(chunks: list[pa.Array]) -> np.ndarray:
    """Return where there is a value, a bit each."""
    valid = [chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.packbits(np.concatenate(valid), bitorder="little")


def _ends(chunks: list[pa.Array], length: Callable[[pa.Array], pa.Array]) -> Iterable[np.ndarray]:
    """Yield where the first value begins, then where each ends, int32; a null has no length."""
    end = np.zeros(1, dtype=np.int64)
    yield end.astype(np.int32)
    for chunk in chunks:
        ends = end[-1] + np.cumsum(pc.fill_null(length(chunk), 0).to_numpy(), dtype=np.int64)
        end = ends if len(ends) else end
        assert end[-1] <= np.iinfo(np.int32).max, "as many rows as a row group has stay below"
        yield ends.astype(np.int32)


def _text(chunk: pa.Array) -> np.ndarray:
    """Return all bytes of strings, nulls as nothing."""
    plain = pc.fill_null(chunk, "")
    _, ends, data = plain.buffers()
    if len(plain) == 0 or data is None:
        return np.zeros(0, dtype=_BYTE)
    first, last = np.frombuffer(ends, dtype=np.int32)[[plain.offset, plain.offset + len(plain)]].tolist()
    return np.frombuffer(data, dtype=_BYTE)[first:last]


def _numbers(chunk: pa.Array) -> np.ndarray:
    """Return the bytes of numbers; what stands for nulls is anything."""
    width = chunk.type.byte_width
    return np.frombuffer(chunk.buffers()[1], dtype=_BYTE)[chunk.offset * width : (chunk.offset + len(chunk)) * width]


SHARDS_PER_TASK = 64
"""Shards whose partials one unit of work sums: with more of them nothing is told for long."""
_SUMS_PER_TASK = 16
_LISTS, _SUMS, _SHARDS = "sums-of", "sums", "sums-shards"
_ROWS, _PARTIALS = "rows", "partials"

Merged = dict[str, dict[str, Partial]]
"""Partials by split and stage."""


@dataclass(slots=True)
class Sums:
    """Rows of shards, and partials merged by split and stage."""

    stages: Mapping[str, Stage]
    rows: list[dict[str, Any]] = field(default_factory=list)
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

    def table(self) -> pa.Table:
        """Return the rows, of the schema of the table of shards."""
        return pa.Table.from_pylist(self.rows, schema=SHARDS)

    def merged(self) -> Merged:
        """Return what was merged, by split and stage."""
        found: Merged = {}
        for (split, stage), held in sorted(self.held.items()):
            found.setdefault(split, {})[stage] = held.result()
        return found

    def write(self, store: PartialStore, key: str) -> None:
        """Store all of it."""
        places = sorted(self.held)
        tables = {
            f"{number} {name}": table
            for number, place in enumerate(places)
            for name, table in self.held[place].result().items()
        }
        if self.rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, SHARDS) as writer:
                writer.write_table(self.table())
            store.write_rows(_SHARDS, key, sink.getvalue().to_pybytes())
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
            if (stored := damage.read(address)) is not None:
                sums.add_stored(stored)
        if damage.names:
            return Outcome(damaged=tuple(sorted(damage.names)))
        sums.write(PartialStore(self.state), unit.key)
        return Outcome()

    def _sum_shards(self, listed: Entry, sums: Sums, damage: Missing) -> None:
        parts: dict[int, dict[str, list[str]]] = {}
        for row in listed.tables[_PARTIALS].to_pylist():
            parts.setdefault(row["shard"], {}).setdefault(row["stage"], []).append(os.fsdecode(row["address"]))
        extra = {name: _ByShard.of(table) for name, table in listed.tables.items() if name not in (_ROWS, _PARTIALS)}
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
    """Sum all shards on the workers."""
    extra = {
        f"{stage} {name}": _ByShard.of(table)
        for stage, link_result in found.items()
        for name, table in link_result.extra.items()
    }
    columns = [_ByShard.of(link_result.columns) for link_result in found.values() if link_result.columns is not None]
    names = {stage.name for stage in summing.stages}
    units = []
    starts = range(0, len(shards), SHARDS_PER_TASK)
    for start in progress.over("lists", starts, len(starts)):
        some = shards[start : start + SHARDS_PER_TASK]
        key = _name()
        rows = {gathered_shard.ordinal: shard_row(gathered_shard) for gathered_shard in some}
        for more in columns:
            for row in more.between(some[0].ordinal, some[-1].ordinal).to_pylist():
                rows[row["shard"]] |= row
        tables = {
            _ROWS: pa.Table.from_pylist(list(rows.values()), schema=SHARDS),
            _PARTIALS: addresses(
                shards.plan, [gathered_shard.place for gathered_shard in some if gathered_shard.partials], names, store
            ),
            **{name: table.between(some[0].ordinal, some[-1].ordinal) for name, table in extra.items()},
        }
        store.write(_LISTS, key, {}, tables)
        units.append(ListedUnit(key=key, listed=store.address(_LISTS, key)))
    firsts = keys = run_listed("sums", summing, units, _LISTS, store, runner, progress)
    while len(keys) > _SUMS_PER_TASK:
        groups = [keys[start : start + _SUMS_PER_TASK] for start in range(0, len(keys), _SUMS_PER_TASK)]
        units = [ListedUnit(key=_name(), results=tuple(store.address(_SUMS, key) for key in group)) for group in groups]
        merged = run_listed("sums", summing, units, _LISTS, store, runner, progress)
        for key in keys:
            store.remove(_SUMS, key)
        keys = merged
    give_memory_back()  # of lists
    sums, damage = Sums.of(summing.stages), Damage(store)
    for key in keys:
        if (stored := damage.read(_SUMS, key)) is not None:
            sums.add_stored(stored)
            store.remove(_SUMS, key)
            del stored
    whole, table = sums.merged(), TableWriter(store.root, SHARDS)
    for key in firsts:
        if (held := store.read_rows(_SHARDS, key)) is not None:
            table.append(pa.ipc.open_stream(held).read_all())
            store.remove(_SHARDS, key)
            del held
            release_arrow()
        else:
            damage.remove(_SHARDS, key)
    found = table.done()
    damage.tell()
    return found, whole


def _name() -> str:
    """Make a key that no other build has, for one of other stages may share the folder: what it names is used once."""
    return secrets.token_hex(32)
