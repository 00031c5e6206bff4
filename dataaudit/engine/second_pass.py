"""Second pass: read again, once and in order, the parts with documents that link steps ask for.

The result of a task may be larger than the texts: the shingles of a row group of any size. So few keyed rows stay in
memory, and many go to disk in sorted runs that become one file.
"""

from __future__ import annotations

import hashlib
import weakref
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from dataaudit.base.files import replacing
from dataaudit.base.lazy import LazySequence
from dataaudit.base.process import give_memory_back
from dataaudit.base.text import plural
from dataaudit.engine.collect import CollectedShards
from dataaudit.engine.plan import keys_as_text
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import (
    WANTED,
    Outcome,
    ScanSettings,
    SecondPassUnit,
    Services,
    remove_damaged,
    run_units,
    task_kind,
)
from dataaudit.engine.scan import hash_file, join_small, may_have_changed, try_copies
from dataaudit.engine.state_folder import writing
from dataaudit.engine.store import Damage, PartialStore
from dataaudit.engine.store_columns import unnamed_file
from dataaudit.engine.store_entries import Item, entry_at, entry_item, keyed_item, stream_of
from dataaudit.manifest.canonical import digest_json
from dataaudit.scan.annotators import Annotators, Tokens, load_annotators
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers import PartStats, read_part
from dataaudit.scan.corpus.tokens import TokenBatch
from dataaudit.scan.cross_shard.keyed import KeyedBlock, Stored, keyed_blocks, keyed_head
from dataaudit.scan.cross_shard.step import (
    Encode,
    SecondPassPart,
    SecondPassRequest,
    SecondPassResult,
    SecondPassTask,
    Slow,
    identity_of,
)


class PartsLostError(Exception):
    """Parts that the scan has read cannot be read a second time: they do not fit, take too long, or are gone."""

    def __init__(self, lost: Mapping[str, tuple[str, Reason, str]]) -> None:
        uri, reason, place = min(lost.values())
        parts = plural(len(lost), "part")
        super().__init__(f"{parts} could not be read a second time, the first of {uri}: {reason} {place}".rstrip())
        self.lost = {key: (reason, place) for key, (_, reason, place) in lost.items()}


_ITEMS = 2048


def run_second_pass(
    requests: Sequence[SecondPassRequest],
    shards: CollectedShards,
    settings: ScanSettings,
    services: Services,
    *,
    fresh: bool = False,
) -> list[SecondPassResult]:
    """Read again what is wanted, each part once for all tasks, and return what each of them found."""
    plan = _Plan(shards, services.store)
    for request in requests:
        plan.add(request, services.progress)
    units = plan.units(fresh=fresh)
    failed, damaged = run_units("second-pass", Again(settings), units, services, write_packs=True)
    if failed:
        raise PartsLostError({units[index].reading_key: (units.uri(index), *why) for index, why in failed.items()})
    remove_damaged(services.store, damaged)
    return plan.results(len(requests), services.progress)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a task wants to see."""

    task: SecondPassTask
    contents: np.ndarray
    """int64[k] parts that are read, ascending: of equal ones the first, by :attr:`Plan.firsts`."""
    keys: np.ndarray
    """uint8[k, 32] of the results of each."""

    def key(self, place: int) -> str:
        """Return the key of the result of a part, by its place."""
        key: str = self.keys[place].tobytes().hex()
        return key


class _Plan:
    """Which part is read for which tasks, and what they want of it; equal parts are read once.

    A corpus of a million shards may have one part of each read again, so what is known of parts is in columns.
    """

    def __init__(self, shards: CollectedShards, store: PartialStore) -> None:
        self.plan, self._store = shards.plan, store
        self._numbers, self._first_rows = shards.parts["number"], shards.parts["first_row"]
        self._ordinals, self._splits = self.plan.shards_of(self._numbers)
        self._contents = self.plan.firsts[self._numbers]
        self._asked: list[_Asked] = []
        self.seconds: dict[int, float] = {}
        """What slow tasks may take for a part, by its content."""

    def add(self, request: SecondPassRequest, progress: Progress) -> None:
        """Take a task: write what it wants of each part."""
        names = [name for name in request.wanted.column_names if name != "shard"]
        identity = [request.task.name, request.task.version, identity_of(request.task)]
        contents, keys, items = array("q"), bytearray(), list[Item]()
        number, parts = self._by_content(request.wanted, names)
        for content, wanted in progress.over("second-pass requests", parts, number):
            if isinstance(request.task, Slow):
                more = request.task.seconds * wanted.num_rows
                self.seconds[content] = self.seconds.get(content, 0.0) + more
            reading_key = self.plan.part_keys(content, ()).reading
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

    def units(self, *, fresh: bool) -> _Units:
        """Return a unit for every part of which some task's result is missing."""
        due = []
        for asked in self._asked:
            keys = keys_as_text(asked.keys)
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


