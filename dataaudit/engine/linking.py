"""Families: what joins documents of different shards, each a generator that asks for documents to be read again.

All families advance together, so that one ordered second read of the shards serves every one of them: each yields
the requests that it wants, and is sent what they found, until it returns what it found out.

The second pass: one ordered second read of the parts that hold documents which the link step asked for.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.base.lazy import OnDemand
from dataaudit.base.text import plural
from dataaudit.config import AuditConfig
from dataaudit.engine.gather import Damage, GatheredShard, GatheredShards
from dataaudit.engine.job import Job
from dataaudit.engine.joins import run_join
from dataaudit.engine.manifest_tables import Setting
from dataaudit.engine.packs import Item
from dataaudit.engine.plan import PlannedPart, PlannedShard
from dataaudit.engine.progress import Progress
from dataaudit.engine.store import IPC_OPTIONS, PartialStore, entry_item
from dataaudit.engine.units import WANTED, Outcome, Runner, ScanSettings, SecondPassUnit, task_kind
from dataaudit.engine.work import Again
from dataaudit.manifest.canonical import digest_json
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.storage.files import FileStat
from dataaudit.scan.detectors import ContentModels
from dataaudit.scan.link.joins import Join, JoinedParts, KeyedFiles
from dataaudit.scan.link.step import (
    LinkResult,
    LinkStep,
    Protected,
    SecondPassPart,
    SecondPassRequest,
    SecondPassResult,
    SecondPassTask,
    Slow,
    Survey,
    identity_of,
)
from dataaudit.scan.stages.base import Stage
from dataaudit.scan.stages.partial import Partial


class PartsLostError(Exception):
    """Parts that the scan has read cannot be read a second time: they do not fit, take too long, or are gone.

    Args:
        lost: Shard, reason and place by reading key.
    """

    def __init__(self, lost: Mapping[str, tuple[str, Reason, str]]) -> None:
        uri, reason, place = min(lost.values())
        parts = plural(len(lost), "part")
        super().__init__(f"{parts} could not be read a second time, the first of {uri}: {reason} {place}".rstrip())
        self.lost = {key: (reason, place) for key, (_, reason, place) in lost.items()}


_TWINS = 2
_ITEMS = 2048
"""Entries that are written together."""


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
    """Read again what is wanted, each part once for all tasks, and return what each of them found."""
    plan = _Plan(shards, store)
    for request in requests:
        plan.add(request, progress)
    units = plan.units(fresh=fresh)
    lost: dict[str, tuple[str, Reason, str]] = {}
    damage, damaged = Damage(store), set[str]()
    progress.begin("second-pass", len(units), int(units.sizes.sum()))

    def done(index: int, outcome: Outcome) -> bool:
        damaged.update(outcome.damaged)
        if outcome.reason is not None:
            lost[units[index].reading_key] = units.uri(index), outcome.reason, outcome.place
        progress.advance(int(units.sizes[index]), failed=outcome.reason is not None)
        return True

    runner.run("second-pass", Again(settings), units, done)
    store.packs.refresh()
    progress.end()
    if lost:
        raise PartsLostError(lost)
    for name in sorted(damaged):
        damage.remove(*name.split("/"))
    damage.tell()
    return plan.results(len(requests), progress)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one task wants to see."""

    task: SecondPassTask
    contents: np.ndarray
    """int64[k] parts that are read, ascending: of equal ones the first, by :meth:`Plan.equal_parts`."""
    keys: np.ndarray
    """uint8[k, 32] of the results of each."""

    def key(self, place: int) -> str:
        """Return the key of the result of a part, by its place."""
        key: str = self.keys[place].tobytes().hex()
        return key

    def every_key(self) -> list[str]:
        """Return the keys of all."""
        return [self.key(place) for place in range(len(self.keys))]


