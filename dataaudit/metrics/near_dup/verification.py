"""Exact similarity of candidate pairs, and how far the search is right: precision and recall.

The second reading makes the shingle set of every document that is in a candidate pair. A set goes to each partition
with a later document that it is paired with, and :class:`VerifyJoin` intersects them pair by pair.

*Precision*: some reported pairs are compared again, their shingles as text, in plain Python without any kernel.

*Recall*: documents that share a bucket are drawn by hash, and the sketch of each is compared with those of all
documents, whatever their buckets. Those that agree enough are verified, too. Where these are very many, fewer drawn
documents count, in the order of their hashes. Recall is the share of drawn documents with an earlier near-duplicate for
which the search found one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import is_new, places_of, rows_of, shards_of
from dataaudit.metrics.near_dup.candidates import CANDIDATES, KEYED_CANDIDATES, Sketched, keyed_candidates
from dataaudit.scan.annotators import WORDS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.cross_shard.keyed import (
    NUM_BYTES,
    Pass,
    Placed,
    distinct,
    named,
    passes,
    read_all,
    read_placed,
    spread,
)
from dataaudit.scan.cross_shard.step import Encode
from dataaudit.scan.kernels.minhash import distinct_sets, intersections, shingle_hashes
from dataaudit.scan.kernels.pairing import agreements, least_agreement, sure_agreement
from dataaudit.scan.kernels.plain_words import folded_words, text_shingles

WANTED = pa.schema([("shard", pa.int32()), ("row", pa.int64()), ("partition", pa.int16())])
"""Documents, each once for every partition that a pair of it is in."""
SETS = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("shingles", pa.large_list(pa.uint64()))])
"""Ascending distinct hashes of a document's shingles; the key begins with its partition."""
SEEN = pa.schema([("row", pa.int64()), ("source", pa.string()), ("shingles", pa.int64())])
"""Source and number of distinct shingles of each document."""
VERIFIED = pa.schema([*CANDIDATES, ("intersection", pa.int64()), ("union", pa.int64())])
"""Candidates with the exact sizes of the intersection and union of their shingle sets."""
MOST_BITS = 12
"""Most bits of a partition's number: 256 partitions of 16 passes each."""
_BYTES_AT_ONCE = 1 << 27
_MOST_SHINGLES = 1 << 24
"""Shingles of pairs in memory at once: 128 MB."""


def partition_bits(candidates: pa.Table, document_bytes: int) -> int:
    """Return how many bits of the key number the partitions, so that the sets of each are about 128 MB.

    A set is written for every partition that its document has pairs in: few partitions are few copies.
    """
    documents = len(distinct(np.concatenate([candidates["left"].to_numpy(), candidates["right"].to_numpy()])))
    wanted = documents * document_bytes * 3 // 2 // _BYTES_AT_ONCE
    return min(MOST_BITS, wanted.bit_length())


def wanted_documents(candidates: pa.Table, others: np.ndarray, bits: int) -> pa.Table:
    """Return the documents to read again, of :data:`WANTED`: candidates, in ``2 ** bits`` partitions, and others."""
    lefts, rights = candidates["left"].to_numpy(), candidates["right"].to_numpy()
    number = (spread(rights) >> np.uint64(64 - MOST_BITS)).astype(np.int16) >> (MOST_BITS - bits) << (MOST_BITS - bits)
    partitions = np.concatenate([np.tile(number.astype(np.int16), 2), np.zeros(len(others), dtype=np.int16)])
    places = np.concatenate([lefts, rights, others])
    order = np.lexsort((partitions, places))
    chosen = order[is_new(places[order], partitions[order])]
    places, partitions = places[chosen], partitions[chosen]
    return pa.table([shards_of(places), rows_of(places), partitions], schema=WANTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearSets:
    """SecondPassTask: makes the shingle sets of documents in candidate pairs."""

    name: ClassVar[str] = "near_sets"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    emits: ClassVar[Mapping[str, pa.Schema]] = {"sets": SETS}
    ngram: int

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``sets`` for each partition that wants them, and ``seen``."""
        del encode
        shingles, bounds = shingle_hashes(batch.get(WORDS).hashes, batch.get(WORDS).offsets, ngram=self.ngram)
        values, ends = distinct_sets(shingles, bounds)
        sources = batch.sources().cast(pa.string())
        return {
            "sets": _sets(batch.rows, values, ends, wanted),
            "seen": pa.table([batch.rows, sources, np.diff(ends)], schema=SEEN),
        }


def _sets(batch_rows: np.ndarray, values: np.ndarray, ends: np.ndarray, wanted: pa.Table) -> pa.Table:
    """Return each wanted set, its key beginning with the partition."""
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
    """Intersects the sets of all candidates of a partition; ``bits`` of :func:`partition_bits`."""

    bits: int

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``verified``."""
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
    """Yield ranges whose weights add up to a bounded sum, or that hold one weight alone."""
    ends = np.cumsum(weights)
    start = 0
    while start < len(weights):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _MOST_SHINGLES, side="right")))
        yield start, stop
        start = stop


CHECKED = pa.schema([("shard", pa.int32()), ("row", pa.int64())])
CHECKS = pa.schema([("row", pa.int64()), ("digests", pa.large_list(pa.binary(16)))])
"""Ascending digests of a document's distinct shingles."""
MOST_BYTES = 1 << 14
"""Longer documents are not checked: plain Python takes two seconds for a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some of the reported pairs: int64[p] places of the earlier and of the later documents."""

    lefts: np.ndarray
    rights: np.ndarray

    def wanted(self) -> pa.Table:
        """Return the documents to read again."""
        places = np.unique(np.concatenate([self.lefts, self.rights]))
        return pa.table([shards_of(places), rows_of(places)], schema=CHECKED)


