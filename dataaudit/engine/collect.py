"""Collect after the scan: what became of each shard by the readings of its parts, and the sums that link steps ask for.

Workers read the readings and partials of some shards at a time and send columns home: reading all of them was most of
what a shard cost the driver. The order never matters: readings are put together in the order of a shard's parts, and
every merge of partials is lossless.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.base.lazy import LazySequence
from dataaudit.base.text import plural
from dataaudit.engine.plan import PlannedShard, vanished
from dataaudit.engine.plan_shards import Plan
from dataaudit.engine.runner import (
    PARTIALS,
    READING,
    ListedUnit,
    Outcome,
    Services,
    listed_partials,
    run_listed,
    take_results,
    write_list,
)
from dataaudit.engine.scan import as_outcome
from dataaudit.engine.store import Missing, PartialStore
from dataaudit.engine.store_columns import RowWriter, Texts, TextWriter, Values, packed, unpacked
from dataaudit.engine.store_entries import Entry, entry_of, read_at
from dataaudit.metrics.coverage.definition import bad_share
from dataaudit.metrics.registry import by_stage
from dataaudit.scan.corpus.loss import MAX_PLACES, Loss, Reason
from dataaudit.scan.corpus.readers.part import MAX_COLUMNS
from dataaudit.scan.cross_shard.step import Place, Survey
from dataaudit.scan.stages.base import Stage, merge
from dataaudit.scan.stages.partial import Partial, TableShape, group


def merge_parts(stage: Stage, entries: Sequence[Entry | None]) -> Partial:
    """Return the partial of a shard from those of its parts; one alone is merged as it was written."""
    partials = [entry.tables for entry in entries if entry is not None]
    return partials[0] if len(partials) == 1 else merge(stage, partials)


UNREAD = ("quarantined", "skipped")
"""States of shards that enter no number."""
_PARTS_AT_ONCE = 4096
_PART = np.dtype([("number", "i8"), ("first_row", "i8")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What became of a shard by what reading its parts showed."""

    status: str = "ok"
    reason: str = ""
    records: int = 0
    bad_records: int = 0
    fingerprint: str | None = None
    first_rows: tuple[int, ...] = ()
    """Number of the first record of each part."""
    losses: Sequence[Loss] = ()
    rows_digest: str | None = None
    """Digest of its decoded rows, when it was read."""
    documents: int = 0
    text_bytes: int = 0
    """Bytes of their texts."""

    def packed(self) -> bytes:
        """Return it as bytes."""
        losses = [(str(loss.reason), loss.place, loss.records, loss.num_bytes) for loss in self.losses]
        return packed((*(getattr(self, name) for name in _PLAIN), losses))


_PLAIN = tuple(item.name for item in fields(Reading) if item.name != "losses")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedShard(Reading):
    """What is known of a shard."""

    plan: Plan
    place: int
    """Where the plan holds it."""
    partials: Collection[str] = ()
    """Stages whose partials it has, by name; none when the shard is not read."""

    @property
    def planned(self) -> PlannedShard:
        """Return what was planned; made each time."""
        return self.plan[self.place]

    @property
    def ordinal(self) -> int:
        """Return its row in the table of shards."""
        return self.plan.ordinal(self.place)

    @property
    def split(self) -> str:
        """Return its split."""
        return self.plan.kind(self.place).split

    @property
    def held_back(self) -> int:
        """Documents that are quarantined one by one."""
        if not self.partials or not self.plan.excludes(self.place):
            return 0
        return self.records - self.bad_records - self.documents

    @property
    def size(self) -> int:
        """Stored bytes, as far as the file system knew; of a streamed dataset the bytes of its texts."""
        return self.text_bytes if self.plan.kind(self.place).streamed else self.plan.size(self.place)


