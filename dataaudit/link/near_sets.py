"""Verification: the shingle sets of candidates, made in the second reading, intersected pair by pair.

The set of a document goes to each partition in which a pair of it is verified: those of the pair's later documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.kernels.jaccard import distinct_sets, intersections
from dataaudit.kernels.minhash import shingle_hashes
from dataaudit.kernels.reference_minhash import text_shingles
from dataaudit.kernels.reference_words import words_of
from dataaudit.link.joined import Joined
from dataaudit.link.near_pairs import CANDIDATES, KEYED_CANDIDATES
from dataaudit.link.places import named, places_of, read_all, read_placed, rows_of, shards_of, spread
from dataaudit.link.visitor import Encode

WANTED = pa.schema([("shard", pa.int32()), ("row", pa.int64()), ("partition", pa.int16()), ("check", pa.bool_())])
"""Documents, each once for every first byte of the keys of its pairs; ``check`` asks for its text's shingles too, and
partition -1 for nothing else."""
SETS = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("shingles", pa.large_list(pa.uint64()))])
"""Ascending distinct hashes of a document's shingles; the key's first byte is the partition."""
SEEN = pa.schema([("row", pa.int64()), ("source", pa.string()), ("shingles", pa.int64())])
"""Source and number of distinct shingles of each document."""
CHECKS = pa.schema([("row", pa.int64()), ("digests", pa.large_list(pa.binary(16)))])
"""Ascending digests of a document's shingles as text, made without any kernel."""
VERIFIED = pa.schema([*CANDIDATES, ("intersection", pa.int64()), ("union", pa.int64())])
"""Candidates with the exact sizes of the intersection and union of their shingle sets."""
CHECK_BYTES = 1 << 20
"""Longer documents are not checked, as plain Python would take seconds for each."""
_MOST_SHINGLES = 1 << 24
"""Shingles of pairs that are gathered at once: 128 MB."""


