"""The survey: what the driver has to know of readings and partials, read where the workers are, home as columns.

What became of a shard is decided by what reading its parts showed. Link steps ask for sums over shards, and for a few
numbers of each. Reading all that was most of what a shard cost the driver, and holding it most of its memory.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.engine.disk_columns import TextWriter, packed, unpacked
from dataaudit.engine.gather import UNREAD, Damage, GatheredShards, Missing, Reading, merge_parts, read_together, unread
from dataaudit.engine.joins import ListedUnit, addresses, run_listed
from dataaudit.engine.planned import Plan
from dataaudit.engine.progress import Progress
from dataaudit.engine.store import PartialStore, entry_of, read_at
from dataaudit.engine.units import READING, Outcome, Runner
from dataaudit.engine.work import as_value
from dataaudit.metrics.registry import by_stage
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.link.step import Place, Survey
from dataaudit.scan.stages.base import Stage
from dataaudit.scan.stages.partial import Partial, group

SHARDS_PER_TASK = 256
"""Shards whose partials one unit of work looks at."""
_LISTS, _SURVEYS = "survey-of", "survey"
_LISTED, _PARTIALS, _READINGS = "shards", "partials", "readings"
_VOLUME = "volume"
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
"""What became of shards, in order: of :meth:`dataaudit.engine.gather.Reading.packed`."""


@dataclass(slots=True)
class _Tables:
    """Tables of some shards, as they come."""

    stages: Mapping[str, Stage]
    by_shard: dict[Place, list[pa.Table]]
    by_split: dict[Place, dict[str, list[pa.Table]]]

    @classmethod
    def of(cls, stages: Iterable[Stage]) -> _Tables:
        """Return nothing yet, of the tables that families name."""
        families, chosen = by_stage(), {stage.name: stage for stage in stages}
        return cls(
            chosen,
            {(name, table): [] for name in chosen for table in families[name].by_shard},
            {(name, table): {} for name in chosen for table in families[name].by_split},
        )

    def add(self, shard: int, split: str, name: str, partial: Partial) -> None:
        """Take the partial of a stage of a shard."""
        for (stage, table), pieces in self.by_shard.items():
            if stage == name:
                ordinals = pa.array(np.full(partial[table].num_rows, shard, dtype=np.int32))
                pieces.append(partial[table].add_column(0, "shard", ordinals))
        for (stage, table), splits in self.by_split.items():
            if stage == name:
                splits.setdefault(split, []).append(partial[table])

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield what is stored, each with its name."""
        for (stage, table), pieces in self.by_shard.items():
            rows = [self._schema(stage, table, "shard", pa.int32()).empty_table(), *pieces]
            yield f"shard {stage} {table}", pa.concat_tables(rows).combine_chunks()
        for (stage, table), splits in self.by_split.items():
            shape = self.stages[stage].shapes()[table]
            rows = [self._schema(stage, table, "split", pa.string()).empty_table()]
            for split, merged in sorted(splits.items()):
                summed = group(shape, pa.concat_tables(merged))
                rows.append(summed.add_column(0, "split", pa.array([split] * summed.num_rows, pa.string())))
            yield f"split {stage} {table}", pa.concat_tables(rows).combine_chunks()

    def add_stored(self, tables: Mapping[str, pa.Table]) -> None:
        """Take tables that were stored."""
        for (stage, table), pieces in self.by_shard.items():
            pieces.append(tables[f"shard {stage} {table}"])
        for (stage, table), splits in self.by_split.items():
            stored = tables[f"split {stage} {table}"]
            names = stored["split"].to_numpy()
            for split in sorted(set(names.tolist())):
                splits.setdefault(split, []).append(stored.filter(pa.array(names == split)).drop_columns(["split"]))

    def survey(self) -> Survey:
        """Return all of it."""
        tables = {tuple(name.split(" ")): table for name, table in self.tables()}
        by_shard, by_split = (
            {(stage, table): rows for (kind, stage, table), rows in tables.items() if kind == wanted}
            for wanted in ("shard", "split")
        )
        ordered = {place: rows.take(pa.array(_order(rows))).combine_chunks() for place, rows in by_shard.items()}
        return Survey(by_shard=ordered, by_split=by_split)

    def _schema(self, stage: str, table: str, name: str, kind: pa.DataType) -> pa.Schema:
        return pa.schema([(name, kind), *self.stages[stage].shapes()[table].schema()])


