"""What training documents hold of protected sets, of one partition of it: counts, and the first places."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.link.joins import Joined
from dataaudit.link.places import read_placed
from dataaudit.metrics.overlap.stage import GRAM_ROWS, MATCH_ROWS, Overlap

SEEN = pa.schema([("kind", pa.uint8()), ("entry", pa.uint32()), ("source", pa.string()), ("documents", pa.int64())])
COUNTS = pa.schema(
    [
        ("kind", pa.uint8()),
        ("target", pa.int64()),
        ("part", pa.int64()),
        ("tier", pa.int64()),
        ("source", pa.string()),
        ("documents", pa.int64()),
        ("crowded", pa.int64()),
    ]
)
ROWS = pa.schema(
    [("kind", pa.uint8()), ("target", pa.int64())]
    + [(name, pa.int64()) for name in ("part", "tier", "rule")]
    + [("shard", pa.int32()), ("row", pa.int64())]
    + [(name, pa.int64()) for name in ("start", "end", "common", "of")]
)


def link_grams(files: pa.Table, start: int, stop: int) -> Joined:
    """Add up the documents that hold a protected gram, over all shards.

    Args:
        files: Of schema :data:`dataaudit.link.joins.LINK_FILES`.
        start: First value of the key's first byte.
        stop: Value after the last.

    Returns:
        ``seen``: of schema :data:`SEEN`, a row for each gram and source.

    Raises:
        DamagedFileError: Files are absent or damaged.
    """
    rows = read_placed(files, Overlap.emits[GRAM_ROWS], start, stop).table
    seen = rows.group_by(["kind", "entry", "source"], use_threads=False).aggregate([("documents", "sum")])
    seen = seen.rename_columns({"documents_sum": "documents"}).select(SEEN.names).cast(SEEN)
    order = [(name, "ascending") for name in ("kind", "entry", "source")]
    return Joined(tables={"seen": seen.sort_by(order)})


def link_matches(files: pa.Table, start: int, stop: int, *, max_rows: int) -> Joined:
    """Count the documents that hold a protected item or document, and list the first of them.

    Args:
        files: Of schema :data:`dataaudit.link.joins.LINK_FILES`.
        start: First value of the key's first byte.
        stop: Value after the last.
        max_rows: Rows that are listed of a target and part.

    Returns:
        ``counts``: of schema :data:`COUNTS`, a row for each target, part, tier and source. ``rows``: of schema
        :data:`ROWS`, the first in the manifest's order.

    Raises:
        DamagedFileError: Files are absent or damaged.
    """
    read = read_placed(files, Overlap.emits[MATCH_ROWS], start, stop)
    if read.table.num_rows == 0:
        return Joined(tables={"counts": COUNTS.empty_table(), "rows": ROWS.empty_table()})
    placed = read.table.drop_columns(["key", "row"])
    placed = placed.append_column("shard", pa.array(read.shards)).append_column("row", pa.array(read.rows))
    order = ["kind", "target", "part", "shard", "row", "tier", "rule", "start", "end"]
    placed = placed.sort_by([(name, "ascending") for name in order])
    kinds, targets, parts, shards, rows = (placed[name].to_numpy() for name in order[:5])
    group = _run_starts(kinds, targets, parts)
    rank = np.arange(len(kinds)) - np.repeat(group, np.diff(np.append(group, len(kinds))))
    listed = placed.filter(pa.array(rank < max_rows)).select(ROWS.names).cast(ROWS)
    once = placed.take(pa.array(_run_starts(kinds, targets, parts, shards, rows)))
    counted = once.append_column("documents", pa.array(np.ones(once.num_rows, dtype=np.int64)))
    keys = ["kind", "target", "part", "tier", "source"]
    counts = counted.group_by(keys, use_threads=False).aggregate([("documents", "sum"), ("crowded", "sum")])
    counts = counts.rename_columns({"documents_sum": "documents", "crowded_sum": "crowded"})
    counts = counts.select(COUNTS.names).cast(COUNTS).sort_by([(name, "ascending") for name in keys])
    return Joined(tables={"counts": counts, "rows": listed})


def _run_starts(*columns: np.ndarray) -> np.ndarray:
    fresh = np.ones(len(columns[0]), dtype=bool)
    fresh[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(fresh)