class CollectedShards(LazySequence[CollectedShard]):
    """All shards of a plan as they were read, each made an object when it is asked for."""

    def __init__(self, plan: Plan, readings: Texts, folder: Path) -> None:
        self.plan, self._folder = plan, folder
        self._readings = Values(readings, tuple[Any, ...])

    def __len__(self) -> int:
        return len(self.plan)

    def parts_of(self, stage: str) -> Iterator[tuple[str, int, int, int]]:
        """Yield, of each part that a stage looked at, its key, shard, split (by place in order), and first record."""
        plan, parts = self.plan, self.parts
        for start in range(0, len(parts), _PARTS_AT_ONCE):
            some = parts[start : start + _PARTS_AT_ONCE]
            some = some[plan.has_stage(some["number"], stage)]
            keys = (plan.part_keys(number, (stage,))[stage] for number in some["number"].tolist())
            columns = (*plan.shards_of(some["number"]), some["first_row"])
            yield from zip(keys, *(column.tolist() for column in columns), strict=True)

    @cached_property
    def parts(self) -> np.ndarray:
        """Every part of a shard that was read, in order: its ``number`` in all shards, its ``first_row``."""
        writer, status, firsts = RowWriter(self._folder, _PART), _PLAIN.index("status"), _PLAIN.index("first_rows")
        for place, reading in enumerate(self._readings):
            if reading[status] not in UNREAD:
                for row in zip(range(*self.plan.part_range(place)), reading[firsts], strict=True):
                    writer.append(row)
        return writer.done()

    def item(self, place: int) -> CollectedShard:
        """Make an item."""
        *values, losses = self._readings[place]
        named = dict(zip(_PLAIN, values, strict=True))
        partials = () if named["status"] in UNREAD else self.plan.kind(place).stages
        losses = tuple(
            Loss(reason=Reason(reason), place=where, records=records, num_bytes=num_bytes)
            for reason, where, records, num_bytes in losses
        )
        return CollectedShard(plan=self.plan, place=place, partials=partials, losses=losses, **named)


def unread(reason: Reason, place: str, num_bytes: int, *, meant: bool = False) -> Reading:
    """Return what becomes of a shard that is not read."""
    losses = (Loss(reason=reason, place=place, records=-1, num_bytes=num_bytes),)
    return Reading(status="skipped" if meant else "quarantined", reason=reason, losses=losses)


def read_together(metas: Iterable[Mapping[str, Any]], num_bytes: int, max_bad: float) -> Reading:
    """Return what the readings of its parts, in order, say of a shard."""
    records, text_bytes, first_rows, columns = 0, 0, [], set[str]()
    remarks: dict[str, tuple[int, int]] = {}
    bad: dict[str, tuple[int, int, list[tuple[int, int]]]] = {}
    for meta in metas:
        if meta["reason"]:  # how many records the parts before it hold depends on the cut, so it is left out
            return unread(Reason(meta["reason"]), meta["place"], num_bytes)
        first_rows.append(records)
        for reason, (number, size, places) in meta["bad"].items():
            known = bad.setdefault(reason, (0, 0, []))
            listed = known[2] + [(row + records, own) for row, own in places]
            bad[reason] = (known[0] + number, known[1] + size, listed[:MAX_PLACES])
        for reason, (number, first) in meta["remarks"].items():
            before, earliest = remarks.get(reason, (0, first + records))
            remarks[reason] = (before + number, earliest)
        records += meta["records"]
        text_bytes += meta["text_bytes"]
        columns.update(meta["columns"])
    smallest = "\n".join(sorted(columns)[:MAX_COLUMNS])
    num_bad = sum(number for number, _, _ in bad.values())
    bad_bytes = sum(size for _, size, _ in bad.values())
    losses = [loss for reason, found in sorted(bad.items()) for loss in _losses(Reason(reason), *found)]
    remarked = [
        Loss(
            reason=Reason(reason),
            place=f"{plural(number, 'record')}, the first is record {first}",
            records=0,
            num_bytes=0,
        )
        for reason, (number, first) in sorted(remarks.items())
    ]
    reading = Reading(
        records=records,
        bad_records=num_bad,
        fingerprint=hashlib.sha256(smallest.encode()).hexdigest() if columns else None,
        first_rows=tuple(first_rows),
        losses=(*losses, *remarked),
    )
    if bad_share(num_bad, records, bad_bytes, text_bytes) > max_bad:
        whole = bad_bytes + text_bytes
        place = f"{num_bad} of {records} records, {bad_bytes} of {whole} bytes, limit {max_bad:.12g} of either"
        left = unread(Reason.TOO_MANY_BAD, place, num_bytes)
        return replace(reading, status=left.status, reason=left.reason, losses=(*left.losses, *reading.losses))
    return replace(reading, status="partial", reason=losses[0].reason) if num_bad else reading


