"""What runs on a worker: probing a file and scanning a part. Knows files and stages, but not Dask.

Data errors come back as values; only input errors that may pass (``OSError`` other than a missing file)
are raised.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial as bind
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import ClusterError, ConfigError, DetectorError, Guarded
from dataaudit.base.files import DamagedFileError, NotAFileError
from dataaudit.base.process import give_memory_back
from dataaudit.engine.packs import Item, join_packs
from dataaudit.engine.running_task import RunningTask, documents_at
from dataaudit.engine.store import PartialStore, entry_at, entry_item, entry_of, keyed_item, rows_item
from dataaudit.engine.units import (
    FILES,
    READING,
    WANTED,
    LinkUnit,
    Outcome,
    PeekUnit,
    Probe,
    ProbeUnit,
    ReadsPart,
    ScanSettings,
    ScanUnit,
    SecondPassUnit,
)
from dataaudit.scan.annotators import Annotators, Tokens, load_annotators
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.infer import peek
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers import Part, PartStats, is_cut_by_decoding, plan_compressed, plan_parts, read_part
from dataaudit.scan.corpus.readers.hub_rows import key_of_rows
from dataaudit.scan.corpus.storage.address import RemotePath
from dataaudit.scan.corpus.storage.files import open_binary, stat_file
from dataaudit.scan.corpus.storage.hub import RowsPath
from dataaudit.scan.corpus.texts import row_digests, text_digests
from dataaudit.scan.corpus.tokens import TokenBatch
from dataaudit.scan.link.keyed import write_keyed
from dataaudit.scan.stages.base import Accumulator, Stage, nothing
from dataaudit.scan.stages.partial import Partial

Unit = TypeVar("Unit", ScanUnit, SecondPassUnit)
_HASH_BLOCK = 1 << 20
_LARGE = 1 << 20
"""Stored bytes of a part before which free memory goes back to the system: looking for it takes milliseconds."""
_HASHINGS = 2
_REASONS: Mapping[type[OSError], Reason] = {
    FileNotFoundError: Reason.NOT_FOUND,
    NotAFileError: Reason.NOT_A_FILE,
    PermissionError: Reason.PERMISSION,
}
NOT_OPENED = tuple(_REASONS)
"""Errors that say why a file cannot be opened, and that trying again would not change."""
_OF_THE_PATH = (*_REASONS.values(), Reason.CHANGED)
"""Reasons that another file of the same bytes does not share."""


def peek_shard(unit: PeekUnit) -> Outcome:
    """See a shard's columns."""
    columns = peek(unit.shard)
    return Outcome(columns=None if columns is None else tuple(columns.items()))


def link_partition(unit: LinkUnit) -> Outcome:
    """Join one partition of keyed rows and store the result."""
    return as_value(lambda: _link(unit))


def _link(unit: LinkUnit) -> Outcome:
    store = PartialStore(unit.state)
    listed = store.read_rows(unit.kind, unit.files, FILES)
    if listed is None:
        return Outcome(damaged=(f"{unit.kind}/{unit.files}",))
    files = pa.ipc.open_file(listed).read_all()
    joined = unit.function(files, unit.start, unit.stop)
    for name, schema in unit.emits.items():
        with store.writing():
            write_keyed(store.side_path(unit.kind, unit.key, name), [joined.keyed[name]], schema)
    for name, table in joined.rows.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        store.write_rows(unit.kind, unit.key, sink.getvalue().to_pybytes(), name)
    store.write(unit.kind, unit.key, {}, joined.tables)
    return Outcome()


def probe_file(unit: ProbeUnit) -> Outcome:
    """Hash a file and cut it into parts."""
    return as_value(lambda: _probe(unit))


def scan_part(unit: ScanUnit, settings: ScanSettings) -> Outcome:
    """Read a part once and write the partial of every missing stage, then what the reading showed.

    When its file is gone, refuses or has changed since it was hashed, another file of the same bytes is read.
    """
    return _try_twins(_scan, unit, settings)


def read_again(unit: SecondPassUnit, settings: ScanSettings) -> Outcome:
    """Read a part again and write what each of its tasks finds; twins are read as in :func:`scan_part`."""
    return _try_twins(_read_again, unit, settings)


