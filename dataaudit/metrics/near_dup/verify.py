"""Verification: the shingle sets of candidates, made in the second reading, intersected pair by pair.

The set of a document goes to each partition in which a pair of it is verified: those of the pair's later documents.

Near-duplicate join of the pairs of one partition of the later documents, put together over all bands.

A second opinion on some of the reported pairs: their shingles as text, made in plain Python without any kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import places_of, rows_of, shards_of
from dataaudit.metrics.near_dup.bands import PAIRS, pairs_table
from dataaudit.scan.annotators import WORDS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.kernels.minhash import distinct_sets, intersections, shingle_hashes
from dataaudit.scan.kernels.pairing import APART, LATER, LEAK, MORE, TIMES, CrowdLimits
from dataaudit.scan.kernels.plain_words import text_shingles, words_of
from dataaudit.scan.link.joins import Joined
from dataaudit.scan.link.places import Pass, Placed, distinct, key_array, named, passes, read_all, read_placed, spread
from dataaudit.scan.link.step import Encode

CANDIDATES = pa.schema([("left", pa.int64()), ("right", pa.int64()), ("bands", pa.int16())])
"""Pairs to verify: places of the earlier and the later document, and how many buckets they share."""
KEYED_CANDIDATES = pa.schema([("key", pa.binary(8)), *CANDIDATES])
"""The same, by the later document."""
CUT = pa.schema([("place", pa.int64()), ("is_later", pa.bool_())])
"""Documents that had more pairs than were verified, as the later one of these or as the earlier one."""
DROPPED = pa.schema([("dropped", pa.int64())])
"""Pairs left out because their later document had more than the most it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJoin:
    """Puts together the pairs of all documents of a partition."""

    limits: CrowdLimits
    """How many earlier documents one is compared with: ``most`` of those of small buckets, with most buckets in common,
    and of those of large ones as many as in each of these; of equal ones the first. A held-out one has so many of
    training data and as many others."""
    values: int
    """Of a sketch."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``candidates``, ``cut`` and ``dropped``; the keyed rows ``candidates`` are those of the table."""
        _, likely = self.limits.agreements(self.values)
        parts = [
            _candidates(read_all(files, PAIRS, start, stop, part.rows), self.limits.most, likely)
            for part in passes(files, start, stop)
        ]
        candidates, cut = (pa.concat_tables(tables) for tables in list(zip(*parts, strict=True))[:2])
        return Joined(
            tables={
                "candidates": candidates,
                "cut": cut,
                "dropped": pa.table([[sum(dropped for *_, dropped in parts)]], schema=DROPPED),
            },
            keyed={"candidates": keyed_candidates(candidates)},
        )


def keyed_candidates(candidates: pa.Table) -> pa.Table:
    """Return candidates by the later document."""
    return pa.table([key_array(spread(candidates["right"].to_numpy())), *candidates.columns], schema=KEYED_CANDIDATES)


def _candidates(pairs: pa.Table, most: int, likely: int) -> tuple[pa.Table, pa.Table, int]:
    """Return the candidates, the documents that had more, and how many pairs these had more."""
    given = {name: pairs[name].to_numpy() for name in ("bands", "agreed", "flags")}
    merged = pairs_table(pairs["left"].to_numpy(), pairs["right"].to_numpy(), **given)
    lefts, rights, bands, agreed, flags = (merged[name].to_numpy() for name in PAIRS.names[1:])
    kept = flags & LEAK != 0
    asks, apart, crowd = flags & LATER != 0, flags & APART != 0, agreed > 0
    for group, times in ((apart & crowd, TIMES), (apart & ~crowd, 1), (~apart & crowd, TIMES), (~apart & ~crowd, 1)):
        asked = np.flatnonzero(asks & ~kept & group)
        ranks = _rank(rights[asked], lefts[asked], bands[asked], agreed[asked])
        limit = np.full(len(asked), times * most)
        is_likely = (ranks == 2 * most - 1) & (agreed[asked] >= likely)
        limit[np.isin(rights[asked], rights[asked[is_likely]])] = 2 * most
        kept[asked[ranks < limit]] = True
    later = distinct(rights[(flags & MORE != 0) | ~kept])
    earlier = distinct(lefts[~kept])
    is_later = np.repeat([True, False], [len(later), len(earlier)])
    cut = pa.table([np.concatenate([later, earlier]), is_later], schema=CUT)
    columns = [lefts[kept], rights[kept], bands[kept]]
    return pa.table(columns, schema=CANDIDATES), cut, int((~kept).sum())


def _rank(rights: np.ndarray, lefts: np.ndarray, bands: np.ndarray, agreed: np.ndarray) -> np.ndarray:
    """Return int64[n] the rank of each pair among those of its later document: who agrees most, shares most bands."""
    order = np.lexsort((lefts, -bands, -agreed, rights))
    ordered = rights[order]
    places = np.arange(len(order))
    starts = np.maximum.accumulate(np.where(np.append(True, ordered[1:] != ordered[:-1])[: len(order)], places, 0))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = places - starts
    return ranks


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
        """Return ``verified``, of schema :data:`VERIFIED`."""
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


CHECKED = pa.schema([("shard", pa.int32()), ("row", pa.int64())])
CHECKS = pa.schema([("row", pa.int64()), ("digests", pa.large_list(pa.binary(16)))])
"""Ascending digests of a document's distinct shingles."""
MOST_BYTES = 1 << 14
"""Longer documents are not checked: plain Python takes two seconds for a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some of the reported pairs."""

    lefts: np.ndarray
    """int64[p] places of the earlier documents."""
    rights: np.ndarray
    """int64[p] places of the later ones."""

    def wanted(self) -> pa.Table:
        """Return what to read again, of schema :data:`WANTED`."""
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
    """Words of a shingle."""

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``checks`` of the documents that are not too long."""
        del wanted, encode
        chosen = np.flatnonzero(batch.num_bytes() <= MOST_BYTES)
        texts = batch.texts.take(pa.array(chosen)).to_pylist()
        digests = [text_shingles([word.text for word in words_of(text)], self.ngram) for text in texts]
        return {"checks": pa.table([batch.rows[chosen], pa.array(digests, CHECKS.field(1).type)], schema=CHECKS)}


def count_right(sample: Sample, shards: np.ndarray, checks: pa.Table, threshold: float) -> tuple[int, int]:
    """Return how many pairs were checked, and how many of them are near-duplicates by their text."""
    places = places_of(shards, checks["row"].to_numpy()).tolist()
    digests = dict(zip(places, map(frozenset, checks["digests"].to_pylist()), strict=True))
    checked = right = 0
    for left, right_one in zip(sample.lefts.tolist(), sample.rights.tolist(), strict=True):
        if left in digests and right_one in digests:
            first, second = digests[left], digests[right_one]
            checked += 1
            right += len(first & second) / len(first | second) >= threshold
    return checked, right
