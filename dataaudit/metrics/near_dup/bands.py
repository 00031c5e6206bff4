"""First near-duplicate join: the documents of one partition of the band keys, paired within their small buckets.

Documents of equal words are one here: of each class the first in the manifest's order stands for all, and as equal
words have equal bands it is the same one in every bucket. Documents of large buckets are paired by further joins.

Documents of equal word sequences: one partition of their digests, joined. They are near-duplicates of each other.

Near-duplicate joins of large buckets, templates and licences: documents get their sketches, and are paired by them.

A sketch is written once for each document, and joined to those that are in a large bucket alone: by class, as classes
have equal sketches. Then the documents of each large bucket are paired with those that they agree with most.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dataaudit.manifest.locate import rows_of, shards_of
from dataaudit.metrics.near_dup.stage import BANDS, DOCUMENTS, SKETCHES
from dataaudit.scan.kernels.pairing import CrowdLimits, CrowdPairs, earlier_twins, form_crowd_pairs, form_pairs
from dataaudit.scan.link.joins import Joined
from dataaudit.scan.link.keyed import key_matrix
from dataaudit.scan.link.places import (
    Choose,
    Placed,
    distinct,
    key_array,
    keys_of,
    named,
    passes,
    read_all,
    read_placed,
    spread,
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
"""Pairs of places by the later one: the number of buckets of this partition that they share, on how many values their
sketches agree, 0 where they were not compared, and bits of :mod:`dataaudit.scan.kernels.pairing` and
:mod:`dataaudit.scan.kernels.pairing`, each set when it is in any of these buckets. What is found of a leak must not
depend on the order of splits, so pairs that may be leaks have limits of their own."""
CROWDS = pa.schema([("key", pa.binary(8)), ("place", pa.int64()), ("split", pa.int32()), ("bucket", pa.uint64())])
"""Documents of large buckets, by class: a row for each of their large buckets."""
MET = pa.schema([("place", pa.int64())])
"""Documents that share a bucket with another one: some, those that come first by :func:`first_spread`."""
COUNTS = pa.schema([("pairs", pa.int64()), ("crowds", pa.int64())])
"""Rows that are emitted."""


@dataclass(frozen=True, slots=True)
class BucketRows:
    """Bands of one partition, in some order."""

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
        """Return the indices of the first document of each class in each bucket, by key, then place."""
        order = np.lexsort((self.places, self.same, self.keys))
        new = np.ones(len(order), dtype=bool)
        keys, same = self.keys[order], self.same[order]
        new[1:] = (keys[1:] != keys[:-1]) | (same[1:] != same[:-1])
        firsts = order[new]
        return np.asarray(firsts[np.lexsort((self.places[firsts], self.keys[firsts]))])


@dataclass(frozen=True, slots=True, kw_only=True)
class BandJoin:
    """Pairs the documents of all small buckets of a partition, and lists those of the large ones."""

    small: int
    """Documents of a bucket up to which every two are paired."""
    met: int
    """Documents that share a bucket which are listed, at most."""
    held_out: tuple[bool, ...]
    """Whether each split is held out."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``counts`` and ``met``, and the keyed rows ``pairs`` and ``crowds``, of the schemas of this module."""
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
        heads = np.flatnonzero(np.append(True, rows.keys[1:] != rows.keys[:-1])[: len(rows.keys)])
        bounds = np.append(heads, len(rows.keys)).astype(np.int64)
        pairs = form_pairs(bounds, rows.splits, np.array(self.held_out, dtype=bool), small=self.small)
        once = np.ones(len(pairs.lefts), dtype=np.int16)
        places = rows.places[pairs.lefts], rows.places[pairs.rights]
        formed = pairs_table(*places, bands=once, agreed=np.zeros_like(once), flags=pairs.flags)
        sizes = np.repeat(np.diff(bounds), np.diff(bounds))
        crowd = rows.take(np.flatnonzero(sizes > self.small))
        of_class = key_array(crowd.same.astype("<u4").byteswap().astype(np.uint64) << np.uint64(32))
        columns = [of_class, crowd.places, crowd.splits, crowd.keys]
        return formed, pa.table(columns, schema=CROWDS), rows.places[sizes > 1]


def first_spread(places: np.ndarray, most: int) -> np.ndarray:
    """Return some of distinct places, int64[n]: those whose :func:`dataaudit.scan.link.places.spread` is least."""
    places = distinct(places)
    return np.asarray(places[np.argsort(spread(places))[:most]])