def wanted_documents(candidates: pa.Table, check: np.ndarray) -> pa.Table:
    """Return what to visit, of schema :data:`WANTED`.

    Args:
        candidates: Of schema :data:`dataaudit.link.near_pairs.CANDIDATES`.
        check: int64[c] places of documents to be checked.
    """
    lefts, rights = candidates["left"].to_numpy(), candidates["right"].to_numpy()
    first_byte = (spread(rights) >> np.uint64(56)).astype(np.int16)
    places = np.concatenate([lefts, rights, check])
    partitions = np.concatenate([first_byte, first_byte, np.full(len(check), -1, dtype=np.int16)])
    order = np.lexsort((partitions, places))
    places, partitions = places[order], partitions[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (places[1:] != places[:-1]) | (partitions[1:] != partitions[:-1])
    places, partitions = places[new], partitions[new]
    return pa.table([shards_of(places), rows_of(places), partitions, np.isin(places, check)], schema=WANTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearSets:
    """Visitor: makes the sets of the documents that are in candidate pairs, and of some the slow way too."""

    name: ClassVar[str] = "near_sets"
    version: ClassVar[str] = "1"
    needs_words: ClassVar[bool] = True
    emits: ClassVar[Mapping[str, pa.Schema]] = {"sets": SETS}
    ngram: int
    """Words of a shingle."""

    def visit(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``sets`` of the wanted documents, ``seen``, and ``checks`` of those whose ``check`` is true."""
        del encode
        assert batch.words is not None, "a visitor that needs words has said so"
        shingles, bounds = shingle_hashes(batch.words.hashes, batch.words.offsets, ngram=self.ngram)
        values, ends = distinct_sets(shingles, bounds)
        sources = batch.sources().cast(pa.string())
        return {
            "sets": _sets(batch.rows, values, ends, wanted),
            "seen": pa.table([batch.rows, sources, np.diff(ends)], schema=SEEN),
            "checks": self._checks(batch, wanted),
        }

    def _checks(self, batch: DocBatch, wanted: pa.Table) -> pa.Table:
        rows = np.unique(wanted["row"].to_numpy()[wanted["check"].to_numpy()])
        chosen = np.searchsorted(batch.rows, rows)
        chosen = chosen[batch.num_bytes()[chosen] <= CHECK_BYTES]
        texts = batch.texts.take(pa.array(chosen)).to_pylist()
        digests = [text_shingles([word.text for word in words_of(text)], self.ngram) for text in texts]
        return pa.table([batch.rows[chosen], pa.array(digests, CHECKS.field(1).type)], schema=CHECKS)


def _sets(batch_rows: np.ndarray, values: np.ndarray, ends: np.ndarray, wanted: pa.Table) -> pa.Table:
    """Return the sets, once for every partition that wants them."""
    partitions = wanted["partition"].to_numpy()
    rows, partitions = wanted["row"].to_numpy()[partitions >= 0], partitions[partitions >= 0]
    keys = np.ascontiguousarray(rows.astype(">i8")).view(np.uint8).reshape(-1, 8).copy()
    keys[:, 0] = partitions
    lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(values))
    taken = lists.take(pa.array(np.searchsorted(batch_rows, rows)))
    return pa.table(
        [pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(keys), [None, pa.py_buffer(keys)]), rows, taken],
        schema=SETS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyJoin:
    """Intersects the sets of all candidates of a partition."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``verified``, of schema :data:`VERIFIED`.

        Args:
            files: With the keyed rows ``candidates`` and the visitor's ``sets``.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedRowsError: Files are absent or damaged; it names all of them.
        """
        candidates = read_all(named(files, "candidates")["path"].to_pylist(), KEYED_CANDIDATES, start, stop)
        placed = read_placed(named(files, "sets"), SETS, start, stop)
        places, rows = np.unique(placed.places, return_index=True)
        lefts, rights = candidates["left"].to_numpy(), candidates["right"].to_numpy()
        left, right = np.searchsorted(places, lefts), np.searchsorted(places, rights)
        assert (places[left] == lefts).all(), "every earlier document was visited for this partition"
        assert (places[right] == rights).all(), "every later document was visited for this partition"
        sizes = pa.compute.list_value_length(placed.table["shingles"]).to_numpy()[rows]
        shared = np.empty(len(lefts), dtype=np.int64)
        for first, last in _slices(sizes[left] + sizes[right]):
            chosen, dense = np.unique(np.concatenate([left[first:last], right[first:last]]), return_inverse=True)
            lists = placed.table["shingles"].take(pa.array(rows[chosen])).combine_chunks()
            bounds = np.asarray(lists.offsets)
            half = last - first
            values = np.asarray(lists.values)
            shared[first:last] = intersections(values, bounds, dense[:half].copy(), dense[half:].copy())
        unions = sizes[left] + sizes[right] - shared
        columns = [*candidates.select(CANDIDATES.names).columns, shared, unions]
        return Joined(tables={"verified": pa.table(columns, schema=VERIFIED)})


def _slices(weights: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges whose weights add up to a bounded sum, or that are one alone."""
    ends = np.cumsum(weights)
    start = 0
    while start < len(weights):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _MOST_SHINGLES, side="right")))
        yield start, stop
        start = stop


def check_pairs(
    lefts: np.ndarray, rights: np.ndarray, shards: np.ndarray, checks: pa.Table
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compare the shingles of pairs as text.

    Args:
        lefts: int64[p] places.
        rights: int64[p] places.
        shards: int32[c] shard of each check.
        checks: row (of the shard), digests.

    Returns:
        bool[p] whether both were checked, int64[p] intersections, int64[p] unions.
    """
    places = places_of(shards, checks["row"].to_numpy())
    digests = dict(zip(places.tolist(), map(frozenset, checks["digests"].to_pylist()), strict=True))
    known = np.array(
        [left in digests and right in digests for left, right in zip(lefts.tolist(), rights.tolist(), strict=True)],
        dtype=bool,
    )
    shared, union = np.zeros(len(lefts), dtype=np.int64), np.zeros(len(lefts), dtype=np.int64)
    for pair in np.flatnonzero(known).tolist():
        first, second = digests[int(lefts[pair])], digests[int(rights[pair])]
        shared[pair], union[pair] = len(first & second), len(first | second)
    return known, shared, union
