"""Plan, first: hash the files of all shards, cut them into parts, and infer the columns that the config does not name.

The index of hashes spares reading files that have not changed. A row counts when size, mtime, ctime, inode and device
are the same and the file was two seconds old when it was hashed, so that no change hides within the clock's
granularity. A remote file needs the same size and validator (an ETag, a checksum, a version); a time alone must have
been a minute old. Each row has its digest, since SQLite checks none. A damaged index is made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson

from dataaudit.base.lazy import LazySequence
from dataaudit.base.sealing import seal
from dataaudit.base.text import plural
from dataaudit.base.yamlfile import nearest
from dataaudit.config import AuditConfig, Reader, Split
from dataaudit.engine.plan_shards import ShardList
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Outcome, PeekUnit, Probe, ProbeUnit, Runner, Services, run_units
from dataaudit.engine.scan import as_outcome, hash_file
from dataaudit.engine.store_columns import TextWriter, Values, packed
from dataaudit.manifest.formats import has_columns
from dataaudit.manifest.load import differing_text_columns
from dataaudit.scan.corpus.fields import partition_columns
from dataaudit.scan.corpus.infer import (
    TEXT_NAMES,
    infer_source,
    infer_text,
    is_held_out_name,
    is_plain_name,
    named_text,
    peek,
)
from dataaudit.scan.corpus.loss import Reason, ShardUnreadable
from dataaudit.scan.corpus.readers import READER_VERSION, Part, is_cut_by_decoding, plan_compressed, plan_parts
from dataaudit.scan.corpus.shards import Shard
from dataaudit.scan.corpus.storage.files import LOCAL, FileStat, listed_stat, stat_file

_SETTLED_NS = 2_000_000_000
_SETTLED_REMOTE_NS = 60_000_000_000
_PENDING_ROWS = 256
_PENDING_SECONDS = 1.0
_SCHEMA = "create table if not exists files (path blob primary key, row blob) without rowid"
_FIND = "select row from files where path = ?"
_STORE = "insert or replace into files values (?, ?)"
_DIGEST_BYTES = 32
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
"""What SQLite says when the database itself may be well."""


class StatIndex:
    """Maps unchanged files to what was found when they were hashed; written by the driver alone."""

    def __init__(self, path: Path, *, seconds: float = 20.0) -> None:
        self.fault = ""
        """Why the index is done without; empty while it works."""
        self.renewed = ""
        """Why the database was made anew; empty when it was not."""
        self.damaged = 0
        """Rows that were not as they were written."""
        self._path, self._seconds = path, seconds
        self._database: sqlite3.Connection | None = None
        self._pending: list[tuple[bytes, bytes]] = []
        self._stored = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except (sqlite3.Error, OSError) as error:
            self._recover(error)

    def _open(self) -> None:
        self._database = sqlite3.connect(self._path, timeout=self._seconds)
        self._database.execute(_SCHEMA)
        self._database.execute("select count(*) from files").fetchone()

    def find(self, path: str, stat: FileStat) -> dict[str, Any] | None:
        """Return what was stored for a file, if it is unchanged."""
        if self._database is None:
            return None
        try:
            row = self._database.execute(_FIND, (os.fsencode(path),)).fetchone()
        except sqlite3.Error as error:
            self._recover(error)
            return None
        if row is None or not stat.validator:
            return None
        content = row[0][_DIGEST_BYTES:] if isinstance(row[0], bytes) else b""
        if row[0] != _row(os.fsencode(path), content):
            self.damaged += 1
            return None
        value: dict[str, Any] = orjson.loads(content)
        if value["stat"] != _as_text(stat):
            return None
        margin = _SETTLED_NS if stat.validator == LOCAL else _SETTLED_REMOTE_NS
        settled = max(stat.mtime_ns, stat.ctime_ns) + margin <= value["hashed_ns"]
        return value["probe"] if settled else None

    def notes(self) -> Iterator[str]:
        """Yield in words what was damaged, so that its files were hashed again, and why the index is done without."""
        if self.renewed:
            yield f"{self._path.name}: the index of hashed files was damaged and is made anew ({self.renewed})"
        if self.damaged:
            yield f"{self._path.name}: {plural(self.damaged, 'damaged row')}, so as many files are hashed again"
        if self.fault:
            yield f"the index of hashed files was done without: {self.fault}"

    def store(self, rows: Iterable[tuple[str, FileStat, int, dict[str, Any]]]) -> None:
        """Store (path, stat, time of hashing in ns, JSON value); they reach the disk within moments."""
        for path, stat, hashed_ns, probe in rows:
            name = os.fsencode(path)
            content = orjson.dumps({"stat": _as_text(stat), "hashed_ns": hashed_ns, "probe": probe})
            self._pending.append((name, _row(name, content)))
        if len(self._pending) >= _PENDING_ROWS or time.monotonic() - self._stored >= _PENDING_SECONDS:
            self._flush()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self._stored = time.monotonic()
        if self._database is None or not pending:
            return
        try:
            self._write(pending)
        except sqlite3.Error as error:
            self._recover(error)
            with contextlib.suppress(sqlite3.Error):
                self._write(pending)

    def _write(self, rows: list[tuple[bytes, bytes]]) -> None:
        if self._database is not None:
            with self._database:
                self._database.executemany(_STORE, rows)

    def _recover(self, error: Exception) -> None:
        """Make a damaged database anew, once: that costs one pass of hashing, never a wrong number."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if isinstance(error, OSError) or code in _PASSING or self.renewed:
            self._give_up(error)
            return
        self.renewed = str(error)
        self._drop()
        try:
            for suffix in ("", "-journal"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._open()
        except (sqlite3.Error, OSError) as again:
            self._give_up(again)

    def _give_up(self, error: Exception) -> None:
        self.fault = self.fault or str(error)
        self._drop()

    def _drop(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()

    def close(self) -> None:
        """Write what is pending and close the database."""
        self._flush()
        self._drop()


def _row(path: bytes, content: bytes) -> bytes:
    """Return what is stored: content after the seal of it and its path."""
    state = seal(len(path).to_bytes(8, "little") + path)
    state.update(content)
    return state.digest() + content


def _as_text(stat: FileStat) -> str:
    """Return a stat as text: inodes and devices may be larger than the database's integers."""
    return " ".join(map(str, astuple(stat)))


_PEEKS, _MOST_PEEKS = 5, 32
"""Shards of a split whose columns are seen; the most where these have no text by name."""


class Probed:
    """What was found in the files of shards."""

    def __init__(self, shards: ShardList, folder: Path) -> None:
        self._files = shards.files()
        self._numbers = np.full(len(shards), -1, dtype=np.int64)
        self._failures: dict[int, tuple[Reason, str]] = {}
        self._written, self._number = TextWriter(folder), 0
        self._probes: Values[Probe] | None = None

    def firsts(self, shards: ShardList) -> np.ndarray:
        """Return int64[k]: of each file that is to be read, the first shard."""
        return np.flatnonzero(shards.light["read"] & (self._files == np.arange(len(shards))))

    def add(self, first: int, probe: Probe) -> None:
        """Take the probe of a file, by its first shard."""
        parts = tuple((part.start, part.stop, *part.restart) for part in probe.parts)
        reason = None if probe.reason is None else str(probe.reason)
        stat = probe.stat
        numbers = map(str, (stat.mtime_ns, stat.ctime_ns, stat.inode, stat.device))  # of any size
        seen = (stat.size, *numbers, stat.validator)
        plain = (seen, probe.sha256, probe.hashed_ns, parts, reason, probe.place)
        self._written.append(packed(plain))
        self._numbers[first], self._number = self._number, self._number + 1

    def fail(self, first: int, reason: Reason, place: str) -> None:
        """Take why a file could not be looked at, by its first shard."""
        self._failures[first] = reason, place

    def done(self) -> Self:
        """End taking them."""
        self._probes = Values(self._written.done(), _made)
        return self

    def probe(self, ordinal: int) -> Probe | None:
        """Return the probe of a shard's file; None when there is none."""
        number = int(self._numbers[self._files[ordinal]])
        return None if number < 0 or self._probes is None else self._probes[number]

    def of(self, ordinal: int) -> tuple[Probe | None, tuple[Reason, str] | None]:
        """Return the probe of a shard's file, or why there is none."""
        return self.probe(ordinal), self.failure(ordinal)

    def failure(self, ordinal: int) -> tuple[Reason, str] | None:
        """Return why a shard's file could not be looked at, and where; None when it could."""
        return self._failures.get(int(self._files[ordinal]))


def _made(plain: tuple[Any, ...]) -> Probe:
    (size, *numbers, validator), sha256, hashed_ns, parts, reason, place = plain
    mtime, ctime, inode, device = map(int, numbers)
    return Probe(
        stat=FileStat(size=size, mtime_ns=mtime, ctime_ns=ctime, inode=inode, device=device, validator=validator),
        sha256=sha256,
        hashed_ns=hashed_ns,
        parts=tuple(Part(start, stop, (stored, decoded)) for start, stop, stored, decoded in parts),
        reason=None if reason is None else Reason(reason),
        place=place,
    )


class _Units(LazySequence[ProbeUnit]):
    """The files that are hashed, each made when it is asked for."""

    def __init__(self, shards: ShardList, firsts: Sequence[int], part_bytes: int, text_document: str) -> None:
        self.firsts = firsts
        self.sizes = shards.light["size"][list(firsts)]
        self._shards, self._part_bytes, self._text_document = shards, part_bytes, text_document

    def __len__(self) -> int:
        return len(self.firsts)

    def item(self, place: int) -> ProbeUnit:
        """Make an item."""
        shard = self._shards[self.firsts[place]]
        return ProbeUnit(
            path=shard.path,
            format=shard.format,
            compression=shard.compression,
            part_bytes=self._part_bytes,
            size=shard.size,
            text_document=self._text_document,
        )


def probe_shards(shards: ShardList, services: Services, reader: Reader, *, rehash: bool) -> Probed:
    """Find out what the file of every shard is, each file once."""
    progress, notes = services.progress, services.runner.notes
    part_bytes, text_document = reader.part_bytes, reader.text_document
    probed = Probed(shards, services.store.root)
    recipe = f"{READER_VERSION}/{part_bytes}/{text_document}"
    unknown, unchanged, unvouched = array("q"), 0, 0
    with closing(StatIndex(services.store.root / "files.sqlite")) as index:
        firsts = probed.firsts(shards)
        for first in progress.over("index", firsts.tolist(), len(firsts)):
            known = None if rehash else _known(shards[first].path, index, recipe)
            if known is None:
                unknown.append(first)
            else:
                probed.add(first, known)
                unchanged += 1
                unvouched += not known.stat.validator
        if unchanged:
            progress.note(f"hash: {unchanged:,} files are unchanged")
        todo = _Units(shards, unknown, part_bytes, text_document)

        def done(position: int, outcome: Outcome) -> None:
            nonlocal unvouched
            first, probe = unknown[position], outcome.probe
            if probe is not None:
                probed.add(first, probe)
                unvouched += not probe.stat.validator
                if probe.reason is None:
                    index.store([(shards[first].path, probe.stat, probe.hashed_ns, _pack(probe, recipe))])
            else:
                probed.fail(first, outcome.reason or Reason.INTERNAL, outcome.place)

        run_units("hash", probe_file, todo, services, on_outcome=done)
        if unvouched:
            note = f"{unvouched:,} remote file(s) have no ETag, checksum or time, so they are hashed in every build"
            progress.note(f"hash: {note}")
            notes.append(note)
        for note in index.notes():
            progress.note(note, important=True)
            notes.append(note)
    return probed.done()


def _known(path: str, index: StatIndex, recipe: str) -> Probe | None:
    try:
        stat = listed_stat(path)
    except OSError:
        return None
    value = index.find(path, stat)
    if value is None or value["recipe"] != recipe:
        return None
    parts = tuple(Part(start, stop, (stored, decoded)) for start, stop, stored, decoded in value["parts"])
    return Probe(stat=stat, sha256=value["sha256"], hashed_ns=value["hashed_ns"], parts=parts)


def _pack(probe: Probe, recipe: str) -> dict[str, Any]:
    return {
        "recipe": recipe,
        "sha256": probe.sha256,
        "hashed_ns": probe.hashed_ns,
        "parts": [[part.start, part.stop, *part.restart] for part in probe.parts],
    }


def resolve_columns(config: AuditConfig, shards: ShardList, runner: Runner, progress: Progress) -> AuditConfig:
    """Return the config with text and source of every split filled in."""
    seen = {name: _seen(name, split, shards, runner) for name, split in config.splits.items()}

    def warn(text: str) -> None:
        runner.notes.append(text)
        progress.note(f"warning: {text}", important=True)

    given_first = sorted(config.splits.items(), key=lambda item: (item[1].text is None, item[0]))
    read = [text for name, split in given_first if (text := split.text or named_text(seen[name]))]
    splits = dict(config.splits)
    for name, split in splits.items():
        for warning in _warnings(name, split, seen[name], shards):
            warn(warning)
        if split.text is not None and split.source is not None:
            continue
        holds_nothing = not seen[name] and all(_is_empty(shard) for shard in shards.of_split(name))
        usual = next(iter(read), TEXT_NAMES[0])
        text = split.text or (usual if holds_nothing else infer_text(name, seen[name], read))
        source = split.source or infer_source(shards.of_split(name), next(iter(seen[name]), {}))
        splits[name] = split.model_copy(update={"text": text, "source": source})
        (kind, value) = next(iter(source.model_dump(exclude_none=True).items()))
        how = "given" if split.text else "inferred"
        progress.note(f"inferred: split {name}: text column `{text}` ({how}), source from {kind} `{value}`")
    columns = {
        name: text
        for name, split in splits.items()
        if (text := split.text) and any(has_columns(shard.format) for shard in shards.of_split(name))
    }
    if different := differing_text_columns(columns):
        warn(different)
    return config.model_copy(update={"splits": splits})


def _seen(name: str, split: Split, shards: ShardList, runner: Runner) -> list[dict[str, str]]:
    """Return what the columns of a split's first shards hold; of more of them where these have no text by name.

    Plain text has no columns: it says nothing of the others, and is read whatever their text is called.
    """
    first = islice((shard for shard in shards.of_split(name) if has_columns(shard.format)), _MOST_PEEKS)
    seen = _columns(islice(first, _PEEKS), runner)
    if not (split.text or named_text(seen)):
        seen += _columns(first, runner)
    return seen or _columns(islice(shards.of_split(name), _PEEKS), runner)


def _is_empty(shard: Shard) -> bool:
    """Return whether a shard is a local file without a byte: it has no columns to infer from, and needs none."""
    return os.path.isfile(shard.path) and os.path.getsize(shard.path) == 0


def _warnings(name: str, split: Split, seen: list[dict[str, str]], shards: ShardList) -> Iterator[str]:
    """Say what in a split's rules looks like a slip; the build goes on, and the ledger has the outcome."""
    if is_held_out_name(name) and not split.held_out:
        yield f"split {name} is not marked `held_out: true`, so it counts as training data"
    known = sorted({column for columns in seen for column in columns})
    shown = [column for column in known if is_plain_name(column)]
    source = split.source.column if split.source is not None else None
    if source is not None and any(source in partition_columns(shard.uri) for shard in shards.of_split(name)):
        source = None
    hint = "; where the names of folders are the sources, write `source: {pattern: '(?P<source>[^/]+)/[^/]+$'}`"
    for role, column, more in (("text", split.text, ""), ("source", source, hint)):
        if column is None or not known or column in known or column.split(".")[0] in known:
            continue
        yield (
            f"none of the first {len(seen)} shard(s) of split {name} has the {role} column `{column}`"
            f"{nearest(column, shown)}{more}"
        )


def _columns(shards: Iterable[Shard], runner: Runner) -> list[dict[str, str]]:
    """Return what the columns of each shard that has any hold, in order."""
    columns: dict[int, dict[str, str]] = {}
    units = [PeekUnit(shard=shard) for shard in shards]

    def done(position: int, outcome: Outcome) -> None:
        if outcome.columns is not None:
            columns[position] = dict(outcome.columns)

    runner.run("peek", peek_shard, units, done)
    return [columns[position] for position in sorted(columns)]


_HASHINGS = 2


def peek_shard(unit: PeekUnit) -> Outcome:
    """See a shard's columns."""
    columns = peek(unit.shard)
    return Outcome(columns=None if columns is None else tuple(columns.items()))


@as_outcome
def probe_file(unit: ProbeUnit) -> Outcome:
    """Hash a file and cut it into parts."""
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
