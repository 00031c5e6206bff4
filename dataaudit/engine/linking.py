"""The link step: partitions of the key space run on the cluster, their results come back as tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.loss import Reason
from dataaudit.engine.gather import GatheredShard
from dataaudit.engine.partials import Damage, fold_table
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import PartialStore, write_atomic
from dataaudit.engine.units import READING, LinkUnit, Outcome, RowsUnit
from dataaudit.engine.work import digest_rows, link_partition
from dataaudit.errors import ClusterError
from dataaudit.link.exact import COUNTS, LINK_FILES, MEMBERS
from dataaudit.link.keyed import NUM_BYTES
from dataaudit.manifest.canonical import digest_json
from dataaudit.stages.base import merge
from dataaudit.stages.exact_dup import ExactDup

_ROWS_PER_PARTITION = 2_000_000
_KIND = "link-exact"


@dataclass(frozen=True, slots=True)
class Linked:
    """What documents of different shards have in common."""

    counts: pa.Table
    """Duplicates by shard and source."""
    members: pa.Table
    """Members of duplicate groups."""


def link_exact_duplicates(
    shards: Sequence[GatheredShard], store: PartialStore, runner: Runner, progress: Progress, *, fresh: bool = False
) -> Linked:
    """Join the exact-duplicate keys of all shards that were read.

    Args:
        shards: All shards, gathered.
        store: Where keyed rows are and results go.
        runner: Where to run.
        progress: Where to report.
        fresh: Join again what was joined before.

    Raises:
        ClusterError: A partition cannot be joined on these workers.
        DamagedEntryError: Keyed rows or results are absent or damaged.
    """
    rows, documents = [], 0
    splits = sorted({shard.planned.shard.split for shard in shards})
    for shard in shards:
        if not shard.partials:
            continue
        documents += sum(shard.partials[ExactDup.name]["exact_dup"]["documents"].to_pylist())
        for part, first_row in zip(shard.planned.parts, shard.first_rows, strict=True):
            key = part.stage_keys[ExactDup.name]
            rows.append((key, shard.planned.shard.ordinal, splits.index(shard.planned.shard.split), first_row))
    if not rows:
        return Linked(COUNTS.empty_table(), MEMBERS.empty_table())
    files, digest = _write_files(rows, store)
    units = _units(files, digest, documents, store)
    failed: list[tuple[Reason, str]] = []
    todo = [unit for unit in units if fresh or not store.has(_KIND, unit.key)]
    damage, damaged_rows = Damage(store), set[str]()
    progress.begin("link", len(todo), 0)

    def done(index: int, outcome: Outcome) -> bool:
        del index
        damaged_rows.update(outcome.damaged)
        if outcome.reason is not None:
            failed.append((outcome.reason, outcome.place))
        progress.advance(0, failed=outcome.reason is not None)
        return True

    runner.run("link", link_partition, todo, done)
    progress.end()
    if failed:
        raise ClusterError(
            f"joining duplicates failed on {len(failed)} partition(s): {failed[0][0]} {failed[0][1]}".rstrip(),
            "Give the workers more memory (--memory-limit) or run fewer of them, then run again.",
        )
    for key in sorted(damaged_rows):
        damage.remove(ExactDup.name, key)
    damage.tell()
    entries = [entry.tables for unit in units if (entry := damage.read(_KIND, unit.key)) is not None]
    damage.tell()
    return Linked(
        pa.concat_tables([COUNTS.empty_table(), *(entry["counts"] for entry in entries)]),
        pa.concat_tables([MEMBERS.empty_table(), *(entry["members"] for entry in entries)]),
    )


def _write_files(rows: list[tuple[str, int, int, int]], store: PartialStore) -> tuple[Path, str]:
    """Write the list of keyed files for the workers; return its path and a digest of its meaning."""
    digest = digest_json([list(row) for row in rows]).removeprefix("sha256:")
    table = pa.table(
        {
            "path": [os.fsencode(store.side_path(ExactDup.name, key)) for key, *_ in rows],
            "shard": [row[1] for row in rows],
            "split": [row[2] for row in rows],
            "first_row": [row[3] for row in rows],
        }
    ).cast(LINK_FILES)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, LINK_FILES) as writer:
        writer.write_table(table)
    path = store.path(_KIND, f"{digest}.files")
    with store.writing():
        write_atomic(path, sink.getvalue().to_pybytes())
    return path, digest


def _units(files: Path, digest: str, documents: int, store: PartialStore) -> list[LinkUnit]:
    partitions = min(NUM_BYTES, max(1, -(-documents // _ROWS_PER_PARTITION)))
    bounds = [NUM_BYTES * index // partitions for index in range(partitions + 1)]
    units = []
    for start, stop in pairwise(bounds):
        key = digest_json([digest, start, stop, ExactDup.version]).removeprefix("sha256:")
        units.append(LinkUnit(files=files, start=start, stop=stop, state=store.root, kind=_KIND, key=key, size=1))
    return units


def add_duplicates(shards: Sequence[GatheredShard], counts: pa.Table, kept: pa.Array | None) -> None:
    """Add the duplicates that were found to the partials of their shards."""
    stage = ExactDup()
    ordered = counts.sort_by("shard")
    ordinals = ordered["shard"].to_numpy()
    for shard in shards:
        ordinal = shard.planned.shard.ordinal
        start, stop = np.searchsorted(ordinals, [ordinal, ordinal + 1]).tolist()
        if ExactDup.name not in shard.partials or start == stop:
            continue
        found = ordered.slice(start, stop - start)
        zeros = pa.array([0] * found.num_rows, pa.int64())
        extra = found.drop_columns(["shard"]).append_column("documents", zeros)
        if kept is not None:
            extra = fold_table(extra, kept)
        schema = stage.shapes()["exact_dup"].schema()
        partial = {"exact_dup": extra.select(schema.names).cast(schema)}
        shard.partials[ExactDup.name] = merge(stage, [shard.partials[ExactDup.name], partial])


def clusters_table(members: pa.Table) -> pa.Table:
    """Number the groups by their first member and mark the one to keep."""
    if members.num_rows == 0:
        return pa.table({"kind": [], "cluster": [], "shard": [], "row": [], "kept": []}).cast(
            pa.schema(
                [
                    ("kind", pa.string()), ("cluster", pa.int64()), ("shard", pa.int32()), ("row", pa.int64()),
                    ("kept", pa.bool_()),
                ]
            )
        )  # fmt: skip
    order = [(name, "ascending") for name in ("first_shard", "first_row", "shard", "row")]
    ordered = members.take(pc.sort_indices(members, sort_keys=order))
    kept = pc.and_(pc.equal(ordered["shard"], ordered["first_shard"]), pc.equal(ordered["row"], ordered["first_row"]))
    numbers = pc.subtract(pc.cumulative_sum(pc.cast(kept, pa.int64())), 1)
    kind = pa.array(["exact"] * ordered.num_rows)
    return pa.table({"kind": kind, "cluster": numbers, "shard": ordered["shard"], "row": ordered["row"], "kept": kept})


def rows_digests(shards: Sequence[GatheredShard], store: PartialStore, runner: Runner) -> dict[int, str]:
    """Return the digest of the decoded rows of every shard that was read, by ordinal.

    Raises:
        ClusterError: Rows cannot be read on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
    """
    read = [shard for shard in shards if shard.partials]
    units = []
    for shard in read:
        keys = tuple(part.reading_key for part in shard.planned.parts)
        units.append(RowsUnit(state=store.root, keys=keys, size=shard.records))
    digests: dict[int, str] = {}
    damage, damaged = Damage(store), set[str]()

    def done(index: int, outcome: Outcome) -> bool:
        if outcome.reason is not None:
            raise ClusterError(f"digesting rows failed: {outcome.reason} {outcome.place}".rstrip())
        digests[read[index].planned.shard.ordinal] = outcome.digest
        damaged.update(outcome.damaged)
        return True

    runner.run("rows", digest_rows, units, done)
    for key in sorted(damaged):
        damage.remove(READING, key)
    damage.tell()
    return digests