def _losses(reason: Reason, records: int, num_bytes: int, places: list[tuple[int, int]]) -> list[Loss]:
    """Return a loss for each listed place, and one for those that are no longer listed."""
    listed = [Loss(reason=reason, place=f"record {row}", records=1, num_bytes=size) for row, size in places]
    rest = records - len(places)
    if rest:
        size = num_bytes - sum(size for _, size in places)
        listed.append(Loss(reason=reason, place="further records", records=rest, num_bytes=size))
    return listed


SHARDS_PER_TASK = 256
"""Shards whose partials one unit of work looks at."""
_LISTS, _SURVEYS = "survey-of", "survey"
_LISTED, _READINGS, _VOLUME = "shards", "readings", "volume"
_SHARDS = pa.schema(
    [
        ("shard", pa.int32()),
        ("split", pa.string()),
        ("size", pa.int64()),
        ("unread", pa.binary()),
        ("parts", pa.list_(pa.struct([("reading", pa.binary()), ("rows", pa.binary()), ("failure", pa.binary())]))),
    ]
)
"""Of a list: each shard with its stored bytes and, when it was not to be read, its packed reading; of each part the
addresses of what reading it showed, as the file system's bytes, or why it could not be read, packed."""
READINGS = pa.schema([("reading", pa.binary())])
"""What became of shards, in order: of :meth:`dataaudit.engine.collect.Reading.packed`."""