def sample_pairs(members: pa.Table, edges: pa.Table, size: int) -> Sample:
    """Draw reported pairs by a hash of their places, those of equal words among them."""
    later = members.filter(pc.not_equal(members["first"], members["place"]))
    lefts = np.concatenate([later["first"].to_numpy(), edges["left"].to_numpy()])
    rights = np.concatenate([later["place"].to_numpy(), edges["right"].to_numpy()])
    with np.errstate(over="ignore"):
        drawn = spread((spread(lefts) * np.uint64(3) + spread(rights)).view(np.int64))
    chosen = np.lexsort((rights, lefts, drawn))[:size]
    return Sample(lefts=lefts[chosen], rights=rights[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class NearChecks:
    """SecondPassTask: makes the shingles of documents as text."""

    name: ClassVar[str] = "near_checks"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    emits: ClassVar[Mapping[str, pa.Schema]] = MappingProxyType({})
    ngram: int

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``checks`` of documents that are not too long."""
        del wanted, encode
        chosen = np.flatnonzero(batch.num_bytes() <= MOST_BYTES)
        texts = batch.texts.take(pa.array(chosen)).to_pylist()
        digests = [text_shingles(folded_words(text), self.ngram) for text in texts]
        return {"checks": pa.table([batch.rows[chosen], pa.array(digests, CHECKS.field(1).type)], schema=CHECKS)}


def count_right(sample: Sample, shards: np.ndarray, checks: pa.Table, threshold: float) -> tuple[int, int]:
    """Return how many pairs were checked, and how many of them are near-duplicates by their text."""
    places = places_of(shards, checks["row"].to_numpy()).tolist()
    digests = dict(zip(places, map(frozenset, checks["digests"].to_pylist()), strict=True))
    checked = right = 0
    for earlier, later in zip(sample.lefts.tolist(), sample.rights.tolist(), strict=True):
        if earlier in digests and later in digests:
            first, second = digests[earlier], digests[later]
            checked += 1
            right += len(first & second) / len(first | second) >= threshold
    return checked, right


DONE = pa.schema([("documents", pa.int64())])
"""How many drawn documents count in a partition, the first."""
NO_BUCKET = 0
"""Number of buckets of pairs that are compared to measure recall alone."""
_ENOUGH = 8
"""Surely similar neighbours beyond which no more need to be verified."""
_PAIRS = 1 << 20
"""About how many pairs of drawn documents are verified; where they have more, fewer documents count."""


@dataclass(frozen=True, slots=True)
class NeighbourJoin:
    """Pairs drawn documents with the earlier documents of a partition that they agree with."""

    places: np.ndarray
    """int64[d] of the drawn documents, in the order of their hashes."""
    sketches: np.ndarray
    threshold: float

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``candidates``, also as keyed rows, and ``done``: drawn documents whose neighbours all are in them."""
        values = self.sketches.shape[1]
        least, sure = least_agreement(values, self.threshold), sure_agreement(values, self.threshold)
        pairs: list[tuple[np.ndarray, int]] = []
        room = _PAIRS * (stop - start) // NUM_BYTES
        others = [Sketched.read(files, start, stop, values, part.rows).firsts() for part in passes(files, start, stop)]
        for place, sketch in zip(self.places.tolist(), self.sketches, strict=True):
            near = np.concatenate([_neighbours(other, place, sketch, least, sure) for other in others])
            room -= len(near)
            if room < 0 and pairs:
                break
            pairs.append((near, place))
        left = np.concatenate([np.zeros(0, dtype=np.int64), *(near for near, _ in pairs)])
        right = np.repeat(np.array([place for _, place in pairs], dtype=np.int64), [len(near) for near, _ in pairs])
        bands = np.full(len(left), NO_BUCKET, dtype=np.int16)
        candidates = pa.table([left, right, bands], schema=CANDIDATES)
        return Joined(
            tables={"candidates": candidates, "done": pa.table([[len(pairs)]], schema=DONE)},
            keyed={"candidates": keyed_candidates(candidates)},
        )


def _neighbours(others: Sketched, place: int, sketch: np.ndarray, least: int, sure: int) -> np.ndarray:
    """Return the places of earlier documents that may be near-duplicates, or a few that surely are."""
    earlier = int(np.searchsorted(others.places, place))
    agreed = agreements(sketch, others.sketches[:earlier])
    is_sure = np.flatnonzero(agreed >= sure)
    if len(is_sure) >= _ENOUGH:
        return others.places[is_sure[np.argsort(-agreed[is_sure].astype(np.int64), kind="stable")[:_ENOUGH]]]
    return others.places[np.flatnonzero(agreed >= least)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Drawn documents that have an earlier near-duplicate."""

    similarities: np.ndarray
    """float64[d] of each to the nearest of these."""
    found: np.ndarray
    """bool[d] whether the search found any."""

    @classmethod
    def of(cls, drawn: np.ndarray, verified: pa.Table, edges: pa.Table, threshold: float) -> Recall:
        """Compare what the search found (``edges``) with all verified neighbours of drawn documents."""
        bands, rights = verified["bands"].to_numpy(), verified["right"].to_numpy()
        similarity = verified["intersection"].to_numpy() / np.maximum(verified["union"].to_numpy(), 1)
        near = (bands == NO_BUCKET) & (similarity >= threshold) & np.isin(rights, drawn)
        documents, places = np.unique(rights[near], return_inverse=True)
        best = np.zeros(len(documents))
        np.maximum.at(best, places, similarity[near])
        return cls(similarities=best, found=np.isin(documents, edges["right"].to_numpy()))
