"""Scan of parts, on a worker: read, annotate documents, map them by every stage, write one pack.

Data errors come back as values. Only input errors that may pass are raised: an ``OSError`` other than a missing file.

Small parts are scanned together. A shard of one document costs a call of every kernel and a dozen Arrow groupings for
each stage, 20 ms and more. So the documents of many small parts become one batch, in which each source is named by its
part too, and rows are numbered on. What a stage counts by source or emits by row is then divided by part; what it
counts by neither is mapped part by part. The results of a part are those that the part alone would give. When something
goes wrong in common (a part that is large, or has changed, a library that gives up), these parts are scanned one by
one. A damaged part is named at once, for a bomb would be unpacked twice.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial as bind
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any, ParamSpec, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import CatchErrors, ClusterError, ConfigError, DetectorError
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
from dataaudit.scan.stages.base import Accumulator, Stage, merge, nothing
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


def join_small(settings: ScanSettings, outcomes: Sequence[Outcome]) -> None:
    """Join the small packs that some units left; where that cannot be done they stay as they are."""
    with contextlib.suppress(OSError):
        written = dict.fromkeys(outcome.pack for outcome in outcomes if outcome.pack)
        join_packs(PartialStore(settings.state).packs.folder, map(Path, written))


def try_copies(function: Callable[[_Unit, ScanSettings], Outcome], unit: _Unit, settings: ScanSettings) -> Outcome:
    """Read a part, or the same bytes in another file when its own is gone, refuses or has changed."""
    others: list[_Unit] = [unit]
    for path, stat in unit.substitutes:
        others.append(replace(unit, request=replace(unit.request, path=path), stat=stat, substitutes=()))
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
    with CatchErrors(OSError, MemoryError) as call:
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


MOST_PARTS = 512
_SMALL = 8
"""A part is small when so many of its stored size fit into a batch."""
_MARK = "\0"
"""Between the place of a part and the name of a source: the first in a name, whatever the source is called."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Scans parts: one, or several of which the small ones share batches."""

    settings: ScanSettings

    def __call__(self, unit: ScanUnit) -> Outcome:
        """Read a part once and write the partial of every missing stage, then what the reading showed.

        When its file is gone, refuses or has changed since it was hashed, another file of the same bytes is read.
        """
        return try_copies(_scan, unit, self.settings)

    def gains(self, unit: ScanUnit) -> bool:
        """Tell whether a part is small, as far as its stored size says."""
        return unit.size * _SMALL <= unit.request.batch_bytes and not unit.request.without and bool(unit.stage_keys)

    def together(self, units: Sequence[ScanUnit]) -> list[Outcome]:
        """Scan parts; each outcome, and what is stored, is that of the part alone."""
        scanned: dict[int, Outcome] = {}
        small = [place for place, unit in enumerate(units) if self.gains(unit)]
        for bundle in _bundles(units, small, scanned, self.settings):
            with CatchErrors():  # whose fault it is, each part alone shows
                scanned |= scan_together(bundle, self.settings)
        return [scanned.get(place) or self(unit) for place, unit in enumerate(units)]

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        """Join the packs of some parts."""
        join_small(self.settings, outcomes)