@dataclass(slots=True)
class _Tables:
    """Tables of some shards, as they come: rows by shard, and sums by split."""

    shapes: dict[tuple[str, str, str], TableShape]
    """By the column that a table begins with, its stage and its name."""
    pieces: dict[tuple[str, str, str], list[pa.Table]]

    @classmethod
    def of(cls, stages: Iterable[Stage]) -> _Tables:
        """Return nothing yet, of the tables that families name."""
        families, shapes = by_stage(), dict[tuple[str, str, str], TableShape]()
        for stage in stages:
            family = families[stage.name]
            for column, kind, tables in (
                ("shard", pa.int32(), family.by_shard),
                ("split", pa.string(), family.by_split),
            ):
                for table in tables:
                    shape = stage.shapes()[table]
                    shapes[column, stage.name, table] = replace(shape, keys={column: kind, **shape.keys})
        return cls(shapes, {name: [] for name in shapes})

    def add(self, shard: int, split: str, name: str, partial: Partial) -> None:
        """Take the partial of a stage of a shard."""
        first = {"shard": pa.scalar(shard, pa.int32()), "split": pa.scalar(split, pa.string())}
        for (column, stage, table), pieces in self.pieces.items():
            if stage == name:
                rows = partial[table]
                pieces.append(rows.add_column(0, column, pa.repeat(first[column], rows.num_rows)))

    def add_stored(self, tables: Mapping[str, pa.Table]) -> None:
        """Take tables that were stored."""
        for name, pieces in self.pieces.items():
            pieces.append(tables[" ".join(name)])

    def tables(self) -> Iterator[tuple[tuple[str, str, str], pa.Table]]:
        """Yield the tables."""
        for name, shape in self.shapes.items():
            rows = pa.concat_tables([shape.schema().empty_table(), *self.pieces[name]])
            yield name, (group(shape, rows) if name[0] == "split" else rows).combine_chunks()

    def survey(self) -> Survey:
        """Return all of it."""
        by_shard, by_split = dict[Place, pa.Table](), dict[Place, pa.Table]()
        for (column, stage, table), rows in self.tables():
            if column == "split":
                by_split[stage, table] = rows
            else:
                order = np.argsort(rows["shard"].to_numpy(), kind="stable")
                by_shard[stage, table] = rows.take(pa.array(order)).combine_chunks()
        return Survey(by_shard=by_shard, by_split=by_split)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectTask:
    """Looks at the readings and partials of some shards, on a worker."""

    state: Path
    stages: tuple[Stage, ...]
    max_bad: float
    """Share of a shard's records, and of its bytes, that may be bad; beyond it is quarantined."""

    @as_outcome
    def __call__(self, unit: ListedUnit) -> Outcome:
        """Look at those of a unit and store what the driver wants."""
        tables, missing = _Tables.of(self.stages), Missing()
        listed = missing.read(unit.listed)
        if listed is None:
            return Outcome(damaged=tuple(missing.names))
        partials, readings = listed_partials(listed), []
        for row in listed.tables[_LISTED].to_pylist():
            reading = row["unread"]
            if reading is None:
                result = self._read(row, partials.get(row["shard"], {}), tables, missing)
                reading = b"" if result is None else result.packed()
            readings.append(reading)
        if missing.names:
            return Outcome(damaged=tuple(sorted(missing.names)))
        found_tables = {_READINGS: pa.table([readings], schema=READINGS)}
        found_tables |= {" ".join(name): rows for name, rows in tables.tables()}
        PartialStore(self.state).write(_SURVEYS, unit.key, {}, found_tables)
        return Outcome()

    def _read(
        self, row: Mapping[str, Any], partials: Mapping[str, Sequence[str]], tables: _Tables, missing: Missing
    ) -> Reading | None:
        """Return what became of a shard, and take its partials; None when something is absent or damaged."""
        metas = _metas(row["parts"], missing)
        if metas is None:
            return None
        result = read_together(metas, row["size"], self.max_bad)
        if result.status in UNREAD:
            return result
        documents = num_bytes = 0
        for stage in self.stages:
            parts = [missing.read(place) for place in partials.get(stage.name, ())]
            if missing.names or not parts:
                continue
            partial = merge_parts(stage, parts)
            tables.add(row["shard"], row["split"], stage.name, partial)
            if stage.name == _VOLUME:
                documents, num_bytes = (sum(partial[_VOLUME][column].to_pylist()) for column in ("documents", "bytes"))
        digest = _rows_digest([os.fsdecode(part["rows"]) for part in row["parts"]], missing)
        return replace(result, rows_digest=digest, documents=documents, text_bytes=num_bytes)


def _metas(parts: Iterable[Mapping[str, bytes | None]], missing: Missing) -> list[Mapping[str, Any]] | None:
    """Return what reading parts showed, up to one that could not be read; None when it is absent or damaged."""
    metas: list[Mapping[str, Any]] = []
    for part in parts:
        if (failure := part["failure"]) is not None:
            metas.append(dict(zip(("reason", "place"), unpacked(failure), strict=True)))
        elif (entry := missing.read(os.fsdecode(part["reading"] or b""))) is not None:
            metas.append(entry.meta)
        else:
            return None
        if metas[-1]["reason"]:
            break
    return metas


def _rows_digest(addresses: Iterable[str], missing: Missing) -> str:
    """Return the digest of a shard's decoded rows: the sha256 of its documents' row digests in order."""
    digest = hashlib.sha256()
    for address in addresses:
        rows = read_at(address)
        if rows is None:
            missing.names.add(entry_of(address))
        else:
            digest.update(rows)
    return digest.hexdigest()


