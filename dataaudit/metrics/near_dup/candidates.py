"""Candidate pairs of near-duplicates: the joins that pair documents by MinHash bands and by sketches.

Four joins, each run on one partition of keyed rows:

1. :func:`link_classes`: documents of equal word sequences. The first in the manifest's order stands for its class.
2. :class:`BandJoin`: within a bucket (documents of one band value) of few documents all are paired.
3. :class:`SketchJoin`, :class:`CrowdJoin`: documents of large buckets (templates, licences) get their sketches, and are
   paired with those that they agree with most.
4. :class:`PairJoin`: the pairs of a document, over all bands; the most promising become candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dataaudit.manifest.locate import is_new, rows_of, shards_of
from dataaudit.metrics.near_dup.stage import BANDS, DOCUMENTS, SKETCHES
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.cross_shard.keyed import (
    Choose,
    Placed,
    distinct,
    key_array,
    key_matrix,
    keys_of,
    named,
    passes,
    read_all,
    read_placed,
    spread,
)
from dataaudit.scan.kernels.pairing import (
    APART,
    LATER,
    LEAK,
    MORE,
    TIMES,
    CrowdLimits,
    earlier_duplicates,
    form_crowd_pairs,
    form_pairs,
)

PAIRS = pa.schema(
    [
        ("key", pa.binary(8)),
        ("left", pa.int64()),
        ("right", pa.int64()),
        ("bands", pa.int16()),
        ("agreed", pa.int16()),
        ("flags", pa.uint8()),
    ]
)
"""Pairs by the later document: how many buckets of this partition they share, on how many values their sketches agree
(0: not compared), and bits of :mod:`dataaudit.scan.kernels.pairing` that any of these buckets sets. Leaks must not
depend on the order of splits, so pairs that may be leaks have limits of their own."""
CROWDS = pa.schema([("key", pa.binary(8)), ("place", pa.int64()), ("split", pa.int32()), ("bucket", pa.uint64())])
"""Documents of large buckets, by class: a row for each of their large buckets."""
MET = pa.schema([("place", pa.int64())])
"""Some documents that share a bucket with another: the first by :func:`first_spread`."""
COUNTS = pa.schema([("pairs", pa.int64()), ("crowds", pa.int64())])
"""Rows emitted."""


@dataclass(frozen=True, slots=True)
class BucketRows:
    """Bands of one partition; a bucket is the rows of one key."""

    keys: np.ndarray
    places: np.ndarray
    splits: np.ndarray
    same: np.ndarray

    @classmethod
    def of(cls, placed: Placed) -> BucketRows:
        """Return the rows as they were read."""
        return cls(keys_of(placed.table), placed.places, placed.splits, placed.table["same"].to_numpy())

    def take(self, chosen: np.ndarray) -> BucketRows:
        """Return some of the rows."""
        return BucketRows(self.keys[chosen], self.places[chosen], self.splits[chosen], self.same[chosen])

    def first_of_same(self) -> np.ndarray:
        """Return the index of each class's first document in each bucket, by key, then place."""
        order = np.lexsort((self.places, self.same, self.keys))
        firsts = order[is_new(self.keys[order], self.same[order])]
        return np.asarray(firsts[np.lexsort((self.places[firsts], self.keys[firsts]))])