@runtime_checkable
class Divisible(Protocol):
    """An annotation of documents that can be cut."""

    def part(self, start: int, stop: int) -> Self | None:
        """Return that of some consecutive documents, or None where it says something of all together."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart:
    """A small part that was read whole."""

    place: int
    """Its index among the units."""
    unit: ScanUnit
    batch: DocBatch
    losses: LossLog
    stats: PartStats


@dataclass(slots=True)
class _Bundle:
    """Parts with the same stages, up to the size of a batch."""

    parts: list[ReadPart] = field(default_factory=list)
    num_bytes: int = 0

    def takes(self, part: ReadPart) -> bool:
        """Tell whether there is room for a part, and it is to be mapped by the same stages."""
        if not self.parts:
            return True
        first, size = self.parts[0].unit, part.batch.texts.nbytes
        fits = len(self.parts) < MOST_PARTS and self.num_bytes + size <= first.request.batch_bytes
        return fits and _stage_names(first) == _stage_names(part.unit)

    def add(self, part: ReadPart) -> None:
        self.parts.append(part)
        self.num_bytes += part.batch.texts.nbytes


def _bundles(
    units: Sequence[ScanUnit], small: Sequence[int], gone: dict[int, Outcome], settings: ScanSettings
) -> Iterator[list[ReadPart]]:
    """Read the small parts and yield them in bundles of two and more; ``gone`` takes those that cannot be read."""
    bundle = _Bundle()
    if len(small) > 1:
        for place in sorted(small, key=lambda place: _stage_names(units[place])):
            try:
                part = _read_small(place, units[place], settings)
            except NOT_OPENED as error:
                if not units[place].substitutes:
                    gone[place] = not_opened(error)
                continue
            if isinstance(part, Outcome):
                gone[place] = part
            if not isinstance(part, ReadPart):
                continue
            if not bundle.takes(part):
                yield bundle.parts
                bundle = _Bundle()
            bundle.add(part)
    if len(bundle.parts) > 1:
        yield bundle.parts


def _stage_names(unit: ScanUnit) -> list[str]:
    return [name for name, _ in unit.stage_keys]


def _read_small(place: int, unit: ScanUnit, settings: ScanSettings) -> ReadPart | Outcome | None:
    """Return a part of one batch, or the outcome of one that is damaged; None for any other."""
    losses, stats = LossLog(), PartStats()
    batches: list[DocBatch] = []
    try:
        with CatchErrors(*NOT_OPENED, ShardUnreadable) as call:
            for batch in read_part(unit.request, losses, stats):
                batches.append(batch)
                if len(batches) > 1:
                    return None
    except ShardUnreadable as error:
        return None if unit.substitutes or may_have_changed(unit) else unread(unit, settings, error, losses, stats)
    if call.error is not None or not batches:
        return None
    return ReadPart(place=place, unit=unit, batch=batches[0], losses=losses, stats=stats)


def scan_together(parts: Sequence[ReadPart], settings: ScanSettings) -> dict[int, Outcome]:
    """Annotate and map parts as one batch and write what each gives, all in one pack."""
    wanted = set(_stage_names(parts[0].unit))
    stages = [stage for stage in settings.stages if stage.name in wanted]
    annotators = load_annotators({annotation for stage in stages for annotation in stage.needs}, settings.annotators)
    batch = annotators.annotate(join(parts))
    whole = [stage for stage in stages if _is_by_source(stage)]
    own = _mapped_apart(parts, batch, [stage for stage in stages if not _is_by_source(stage)])
    if own is None:
        return {}
    for stage in whole:
        merged = merge(stage, [stage.map(batch)])
        for name, table in merged.items():
            for place, piece in enumerate(_by_source(table, len(parts))):
                own[place].setdefault(stage.name, {})[name] = piece
    emitted: list[dict[tuple[str, str], list[pa.Table]]] = [{} for _ in parts]
    first_rows = _first_rows(parts)
    for stage in stages:
        for name, keyed in stage.emit(batch).items():
            for place, piece in enumerate(_by_row(keyed.select(stage.emits[name].names), first_rows)):
                emitted[place][stage.name, name] = [piece]
    written = dict(_items_of(parts, batch, stages, own, emitted))
    if not written:
        return {}
    pack = PartialStore(settings.state).write_items(item for items in written.values() for item in items)
    return dict.fromkeys(written, Outcome(pack=str(pack)))


def _items_of(
    parts: Sequence[ReadPart],
    batch: DocBatch,
    stages: Sequence[Stage],
    partials: Sequence[Mapping[str, Partial]],
    emitted: Sequence[Mapping[tuple[str, str], list[pa.Table]]],
) -> Iterator[tuple[int, list[Item]]]:
    """Yield the place of each part and what is stored of it, unless its file has changed."""
    assert batch.digests is not None
    bounds = _bounds(parts)
    for part, (start, stop), own, rows in zip(parts, pairwise(bounds), partials, emitted, strict=True):
        if may_have_changed(part.unit):
            continue
        digests = row_digests(batch.digests[start:stop], part.batch.source_codes, part.batch.source_names)
        yield part.place, [*part_items(part.unit, stages, own, rows, digests.tobytes(), part.losses, part.stats)]


def join(parts: Iterable[ReadPart]) -> DocBatch:
    """Return the documents of parts as one batch: each source named by its part, too, and rows numbered on."""
    listed = list(parts)
    batches = [part.batch for part in listed]
    names = [f"{place}{_MARK}{name}" for place, batch in enumerate(batches) for name in batch.source_names]
    first_codes = np.cumsum([0, *(len(batch.source_names) for batch in batches)])
    first_rows = _first_rows(listed)
    return DocBatch(
        texts=pa.concat_arrays([batch.texts for batch in batches]),
        rows=np.concatenate([batch.rows + first for batch, first in zip(batches, first_rows, strict=True)]),
        source_codes=np.concatenate(
            [batch.source_codes + first for batch, first in zip(batches, first_codes[:-1], strict=True)]
        ).astype(np.int32),
        source_names=tuple(names),
    )


def _first_rows(parts: Sequence[ReadPart]) -> np.ndarray:
    """int64[parts] number of each part's first record in the bundle."""
    return np.cumsum([0, *(part.stats.records for part in parts)])[:-1]


