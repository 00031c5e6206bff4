"""The second pass: one ordered second read of the parts that hold documents which the link step asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.loss import Reason
from dataaudit.corpus.storage.files import FileStat
from dataaudit.engine.gather import GatheredShards
from dataaudit.engine.packs import Item
from dataaudit.engine.partials import Damage
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import PartialStore, entry_item
from dataaudit.engine.units import WANTED, Outcome, ScanSettings, SecondPassUnit, task_kind
from dataaudit.engine.work import Again
from dataaudit.errors import ClusterError
from dataaudit.link.second_pass import (
    SecondPassPart,
    SecondPassRequest,
    SecondPassResult,
    SecondPassTask,
    Slow,
    identity_of,
)
from dataaudit.manifest.canonical import digest_json

_TWINS = 2


def run_second_pass(
    requests: Sequence[SecondPassRequest],
    shards: GatheredShards,
    settings: ScanSettings,
    store: PartialStore,
    runner: Runner,
    progress: Progress,
    *,
    fresh: bool = False,
) -> list[SecondPassResult]:
    """Read again what is wanted, each part once for all tasks, and return what each of them found.

    Raises:
        ClusterError: A part cannot be read any more, or not on these workers.
        DamagedEntryError: Results are absent or damaged.
    """
    plan = _Plan(shards, store)
    for request in requests:
        plan.add(request)
    plan.write()
    units = plan.units(fresh=fresh)
    lost: list[tuple[str, Reason, str]] = []
    damage, damaged = Damage(store), set[str]()
    progress.begin("second-pass", len(units), sum(unit.size for unit in units))

    def done(index: int, outcome: Outcome) -> bool:
        damaged.update(outcome.damaged)
        if outcome.reason is not None:
            lost.append((plan.uri(units[index].reading_key), outcome.reason, outcome.place))
        progress.advance(units[index].size, failed=outcome.reason is not None)
        return True

    runner.run("second-pass", Again(settings), units, done)
    store.packs.refresh()
    progress.end()
    if lost:
        uri, reason, place = min(lost)
        raise ClusterError(
            f"{len(lost)} part(s) could not be read a second time, the first of {uri}: {reason} {place}".rstrip(),
            "Run the same command again; what was finished is kept, and what changed is read anew.",
        )
    for name in sorted(damaged):
        damage.remove(*name.split("/"))
    damage.tell()
    return plan.results(len(requests))


@dataclass(frozen=True, slots=True)
class _Home:
    """Where a part stands: the place of its shard in the plan, its number there."""

    place: int
    part: int
    split: int
    first_row: int


class _Plan:
    """Which part is read for which tasks, and what they want of it; equal parts are read once."""

    def __init__(self, shards: GatheredShards, store: PartialStore) -> None:
        self._store = store
        self._homes: dict[str, list[_Home]] = {}
        self._shards = shards
        self._splits = shards.plan.splits()
        self._requests: list[tuple[SecondPassTask, dict[str, str]]] = []
        self._seconds: dict[str, float] = {}
        self._items: list[Item] = []

    def add(self, request: SecondPassRequest) -> None:
        """Take one more task: write what it wants of each part."""
        pieces: dict[str, list[pa.Table]] = {}
        ordered = request.wanted.sort_by([("shard", "ascending"), ("row", "ascending")])
        ordinals, rows = ordered["shard"].to_numpy(), ordered["row"].to_numpy()
        for ordinal in np.unique(ordinals).tolist():
            shard = self._shards[self._shards.plan.place(ordinal)]
            first_rows = np.array(shard.first_rows, dtype=np.int64)
            keys = [own.reading for own in shard.plan.keys(shard.place)]
            start, stop = np.searchsorted(ordinals, [ordinal, ordinal + 1]).tolist()
            cuts = start + np.searchsorted(rows[start:stop], [*first_rows.tolist(), np.iinfo(np.int64).max])
            for index, key in enumerate(keys):
                piece = ordered.slice(int(cuts[index]), int(cuts[index + 1] - cuts[index])).drop_columns(["shard"])
                if piece.num_rows:
                    own = pc.subtract(piece["row"], pa.scalar(int(first_rows[index]), pa.int64()))
                    place = piece.schema.get_field_index("row")
                    pieces.setdefault(key, []).append(piece.set_column(place, "row", own))
        names = ordered.drop_columns(["shard"]).column_names
        identity = [request.task.name, request.task.version, identity_of(request.task)]
        keys_by_part = {}
        for reading_key, tables in pieces.items():
            wanted = pa.concat_tables(tables).combine_chunks()
            if len(tables) > 1:  # of equal parts: once what each of them is asked for
                wanted = wanted.group_by(names, use_threads=False).aggregate([]).select(names)
            wanted = wanted.sort_by([(name, "ascending") for name in names])
            if isinstance(request.task, Slow):
                more = request.task.seconds * wanted.num_rows
                self._seconds[reading_key] = self._seconds.get(reading_key, 0.0) + more
            digest = _digest(wanted)
            key = digest_json([reading_key, *identity, digest]).removeprefix("sha256:")
            if self._store.read(WANTED, key) is None:
                self._items.append(entry_item(WANTED, key, {}, {WANTED: wanted}))
            keys_by_part[reading_key] = key
        self._requests.append((request.task, keys_by_part))

    def write(self) -> None:
        """Store what is wanted, for the workers; see which parts these are, and their equals."""
        wanted = {key for _, keys in self._requests for key in keys}
        for shard in self._shards if wanted else ():
            if shard.partials and any(own.reading in wanted for own in shard.plan.keys(shard.place)):
                split, parts = self._splits.index(shard.split), shard.plan.keys(shard.place)
                for part, (own, first_row) in enumerate(zip(parts, shard.first_rows, strict=True)):
                    if own.reading in wanted:
                        home = _Home(shard.place, part, split, first_row)
                        self._homes.setdefault(own.reading, []).append(home)
        if self._items:
            self._store.write_items(self._items)
            self._store.packs.refresh()
            self._items.clear()

    def uri(self, reading_key: str) -> str:
        """Return the shard of a part, the first of equal ones."""
        return self._shards.plan[self._homes[reading_key][0].place].shard.uri

    def units(self, *, fresh: bool) -> list[SecondPassUnit]:
        """Return a unit for every part of which some task's result is missing."""
        todo: dict[str, list[tuple[SecondPassTask, str, str]]] = {}
        for task, keys in self._requests:
            for reading_key, key in keys.items():
                if fresh or not self._store.has(task_kind(task), key):
                    todo.setdefault(reading_key, []).append((task, key, self._store.address(WANTED, key)))
        return [self._unit(reading_key, tasks) for reading_key, tasks in sorted(todo.items())]

    def _unit(self, reading_key: str, tasks: list[tuple[SecondPassTask, str, str]]) -> SecondPassUnit:
        first, *others = self._homes[reading_key]
        planned = self._shards.plan[first.place]
        probe, request = planned.probe, planned.parts[first.part].request
        assert probe is not None
        twins: dict[str, FileStat] = {}
        for home in others:
            other = self._shards.plan[home.place]
            if other.probe is not None and other.shard.path != request.path:
                twins[other.shard.path] = other.probe.stat
            if len(twins) == _TWINS:
                break
        return SecondPassUnit(
            request=request,
            stat=probe.stat,
            sha256=probe.sha256,
            reading_key=reading_key,
            tasks=tuple(tasks),
            size=probe.stat.size // max(1, len(planned.parts)),
            seconds=self._seconds.get(reading_key, 0.0),
            twins=tuple(twins.items()),
        )

    def results(self, number: int) -> list[SecondPassResult]:
        """Read what the first ``number`` tasks found, in order of shards and parts."""
        damage = Damage(self._store)
        found = []
        for task, keys in self._requests[:number]:
            kind = task_kind(task)
            parts = []
            for reading_key, key in keys.items():
                entry = damage.read(kind, key)
                if entry is not None:
                    parts += [
                        SecondPassPart(
                            shard=self._shards.plan.ordinal(home.place),
                            split=home.split,
                            first_row=home.first_row,
                            key=key,
                            tables=entry.tables,
                        )
                        for home in self._homes[reading_key]
                    ]
            parts.sort(key=lambda part: (part.shard, part.first_row))
            found.append(SecondPassResult(kind=kind, parts=tuple(parts)))
        damage.tell()
        return found


def _digest(table: pa.Table) -> str:
    """Return the sha256 of a table's values."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()
