"""First near-duplicate join: the documents of one partition of the band keys, paired within their small buckets.

Documents of equal words are one here: of each class the first in the manifest's order stands for all, and as equal
words have equal bands it is the same one in every bucket. Documents of large buckets are paired by further joins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.pairing import form_pairs
from dataaudit.link.joins import Joined
from dataaudit.link.places import Placed, distinct, key_array, keys_of, passes, read_placed, spread
from dataaudit.metrics.near_dup.rows import BANDS

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
sketches agree, 0 where they were not compared, and bits of :mod:`dataaudit.kernels.pairing` and
:mod:`dataaudit.kernels.crowds`, each set when it is in any of these buckets. What is found of a leak must not depend on
the order of splits, so pairs that may be leaks have limits of their own."""
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
        """Return ``counts`` and ``met``, and the keyed rows ``pairs`` and ``crowds``, of the schemas of this module.

        Args:
            files: Of schema :data:`dataaudit.link.joins.LINK_FILES`; bands of every part of every shard.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
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
    """Return some of distinct places, int64[n]: those whose :func:`dataaudit.link.places.spread` is least."""
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