class _Plan:
    """Which part is read for which tasks, and what they want of it; equal parts are read once.

    A corpus of a million shards may have one part of each read again, so what is known of parts is held in columns.
    """

    def __init__(self, shards: GatheredShards, store: PartialStore) -> None:
        self.plan, self._store = shards.plan, store
        self._numbers, self._first_rows = shards.parts["number"], shards.parts["first_row"]
        self._ordinals, self._splits = self.plan.shards_of(self._numbers)
        self._contents = self.plan.equal_parts()[self._numbers]
        self._order = np.argsort(self._contents, kind="stable")
        self._ranked = self._contents[self._order]
        self._asked: list[_Asked] = []
        self.seconds: dict[int, float] = {}
        """What slow tasks may take for a part, by its content."""

    def add(self, request: SecondPassRequest, progress: Progress) -> None:
        """Take one more task: write what it wants of each part."""
        names = [name for name in request.wanted.column_names if name != "shard"]
        identity = [request.task.name, request.task.version, identity_of(request.task)]
        contents, keys, items = array("q"), bytearray(), list[Item]()
        number, parts = self._by_content(request.wanted, names)
        for content, wanted in progress.over("second-pass requests", parts, number):
            if isinstance(request.task, Slow):
                more = request.task.seconds * wanted.num_rows
                self.seconds[content] = self.seconds.get(content, 0.0) + more
            reading_key = self.plan.part_keys(self.homes(content)[0], ()).reading
            key = digest_json([reading_key, *identity, _digest(wanted)]).removeprefix("sha256:")
            if self._store.read(WANTED, key) is None:
                items.append(entry_item(WANTED, key, {}, {WANTED: wanted}))
            contents.append(content)
            keys += bytes.fromhex(key)
            if len(items) == _ITEMS:
                self._store.write_items(items)
                items.clear()
        if items:
            self._store.write_items(items)
        self._store.packs.refresh()
        found = np.frombuffer(bytes(keys), np.uint8).reshape(-1, 32)
        self._asked.append(_Asked(request.task, np.frombuffer(contents, np.int64), found))

    def _by_content(self, wanted: pa.Table, names: list[str]) -> tuple[int, Iterator[tuple[int, pa.Table]]]:
        """Return how many contents are looked at, and each with what is wanted of it, ``row`` within the part."""
        ordinals, rows = wanted["shard"].to_numpy().astype(np.int64), wanted["row"].to_numpy()
        many = 1 + int(max(rows.max(initial=0), self._first_rows.max(initial=0)))
        places = np.searchsorted(self._ordinals * many + self._first_rows, ordinals * many + rows, side="right") - 1
        table = wanted.select(names).set_column(
            names.index("row"), "row", pa.array(rows - self._first_rows[places], pa.int64())
        )
        contents = self._contents[places]
        order = np.argsort(contents, kind="stable")
        table, places, contents = table.take(pa.array(order)).combine_chunks(), places[order], contents[order]
        starts = np.flatnonzero(np.diff(contents, prepend=-1)).tolist()

        def parts() -> Iterator[tuple[int, pa.Table]]:
            for start, stop in pairwise([*starts, len(contents)]):
                own = table.slice(start, stop - start)
                if (places[start:stop] != places[start]).any():  # of equal parts: once what each of them is asked for
                    own = own.group_by(names, use_threads=False).aggregate([]).select(names)
                yield int(contents[start]), own.sort_by([(name, "ascending") for name in names])

        return len(starts), parts()

    def homes(self, content: int) -> list[int]:
        """Return the numbers of the parts of a content that were read, in order."""
        start, stop = np.searchsorted(self._ranked, [content, content + 1]).tolist()
        found: list[int] = self._numbers[self._order[start:stop]].tolist()
        return found

    def units(self, *, fresh: bool) -> _Units:
        """Return a unit for every part of which some task's result is missing."""
        due = []
        for asked in self._asked:
            keys = asked.every_key()
            has = [False] * len(keys) if fresh else self._store.have(task_kind(asked.task), keys)
            chosen = ~np.array(has, dtype=bool)
            due.append(_Asked(asked.task, asked.contents[chosen], asked.keys[chosen]))
        return _Units(self, due, self._store)

    def results(self, number: int, progress: Progress) -> list[SecondPassResult]:
        """Read what the first ``number`` tasks found, in order of shards and parts."""
        damage = Damage(self._store)
        found = []
        for asked in self._asked[:number]:
            kind, read = task_kind(asked.task), np.flatnonzero(np.isin(self._contents, asked.contents))
            parts = progress.over("second-pass results", self._found(asked, kind, read, damage), len(read))
            found.append(SecondPassResult.of(kind, parts))
        damage.tell()
        return found

    def _found(self, asked: _Asked, kind: str, read: np.ndarray, damage: Damage) -> Iterator[SecondPassPart]:
        results = np.searchsorted(asked.contents, self._contents[read])
        columns = (self._ordinals[read], self._splits[read], self._first_rows[read], results)
        for ordinal, split, first_row, result in zip(*(column.tolist() for column in columns), strict=True):
            key = asked.key(result)
            if (entry := damage.read(kind, key)) is not None:
                yield SecondPassPart(shard=ordinal, split=split, first_row=first_row, key=key, tables=entry.tables)


