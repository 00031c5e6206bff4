"""What training documents hold of protected sets, of one partition of it: counts, and the first places."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.corpus.protected.match_batch import EDITED, GRAM
from dataaudit.link.joins import Joined
from dataaudit.link.places import key_array, read_all, read_placed, spread
from dataaudit.manifest.places import places_of
from dataaudit.metrics.overlap.common import CommonText
from dataaudit.metrics.overlap.stage import GRAM_ROWS, HELD_OUT, MATCH_ROWS, Overlap

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
        ("own", pa.int64()),
    ]
)
ROWS = pa.schema(
    [("kind", pa.uint8()), ("target", pa.int64())]
    + [(name, pa.int64()) for name in ("part", "tier", "rule")]
    + [("shard", pa.int32()), ("row", pa.int64())]
    + [(name, pa.int64()) for name in ("start", "end", "common", "of", "own", "own_of")]
)
COPIES = pa.schema([("key", pa.binary(8)), ("shard", pa.int32()), ("row", pa.int64()), ("source", pa.string())])
COPIED = pa.schema([("shard", pa.int32()), ("source", pa.string()), ("held_out", pa.int64())])


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


def link_matches(files: pa.Table, start: int, stop: int, *, max_rows: int, common: CommonText) -> Joined:
    """Count the documents that hold a protected item or document, and list the first of them.

    Args:
        files: Of schema :data:`dataaudit.link.joins.LINK_FILES`.
        start: First value of the key's first byte.
        stop: Value after the last.
        max_rows: Rows that are listed of a target and part.
        common: What very many training documents hold of held-out ones.

    Returns:
        ``counts``: of schema :data:`COUNTS`, a row for each target, part, tier and source, those with an edited copy
        apart, as the part ``EDITED``; ``own`` of its documents hold more than common text. ``rows``: of schema
        :data:`ROWS`, the first in the manifest's order, those of common text alone after all others. ``copies``, for
        :func:`link_copies`: the documents with a span, a whole document or an edited copy that is not common.

    Raises:
        DamagedFileError: Files are absent or damaged.
    """
    read = read_placed(files, Overlap.emits[MATCH_ROWS], start, stop)
    if read.table.num_rows == 0:
        empty = {"counts": COUNTS.empty_table(), "rows": ROWS.empty_table()}
        return Joined(tables=empty, keyed={"copies": COPIES.empty_table()})
    placed = read.table.drop_columns(["key", "row"])
    placed = placed.append_column("shard", pa.array(read.shards)).append_column("row", pa.array(read.rows))
    order = ["kind", "target", "part", "shard", "row", "tier", "rule", "start", "end"]
    placed = placed.sort_by([(name, "ascending") for name in order])
    kinds, targets, parts, shards, rows = (placed[name].to_numpy() for name in order[:5])
    placed, copies = _without_common(placed, common)
    last = placed["own"].to_numpy() == 0
    group = _run_starts(kinds, targets, parts)
    number = np.repeat(np.arange(len(group)), np.diff(np.append(group, len(kinds))))
    rank = np.empty(len(kinds), dtype=np.int64)
    rank[np.lexsort((last, number))] = np.arange(len(kinds)) - group[number]
    listed = placed.filter(pa.array(rank < max_rows)).select(ROWS.names).cast(ROWS)
    is_edited = (kinds == HELD_OUT) & (placed["rule"].to_numpy() == EDITED)
    first = _run_starts(kinds, targets, parts, shards, rows, is_edited)
    once = placed.take(pa.array(first)).drop_columns(["own", "part"])
    counted = once.append_column("documents", pa.array(np.ones(once.num_rows, dtype=np.int64)))
    counted = counted.append_column("own", pa.array(np.maximum.reduceat(~last, first).astype(np.int64)))
    counted = counted.append_column("part", pa.array(np.where(is_edited, EDITED, parts)[first]))
    keys = ["kind", "target", "part", "tier", "source"]
    counts = counted.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    counts = counts.rename_columns({f"{name}_sum": name for name in _SUMS})
    counts = counts.select(COUNTS.names).cast(COUNTS).sort_by([(name, "ascending") for name in keys])
    return Joined(tables={"counts": counts, "rows": listed}, keyed={"copies": copies})


_SUMS = ("documents", "crowded", "own")
_NUMBERS = ("rule", "target", "common", "of", "first", "length")


def _without_common(placed: pa.Table, common: CommonText) -> tuple[pa.Table, pa.Table]:
    """Add what matches share without common text, ``own`` of ``own_of``; return with it the rows of copies."""
    kinds, rules, shared, of = (placed[name].to_numpy() for name in ("kind", "rule", "common", "of"))
    is_document = kinds == HELD_OUT
    own, own_of = shared.copy(), of.copy()
    numbers = [placed[name].to_numpy()[is_document] for name in _NUMBERS]
    own[is_document], own_of[is_document] = common.without(*numbers)
    copied = placed.filter(pa.array(is_document & (rules != GRAM) & (own > 0)))
    keys = key_array(spread(places_of(copied["shard"].to_numpy(), copied["row"].to_numpy())))
    copies = pa.table([keys, copied["shard"], copied["row"], copied["source"]], schema=COPIES)
    return placed.append_column("own", pa.array(own)).append_column("own_of", pa.array(own_of)), copies


def link_copies(files: pa.Table, start: int, stop: int) -> Joined:
    """Count the training documents that hold a copy of held-out text that is not common.

    Args:
        files: Of schema :data:`dataaudit.link.joins.LINK_FILES`, those of ``copies``.
        start: First value of the key's first byte.
        stop: Value after the last.

    Returns:
        ``copied``: of schema :data:`COPIED`, by shard and source.

    Raises:
        DamagedFileError: Files are absent or damaged.
    """
    once = read_all(files, COPIES, start, stop).group_by(["shard", "row", "source"], use_threads=False).aggregate([])
    counted = once.group_by(["shard", "source"], use_threads=False).aggregate([([], "count_all")])
    counted = counted.rename_columns({"count_all": "held_out"}).select(COPIED.names).cast(COPIED)
    return Joined(tables={"copied": counted.sort_by([("shard", "ascending"), ("source", "ascending")])})


def _run_starts(*columns: np.ndarray) -> np.ndarray:
    fresh = np.ones(len(columns[0]), dtype=bool)
    fresh[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(fresh)
