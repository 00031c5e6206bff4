"""Scan of a part, on a worker: read it, annotate its documents, map them by every stage, write one segment file.

Data errors come back as values. Only input errors that may pass are raised: an ``OSError`` other than a missing file.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial as bind
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import pyarrow as pa

from dataaudit.base.errors import ClusterError, ConfigError, DetectorError, Guarded
from dataaudit.base.files import DamagedFileError, NotAFileError
from dataaudit.engine.runner import READING, Outcome, PartUnit, ScanSettings, ScanUnit, SecondPassUnit
from dataaudit.engine.store import PartialStore
from dataaudit.engine.store_entries import Item, entry_item, entry_of, join_packs, keyed_item, rows_item
from dataaudit.scan.annotators import Annotators, load_annotators
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers import PartStats, read_part
from dataaudit.scan.corpus.readers.hub_rows import key_of_rows
from dataaudit.scan.corpus.storage.address import RemotePath
from dataaudit.scan.corpus.storage.files import open_binary, stat_file
from dataaudit.scan.corpus.storage.hub import RowsPath
from dataaudit.scan.corpus.texts import row_digests, text_digests
from dataaudit.scan.stages.base import Accumulator, Stage, nothing
from dataaudit.scan.stages.partial import Partial

_Call = ParamSpec("_Call")
_Unit = TypeVar("_Unit", ScanUnit, SecondPassUnit)
_HASH_BLOCK = 1 << 20
_REASONS: Mapping[type[OSError], Reason] = {
    FileNotFoundError: Reason.NOT_FOUND,
    NotAFileError: Reason.NOT_A_FILE,
    PermissionError: Reason.PERMISSION,
}
NOT_OPENED = tuple(_REASONS)
"""Errors that say why a file cannot be opened, and that trying again would not change."""
_OF_THE_PATH = (*_REASONS.values(), Reason.CHANGED)
"""Reasons that another file of the same bytes does not share."""


def scan_part(unit: ScanUnit, settings: ScanSettings) -> Outcome:
    """Read a part once and write the partial of every missing stage, then what the reading showed.

    When its file is gone, refuses or has changed since it was hashed, another file of the same bytes is read.
    """
    return try_copies(_scan, unit, settings)


def join_small(settings: ScanSettings, outcomes: Sequence[Outcome]) -> None:
    """Join the small packs that some units left; where that cannot be done they stay as they are."""
    with contextlib.suppress(OSError):
        written = dict.fromkeys(outcome.pack for outcome in outcomes if outcome.pack)
        join_packs(PartialStore(settings.state).packs.folder, map(Path, written))


def try_copies(function: Callable[[_Unit, ScanSettings], Outcome], unit: _Unit, settings: ScanSettings) -> Outcome:
    """Read a part, or the same bytes in another file when its own is gone, refuses or has changed."""
    others: list[_Unit] = [unit]
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


def as_outcome(function: Callable[_Call, Outcome]) -> Callable[_Call, Outcome]:
    """Make the errors of a function values, as :func:`as_value` does."""

    @wraps(function)
    def guarded(*args: _Call.args, **kwargs: _Call.kwargs) -> Outcome:
        return as_value(bind(function, *args, **kwargs))

    return guarded


def not_opened(error: OSError) -> Outcome:
    """Return the outcome of a part whose file cannot be opened, from one of :data:`NOT_OPENED`."""
    return Outcome(reason=next(why for kind, why in _REASONS.items() if isinstance(error, kind)))


@dataclass(slots=True)
class _Collected:
    """What a scan has collected of its part so far."""

    stages: list[Stage]
    partials: dict[str, Accumulator] = field(default_factory=dict)
    emitted: dict[tuple[str, str], list[pa.Table]] = field(default_factory=dict)
    rows: list[bytes] = field(default_factory=list)

    def add(self, raw: DocBatch, annotators: Annotators, without: frozenset[int]) -> None:
        """Map a batch; quarantined records are in the digests of rows alone."""
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


def may_have_changed(unit: PartUnit) -> bool:
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
        "remarks": {str(reason): list(remark) for reason, remark in sorted(losses.remarks.items())},
    }
