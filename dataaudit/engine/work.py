"""What runs on a worker: probing a file and scanning a part. Knows files and stages, but not Dask.

Data errors come back as values; only input errors that may pass (``OSError`` other than a missing file)
are raised.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.infer import peek
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.normal import row_digests, text_digests
from dataaudit.corpus.readers import Part, PartStats, ReadRequest, plan_parts, read_part
from dataaudit.corpus.shards import Compression, Format, Shard
from dataaudit.corpus.tokens import Encoder, Risks, TokenizerFile, load_encoder
from dataaudit.engine.index import FileStat, stat_file
from dataaudit.engine.keys import SAMPLE_ONE_IN
from dataaudit.engine.store import PartialStore, write_atomic
from dataaudit.link.exact import link_exact
from dataaudit.link.keyed import write_keyed
from dataaudit.stages.base import Stage, merge
from dataaudit.stages.partial import Partial

READING = "reading"
_MERGE_EVERY = 64
_HASH_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeUnit:
    """A file to hash and to cut into parts."""

    path: str
    format: Format
    compression: Compression
    part_bytes: int
    size: int
    """Stored bytes, to size tasks by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a file is."""

    stat: FileStat
    sha256: str
    hashed_ns: int
    parts: tuple[Part, ...]
    reason: Reason | None = None
    """Why it cannot be read, when it cannot."""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanUnit:
    """One part to read, and the stages whose partials of it are missing."""

    request: ReadRequest
    stat: FileStat
    """What the file was when it was hashed."""
    reading_key: str
    stage_keys: tuple[tuple[str, str], ...]
    """(stage name, key) of the missing partials."""
    size: int
    """Stored bytes of the part, to size tasks by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSettings:
    """What all units of a scan share."""

    state: Path
    stages: tuple[Stage, ...]
    tokenizer: TokenizerFile
    risks: Risks
    force_reference: bool
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a unit; small enough for the scheduler."""

    reason: Reason | None = None
    """Why it could not be read, when it could not."""
    place: str = ""
    differing: int = 0
    """Documents of the sample on which the two encoders differed."""
    probe: Probe | None = None
    """For a probe."""
    columns: tuple[tuple[str, bool], ...] | None = None
    """For a peek: column names, and whether each holds strings."""
    digest: str = ""
    """For a digest of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekUnit:
    """A shard whose columns are to be seen."""

    shard: Shard
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsUnit:
    """A shard whose decoded rows are to be digested: the row digests of its parts, in order."""

    paths: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUnit:
    """A partition of the key space, and where its result goes."""

    files: Path
    start: int
    stop: int
    state: Path
    kind: str
    key: str
    size: int


def peek_shard(unit: PeekUnit) -> Outcome:
    """See a shard's columns."""
    columns = peek(unit.shard)
    return Outcome(columns=None if columns is None else tuple(columns.items()))


def digest_rows(unit: RowsUnit) -> Outcome:
    """Return the digest of a shard's decoded rows: the sha256 of its documents' row digests in order."""
    state = hashlib.sha256()
    for path in unit.paths:
        state.update(Path(path).read_bytes())
    return Outcome(digest=state.hexdigest())


def link_partition(unit: LinkUnit) -> Outcome:
    """Join one partition of the exact-duplicate keys and store the result."""
    with pa.memory_map(str(unit.files)) as source:
        files = pa.ipc.open_file(source).read_all()
    linked = link_exact(files, unit.start, unit.stop)
    tables = {"counts": linked.counts, "members": linked.members}
    PartialStore(unit.state).write(unit.kind, unit.key, {}, tables)
    return Outcome()


def probe_file(unit: ProbeUnit) -> Outcome:
    """Hash a file and cut it into parts."""
    return _as_value(lambda: _probe(unit))


def scan_part(unit: ScanUnit, settings: ScanSettings) -> Outcome:
    """Read a part once and write the partial of every missing stage, then what the reading showed."""
    return _as_value(lambda: _scan(unit, settings))


def hash_file(path: Path) -> str:
    """Return the sha256 of a file's bytes, hex."""
    state = hashlib.sha256()
    with path.open("rb", buffering=0) as handle:
        while block := handle.read(_HASH_BLOCK):
            state.update(block)
    return state.hexdigest()


