"""What runs on a worker: probing a file and scanning a part. Knows files and stages, but not Dask.

Data errors come back as values; only input errors that may pass (``OSError`` other than a missing file)
are raised.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from functools import partial as bind
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dataaudit.corpus.address import RemotePath
from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.files import open_binary
from dataaudit.corpus.hub_dataset import RowsPath
from dataaudit.corpus.infer import peek
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.normal import row_digests, text_digests
from dataaudit.corpus.protected.file import DamagedIndexError
from dataaudit.corpus.protected.index import IndexFile, open_index
from dataaudit.corpus.protected.matching import Matcher
from dataaudit.corpus.readers import Part, PartStats, is_cut_by_decoding, plan_compressed, plan_parts, read_part
from dataaudit.corpus.readers.hub_rows import key_of_rows
from dataaudit.corpus.tokens import Encoder, Risks, TokenBatch, TokenizerFile, load_encoder
from dataaudit.detectors import LanguageIdentifier, LanguageModels, load_languages
from dataaudit.engine.index import stat_file
from dataaudit.engine.keys import SAMPLE_ONE_IN
from dataaudit.engine.store import PartialStore, StateFolderError
from dataaudit.engine.units import (
    READING,
    LinkUnit,
    Outcome,
    PeekUnit,
    Probe,
    ProbeUnit,
    RowsUnit,
    ScanSettings,
    ScanUnit,
    VisitUnit,
)
from dataaudit.engine.visiting import Visiting, documents_at, wanted_of, with_words
from dataaudit.errors import ConfigError, DetectorError
from dataaudit.link.keyed import DamagedRowsError, write_keyed
from dataaudit.stages.accumulate import Accumulator
from dataaudit.stages.base import Stage, nothing

Again = TypeVar("Again", ScanUnit, VisitUnit)
_HASH_BLOCK = 1 << 20
_HASHINGS = 2
_OF_THE_PATH = (Reason.NOT_FOUND, Reason.PERMISSION, Reason.CHANGED)
"""Reasons that another file of the same bytes does not share."""


def peek_shard(unit: PeekUnit) -> Outcome:
    """See a shard's columns."""
    columns = peek(unit.shard)
    return Outcome(columns=None if columns is None else tuple(columns.items()))


def digest_rows(unit: RowsUnit) -> Outcome:
    """Return the digest of a shard's decoded rows: the sha256 of its documents' row digests in order."""
    store, state, damaged = PartialStore(unit.state), hashlib.sha256(), []
    for key in unit.keys:
        rows = store.read_rows(READING, key)
        if rows is None:
            damaged.append(key)
        else:
            state.update(rows)
    return Outcome(digest=state.hexdigest(), damaged=tuple(damaged))


def link_partition(unit: LinkUnit) -> Outcome:
    """Join one partition of keyed rows and store the result."""
    return as_value(lambda: _link(unit))


def _link(unit: LinkUnit) -> Outcome:
    with pa.memory_map(os.fsencode(unit.files)) as source:
        files = pa.ipc.open_file(source).read_all()
    try:
        joined = unit.function(files, unit.start, unit.stop)
    except DamagedRowsError as error:
        return Outcome(damaged=tuple(map(_entry_of, error.paths)))
    store = PartialStore(unit.state)
    for name, schema in unit.emits.items():
        with store.writing():
            write_keyed(store.side_path(unit.kind, unit.key, name), [joined.keyed[name]], schema)
    store.write(unit.kind, unit.key, {}, joined.tables)
    return Outcome()


def _entry_of(path: str) -> str:
    """Return ``kind/key`` of the entry that keyed rows belong to."""
    return f"{Path(path).parent.parent.name}/{Path(path).name.partition('.')[0]}"


def probe_file(unit: ProbeUnit) -> Outcome:
    """Hash a file and cut it into parts."""
    return as_value(lambda: _probe(unit))


def scan_part(unit: ScanUnit, settings: ScanSettings) -> Outcome:
    """Read a part once and write the partial of every missing stage, then what the reading showed.

    When its file is gone, refuses or has changed since it was hashed, another file of the same bytes is read.
    """
    return _try_twins(_scan, unit, settings)