@dataclass(frozen=True, slots=True)
class Again:
    """The second reading of parts, on a worker."""

    settings: ScanSettings

    def __call__(self, unit: SecondPassUnit) -> Outcome:
        """Read a part; see :func:`read_again`."""
        if unit.size >= _LARGE:
            give_memory_back()
        return read_again(unit, self.settings)

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        """Join the packs of some parts."""
        join_small(self.settings, outcomes)


def join_small(settings: ScanSettings, outcomes: Sequence[Outcome]) -> None:
    """Join the small packs that some units left; where that cannot be done they stay as they are."""
    with contextlib.suppress(OSError):
        written = dict.fromkeys(outcome.pack for outcome in outcomes if outcome.pack)
        join_packs(PartialStore(settings.state).packs.folder, map(Path, written))


def _try_twins(function: Callable[[Unit, ScanSettings], Outcome], unit: Unit, settings: ScanSettings) -> Outcome:
    others: list[Unit] = [unit]
    for path, stat in unit.twins:
        others.append(replace(unit, request=replace(unit.request, path=path), stat=stat, twins=()))
    last = others.pop()
    for scan_unit in others:
        with contextlib.suppress(OSError):
            outcome = as_value(bind(function, scan_unit, settings))
            if outcome.reason not in _OF_THE_PATH:
                return outcome
    return as_value(bind(function, last, settings))


def hash_file(path: str) -> str:
    """Return the sha256 of a file's bytes, hex; of a streamed dataset's shard what stands for it."""
    if isinstance(path, RowsPath):
        return key_of_rows(path)
    state = hashlib.sha256()
    with open_binary(path) as handle:
        while block := handle.read(_HASH_BLOCK):
            state.update(block)
    return state.hexdigest()


def as_value(function: Callable[[], Outcome]) -> Outcome:
    """Run something whose errors are values, unless they may pass."""
    with Guarded(OSError, MemoryError) as call:
        try:
            return function()
        except (ClusterError, ConfigError, DetectorError) as error:  # of the others: a worker that lacks something
            return Outcome(fault=(error.message, error.hint))
        except ShardUnreadable as error:
            return Outcome(reason=error.reason, place=error.place)
        except DamagedFileError as error:  # what is not there afterwards is computed again
            return Outcome(damaged=tuple(map(entry_of, error.paths)))
        except NOT_OPENED as error:
            return not_opened(error)
    return Outcome(reason=Reason.INTERNAL, place=call.origin)  # a fault of ours costs one shard, by name


def not_opened(error: OSError) -> Outcome:
    """Return the outcome of a part whose file cannot be opened, from one of :data:`NOT_OPENED`."""
    return Outcome(reason=next(why for kind, why in _REASONS.items() if isinstance(error, kind)))


def _probe(unit: ProbeUnit) -> Outcome:
    stat = stat_file(unit.path)
    for _ in range(_HASHINGS):
        hashed_ns = time.time_ns()
        sha256, parts = _hash_and_cut(unit, stat.size)
        before, stat = stat, stat_file(unit.path)
        if stat == before:
            break
    else:
        raise ShardUnreadable(Reason.CHANGED)
    probe = Probe(stat=stat, sha256=sha256, hashed_ns=hashed_ns, parts=())
    try:
        if parts is None:
            parts = plan_parts(unit.path, unit.format, unit.compression, stat.size, unit.part_bytes, unit.text_document)
        probe = replace(probe, parts=tuple(parts))
    except ShardUnreadable as error:
        probe = replace(probe, reason=error.reason, place=error.place)
    return Outcome(probe=probe)


def _hash_and_cut(unit: ProbeUnit, size: int) -> tuple[str, list[Part] | None]:
    """Return a file's sha256; and where it has to be decoded to be cut, its parts, of the same pass."""
    if not is_cut_by_decoding(unit.format, unit.compression, size, unit.part_bytes, unit.text_document):
        return hash_file(unit.path), None
    state = hashlib.sha256()
    parts = plan_compressed(unit.path, unit.compression, size, unit.part_bytes, state.update)
    return state.hexdigest(), parts