class _Units(LazySequence[SecondPassUnit]):
    """Parts that are read again, each made a unit of work when it is asked for."""

    def __init__(self, plan: _Plan, due: Sequence[_Asked], store: PartialStore) -> None:
        self._pass, self._plan, self._due, self._store = plan, plan.plan, due, store
        self._contents = np.unique(np.concatenate([np.zeros(0, np.int64), *(asked.contents for asked in due)]))
        self.sizes = self._plan.part_sizes(self._contents)

    def __len__(self) -> int:
        return len(self._contents)

    def item(self, place: int) -> SecondPassUnit:
        """Make an item."""
        content = int(self._contents[place])
        planned, part = self._plan.part(content)
        assert planned.probe is not None
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
            substitutes=self._plan.substitutes(content),
        )

    def uri(self, place: int) -> str:
        """Return the shard of a part, the first of equal ones."""
        return self._plan.part(int(self._contents[place]))[0].shard.uri


def _digest(table: pa.Table) -> str:
    """Return the sha256 of a table's values."""
    return hashlib.sha256(stream_of(table.combine_chunks())).hexdigest()


_LARGE = 1 << 20
"""Stored bytes of a part before which free memory goes back to the system: looking for it takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Again:
    """The second reading of parts, on a worker."""

    settings: ScanSettings

    def __call__(self, unit: SecondPassUnit) -> Outcome:
        """Read a part and write what each of its tasks finds; substitutes are read as :class:`Scan` reads them."""
        if unit.size >= _LARGE:
            give_memory_back()
        return try_copies(_read_again, unit, self.settings)

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        """Join the packs of some parts."""
        join_small(self.settings, outcomes)


def _read_again(unit: SecondPassUnit, settings: ScanSettings) -> Outcome:
    wanted = {key: entry.tables[WANTED] for _, key, at in unit.tasks if (entry := entry_at(at)) is not None}
    if missing := [key for _, key, _ in unit.tasks if key not in wanted]:
        return Outcome(damaged=tuple(f"{WANTED}/{key}" for key in missing))
    store = PartialStore(settings.state)
    tasks = [
        RunningTask(task, key, wanted[key], load_annotators(task.needs, settings.annotators), store)
        for task, key, _ in unit.tasks
    ]
    rows = np.unique(np.concatenate([running_task.rows for running_task in tasks]))
    seen = 0
    for raw in read_part(replace(unit.request, only=rows), LossLog(), PartStats()):
        chosen = documents_at(raw, rows)
        if len(chosen):
            seen += len(chosen)
            for running_task in tasks:
                running_task.see(chosen, lambda texts: _encode(texts, settings))
        if len(raw) and raw.rows[-1] >= rows[-1]:
            break
    if may_have_changed(unit) and hash_file(unit.request.path) != unit.sha256:
        raise ShardUnreadable(Reason.CHANGED)
    assert seen == len(rows), "every wanted document was read before"
    items = [item for running_task in tasks for item in running_task.items()]
    return Outcome(pack=str(store.write_items(items)))


def _encode(texts: pa.LargeStringArray, settings: ScanSettings) -> TokenBatch:
    """Encode texts that are parts of documents; their encoder was checked in the scan."""
    model = next(annotator for annotator in settings.annotators if isinstance(annotator, Tokens))
    return model.encoder().encode(texts, np.zeros(len(texts), dtype=np.uint64))


RUN_BYTES = 1 << 25
"""Rows of a run: sorting them takes some three times as much."""


class KeyedRuns:
    """The keyed rows of a name."""

    def __init__(self, schema: pa.Schema, folder: Path) -> None:
        self.schema, self._folder = schema, folder
        self.few: list[pa.Table] = []
        """Rows that are in no run."""
        self._bytes = 0
        self._blocks: list[tuple[KeyedBlock, int]] = []
        """Of all runs, each with where it lies."""
        self._file: BinaryIO | None = None

    @property
    def are_many(self) -> bool:
        """Whether there are runs, so that :meth:`write` is to be called."""
        return bool(self._blocks)

    def add(self, table: pa.Table) -> None:
        """Take more rows; of one key they come in the order of their second column."""
        self.few.append(table)
        self._bytes += table.nbytes
        if self._bytes >= RUN_BYTES:
            self._end_run()

    def _end_run(self) -> None:
        with writing(self._folder):
            if self._file is None:
                self._file = unnamed_file(self._folder)
                weakref.finalize(self, self._file.close)
            for block, body in keyed_blocks(self.few, self.schema):
                self._blocks.append((block, self._file.tell()))
                self._file.write(body)
        self.few, self._bytes = [], 0

    def write(self, path: Path) -> None:
        """Write all rows to a file as :func:`dataaudit.scan.cross_shard.keyed.write_keyed` does, block by block."""
        self._end_run()
        assert self._file is not None, "a run was written"
        ordered = sorted(self._blocks, key=lambda item: item[0].first)
        with writing(self._folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(keyed_head(Stored.at(path).name, self.schema, [block for block, _ in ordered]))
                for block, offset in ordered:
                    self._file.seek(offset)
                    file.write(self._file.read(block.size))


@dataclass(slots=True)
class RunningTask:
    """One task on its way through a part."""

    task: SecondPassTask
    key: str
    wanted: pa.Table
    annotators: Annotators
    store: PartialStore
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    keyed: dict[str, KeyedRuns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing is found yet."""
        self.keyed = {name: KeyedRuns(schema, self.store.root) for name, schema in self.task.emits.items()}

    @property
    def rows(self) -> np.ndarray:
        """int64[w] rows that it wants, ascending."""
        rows: np.ndarray = self.wanted["row"].to_numpy()
        return rows

    def see(self, batch: DocBatch, encode: Encode) -> None:
        """Show it those documents of a batch that it wants."""
        rows = self.rows
        own = documents_at(batch, rows)
        if len(own) == 0:
            return
        start, stop = np.searchsorted(rows, [own.rows[0], own.rows[-1] + 1]).tolist()
        shown = self.annotators.look(own) if self.task.needs else own
        for name, table in self.task.run(shown, self.wanted.slice(start, stop - start), encode).items():
            if name in self.keyed:
                self.keyed[name].add(table)
            else:
                self.tables.setdefault(name, []).append(table)

    def items(self) -> Iterator[Item]:
        """Yield what is stored of what it found; keyed rows that are many are written here, to files of their own."""
        kind = task_kind(self.task)
        for name, rows in self.keyed.items():
            if rows.are_many:
                rows.write(self.store.side_path(kind, self.key, name))
            else:
                yield keyed_item(kind, self.key, name, rows.few, rows.schema)
        tables = {name: pa.concat_tables(found).combine_chunks() for name, found in self.tables.items()}
        yield entry_item(kind, self.key, {}, tables)


def documents_at(batch: DocBatch, rows: np.ndarray) -> DocBatch:
    """Return the documents of a batch whose rows are among some ascending ones."""
    if len(rows) == 0 or len(batch) == 0:
        return batch.take(np.zeros(0, dtype=np.int64))
    places = np.minimum(np.searchsorted(rows, batch.rows), len(rows) - 1)
    chosen = np.flatnonzero(rows[places] == batch.rows)
    return batch if len(chosen) == len(batch) else batch.take(chosen)
