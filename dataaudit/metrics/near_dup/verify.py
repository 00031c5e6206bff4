"""Verification: the shingle sets of candidates, made in the second reading, intersected pair by pair.

The set of a document goes to each partition in which a pair of it is verified: those of the pair's later documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.annotators.words import WORDS
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.kernels.minhash import distinct_sets, intersections, shingle_hashes
from dataaudit.link.joins import Joined
from dataaudit.link.places import Pass, Placed, distinct, named, read_all, read_placed, spread
from dataaudit.link.second_pass import Encode
from dataaudit.manifest.places import rows_of, shards_of
from dataaudit.metrics.near_dup.pairs import CANDIDATES, KEYED_CANDIDATES

WANTED = pa.schema([("shard", pa.int32()), ("row", pa.int64()), ("partition", pa.int16())])
"""Documents, each once for every partition that a pair of it is in."""
SETS = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("shingles", pa.large_list(pa.uint64()))])
"""Ascending distinct hashes of a document's shingles; the key begins with its partition."""
SEEN = pa.schema([("row", pa.int64()), ("source", pa.string()), ("shingles", pa.int64())])
"""Source and number of distinct shingles of each document."""
VERIFIED = pa.schema([*CANDIDATES, ("intersection", pa.int64()), ("union", pa.int64())])
"""Candidates with the exact sizes of the intersection and union of their shingle sets."""
MOST_BITS = 12
"""Of a partition's number: 256 partitions of 16 passes each."""
_BYTES_AT_ONCE = 1 << 27
_MOST_SHINGLES = 1 << 24
"""Shingles of pairs that are gathered at once: 128 MB."""


def partition_bits(candidates: pa.Table, document_bytes: int) -> int:
    """Return how many bits of the key number the partitions, so that the sets of one are about 128 MB.

    The set of a document is written for every partition that it has pairs in: few partitions are few copies.

    Args:
        candidates: Of schema :data:`CANDIDATES`.
        document_bytes: Bytes of an average document; its set takes a half more.
    """
    documents = len(distinct(np.concatenate([candidates["left"].to_numpy(), candidates["right"].to_numpy()])))
    wanted = documents * document_bytes * 3 // 2 // _BYTES_AT_ONCE
    return min(MOST_BITS, wanted.bit_length())


def wanted_documents(candidates: pa.Table, others: np.ndarray, bits: int) -> pa.Table:
    """Return what to read again, of schema :data:`WANTED`: candidates, in ``2 ** bits`` partitions, and others."""
    lefts, rights = candidates["left"].to_numpy(), candidates["right"].to_numpy()
    number = (spread(rights) >> np.uint64(64 - MOST_BITS)).astype(np.int16) >> (MOST_BITS - bits) << (MOST_BITS - bits)
    partitions = np.concatenate([np.tile(number.astype(np.int16), 2), np.zeros(len(others), dtype=np.int16)])
    places = np.concatenate([lefts, rights, others])
    order = np.lexsort((partitions, places))
    places, partitions = places[order], partitions[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (places[1:] != places[:-1]) | (partitions[1:] != partitions[:-1])
    places, partitions = places[new], partitions[new]
    return pa.table([shards_of(places), rows_of(places), partitions], schema=WANTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearSets:
    """SecondPassTask: makes the sets of the documents that are in candidate pairs."""

    name: ClassVar[str] = "near_sets"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    emits: ClassVar[Mapping[str, pa.Schema]] = {"sets": SETS}
    ngram: int
    """Words of a shingle."""

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``sets`` of the wanted documents, for each partition that wants them, and ``seen``."""
        del encode
        shingles, bounds = shingle_hashes(batch.get(WORDS).hashes, batch.get(WORDS).offsets, ngram=self.ngram)
        values, ends = distinct_sets(shingles, bounds)
        sources = batch.sources().cast(pa.string())
        return {
            "sets": _sets(batch.rows, values, ends, wanted),
            "seen": pa.table([batch.rows, sources, np.diff(ends)], schema=SEEN),
        }


def _sets(batch_rows: np.ndarray, values: np.ndarray, ends: np.ndarray, wanted: pa.Table) -> pa.Table:
    """Return the sets, once for every partition that wants them."""
    rows = wanted["row"].to_numpy()
    keys = np.ascontiguousarray(rows.astype(">i8")).view(np.uint8).reshape(-1, 8).copy()
    partitions = wanted["partition"].to_numpy()
    keys[:, 0], keys[:, 1] = partitions >> 4, (partitions & 15) << 4
    lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(values))
    taken = lists.take(pa.array(np.searchsorted(batch_rows, rows)))
    return pa.table(
        [pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(keys), [None, pa.py_buffer(keys)]), rows, taken],
        schema=SETS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyJoin:
    """Intersects the sets of all candidates of a partition."""

    bits: int
    """Of :func:`partition_bits`: a partition of keys holds whole ones of these."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``verified``, of schema :data:`VERIFIED`.

        Args:
            files: With the keyed rows ``candidates`` and the task's ``sets``.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
        candidates, sets = named(files, "candidates"), named(files, "sets")
        number = 1 << max(0, self.bits - 8)
        parts = [
            _verify(
                read_all(candidates, KEYED_CANDIDATES, start, stop, part.rows),
                read_placed(sets, SETS, start, stop, part.rows),
            )
            for part in (Pass(index, number) for index in range(number))
        ]
        return Joined(tables={"verified": pa.concat_tables(parts)})


def _verify(candidates: pa.Table, placed: Placed) -> pa.Table:
    """Return the candidates with the sizes of intersection and union."""
    lefts, rights = candidates["left"].to_numpy(), candidates["right"].to_numpy()
    places, rows = np.unique(placed.places, return_index=True)
    left, right = np.searchsorted(places, lefts), np.searchsorted(places, rights)
    assert (places[left] == lefts).all(), "every earlier document was read for this partition"
    assert (places[right] == rights).all(), "every later document was read for this partition"
    sizes = pa.compute.list_value_length(placed.table["shingles"]).to_numpy()[rows]
    shared = np.empty(len(lefts), dtype=np.int64)
    for first, last in _slices(sizes[left] + sizes[right]):
        chosen, dense = np.unique(np.concatenate([left[first:last], right[first:last]]), return_inverse=True)
        lists = placed.table["shingles"].take(pa.array(rows[chosen])).combine_chunks()
        bounds, values = np.asarray(lists.offsets), np.asarray(lists.values)
        half = last - first
        shared[first:last] = intersections(values, bounds, dense[:half].copy(), dense[half:].copy())
    unions = sizes[left] + sizes[right] - shared
    return pa.table([*candidates.select(CANDIDATES.names).columns, shared, unions], schema=VERIFIED)


def _slices(weights: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges whose weights add up to a bounded sum, or that are one alone."""
    ends = np.cumsum(weights)
    start = 0
    while start < len(weights):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _MOST_SHINGLES, side="right")))
        yield start, stop
        start = stop