@dataclass(frozen=True, slots=True, kw_only=True)
class BandJoin:
    """Pairs all documents of each small bucket, and lists those of large ones."""

    small: int
    """Most documents of a small bucket."""
    met: int
    """Most rows of ``met``."""
    held_out: tuple[bool, ...]

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``counts`` and ``met``, and the keyed rows ``pairs`` and ``crowds``."""
        joined = [self._join(read_placed(files, BANDS, start, stop, part.rows)) for part in passes(files, start, stop)]
        pairs, crowds, met = zip(*joined, strict=True)
        keyed = {"pairs": pa.concat_tables(pairs), "crowds": pa.concat_tables(crowds)}
        tables = {
            "counts": pa.table([[table.num_rows] for table in keyed.values()], schema=COUNTS),
            "met": pa.table([first_spread(np.concatenate(met), self.met)], schema=MET),
        }
        return Joined(tables=tables, keyed=keyed)

    def _join(self, placed: Placed) -> tuple[pa.Table, pa.Table, np.ndarray]:
        """Return the pairs of small buckets, the rows of large ones, and the documents that share a bucket."""
        rows = BucketRows.of(placed)
        rows = rows.take(_shared(rows.keys))
        rows = rows.take(rows.first_of_same())
        bounds = bucket_bounds(rows.keys)
        pairs = form_pairs(bounds, rows.splits, np.array(self.held_out, dtype=bool), small=self.small)
        once = np.ones(len(pairs.lefts), dtype=np.int16)
        places = rows.places[pairs.lefts], rows.places[pairs.rights]
        formed = pairs_table(*places, bands=once, agreed=np.zeros_like(once), flags=pairs.flags)
        sizes = np.repeat(np.diff(bounds), np.diff(bounds))
        crowd = rows.take(np.flatnonzero(sizes > self.small))
        of_class = key_array(crowd.same.astype("<u4").byteswap().astype(np.uint64) << np.uint64(32))
        columns = [of_class, crowd.places, crowd.splits, crowd.keys]
        return formed, pa.table(columns, schema=CROWDS), rows.places[sizes > 1]


def bucket_bounds(keys: np.ndarray) -> np.ndarray:
    """Return int64[b + 1]: bucket i of ordered keys is ``[bounds[i]:bounds[i + 1]]``."""
    return np.append(np.flatnonzero(is_new(keys)), len(keys)).astype(np.int64)


def first_spread(places: np.ndarray, most: int) -> np.ndarray:
    """Return int64[n], the distinct places whose :func:`dataaudit.scan.cross_shard.keyed.spread` is least."""
    places = distinct(places)
    return np.asarray(places[np.argsort(spread(places))[:most]])


def pairs_table(
    lefts: np.ndarray, rights: np.ndarray, *, bands: np.ndarray, agreed: np.ndarray, flags: np.ndarray
) -> pa.Table:
    """Merge the rows of each pair, one for each of its buckets, into :data:`PAIRS`."""
    order = np.lexsort((lefts, rights))
    lefts, rights = lefts[order], rights[order]
    heads = np.flatnonzero(is_new(lefts, rights))
    if len(heads):
        bands = np.add.reduceat(bands[order], heads)
        agreed = np.maximum.reduceat(agreed[order], heads)
        flags = np.bitwise_or.reduceat(flags[order], heads)
    lefts, rights = lefts[heads], rights[heads]
    columns = [key_array(spread(rights)), lefts, rights, bands.astype(np.int16), agreed, flags]
    return pa.table(columns, schema=PAIRS)


def _shared(keys: np.ndarray) -> np.ndarray:
    """Return the indices of the keys that occur more than once: most documents share no bucket."""
    order = np.argsort(keys)
    equal = keys[order[1:]] == keys[order[:-1]]
    shared = np.zeros(len(keys), dtype=bool)
    shared[order[1:][equal]] = True
    shared[order[:-1][equal]] = True
    return np.flatnonzero(shared)


CLASS_MEMBERS = pa.schema([("first", pa.int64()), ("place", pa.int64()), ("source", pa.string())])
"""Documents of classes of two and more, with the first of their class."""


def link_classes(files: pa.Table, start: int, stop: int) -> Joined:
    """Return ``members`` of the classes whose digest's first byte is in [start, stop)."""
    placed = read_placed(files, DOCUMENTS, start, stop)
    if len(placed.places) == 0:
        return Joined(tables={"members": CLASS_MEMBERS.empty_table()})
    keys = np.concatenate([key_matrix(chunk) for chunk in placed.table["key"].chunks if len(chunk)])
    seen, _, first = earlier_duplicates(keys, shards_of(placed.places), rows_of(placed.places), placed.splits)
    shared = seen.copy()
    shared[first[seen]] = True
    chosen = np.flatnonzero(shared)
    columns = [placed.places[first[chosen]], placed.places[chosen], placed.table["source"].take(pa.array(chosen))]
    return Joined(tables={"members": pa.table(columns, schema=CLASS_MEMBERS)})


MEMBERS = pa.schema([("key", pa.binary(8)), ("place", pa.int64()), ("split", pa.int32()), ("sketch", pa.binary())])
"""Documents of large buckets with their sketches, by bucket."""
SKETCHED = pa.schema([("place", pa.int64()), ("sketch", pa.binary())])
"""Documents and their sketches."""
HELD_OUT_CUT = pa.schema([("place", pa.int64())])
"""Held-out documents of large buckets that were left out of others' pairs."""
MISSED = pa.schema([("missed", pa.int64()), ("rows", pa.int64())])
"""Pairs of large buckets that were left out; rows emitted."""


@dataclass(frozen=True, slots=True)
class Sketched:
    """The sketches of documents: int64[n] ascending places, uint8[n, v] sketches, uint64[n] classes."""

    places: np.ndarray
    sketches: np.ndarray
    classes: np.ndarray

    @classmethod
    def read(cls, files: pa.Table, start: int, stop: int, values: int, chosen: Choose) -> Sketched:
        """Read the sketches of a partition; see :func:`dataaudit.scan.cross_shard.keyed.read_placed`."""
        placed = read_placed(files, SKETCHES, start, stop, chosen)
        order = np.argsort(placed.places)
        sketches = sketch_matrix(placed.table["sketch"].take(pa.array(order)), values)
        return cls(placed.places[order], sketches, keys_of(placed.table)[order])

    def firsts(self) -> Sketched:
        """Return the first document of each class."""
        chosen = np.sort(np.unique(self.classes, return_index=True)[1])
        return Sketched(self.places[chosen], self.sketches[chosen], self.classes[chosen])


