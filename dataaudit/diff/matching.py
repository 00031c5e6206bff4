"""Which shard of the new manifest is which of the old one: by what they hold first, by their name then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.diff.difference import ShardChangeKind

UNREAD = ("quarantined", "skipped")
COLUMNS = [
    "uri",
    "split",
    "format",
    "compression",
    "sha256",
    "rows_digest",
    "bad_records",
    "status",
    "reason",
    "documents",
    "bytes",
    "tokens",
]
"""Of the table of shards: what is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Shards that changed in one way: rows of the old table and of the new one, -1 where there is none."""

    kind: ShardChangeKind | None
    """None: as it was."""
    old: np.ndarray
    """int64[n]"""
    new: np.ndarray
    """int64[n]"""


class _Side:
    """Codes of one side's shards: equal numbers stand for equal strings, on both sides alike."""

    def __init__(self, table: pa.Table, place: np.ndarray, content: np.ndarray, split: np.ndarray) -> None:
        unread = pc.is_in(table["status"], pa.array(UNREAD)).to_numpy()
        self.place, self.content, self.split, self.read = place, content, split, ~unread
        self.holds = unread | (table["documents"].to_numpy() > 0)
        self.left = np.ones(table.num_rows, dtype=bool)


def match(old: pa.Table, new: pa.Table) -> Iterator[Pairs]:
    """Yield what became of every shard; each row of either table is in exactly one of the pairs.

    Shards hold the same when their decoded rows have one digest and as many records could not be decoded; two that
    were not read, when their stored bytes have one digest. Pairs are found in this order: same content at the same
    place, elsewhere in the split, in another split; then the same place with other content; what is left is removed, or
    added. So two shards that exchanged their names, or were numbered anew, have moved and not changed. Shards without
    documents are never taken for moved, as they all hold the same, nor for changed: one that lost all its documents is
    removed, and an empty one added.
    """
    one, other = _sides(old, new)
    same = _pair(one, other, one.place, other.place, one.content, other.content)
    moved = _pair(one, other, one.split, other.split, one.content, other.content, holding=True)
    repacked = [_stored_otherwise(old, new, pairs) for pairs in (same, moved)]
    yield Pairs(kind=None, old=same[0][~repacked[0]], new=same[1][~repacked[0]])
    yield Pairs(kind=ShardChangeKind.MOVED, old=moved[0][~repacked[1]], new=moved[1][~repacked[1]])
    both = [np.concatenate([same[side][repacked[0]], moved[side][repacked[1]]]) for side in (0, 1)]
    yield Pairs(kind=ShardChangeKind.REPACKED, old=both[0], new=both[1])
    nothing = np.zeros_like(one.split), np.zeros_like(other.split)
    moved = _pair(one, other, *nothing, one.content, other.content, holding=True)
    yield Pairs(kind=ShardChangeKind.MOVED_SPLIT, old=moved[0], new=moved[1])
    named = np.zeros_like(one.place), np.zeros_like(other.place)
    left, right = _pair(one, other, one.place, other.place, *named, holding=True)
    was, is_now = one.read[left], other.read[right]
    for kind, chosen in (
        (ShardChangeKind.CHANGED, was & is_now),
        (ShardChangeKind.LOST, was & ~is_now),
        (ShardChangeKind.RECOVERED, ~was & is_now),
        (ShardChangeKind.UNKNOWN, ~was & ~is_now),
    ):
        yield Pairs(kind=kind, old=left[chosen], new=right[chosen])
    gone, come = np.flatnonzero(one.left), np.flatnonzero(other.left)
    yield Pairs(kind=ShardChangeKind.REMOVED, old=gone, new=np.full_like(gone, -1))
    yield Pairs(kind=ShardChangeKind.ADDED, old=np.full_like(come, -1), new=come)


def codes(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return int64 codes of two columns: the same number for the same value; nulls are -1."""
    both = pa.chunked_array([*left.chunks, *right.chunks], left.type).combine_chunks()
    indices = pc.fill_null(both.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return indices[: len(left)], indices[len(left) :]


def joined(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return one code for each row of several columns of codes, again the same on both sides."""
    first, second = parts[0]
    total = np.concatenate([first, second])
    for left, right in parts[1:]:
        more = np.concatenate([left, right])
        _, total = np.unique(total * (more.max(initial=0) + 2) + more + 1, return_inverse=True)
    return total[: len(first)], total[len(first) :]


def _sides(old: pa.Table, new: pa.Table) -> tuple[_Side, _Side]:
    splits = codes(old["split"], new["split"])
    places = joined([splits, codes(old["uri"], new["uri"])])
    contents = codes(_content(old), _content(new))
    return _Side(old, places[0], contents[0], splits[0]), _Side(new, places[1], contents[1], splits[1])


def _content(table: pa.Table) -> pa.ChunkedArray:
    """Return what a shard holds: the digest of its rows, else of its stored bytes, else null.

    The digest of rows knows nothing of records that could not be decoded, so their number goes with it.
    """
    stored = pc.if_else(
        pc.equal(table["sha256"], ""), None, pc.binary_join_element_wise("stored", table["sha256"], ":")
    )
    rows = pc.binary_join_element_wise("rows", table["rows_digest"], table["bad_records"].cast(pa.string()), ":")
    return pc.coalesce(rows, stored)


def _stored_otherwise(old: pa.Table, new: pa.Table, pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """bool[n]: pairs of the same rows whose files differ."""
    names = ("sha256", "format", "compression")
    different = np.zeros(len(pairs[0]), dtype=bool)
    for name in names:
        left, right = codes(old[name], new[name])
        different |= left[pairs[0]] != right[pairs[1]]
    return different


def _pair(
    one: _Side,
    other: _Side,
    left: np.ndarray,
    right: np.ndarray,
    content: np.ndarray,
    contents: np.ndarray,
    *,
    holding: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Pair shards that are left and have the same two codes, the first with the first; they are no longer left."""
    chosen = [
        np.flatnonzero(side.left & (known >= 0) & (side.holds | np.bool_(not holding)))
        for side, known in ((one, content), (other, contents))
    ]
    keys = joined([(left[chosen[0]], right[chosen[1]]), (content[chosen[0]], contents[chosen[1]])])
    numbered = joined([keys, (_rank(keys[0]), _rank(keys[1]))])
    _, first, second = np.intersect1d(*numbered, assume_unique=True, return_indices=True)
    found = np.sort(chosen[0][first]), chosen[1][second][np.argsort(chosen[0][first], kind="stable")]
    one.left[found[0]] = False
    other.left[found[1]] = False
    return found


def _rank(keys: np.ndarray) -> np.ndarray:
    """int64[n]: how many equal keys stand before."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(keys) else order
    first = np.repeat(starts, np.diff(np.append(starts, len(keys))))
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys)) - first
    return ranks