def pairs_table(
    lefts: np.ndarray, rights: np.ndarray, *, bands: np.ndarray, agreed: np.ndarray, flags: np.ndarray
) -> pa.Table:
    """Return pairs, each once, of schema :data:`PAIRS`; the arguments are its columns, a row for each bucket."""
    order = np.lexsort((lefts, rights))
    lefts, rights = lefts[order], rights[order]
    heads = np.flatnonzero(np.append(True, (lefts[1:] != lefts[:-1]) | (rights[1:] != rights[:-1]))[: len(lefts)])
    if len(heads):
        bands = np.add.reduceat(bands[order], heads)
        agreed = np.maximum.reduceat(agreed[order], heads)
        flags = np.bitwise_or.reduceat(flags[order], heads)
    lefts, rights = lefts[heads], rights[heads]
    columns = [key_array(spread(rights)), lefts, rights, bands.astype(np.int16), agreed, flags]
    return pa.table(columns, schema=PAIRS)


def _shared(keys: np.ndarray) -> np.ndarray:
    """Return the indices of the keys that occur more than once: most documents meet nobody."""
    order = np.argsort(keys)
    equal = keys[order[1:]] == keys[order[:-1]]
    shared = np.zeros(len(keys), dtype=bool)
    shared[order[1:][equal]] = True
    shared[order[:-1][equal]] = True
    return np.flatnonzero(shared)


CLASS_MEMBERS = pa.schema([("first", pa.int64()), ("place", pa.int64()), ("source", pa.string())])
"""Every document of a class of two or more, with the class's first."""


def link_classes(files: pa.Table, start: int, stop: int) -> Joined:
    """Return ``members``: those of all classes of two or more whose digest's first byte is in [start, stop)."""
    placed = read_placed(files, DOCUMENTS, start, stop)
    if len(placed.places) == 0:
        return Joined(tables={"members": CLASS_MEMBERS.empty_table()})
    keys = np.concatenate([key_matrix(chunk) for chunk in placed.table["key"].chunks if len(chunk)])
    seen, _, first = earlier_twins(keys, shards_of(placed.places), rows_of(placed.places), placed.splits)
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
"""Held-out documents of large buckets that others left out."""
MISSED = pa.schema([("missed", pa.int64()), ("rows", pa.int64())])
"""Pairs of large buckets that were left out; rows that are emitted."""


@dataclass(frozen=True, slots=True)
class Sketched:
    """The sketches of some documents."""

    places: np.ndarray
    """int64[n] ascending."""
    sketches: np.ndarray
    """uint8[n, v]"""
    classes: np.ndarray
    """uint64[n]"""

    @classmethod
    def read(cls, files: pa.Table, start: int, stop: int, values: int, chosen: Choose) -> Sketched:
        """Read them; see :func:`dataaudit.scan.link.places.read_placed`."""
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
    """Gives the documents of large buckets their sketches."""

    values: int
    """Of a sketch."""
    drawn: tuple[int, ...]
    """Places of documents whose sketches the driver wants, ascending."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``drawn``, of schema :data:`SKETCHED`, and the keyed rows ``members``, of schema :data:`MEMBERS`."""
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
    """Pairs the documents of all large buckets of a partition."""

    values: int
    """Of a sketch."""
    held_out: tuple[bool, ...]
    """Whether each split is held out."""
    limits: CrowdLimits
    """What is compared and kept."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``missed`` and ``cut``, of the schemas of this module, and the keyed rows ``pairs``."""
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
        heads = np.append(np.searchsorted(keys, distinct(keys)), len(keys)).tolist()
        for first, last in pairwise(heads):
            turn = int(keys[first] % np.uint64(self.values))
            made = form_crowd_pairs(sketches[first:last], splits[first:last], held_out, self.limits, turn=turn)
            tables.append(_table(made, places[first:last]))
            missed += made.missed
            cuts.append(places[first + made.cut[held_out[splits[first + made.cut]]]])
        return pa.concat_tables(tables), np.concatenate(cuts), missed


def _table(made: CrowdPairs, places: np.ndarray) -> pa.Table:
    """Return the pairs of one bucket; a pair that both sides ask for counts as one bucket."""
    once = np.zeros(len(made.lefts), dtype=np.int16)
    pairs = pairs_table(places[made.lefts], places[made.rights], bands=once, agreed=made.agreed, flags=made.flags)
    return pairs.set_column(3, PAIRS.field(3), pa.array(np.ones(pairs.num_rows, dtype=np.int16)))
