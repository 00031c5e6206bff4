"""The survey: what the driver has to know of partials, read where the workers are and brought home as columns.

Link steps ask for sums over shards, and for a few numbers of each. Reading the partials for that was most of what a
shard cost the driver, and holding them, as tables of their own, most of its memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.engine.gather import GatheredShard
from dataaudit.engine.listed import ADDRESSES, ListedUnit, addresses, run_listed
from dataaudit.engine.partials import Damage, Missing, merge_parts
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import Outcome
from dataaudit.engine.work import as_value
from dataaudit.link.survey import Place, Survey
from dataaudit.manifest.canonical import digest_json
from dataaudit.metrics.registry import by_stage
from dataaudit.stages.base import Stage
from dataaudit.stages.partial import Partial, group

SHARDS_PER_TASK = 256
"""Shards whose partials one unit of work looks at."""
_LISTS, _SURVEYS = "survey-of", "survey"
_LISTED, _FACTS = "listed", "facts"
_SPLITS = pa.schema([*ADDRESSES, ("split", pa.string())])
_VOLUME = "volume"
FACTS = pa.schema([("shard", pa.int32()), ("documents", pa.int64()), ("bytes", pa.int64())])
"""Of every shard that was read: documents that entered the metrics, and the bytes of their texts."""


@dataclass(slots=True)
class _Tables:
    """Tables of some shards, as they come."""

    stages: Mapping[str, Stage]
    by_shard: dict[Place, list[pa.Table]]
    by_split: dict[Place, dict[str, list[pa.Table]]]
    facts: list[tuple[int, int, int]]

    @classmethod
    def of(cls, stages: Iterable[Stage]) -> _Tables:
        """Return nothing yet, of the tables that families name."""
        families, chosen = by_stage(), {stage.name: stage for stage in stages}
        return cls(
            chosen,
            {(name, table): [] for name in chosen for table in families[name].by_shard},
            {(name, table): {} for name in chosen for table in families[name].by_split},
            [],
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
        if name == _VOLUME:
            rows = partial[_VOLUME]
            self.facts.append((shard, *(sum(rows[column].to_pylist()) for column in FACTS.names[1:])))

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield what is stored, each with its name."""
        yield _FACTS, pa.table([list(column) for column in zip(*self.facts, strict=True)] or [[]] * 3, schema=FACTS)
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

    def add_stored(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Take tables that were stored; return the facts."""
        for (stage, table), pieces in self.by_shard.items():
            pieces.append(tables[f"shard {stage} {table}"])
        for (stage, table), splits in self.by_split.items():
            stored = tables[f"split {stage} {table}"]
            names = stored["split"].to_numpy()
            for split in sorted(set(names.tolist())):
                splits.setdefault(split, []).append(stored.filter(pa.array(names == split)).drop_columns(["split"]))
        return tables[_FACTS]

    def survey(self) -> Survey:
        """Return all of it."""
        tables = {tuple(name.split(" ")): table for name, table in self.tables() if name != _FACTS}
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
    """Looks at the partials of some shards, on a worker."""

    state: Path
    stages: tuple[Stage, ...]

    def __call__(self, unit: ListedUnit) -> Outcome:
        """Look at those of one unit and store what the driver wants."""
        return as_value(lambda: self._survey(unit))

    def _survey(self, unit: ListedUnit) -> Outcome:
        tables, missing = _Tables.of(self.stages), Missing()
        listed = missing.read(unit.listed)
        rows = [] if listed is None else listed.tables[_LISTED].to_pylist()
        start = 0
        while start < len(rows):
            shard, split, name = (rows[start][column] for column in ("shard", "split", "stage"))
            stop = start
            while stop < len(rows) and (rows[stop]["shard"], rows[stop]["stage"]) == (shard, name):
                stop += 1
            entries = [missing.read(os.fsdecode(row["address"])) for row in rows[start:stop]]
            if not missing.names:
                tables.add(shard, split, name, merge_parts(tables.stages[name], entries))
            start = stop
        if missing.names:
            return Outcome(damaged=tuple(sorted(missing.names)))
        PartialStore(self.state).write(_SURVEYS, unit.key, {}, dict(tables.tables()))
        return Outcome()


def survey(
    shards: Sequence[GatheredShard],
    stages: Sequence[Stage],
    store: PartialStore,
    runner: Runner,
    progress: Progress,
) -> Survey:
    """Look at the partials of all shards on the workers; fill in documents and bytes of each.

    Args:
        shards: What is known of each; the stages that looked at it are known.
        stages: All of them.
        store: Where partials are.
        runner: Where to run.
        progress: Where to report.

    Raises:
        ClusterError: The work cannot be done on these workers.
        DamagedEntryError: Partials are absent or damaged.
    """
    families = by_stage()
    looking = tuple(one for one in stages if families[one.name].by_shard or families[one.name].by_split)
    names = frozenset(stage.name for stage in looking)
    units = []
    starts = range(0, len(shards), SHARDS_PER_TASK)
    for start in progress.over("lists", starts, len(starts)):
        some = [shard for shard in shards[start : start + SHARDS_PER_TASK] if shard.partials]
        if some:
            key = digest_json([start, *(part.reading_key for shard in some for part in shard.planned.parts)])
            table, splits = addresses(some, names, store), {shard.ordinal: shard.split for shard in some}
            own = pa.array([splits[ordinal] for ordinal in table["shard"].to_pylist()], pa.string())
            unit = ListedUnit(key=key.removeprefix("sha256:"), listed=store.address(_LISTS, key[7:]))
            store.write(_LISTS, unit.key, {}, {_LISTED: table.append_column(_SPLITS.field("split"), own)})
            units.append(unit)
    keys = run_listed("partials", Surveying(state=store.root, stages=looking), units, _LISTS, store, runner, progress)
    found, damage, facts = _Tables.of(looking), Damage(store), [FACTS.empty_table()]
    for key in keys:
        if (stored := damage.read(_SURVEYS, key)) is not None:
            facts.append(found.add_stored(stored.tables))
            store.remove(_SURVEYS, key)
    damage.tell()
    known = {shard.ordinal: shard for shard in shards}
    columns = (column.to_pylist() for column in pa.concat_tables(facts).columns)
    for ordinal, documents, num_bytes in zip(*columns, strict=True):
        known[ordinal].documents, known[ordinal].text_bytes = documents, num_bytes
    return found.survey()
