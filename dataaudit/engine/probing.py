"""Before the plan: hash the files that are not known, and see the columns where nothing names them."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from dataaudit.config import AuditConfig, Split, nearest
from dataaudit.corpus.hive import partition_columns
from dataaudit.corpus.infer import TEXT_NAMES, infer_source, infer_text, is_held_out_name, is_plain_name, named_text
from dataaudit.corpus.loss import Reason
from dataaudit.corpus.readers import READER_VERSION, Part
from dataaudit.corpus.shards import Shard
from dataaudit.corpus.storage.files import FileStat, listed_stat
from dataaudit.engine.index import StatIndex
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.shard_list import ShardList
from dataaudit.engine.spool import TextWriter, Values, packed
from dataaudit.engine.units import Outcome, PeekUnit, Probe, ProbeUnit
from dataaudit.engine.work import peek_shard, probe_file
from dataaudit.manifest.formats import has_columns
from dataaudit.manifest.text_columns import differing_texts
from dataaudit.on_demand import OnDemand

_PEEKS, _MOST_PEEKS = 5, 32
"""Shards of a split whose columns are seen; the most where these have no text by name."""


class Probed:
    """What was found in the files of shards.

    Args:
        shards: All of them.
        folder: Where probes are written, below the state folder.

    Raises:
        StateFolderError: The folder cannot be written.
    """

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


class _Units(OnDemand[ProbeUnit]):
    """The files that are hashed, each made when it is asked for."""

    def __init__(self, shards: ShardList, firsts: Sequence[int], part_bytes: int, text_document: str) -> None:
        self.firsts = firsts
        self.sizes = shards.light["size"][list(firsts)]
        """int64[k] stored bytes of each."""
        self._shards, self._part_bytes, self._text_document = shards, part_bytes, text_document

    def __len__(self) -> int:
        return len(self.firsts)

    def item(self, place: int) -> ProbeUnit:
        """Make one."""
        shard = self._shards[self.firsts[place]]
        return ProbeUnit(
            path=shard.path,
            format=shard.format,
            compression=shard.compression,
            part_bytes=self._part_bytes,
            size=shard.size,
            text_document=self._text_document,
        )


def probe_shards(
    shards: ShardList,
    index: StatIndex,
    runner: Runner,
    progress: Progress,
    folder: Path,
    *,
    part_bytes: int,
    text_document: str,
    rehash: bool,
) -> Probed:
    """Find out what the file of every shard is, each file once.

    Args:
        shards: All of them.
        index: What is known of files.
        runner: Where to hash.
        progress: Where to report.
        folder: Where probes are written, below the state folder.
        part_bytes: Of a part of a file.
        text_document: What is a document in a file of plain text.
        rehash: Hash files that are known, too.

    Raises:
        ClusterError: The work cannot be done on these workers.
    """
    found = Probed(shards, folder)
    recipe = f"{READER_VERSION}/{part_bytes}/{text_document}"
    unknown, unchanged, unvouched = array("q"), 0, 0
    firsts = found.firsts(shards)
    for first in progress.over("index", firsts.tolist(), len(firsts)):
        known = None if rehash else _known(shards[first].path, index, recipe)
        if known is None:
            unknown.append(first)
        else:
            found.add(first, known)
            unchanged += 1
            unvouched += not known.stat.validator
    if unchanged:
        progress.note(f"hash: {unchanged:,} files are unchanged")
    todo = _Units(shards, unknown, part_bytes, text_document)
    progress.begin("hash", len(todo), int(todo.sizes.sum()))

    def done(position: int, outcome: Outcome) -> bool:
        nonlocal unvouched
        first, probe = unknown[position], outcome.probe
        if probe is not None:
            found.add(first, probe)
            unvouched += not probe.stat.validator
            if probe.reason is None:
                index.store([(shards[first].path, probe.stat, probe.hashed_ns, _pack(probe, recipe))])
        else:
            found.fail(first, outcome.reason or Reason.INTERNAL, outcome.place)
        progress.advance(int(todo.sizes[position]), failed=probe is None)
        return True

    runner.run("hash", probe_file, todo, done)
    progress.end()
    if unvouched:
        said = f"{unvouched:,} remote file(s) have no ETag, checksum or time, so they are hashed in every build"
        progress.note(f"hash: {said}")
        runner.notes.append(said)
    for said in index.notes():
        progress.note(said, important=True)
        runner.notes.append(said)
    return found.done()


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
    """Return the config with text and source of every split filled in.

    Raises:
        ConfigError: What was left out cannot be inferred.
    """
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
    if different := differing_texts(columns):
        warn(different)
    return config.model_copy(update={"splits": splits})


def _seen(name: str, split: Split, shards: ShardList, runner: Runner) -> list[dict[str, str]]:
    """Return what the columns of a split's first shards hold; of more of them where these have no text by name."""
    first = islice(shards.of_split(name), _MOST_PEEKS)
    seen = _columns(islice(first, _PEEKS), runner)
    return seen if split.text or named_text(seen) else [*seen, *_columns(first, runner)]


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
    found: dict[int, dict[str, str]] = {}
    units = [PeekUnit(shard=shard) for shard in shards]

    def done(position: int, outcome: Outcome) -> bool:
        if outcome.columns is not None:
            found[position] = dict(outcome.columns)
        return True

    runner.run("peek", peek_shard, units, done)
    return [found[position] for position in sorted(found)]