def _bounds(parts: Sequence[ReadPart]) -> list[int]:
    """Return where each part's documents begin in the bundle, and where the last one's end."""
    ends: list[int] = np.cumsum([0, *(len(part.batch) for part in parts)]).tolist()
    return ends


def _is_by_source(stage: Stage) -> bool:
    """Tell whether all that a stage counts, it counts by source."""
    return all("source" in shape.keys for shape in stage.shapes().values())


def _mapped_apart(
    parts: Sequence[ReadPart], batch: DocBatch, stages: Sequence[Stage]
) -> list[dict[str, dict[str, pa.Table]]] | None:
    """Map each part by stages that do not count everything by source; None where an annotation cannot be cut."""
    assert batch.digests is not None
    partials: list[dict[str, dict[str, pa.Table]]] = []
    bounds = _bounds(parts)
    needs = {annotation for stage in stages for annotation in stage.needs}
    for part, (start, stop) in zip(parts, pairwise(bounds), strict=True):
        cut: dict[str, Any] = {}
        for annotation in needs:
            value = batch.get(annotation)
            cut[annotation.name] = value.part(start, stop) if isinstance(value, Divisible) else None
            if cut[annotation.name] is None:
                return None
        own = replace(part.batch, digests=batch.digests[start:stop], annotations=cut)
        partials.append({stage.name: dict(merge(stage, [stage.map(own)])) for stage in stages})
    return partials


def _by_source(table: pa.Table, number: int) -> list[pa.Table]:
    """Return what of a table belongs to each part, with the names that its sources have."""
    places, named = _unmarked(table)
    return _divided(named, places, number)


def _by_row(keyed: pa.Table, first_rows: np.ndarray) -> list[pa.Table]:
    """Return what of keyed rows belongs to each part, with the numbers and sources that they have there."""
    rows = keyed["row"].to_numpy()
    places = np.searchsorted(first_rows, rows, side="right") - 1
    index = keyed.schema.get_field_index("row")
    named = keyed.set_column(index, keyed.schema.field(index), pa.array(rows - first_rows[places], pa.int64()))
    if "source" in keyed.column_names:
        named = _unmarked(named)[1]
    return _divided(named, places, len(first_rows))


def _unmarked(table: pa.Table) -> tuple[np.ndarray, pa.Table]:
    """Return int64[rows] the part of each row by its source, and the table with the sources' own names."""
    index = table.schema.get_field_index("source")
    encoded = pa.concat_arrays([pa.array([], pa.string()), *table.column(index).chunks]).dictionary_encode()
    marked = [name.partition(_MARK) for name in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy()
    places = np.array([int(place) for place, _, _ in marked], dtype=np.int64)[codes]
    names = pa.array([name for _, _, name in marked], pa.string()).take(encoded.indices)
    return places, table.set_column(index, table.schema.field(index), names)


def _divided(table: pa.Table, places: np.ndarray, number: int) -> list[pa.Table]:
    """Return the rows of each part, in the order that they have."""
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(number + 1)).tolist()
    ordered, nothing = table.take(pa.array(order)).combine_chunks(), table.schema.empty_table()
    return [ordered.slice(start, stop - start) if stop > start else nothing for start, stop in pairwise(bounds)]
