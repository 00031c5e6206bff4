"""Joins: partitions, of the key space or of the shards, run on the cluster; their results are entries of the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from dataaudit.engine.listed import run_stored
from dataaudit.engine.merging import MOST_FILES, link_files, located
from dataaudit.engine.partials import Damage
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import FILES, LinkUnit
from dataaudit.engine.work import link_partition
from dataaudit.link.joins import LINK_FILES, ROWS_PER_PARTITION, Join, JoinedParts, KeyedFiles
from dataaudit.link.keyed import NUM_BYTES
from dataaudit.link.stored import Stored
from dataaudit.manifest.canonical import digest_json

_SHARD_BYTES = 64 << 20
"""Stored rows of the shards that a task has, if these are several."""


def run_join(
    join: Join, store: PartialStore, runner: Runner, progress: Progress, *, fresh: bool = False
) -> JoinedParts:
    """Join on the cluster what is not joined yet.

    Args:
        join: What.
        store: Where keyed rows are and results go.
        runner: Where to run.
        progress: Where to report.
        fresh: Join again what was joined before.

    Raises:
        ClusterError: A partition cannot be joined on these workers.
        DamagedEntryError: Keyed rows or results are absent or damaged.
    """
    if not join.files:
        return JoinedParts(keys=(), tables=(), kind=join.kind)
    if join.by_shard:
        keys = _join_shards(join, store, runner, progress, fresh=fresh)
    else:
        keys = _join_keys(join, store, runner, progress, fresh=fresh)
    damage = Damage(store)
    entries = [entry.tables for key in keys if (entry := damage.read(join.kind, key)) is not None]
    damage.tell()
    return JoinedParts(keys=tuple(keys), tables=tuple(entries), kind=join.kind)


def _join_keys(join: Join, store: PartialStore, runner: Runner, progress: Progress, *, fresh: bool) -> list[str]:
    """Join some keys of all files at a time; return the keys of the results."""
    listed = KeyedFiles.of(join.files)
    files = listed.digest()
    partitions = min(NUM_BYTES, max(1, -(-join.rows // ROWS_PER_PARTITION)))
    bounds = [NUM_BYTES * index // partitions for index in range(partitions + 1)]
    units = [_unit(join, files, start, stop, store) for start, stop in pairwise(bounds)]
    todo = [unit for unit in units if fresh or not store.has(join.kind, unit.key)]
    if todo:
        _write_files(join.kind, files, link_files(listed, store, runner, progress, fresh=fresh), store)
    run_stored(join.kind, link_partition, todo, "partition(s)", store, runner, progress)
    return [unit.key for unit in units]


def _join_shards(join: Join, store: PartialStore, runner: Runner, progress: Progress, *, fresh: bool) -> list[str]:
    """Join all keys of some shards at a time; return the keys of the results."""
    listed = KeyedFiles.of(join.files)
    keys, todo = [], []
    for start, group in _by_shard(listed, store, progress):
        some = listed.between(start, start + len(group))
        files = some.digest()
        unit = _unit(join, files, 0, NUM_BYTES, store)
        keys.append(unit.key)
        if fresh or not store.has(join.kind, unit.key):
            paths = [os.fsencode(str(stored)) for stored in group]
            table = pa.table([paths, some.shards, some.splits, some.first_rows], schema=LINK_FILES)
            _write_files(join.kind, files, table, store)
            todo.append(unit)
    try:
        run_stored(join.kind, link_partition, todo, "task(s)", store, runner, progress)
    finally:
        for unit in todo:
            store.remove(join.kind, unit.files)
    return keys


def _by_shard(files: KeyedFiles, store: PartialStore, progress: Progress) -> Iterator[tuple[int, list[Stored]]]:
    """Yield where the files of some shards at a time lie, and the place of the first of these."""
    group: list[Stored] = []
    held = start = 0
    last = None
    for places, found in located(files, store, progress):
        shards = files.shards[places.start : places.stop].tolist()
        for place, stored, shard in zip(places, found, shards, strict=True):
            size = stored.num_bytes()
            if group and last != shard and (len(group) >= MOST_FILES or held + size > _SHARD_BYTES):
                yield start, group
                group, held, start = [], 0, place
            group.append(stored)
            held, last = held + size, shard
    yield start, group


def _write_files(kind: str, key: str, files: pa.Table, store: PartialStore) -> None:
    """Write the list of keyed files for the workers."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, files.schema) as writer:
        writer.write_table(files)
    store.write_rows(kind, key, sink.getvalue().to_pybytes(), FILES)


def _unit(join: Join, files: str, start: int, stop: int, store: PartialStore) -> LinkUnit:
    return LinkUnit(
        function=join.function,
        emits=dict(join.emits),
        files=files,
        start=start,
        stop=stop,
        state=store.root,
        kind=join.kind,
        key=digest_json([files, start, stop, join.identity]).removeprefix("sha256:"),
        size=1,
    )
