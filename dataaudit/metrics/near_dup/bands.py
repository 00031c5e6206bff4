"""First near-duplicate join: the documents of one partition of the band keys, paired within their buckets.

Documents of equal words are one here: of each class the first in the manifest's order stands for all, and as equal
words have equal bands it is the same one in every bucket. Probes (variants of documents, of known similarity) are
paired by the same rules as if each were one more document; they meet no other probe and change no pair of others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.pairing import LATER, LEAK, form_pairs, form_probe_pairs
from dataaudit.link.joins import Joined
from dataaudit.link.places import Placed, key_array, keys_of, named, passes, read_placed, spread
from dataaudit.metrics.near_dup.rows import BANDS, PROBES

PAIRS = pa.schema(
    [
        ("key", pa.binary(8)),
        ("left", pa.int64()),
        ("right", pa.int64()),
        ("bands", pa.int16()),
        ("asks", pa.bool_()),
        ("leak", pa.bool_()),
        ("apart", pa.bool_()),
    ]
)
"""Pairs of places by the later one, with the number of buckets of this partition that they share. Whether the later one
asked for the other; whether the earlier one is held out and asked for a later training document, a pair that no
limit of the later one may drop; and whether the later one is held out and the earlier one is not, which have a limit of
their own: what is found of a leak must not depend on the order of splits."""
PROBED = pa.schema(
    [
        ("key", pa.binary(8)),
        ("left", pa.int64()),
        ("right", pa.int64()),
        ("original", pa.bool_()),
        ("intersection", pa.int64()),
        ("union", pa.int64()),
    ]
)
"""Pairs of a document (left) and a probe, named by its original (right), one for each bucket; one row with left -1 for
each probe, whatever it meets."""
NOBODY = -1


COUNTS = pa.schema([("missed", pa.int64()), ("rows", pa.int64())])
"""Pairs that share a bucket and were not formed in it; rows that are emitted."""


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
    """Pairs the documents of all buckets of a partition; how large ones are bounded."""

    small: int
    """Documents of a bucket up to which every two are paired."""
    leaders: int
    """First documents of each split that all others of a larger bucket are paired with."""
    held_out: tuple[bool, ...]
    """Whether each split is held out."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``counts``, of schema :data:`COUNTS`, and the keyed rows ``pairs`` and ``probed``.

        Args:
            files: Of schema :data:`dataaudit.link.joins.LINK_FILES`; bands and probes of every part of every shard.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
        bands, probes = named(files, "bands"), named(files, "probes")
        joined = [
            self._join(
                read_placed(bands, BANDS, start, stop, part.rows), read_placed(probes, PROBES, start, stop, part.rows)
            )
            for part in passes(bands, start, stop)
        ]
        missed, pairs, probed = zip(*joined, strict=True)
        keyed = {"pairs": pa.concat_tables(pairs), "probed": pa.concat_tables(probed)}
        emitted = sum(table.num_rows for table in keyed.values())
        return Joined(tables={"counts": pa.table([[sum(missed)], [emitted]], schema=COUNTS)}, keyed=keyed)

    def _join(self, placed: Placed, placed_probes: Placed) -> tuple[int, pa.Table, pa.Table]:
        """Return the pairs that were not formed, those that were, and those of probes."""
        rows, probes = BucketRows.of(placed), BucketRows.of(placed_probes)
        rows = rows.take(_shared(rows.keys, probes.keys))
        rows = rows.take(rows.first_of_same())
        heads = np.flatnonzero(np.append(True, rows.keys[1:] != rows.keys[:-1])[: len(rows.keys)])
        bounds = np.append(heads, len(rows.keys)).astype(np.int64)
        pairs = form_pairs(bounds, rows.splits, np.array(self.held_out), small=self.small, leaders=self.leaders)
        held_out = np.array(self.held_out, dtype=bool)
        apart = held_out[rows.splits[pairs.rights]] & ~held_out[rows.splits[pairs.lefts]]
        flags = pairs.asked & LATER != 0, pairs.asked & LEAK != 0, apart
        formed = _pairs(rows.places[pairs.lefts], rows.places[pairs.rights], flags)
        return pairs.missed, formed, self._probed(rows, bounds, probes, placed_probes.table)

    def _probed(self, rows: BucketRows, bounds: np.ndarray, probes: BucketRows, table: pa.Table) -> pa.Table:
        """Pair probes with documents; see :data:`PROBED`."""
        chosen = probes.first_of_same()  # equal documents have equal probes: each counts once
        probes, table = probes.take(chosen), table.take(pa.array(chosen))
        heads = rows.keys[bounds[:-1]]
        buckets = np.searchsorted(heads, probes.keys)
        met = np.flatnonzero(np.append(heads, np.uint64(0))[buckets] == probes.keys)
        met = met[buckets[met] < len(heads)]
        documents, by = form_probe_pairs(
            bounds,
            rows.splits,
            len(self.held_out),
            buckets[met].astype(np.int64),
            small=self.small,
            leaders=self.leaders,
        )
        asked = met[by]
        present = np.flatnonzero(table["band"].to_numpy() == 0)
        whose = np.concatenate([asked, present])
        originals = np.concatenate([rows.same[documents] == probes.same[asked], np.zeros(len(present), dtype=bool)])
        rights = probes.places[whose]
        columns = {
            "key": key_array(spread(rights)),
            "left": np.concatenate([rows.places[documents], np.full(len(present), NOBODY)]),
            "right": rights,
            "original": originals,
            "intersection": table["intersection"].to_numpy()[whose],
            "union": table["union"].to_numpy()[whose],
        }
        return pa.table(columns, schema=PROBED)


def _shared(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the indices of the keys that occur more than once, or among the others: most documents meet nobody."""
    everything = np.concatenate([keys, others])
    order = np.argsort(everything)
    equal = everything[order[1:]] == everything[order[:-1]]
    shared = np.zeros(len(everything), dtype=bool)
    shared[order[1:][equal]] = True
    shared[order[:-1][equal]] = True
    return np.flatnonzero(shared[: len(keys)])


def _pairs(lefts: np.ndarray, rights: np.ndarray, flags: tuple[np.ndarray, ...]) -> pa.Table:
    """Count the buckets of each pair; a flag holds when it does in any of them."""
    order = np.lexsort((lefts, rights))
    lefts, rights = lefts[order], rights[order]
    heads = np.flatnonzero(np.append(True, (lefts[1:] != lefts[:-1]) | (rights[1:] != rights[:-1]))[: len(lefts)])
    bands = np.diff(np.append(heads, len(lefts)))
    any_of = [np.logical_or.reduceat(flag[order], heads) if len(heads) else flag for flag in flags]
    rights = rights[heads]
    columns = [key_array(spread(rights)), lefts[heads], rights, bands.astype(np.int16), *any_of]
    return pa.table(columns, schema=PAIRS)