def sketch_matrix(column: pa.ChunkedArray, values: int) -> np.ndarray:
    """Return uint8[n, v] of sketches of ``values`` bytes each."""
    pieces = [key_matrix(chunk.cast(pa.binary(values))) for chunk in column.chunks if len(chunk)]
    return np.concatenate([np.zeros((0, values), dtype=np.uint8), *pieces])


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchJoin:
    """Gives the documents of large buckets their sketches, of ``values`` values."""

    values: int
    drawn: tuple[int, ...]
    """Places of the documents that recall is measured with, ascending."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return the sketches ``drawn``, and the keyed rows ``members``."""
        sketches, crowds = named(files, "sketches"), named(files, "crowds")
        members, drawn = [MEMBERS.empty_table()], [SKETCHED.empty_table()]
        for part in passes(sketches, start, stop):
            own = Sketched.read(sketches, start, stop, self.values, part.rows)
            bytes_of = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(self.values), len(own.places), [None, pa.py_buffer(own.sketches)]
            ).cast(pa.binary())
            rows = read_all(crowds, CROWDS, start, stop, part.rows)
            at = np.searchsorted(own.places, rows["place"].to_numpy())
            assert (own.places[at] == rows["place"].to_numpy()).all(), "every document that has bands has a sketch"
            keys = key_array(rows["bucket"].to_numpy())
            members.append(pa.table([keys, rows["place"], rows["split"], bytes_of.take(pa.array(at))], schema=MEMBERS))
            chosen = np.flatnonzero(np.isin(own.places, np.array(self.drawn, dtype=np.int64)))
            drawn.append(pa.table([own.places[chosen], bytes_of.take(pa.array(chosen))], schema=SKETCHED))
        return Joined(tables={"drawn": pa.concat_tables(drawn)}, keyed={"members": pa.concat_tables(members)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdJoin:
    """Pairs the documents of each large bucket."""

    values: int
    held_out: tuple[bool, ...]
    limits: CrowdLimits

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``missed`` and ``cut``, and the keyed rows ``pairs``."""
        joined = [self._join(read_all(files, MEMBERS, start, stop, part.rows)) for part in passes(files, start, stop)]
        parts, cuts, missed = zip(*joined, strict=True)
        pairs, cut = pa.concat_tables(parts), distinct(np.concatenate(cuts))
        counts = pa.table([[sum(missed)], [pairs.num_rows]], schema=MISSED)
        return Joined(tables={"missed": counts, "cut": pa.table([cut], schema=HELD_OUT_CUT)}, keyed={"pairs": pairs})

    def _join(self, members: pa.Table) -> tuple[pa.Table, np.ndarray, int]:
        """Return the pairs, the held-out documents that others left out, and how many pairs were left out."""
        keys, places = keys_of(members), members["place"].to_numpy()
        order = np.lexsort((places, keys))
        keys, places, splits = keys[order], places[order], members["split"].to_numpy()[order]
        sketches = sketch_matrix(members["sketch"], self.values)[order]
        held_out = np.array(self.held_out, dtype=bool)
        tables, cuts, missed = [PAIRS.empty_table()], [places[:0]], 0
        for first, last in pairwise(bucket_bounds(keys).tolist()):
            own, turn = places[first:last], int(keys[first] % np.uint64(self.values))
            formed = form_crowd_pairs(sketches[first:last], splits[first:last], held_out, self.limits, turn=turn)
            none = np.zeros(len(formed.lefts), dtype=np.int16)
            pairs = pairs_table(
                own[formed.lefts], own[formed.rights], bands=none, agreed=formed.agreed, flags=formed.flags
            )
            once = pa.array(np.ones(pairs.num_rows, dtype=np.int16))  # though both documents may ask for the pair
            tables.append(pairs.set_column(3, PAIRS.field(3), once))
            missed += formed.missed
            cuts.append(places[first + formed.cut[held_out[splits[first + formed.cut]]]])
        return pa.concat_tables(tables), np.concatenate(cuts), missed


CANDIDATES = pa.schema([("left", pa.int64()), ("right", pa.int64()), ("bands", pa.int16())])
"""Pairs to verify: the earlier document, the later one, and how many buckets they share."""
KEYED_CANDIDATES = pa.schema([("key", pa.binary(8)), *CANDIDATES])
"""The same, by the later document."""
CUT = pa.schema([("place", pa.int64()), ("is_later", pa.bool_())])
"""Documents with more pairs than are verified, as their later document or as the earlier one."""
DROPPED = pa.schema([("dropped", pa.int64())])
"""Pairs left out because their later document had too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJoin:
    """Chooses the candidates among the pairs of each later document."""

    limits: CrowdLimits
    """``most`` earlier documents of small buckets are candidates, those with most buckets in common, and as many of
    large ones as in each of these; of equals the first. A held-out document has as many of training data again."""
    values: int

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``candidates``, also as keyed rows, ``cut`` and ``dropped``."""
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
    """Return candidates as keyed rows."""
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
    """Return int64[n], the rank of each pair among those of its later document: most agreed, then most bands."""
    order = np.lexsort((lefts, -bands, -agreed, rights))
    places = np.arange(len(order))
    starts = np.maximum.accumulate(np.where(is_new(rights[order]), places, 0))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = places - starts
    return ranks