def _as_value(function: Callable[[], Outcome]) -> Outcome:
    try:
        return function()
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
    hashed_ns = time.time_ns()
    sha256 = hash_file(Path(unit.path))
    if stat_file(unit.path) != stat:
        raise ShardUnreadable(Reason.CHANGED)
    probe = Probe(stat=stat, sha256=sha256, hashed_ns=hashed_ns, parts=())
    try:
        parts = plan_parts(unit.path, unit.format, unit.compression, stat.size, unit.part_bytes)
        probe = replace(probe, parts=tuple(parts))
    except ShardUnreadable as error:
        probe = replace(probe, reason=error.reason, place=error.place)
    return Outcome(probe=probe)


@dataclass(slots=True)
class _Collected:
    """What a scan has collected of its part so far."""

    stages: list[Stage]
    partials: dict[str, list[Partial]] = field(default_factory=dict)
    emitted: dict[str, list[pa.Table]] = field(default_factory=dict)
    rows: list[bytes] = field(default_factory=list)
    differing: int = 0

    def add(self, batch: DocBatch) -> None:
        assert batch.digests is not None
        self.rows.append(row_digests(batch.digests, batch.source_codes, batch.source_names).tobytes())
        self.differing += batch.tokens.differing if batch.tokens is not None else 0
        for stage in self.stages:
            held = self.partials.setdefault(stage.name, [])
            held.append(stage.map(batch))
            if len(held) >= _MERGE_EVERY:
                self.partials[stage.name] = [merge(stage, held)]
            keyed = stage.emit(batch)
            if keyed is not None:
                self.emitted.setdefault(stage.name, []).append(keyed)

    def write(self, store: PartialStore, unit: ScanUnit) -> None:
        """Write every stage's partial, keyed rows before the partial that vouches for them."""
        keys = dict(unit.stage_keys)
        for stage in self.stages:
            key = keys[stage.name]
            if stage.emits is not None:
                write_keyed(store.side_path(stage.name, key), self.emitted.get(stage.name, []), stage.emits)
            store.write(stage.name, key, {}, merge(stage, self.partials.get(stage.name, [])))
        write_atomic(store.side_path(READING, unit.reading_key), b"".join(self.rows))


def _scan(unit: ScanUnit, settings: ScanSettings) -> Outcome:
    wanted = {name for name, _ in unit.stage_keys}
    stages = [stage for stage in settings.stages if stage.name in wanted]
    encoder = _encoder(settings) if any(stage.needs_tokens for stage in stages) else None
    losses, stats, collected = LossLog(), PartStats(), _Collected(stages)
    unreadable: ShardUnreadable | None = None
    try:
        for raw in read_part(unit.request, losses, stats):
            collected.add(_complete(raw, encoder))
    except ShardUnreadable as error:
        unreadable = error
    if stat_file(unit.request.path) != unit.stat:
        raise ShardUnreadable(Reason.CHANGED)
    store = PartialStore(settings.state)
    if unreadable is None:
        collected.write(store, unit)
    store.write(READING, unit.reading_key, _reading(losses, stats, unreadable), {})
    if unreadable is not None:
        return Outcome(reason=unreadable.reason, place=unreadable.place)
    return Outcome(differing=collected.differing)


def _reading(losses: LossLog, stats: PartStats, unreadable: ShardUnreadable | None) -> dict[str, object]:
    """Return what reading a part showed, as plain JSON values."""
    return {
        "records": stats.records,
        "columns": sorted(hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:16] for name in stats.columns),
        "reason": str(unreadable.reason) if unreadable else "",
        "place": unreadable.place if unreadable else "",
        "bad": {
            str(reason): [losses.records[reason], losses.num_bytes[reason], losses.places[reason]]
            for reason in sorted(losses.records)
        },
    }


def _complete(batch: DocBatch, encoder: Encoder | None) -> DocBatch:
    digests = text_digests(batch.texts)
    tokens = None
    if encoder is not None:
        identity = np.ascontiguousarray(digests[:, :8]).view("<u8").reshape(-1)
        tokens = encoder.encode(batch.texts, identity)
    return replace(batch, digests=digests, tokens=tokens)


def _encoder(settings: ScanSettings) -> Encoder:
    return _load_once(settings.tokenizer, settings.risks, settings.force_reference, settings.seed)


@lru_cache(maxsize=1)
def _load_once(tokenizer: TokenizerFile, risks: Risks, force_reference: bool, seed: int) -> Encoder:
    return load_encoder(tokenizer, risks, force_reference=force_reference, sample_one_in=SAMPLE_ONE_IN, seed=seed)