def visit_part(unit: VisitUnit, settings: ScanSettings) -> Outcome:
    """Read a part again and write what each of its visitors finds; twins are read as in :func:`scan_part`."""
    return _try_twins(_visit, unit, settings)


def _try_twins(function: Callable[[Again, ScanSettings], Outcome], unit: Again, settings: ScanSettings) -> Outcome:
    others: list[Again] = [unit]
    for path, stat in unit.twins:
        others.append(replace(unit, request=replace(unit.request, path=path), stat=stat, twins=()))
    last = others.pop()
    for one in others:
        with contextlib.suppress(OSError):
            outcome = as_value(bind(function, one, settings))
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
    try:
        return function()
    except (StateFolderError, ConfigError) as error:  # of the second kind: a worker that lacks a library
        return Outcome(fault=(error.message, error.hint))
    except ShardUnreadable as error:
        return Outcome(reason=error.reason, place=error.place)
    except FileNotFoundError:
        return Outcome(reason=Reason.NOT_FOUND)
    except PermissionError:
        return Outcome(reason=Reason.PERMISSION)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours costs one shard, by name, and never shows its text
        return Outcome(reason=Reason.INTERNAL, place=_origin(error))


def _origin(error: Exception) -> str:
    """Return the kind of an error and where it came from, without its message (that may hold text)."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"


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

    def add(self, batch: DocBatch) -> None:
        assert batch.digests is not None
        self.rows.append(row_digests(batch.digests, batch.source_codes, batch.source_names).tobytes())
        for stage in self.stages:
            if stage.name not in self.partials:
                self.partials[stage.name] = Accumulator(stage)
            self.partials[stage.name].add(stage.map(batch))
            for name, keyed in stage.emit(batch).items():
                self.emitted.setdefault((stage.name, name), []).append(keyed)

    def write(self, store: PartialStore, unit: ScanUnit) -> None:
        """Write every stage's partial, keyed rows before the partial that vouches for them."""
        keys = dict(unit.stage_keys)
        for stage in self.stages:
            key = keys[stage.name]
            for name, schema in stage.emits.items():
                with store.writing():
                    path = store.side_path(stage.name, key, name)
                    write_keyed(path, self.emitted.get((stage.name, name), []), schema)
            collected = self.partials.get(stage.name)
            store.write(stage.name, key, {}, nothing(stage) if collected is None else collected.result())
        store.write_rows(READING, unit.reading_key, b"".join(self.rows))


def _scan(unit: ScanUnit, settings: ScanSettings) -> Outcome:
    wanted = {name for name, _ in unit.stage_keys}
    stages = [stage for stage in settings.stages if stage.name in wanted]
    encoder = _encoder(settings) if any(stage.needs_tokens for stage in stages) else None
    identifier = _identifier(settings) if any(stage.needs_languages for stage in stages) else None
    matcher = _matcher(settings) if any(stage.needs_matches for stage in stages) else None
    words = any(stage.needs_words for stage in stages)
    losses, stats, collected = LossLog(), PartStats(), _Collected(stages)
    unreadable: ShardUnreadable | None = None
    try:
        for raw in read_part(unit.request, losses, stats):
            collected.add(_complete(raw, encoder, identifier, matcher, words=words))
    except ShardUnreadable as error:
        unreadable = error
    if _may_have_changed(unit) and hash_file(unit.request.path) != unit.sha256:
        raise ShardUnreadable(Reason.CHANGED)
    store = PartialStore(settings.state)
    if unreadable is None:
        collected.write(store, unit)
    store.write(READING, unit.reading_key, _reading(losses, stats, unreadable), {})
    if unreadable is not None:
        return Outcome(reason=unreadable.reason, place=unreadable.place)
    return Outcome()


def _visit(unit: VisitUnit, settings: ScanSettings) -> Outcome:
    store = PartialStore(settings.state)
    visiting = [Visiting(visitor, key, wanted_of(store, key)) for visitor, key in unit.visits]
    rows = np.unique(np.concatenate([one.rows for one in visiting]))
    seen = 0
    for raw in read_part(unit.request, LossLog(), PartStats(), frozenset(rows.tolist())):
        chosen = documents_at(raw, rows)
        if len(chosen):
            seen += len(chosen)
            for one in visiting:
                one.see(chosen, lambda texts: _encode(texts, settings))
        if len(raw) and raw.rows[-1] >= rows[-1]:
            break
    if _may_have_changed(unit) and hash_file(unit.request.path) != unit.sha256:
        raise ShardUnreadable(Reason.CHANGED)
    assert seen == len(rows), "every wanted document was read before"
    for one in visiting:
        one.write(store)
    return Outcome()