def _order(rows: pa.Table) -> np.ndarray:
    return np.argsort(rows["shard"].to_numpy(), kind="stable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveying:
    """Looks at the readings and partials of some shards, on a worker."""

    state: Path
    stages: tuple[Stage, ...]
    max_bad: float
    """Share of a shard's records, and of its bytes, that may be bad; beyond it is quarantined."""

    def __call__(self, unit: ListedUnit) -> Outcome:
        """Look at those of one unit and store what the driver wants."""
        return as_value(lambda: self._survey(unit))

    def _survey(self, unit: ListedUnit) -> Outcome:
        tables, missing = _Tables.of(self.stages), Missing()
        listed = missing.read(unit.listed)
        if listed is None:
            return Outcome(damaged=tuple(missing.names))
        partials: dict[int, dict[str, list[str]]] = {}
        for row in listed.tables[_PARTIALS].to_pylist():
            partials.setdefault(row["shard"], {}).setdefault(row["stage"], []).append(os.fsdecode(row["address"]))
        readings = []
        for row in listed.tables[_LISTED].to_pylist():
            reading = row["unread"]
            if reading is None:
                found = self._read(row, partials.get(row["shard"], {}), tables, missing)
                reading = b"" if found is None else found.packed()
            readings.append(reading)
        if missing.names:
            return Outcome(damaged=tuple(sorted(missing.names)))
        found_tables = {_READINGS: pa.table([readings], schema=READINGS), **dict(tables.tables())}
        PartialStore(self.state).write(_SURVEYS, unit.key, {}, found_tables)
        return Outcome()

    def _read(
        self, row: Mapping[str, Any], partials: Mapping[str, Sequence[str]], tables: _Tables, missing: Missing
    ) -> Reading | None:
        """Return what became of a shard, and take its partials; None when something is absent or damaged."""
        metas = _metas(row["parts"], missing)
        if metas is None:
            return None
        found = read_together(metas, row["size"], self.max_bad)
        if found.status in UNREAD:
            return found
        documents = num_bytes = 0
        for name, places in partials.items():
            parts = [missing.read(place) for place in places]
            if missing.names:
                continue
            partial = merge_parts(tables.stages[name], parts)
            tables.add(row["shard"], row["split"], name, partial)
            if name == _VOLUME:
                documents, num_bytes = (sum(partial[_VOLUME][column].to_pylist()) for column in ("documents", "bytes"))
        digest = _rows_digest([os.fsdecode(part["rows"]) for part in row["parts"]], missing)
        return replace(found, rows_digest=digest, documents=documents, text_bytes=num_bytes)


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
    store: PartialStore,
    runner: Runner,
    progress: Progress,
    *,
    max_bad: float,
) -> tuple[GatheredShards, Survey]:
    """Decide on the workers what became of every shard, and look at the partials of those that were read."""
    families = by_stage()
    looking = tuple(stage for stage in stages if families[stage.name].by_shard or families[stage.name].by_split)
    names = frozenset(stage.name for stage in looking)
    units, starts = [], range(0, len(plan), SHARDS_PER_TASK)
    for start in progress.over("lists", starts, len(starts)):
        places = range(start, min(start + SHARDS_PER_TASK, len(plan)))
        rows = _listed(plan, places, failures, store)
        read = [
            place
            for place, row in zip(places, rows, strict=True)
            if row["unread"] is None and not any("failure" in part for part in row["parts"])
        ]
        key = secrets.token_hex(32)  # its result is never used again, by no other build either
        unit = ListedUnit(key=key, listed=store.address(_LISTS, key))
        tables = {
            _LISTED: pa.Table.from_pylist(rows, schema=_SHARDS),
            _PARTIALS: addresses(plan, read, names, store),
        }
        store.write(_LISTS, unit.key, {}, tables)
        units.append(unit)
    task = Surveying(state=store.root, stages=looking, max_bad=max_bad)
    keys = run_listed("partials", task, units, _LISTS, store, runner, progress)
    found, damage, readings = _Tables.of(looking), Damage(store), TextWriter(store.root)
    for key in keys:
        if (stored := damage.read(_SURVEYS, key)) is not None:
            found.add_stored(stored.tables)
            for reading in stored.tables[_READINGS]["reading"].to_pylist():
                readings.append(reading)
            store.remove(_SURVEYS, key)
    damage.tell()
    return GatheredShards(plan, readings.done(), stages, store), found.survey()


def _listed(
    plan: Plan, places: Sequence[int], failures: Mapping[str, tuple[Reason, str]], store: PartialStore
) -> list[dict[str, Any]]:
    """Return the rows of shards in the list of a task."""
    rows: list[dict[str, Any]] = []
    read: dict[str, list[dict[str, bytes]]] = {}
    for place in places:
        size, reason = 0 if plan.is_streamed(place) else plan.size(place), plan.reason(place)
        known = None if reason is None else unread(reason, plan.where(place), size, meant=plan.is_meant(place))
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
                "split": plan.split(place),
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
