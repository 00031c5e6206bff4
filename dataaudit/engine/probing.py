"""Before the plan: hash the files that are not known, and see the columns where nothing names them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from dataaudit.config import AuditConfig, Split, nearest
from dataaudit.corpus.infer import TEXT_NAMES, infer_source, infer_text, is_held_out_name, is_plain_name
from dataaudit.corpus.loss import Reason
from dataaudit.corpus.readers import READER_VERSION, Part
from dataaudit.corpus.shards import Shard
from dataaudit.corpus.storage.files import listed_stat
from dataaudit.engine.index import StatIndex
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.units import Outcome, PeekUnit, Probe, ProbeUnit
from dataaudit.engine.work import peek_shard, probe_file

_PEEKS = 5


def probe_shards(
    shards: Sequence[Shard],
    index: StatIndex,
    runner: Runner,
    progress: Progress,
    *,
    part_bytes: int,
    text_document: str,
    rehash: bool,
) -> tuple[dict[str, Probe], dict[str, tuple[Reason, str]]]:
    """Return the probe of every file by path, and why some have none."""
    probes: dict[str, Probe] = {}
    failures: dict[str, tuple[Reason, str]] = {}
    units: dict[str, ProbeUnit] = {}
    recipe = f"{READER_VERSION}/{part_bytes}/{text_document}"
    for shard in progress.over("index", shards, len(shards)):
        if shard.skip is not None or shard.path in probes or shard.path in units:
            continue
        known = None if rehash else _known(shard.path, index, recipe)
        if known is not None:
            probes[shard.path] = known
        else:
            units[shard.path] = ProbeUnit(
                path=shard.path,
                format=shard.format,
                compression=shard.compression,
                part_bytes=part_bytes,
                size=shard.size,
                text_document=text_document,
            )
    todo = list(units.values())
    if probes:
        progress.note(f"hash: {len(probes):,} files are unchanged")
    progress.begin("hash", len(todo), sum(unit.size for unit in todo))

    def done(position: int, outcome: Outcome) -> bool:
        unit = todo[position]
        if outcome.probe is not None:
            probes[unit.path] = outcome.probe
            if outcome.probe.reason is None:
                row = (unit.path, outcome.probe.stat, outcome.probe.hashed_ns, _pack(outcome.probe, recipe))
                index.store([row])
        else:
            failures[unit.path] = (outcome.reason or Reason.INTERNAL, outcome.place)
        progress.advance(unit.size, failed=outcome.probe is None)
        return True

    runner.run("hash", probe_file, todo, done)
    progress.end()
    unvouched = sum(not probe.stat.validator for probe in probes.values())
    if unvouched:
        said = f"{unvouched:,} remote file(s) have no ETag, checksum or time, so they are hashed in every build"
        progress.note(f"hash: {said}")
        runner.notes.append(said)
    for said in index.notes():
        progress.note(said, important=True)
        runner.notes.append(said)
    return probes, failures


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


def resolve_columns(config: AuditConfig, shards: Sequence[Shard], runner: Runner, progress: Progress) -> AuditConfig:
    """Return the config with text and source of every split filled in.

    Raises:
        ConfigError: What was left out cannot be inferred.
    """
    splits = dict(config.splits)
    for name, split in splits.items():
        own = [shard for shard in shards if shard.split == name and shard.skip is None]
        seen = _columns(own, runner)
        for warning in _warnings(name, split, seen):
            runner.notes.append(warning)
            progress.note(f"warning: {warning}", important=True)
        if split.text is not None and split.source is not None:
            continue
        columns = seen[0] if seen else {}
        holds_nothing = not seen and all(_is_empty(shard) for shard in own)
        text = split.text or (TEXT_NAMES[0] if holds_nothing else infer_text(name, columns))
        source = split.source or infer_source(own, columns)
        splits[name] = split.model_copy(update={"text": text, "source": source})
        (kind, value) = next(iter(source.model_dump(exclude_none=True).items()))
        how = "given" if split.text else "inferred"
        progress.note(f"inferred: split {name}: text column `{text}` ({how}), source from {kind} `{value}`")
    return config.model_copy(update={"splits": splits})


def _is_empty(shard: Shard) -> bool:
    """Return whether a shard is a local file without a byte: it has no columns to infer from, and needs none."""
    return os.path.isfile(shard.path) and os.path.getsize(shard.path) == 0


def _warnings(name: str, split: Split, seen: list[dict[str, bool]]) -> Iterator[str]:
    """Say what in a split's rules looks like a slip; the build goes on, and the ledger has the outcome."""
    if is_held_out_name(name) and not split.held_out:
        yield f"split {name} is not marked `held_out: true`, so it counts as training data"
    known = sorted({column for columns in seen for column in columns})
    shown = [column for column in known if is_plain_name(column)]
    source = split.source.column if split.source is not None else None
    for role, column in (("text", split.text), ("source", source)):
        if column is None or not known or column in known or column.split(".")[0] in known:
            continue
        yield (
            f"none of the first {len(seen)} shard(s) of split {name} has the {role} column `{column}`"
            f"{nearest(column, shown)}"
        )


def _columns(shards: Sequence[Shard], runner: Runner) -> list[dict[str, bool]]:
    """Return the columns of each of the first shards that has any, in order."""
    found: dict[int, dict[str, bool]] = {}
    units = [PeekUnit(shard=shard) for shard in shards[:_PEEKS]]

    def done(position: int, outcome: Outcome) -> bool:
        if outcome.columns is not None:
            found[position] = dict(outcome.columns)
        return True

    runner.run("peek", peek_shard, units, done)
    return [found[position] for position in sorted(found)]