def _encode(texts: pa.LargeStringArray, settings: ScanSettings) -> TokenBatch:
    """Encode texts that are parts of documents; their encoder was checked in the scan."""
    return _encoder(settings).encode(texts, np.zeros(len(texts), dtype=np.uint64))


def _may_have_changed(unit: ScanUnit | VisitUnit) -> bool:
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
        "columns": sorted(stats.columns),
        "reason": str(unreadable.reason) if unreadable else "",
        "place": unreadable.place if unreadable else "",
        "bad": {
            str(reason): [losses.records[reason], losses.num_bytes[reason], losses.places[reason]]
            for reason in sorted(losses.records)
        },
    }


def _complete(
    batch: DocBatch,
    encoder: Encoder | None,
    identifier: LanguageIdentifier | None,
    matcher: Matcher | None,
    *,
    words: bool,
) -> DocBatch:
    digests = text_digests(batch.texts)
    identity = np.ascontiguousarray(digests[:, :8]).view("<u8").reshape(-1)
    tokens = None if encoder is None else encoder.encode(batch.texts, identity)
    languages = None if identifier is None else identifier.identify(batch.texts, identity)
    cut = with_words(batch) if words or matcher is not None else batch
    matches = None
    if matcher is not None:
        assert cut.words is not None
        matches = matcher.match(cut.words, batch.byte_values(), batch.byte_offsets())
    return replace(cut, digests=digests, tokens=tokens, languages=languages, matches=matches)


def _encoder(settings: ScanSettings) -> Encoder:
    """Load the encoders once a process.

    Raises:
        StateFolderError: They cannot be loaded, which is no shard's fault.
    """
    try:
        return _load_once(settings.tokenizer, settings.risks, settings.force_reference, settings.seed)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - `tokenizers` raises `Exception` itself
        raise StateFolderError(
            f"a worker cannot load the tokenizer {settings.tokenizer.name} ({_origin(error)})",
            f"Expected it in {settings.state}; check that every worker can read that folder, then run again.",
        ) from None


def _identifier(settings: ScanSettings) -> LanguageIdentifier:
    """Load the language detectors once a process.

    Raises:
        StateFolderError: They cannot be loaded, which is no shard's fault.
    """
    assert settings.languages is not None, "the detectors are prepared when a stage needs languages"
    try:
        return _load_languages_once(settings.languages, settings.seed)
    except DetectorError as error:
        raise StateFolderError(f"a worker cannot load a language detector: {error.message}", error.hint) from None


def _matcher(settings: ScanSettings) -> Matcher:
    """Map the index of what is protected once a process.

    Raises:
        StateFolderError: It is not there or not whole, which is no shard's fault.
    """
    assert settings.protected is not None, "the index is built when a stage needs matches"
    try:
        return _open_once(settings.protected)
    except DamagedIndexError as error:
        raise StateFolderError(
            f"a worker cannot read the index of protected sets {error.path}",
            f"Every worker has to see {settings.state}; run the same command again and the index is built anew.",
        ) from None


@lru_cache(maxsize=1)
def _open_once(file: IndexFile) -> Matcher:
    index, sha256 = open_index(file.path)
    if sha256 != file.sha256:
        raise DamagedIndexError(str(file.path))
    return Matcher(index)


@lru_cache(maxsize=1)
def _load_languages_once(models: LanguageModels, seed: int) -> LanguageIdentifier:
    return load_languages(models, seed=seed)


@lru_cache(maxsize=1)
def _load_once(tokenizer: TokenizerFile, risks: Risks, force_reference: bool, seed: int) -> Encoder:
    return load_encoder(tokenizer, risks, force_reference=force_reference, sample_one_in=SAMPLE_ONE_IN, seed=seed)
