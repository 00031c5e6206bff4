"""Joins: partitions of the key space run on the cluster, their results come back as entries of the store."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import orjson
import pyarrow as pa

from dataaudit.engine.listed import run_stored
from dataaudit.engine.merging import link_files
from dataaudit.engine.partials import Damage
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import FILES, LinkUnit
from dataaudit.engine.work import link_partition
from dataaudit.link.joins import ROWS_PER_PARTITION, Join, JoinedParts, KeyedFile
from dataaudit.link.keyed import NUM_BYTES
from dataaudit.manifest.canonical import digest_json


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
    listed = list(join.files)  # made once, and held no longer than the join takes
    files = _digest(listed)
    units = _units(join, files, store)
    todo = [unit for unit in units if fresh or not store.has(join.kind, unit.key)]
    if todo:
        _write_files(join.kind, files, link_files(listed, store, runner, progress, fresh=fresh), store)
    run_stored(join.kind, link_partition, todo, "partition(s)", store, runner, progress)
    damage = Damage(store)
    entries = [entry.tables for unit in units if (entry := damage.read(join.kind, unit.key)) is not None]
    damage.tell()
    return JoinedParts(keys=tuple(unit.key for unit in units), tables=tuple(entries), kind=join.kind)


def _digest(files: Sequence[KeyedFile]) -> str:
    """Return the digest of what the list of files means."""
    state = hashlib.sha256()
    for file in files:
        state.update(orjson.dumps([file.kind, file.key, file.name, file.shard, file.split, file.first_row]))
    return state.hexdigest()


def _write_files(kind: str, key: str, files: pa.Table, store: PartialStore) -> None:
    """Write the list of keyed files for the workers."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, files.schema) as writer:
        writer.write_table(files)
    store.write_rows(kind, key, sink.getvalue().to_pybytes(), FILES)


def _units(join: Join, files: str, store: PartialStore) -> list[LinkUnit]:
    partitions = min(NUM_BYTES, max(1, -(-join.rows // ROWS_PER_PARTITION)))
    bounds = [NUM_BYTES * index // partitions for index in range(partitions + 1)]
    return [
        LinkUnit(
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
        for start, stop in pairwise(bounds)
    ]