def survey(
    plan: Plan,
    failures: Mapping[str, tuple[Reason, str]],
    stages: Sequence[Stage],
    services: Services,
    *,
    max_bad: float,
) -> tuple[CollectedShards, Survey]:
    """Decide on the workers what became of every shard, and look at the partials of those that were read."""
    families = by_stage()
    looking = tuple(stage for stage in stages if families[stage.name].by_shard or families[stage.name].by_split)
    names = frozenset(stage.name for stage in looking)
    store, units, starts = services.store, [], range(0, len(plan), SHARDS_PER_TASK)
    for start in services.progress.over("lists", starts, len(starts)):
        places = range(start, min(start + SHARDS_PER_TASK, len(plan)))
        rows = _listed(plan, places, failures, store)
        read = [
            place
            for place, row in zip(places, rows, strict=True)
            if row["unread"] is None and not any("failure" in part for part in row["parts"])
        ]
        tables = {
            _LISTED: pa.Table.from_pylist(rows, schema=_SHARDS),
            PARTIALS: addresses(plan, read, names, store),
        }
        units.append(write_list(_LISTS, tables, store))
    task = CollectTask(state=store.root, stages=looking, max_bad=max_bad)
    keys = run_listed("partials", task, units, _LISTS, services)
    found, readings = _Tables.of(looking), TextWriter(store.root)
    for stored in take_results(_SURVEYS, keys, store):
        found.add_stored(stored.tables)
        for reading in stored.tables[_READINGS]["reading"].to_pylist():
            readings.append(reading)
    return CollectedShards(plan, readings.done(), store.root), found.survey()


def _listed(
    plan: Plan, places: Sequence[int], failures: Mapping[str, tuple[Reason, str]], store: PartialStore
) -> list[dict[str, Any]]:
    """Return the rows of shards in the list of a task."""
    rows: list[dict[str, Any]] = []
    read: dict[str, list[dict[str, bytes]]] = {}
    for place in places:
        kind = plan.kind(place)
        size = 0 if kind.streamed else plan.size(place)
        known = None if kind.reason is None else unread(kind.reason, plan.where(place), size, meant=kind.meant)
        parts = []
        for key in plan.reading_keys(place):
            part: dict[str, bytes] = {}
            if (failure := failures.get(key)) is None:
                read.setdefault(key, []).append(part)
            else:
                part["failure"] = packed((str(failure[0]), failure[1]))
            parts.append(part)
        rows.append(
            {
                "shard": plan.ordinal(place),
                "split": kind.split,
                "size": size,
                "unread": None if known is None else known.packed(),
                "parts": parts,
            }
        )
    keys = list(read)
    for name, suffix in (("reading", ""), ("rows", "rows")):
        for key, stored in zip(keys, store.places(READING, keys, suffix), strict=True):
            for part in read[key]:
                part[name] = os.fsencode(str(stored))
    return rows


def check_documents(shards: Iterable[CollectedShard]) -> None:
    """Refuse a list that leaves no document of a split."""
    gone: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for shard in shards:
        gone[shard.split] += shard.held_back
        left[shard.split] += shard.documents
    for split, number in gone.items():
        if number and not left[split]:
            raise vanished(split, plural(number, "document"))


_ADDRESSES = pa.schema([("shard", pa.int32()), ("stage", pa.string()), ("address", pa.binary())])
"""The partial of each part, as the file system's bytes; those of a shard and stage follow each other."""


def addresses(plan: Plan, places: Iterable[int], stages: Collection[str], store: PartialStore) -> pa.Table:
    """Return the addresses of the partials of some stages of some shards: the table :data:`PARTIALS` of a list."""
    wanted: dict[str, tuple[list[int], list[str]]] = {}
    for place in places:
        ordinal, parts = plan.ordinal(place), plan.keys(place)
        for stage in plan.kind(place).stages:
            if stage in stages:
                ordinals, keys = wanted.setdefault(stage, ([], []))
                ordinals += [ordinal] * len(parts)
                keys += [own[stage] for own in parts]
    tables = []
    for stage, (ordinals, keys) in wanted.items():
        listed = [os.fsencode(str(stored)) for stored in store.places(stage, keys)]
        tables.append(pa.table([ordinals, [stage] * len(keys), listed], schema=_ADDRESSES))
    return pa.concat_tables([_ADDRESSES.empty_table(), *tables]).combine_chunks()