class _Units(OnDemand[SecondPassUnit]):
    """Parts that are read again, each made a unit of work when it is asked for.

    Args:
        plan: Of the pass.
        due: What is missing for each task.
        store: Where lies what is wanted.
    """

    def __init__(self, plan: _Plan, due: Sequence[_Asked], store: PartialStore) -> None:
        self._pass, self._plan, self._due, self._store = plan, plan.plan, due, store
        self._contents = np.unique(np.concatenate([np.zeros(0, np.int64), *(asked.contents for asked in due)]))
        shards = self._plan.parts["shard"][[plan.homes(content)[0] for content in self._contents.tolist()]]
        counts = np.diff(self._plan.rows["parts"], prepend=0)[shards]
        self.sizes: np.ndarray = self._plan.rows["size"][shards] // np.maximum(counts, 1)
        """int64[k] stored bytes of each."""

    def __len__(self) -> int:
        return len(self._contents)

    def item(self, place: int) -> SecondPassUnit:
        """Make one."""
        content = int(self._contents[place])
        number, *others = self._pass.homes(content)
        planned, part = self._home(number)
        assert planned.probe is not None
        twins: dict[str, FileStat] = {}
        for other, _ in map(self._home, others):
            if other.probe is not None and other.shard.path != part.request.path:
                twins[other.shard.path] = other.probe.stat
            if len(twins) == _TWINS:
                break
        tasks = []
        for asked in self._due:
            at = int(np.searchsorted(asked.contents, content))
            if at < len(asked.contents) and asked.contents[at] == content:
                tasks.append((asked.task, asked.key(at), self._store.address(WANTED, asked.key(at))))
        return SecondPassUnit(
            request=part.request,
            stat=planned.probe.stat,
            sha256=planned.probe.sha256,
            reading_key=part.reading_key,
            tasks=tuple(tasks),
            size=int(self.sizes[place]),
            seconds=self._pass.seconds.get(content, 0.0),
            twins=tuple(twins.items()),
        )

    def uri(self, place: int) -> str:
        """Return the shard of a part, the first of equal ones."""
        return self._home(self._pass.homes(int(self._contents[place]))[0])[0].shard.uri

    def _home(self, number: int) -> tuple[PlannedShard, PlannedPart]:
        place = int(self._plan.parts["shard"][number])
        planned = self._plan[place]
        return planned, planned.parts[number - self._plan.part_range(place)[0]]


def _digest(table: pa.Table) -> str:
    """Return the sha256 of a table's values."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=IPC_OPTIONS) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkContext:
    """What a link step works with: a build that has scanned."""

    job: Job
    stage: Stage
    shards: GatheredShards
    survey: Survey
    fresh: bool

    @property
    def config(self) -> AuditConfig:
        """Return the config of the build."""
        return self.job.config

    @property
    def store(self) -> PartialStore:
        """Return where keyed rows are."""
        return self.job.store

    @property
    def content(self) -> ContentModels:
        """Return what judges documents."""
        return self.job.content

    @property
    def protected(self) -> Protected | None:
        """Return what is protected, when a stage looks for it."""
        return self.job.protected

    @property
    def older(self) -> Path | None:
        """Return the folder of the reference manifest."""
        return self.job.older

    def read(self) -> Iterator[GatheredShard]:
        """Yield the shards that the stage has looked at."""
        return (shard for shard in self.shards if self.stage.name in shard.partials)

    def tokenizer(self) -> str:
        """Return the digest of what decides tokens, which keeps what tasks count with different ones apart."""
        return digest_json(self.job.tokens().decisive())

    def files(self, *names: str) -> KeyedFiles:
        """Return the keyed rows of names that the stage emitted, for every part of every shard that was read."""
        return KeyedFiles.of_parts(self.stage.name, names, self.shards.parts_of(self.stage.name))

    def join(self, join: Join) -> JoinedParts:
        """Run a join; see :func:`dataaudit.engine.joins.run_join`."""
        return run_join(join, self.job.store, self.job.runner, self.job.progress, fresh=self.fresh)


@dataclass(slots=True, kw_only=True)
class Gathered:
    """All that is known once the scan and the link step are done."""

    shards: GatheredShards
    found: dict[str, LinkResult]
    """What was found by joining documents, by stage."""
    table: pa.Table
    """Of shards."""
    merged: Mapping[str, Mapping[str, Partial]]
    """Partials by split and stage."""
    setting: Setting
    """What stages were told."""


def run_link_steps(families: Mapping[str, LinkStep], linkings: Mapping[str, LinkContext]) -> dict[str, LinkResult]:
    """Advance all families until each has returned, with one second read for all in every round."""
    found: dict[str, LinkResult] = {}
    asked: dict[str, Sequence[SecondPassRequest]] = {}
    for name, family in families.items():
        _advance(name, partial(next, family), asked, found)
    while asked:
        linking = linkings[next(iter(asked))]
        requests = [request for wanted in asked.values() for request in wanted]
        job = linking.job
        answers = iter(
            run_second_pass(
                requests, linking.shards, job.scan_settings(), job.store, job.runner, job.progress, fresh=linking.fresh
            )
        )
        waiting, asked = asked, {}
        for name, wanted in waiting.items():
            own = [next(answers) for _ in wanted]
            _advance(name, partial(families[name].send, own), asked, found)
    return {name: found[name] for name in families}


def _advance(
    name: str,
    step: Callable[[], Sequence[SecondPassRequest]],
    asked: dict[str, Sequence[SecondPassRequest]],
    found: dict[str, LinkResult],
) -> None:
    try:
        asked[name] = step()
    except StopIteration as stop:
        found[name] = stop.value


def result_tables(found: Mapping[str, LinkResult]) -> dict[str, pa.Table]:
    """Return the tables of all families; those of one name are joined."""
    pieces: dict[str, list[pa.Table]] = {}
    for link_result in found.values():
        for name, table in link_result.tables.items():
            pieces.setdefault(name, []).append(table)
    return {name: pa.concat_tables(tables) for name, tables in pieces.items()}


def result_folders(found: Mapping[str, LinkResult]) -> dict[str, Callable[[Path], None]]:
    """Return what fills the folders of the manifest, by name."""
    return {name: fill for link_result in found.values() for name, fill in link_result.folders.items()}