@dataclass(slots=True)
class _Collected:
    """What a scan has collected of its part so far."""

    stages: list[Stage]
    partials: dict[str, Accumulator] = field(default_factory=dict)
    emitted: dict[tuple[str, str], list[pa.Table]] = field(default_factory=dict)
    rows: list[bytes] = field(default_factory=list)

    def add(self, raw: DocBatch, annotators: Annotators, without: frozenset[int]) -> None:
        """Map a batch; records that are held back are in the digests of rows alone."""
        left = raw.without(without)
        batch = annotators.annotate(left)
        assert batch.digests is not None
        digests = batch.digests if left is raw else text_digests(raw.texts)
        self.rows.append(row_digests(digests, raw.source_codes, raw.source_names).tobytes())
        if left is not raw and not len(batch):
            return
        for stage in self.stages:
            if stage.name not in self.partials:
                self.partials[stage.name] = Accumulator(stage)
            self.partials[stage.name].add(stage.map(batch))
            for name, keyed in stage.emit(batch).items():
                self.emitted.setdefault((stage.name, name), []).append(keyed)


def part_items(
    unit: ScanUnit,
    stages: Sequence[Stage],
    partials: Mapping[str, Partial],
    emitted: Mapping[tuple[str, str], Sequence[pa.Table]],
    rows: bytes,
    losses: LossLog,
    stats: PartStats,
) -> Iterator[Item]:
    """Yield what is stored of a part that was read whole."""
    keys = dict(unit.stage_keys)
    for stage in stages:
        key = keys[stage.name]
        for name, schema in stage.emits.items():
            yield keyed_item(stage.name, key, name, emitted.get((stage.name, name), []), schema)
        yield entry_item(stage.name, key, {}, partials.get(stage.name) or nothing(stage))
    yield rows_item(READING, unit.reading_key, rows)
    yield entry_item(READING, unit.reading_key, _reading(losses, stats, None), {})


def _scan(unit: ScanUnit, settings: ScanSettings) -> Outcome:
    wanted = {name for name, _ in unit.stage_keys}
    stages = [stage for stage in settings.stages if stage.name in wanted]
    annotators = load_annotators({annotation for stage in stages for annotation in stage.needs}, settings.annotators)
    losses, stats, collected = LossLog(), PartStats(), _Collected(stages)
    unreadable: ShardUnreadable | None = None
    try:
        for raw in read_part(unit.request, losses, stats):
            collected.add(raw, annotators, unit.request.without)
    except ShardUnreadable as error:
        unreadable = error
    if may_have_changed(unit) and hash_file(unit.request.path) != unit.sha256:
        raise ShardUnreadable(Reason.CHANGED)
    if unreadable is not None:
        return unread(unit, settings, unreadable, losses, stats)
    partials = {name: accumulator.result() for name, accumulator in collected.partials.items()}
    items = part_items(unit, stages, partials, collected.emitted, b"".join(collected.rows), losses, stats)
    return Outcome(pack=str(PartialStore(settings.state).write_items(items)))


def unread(
    unit: ScanUnit, settings: ScanSettings, error: ShardUnreadable, losses: LossLog, stats: PartStats
) -> Outcome:
    """Store what was read of a part until it could not be read on, and return its outcome."""
    item = entry_item(READING, unit.reading_key, _reading(losses, stats, error), {})
    pack = str(PartialStore(settings.state).write_items([item]))
    return Outcome(reason=error.reason, place=error.place, pack=pack)


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


def may_have_changed(unit: ReadsPart) -> bool:
    """Tell whether a file is to be hashed again: a new time stamp alone is no change, and none proves nothing.

    A store that gives no validator shows a change only in the bytes; what is stored by their digest must be of them.
    """
    if isinstance(unit.request.path, RemotePath) and not unit.stat.validator:
        return True
    return stat_file(unit.request.path) != unit.stat


def _reading(losses: LossLog, stats: PartStats, unreadable: ShardUnreadable | None) -> dict[str, object]:
    """Return what reading a part showed, as plain JSON values."""
    return {
        "records": stats.records,
        "text_bytes": stats.text_bytes,
        "columns": sorted(stats.columns),
        "reason": str(unreadable.reason) if unreadable else "",
        "place": unreadable.place if unreadable else "",
        "bad": {
            str(reason): [losses.records[reason], losses.num_bytes[reason], losses.places[reason]]
            for reason in sorted(losses.records)
        },
        "remarks": {str(reason): list(said) for reason, said in sorted(losses.remarks.items())},
    }
