"""First near-duplicate join: the documents of one partition of the band keys, paired within their buckets.

Documents of equal words are one here: of each class the first in the manifest's order stands for all, and as equal
words have equal bands it is the same one in every bucket. Probes (variants of documents, of known similarity) are
paired by the same rules as if each were one more document; they meet no other probe and change no pair of others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.pairing import form_pairs, form_probe_pairs
from dataaudit.link.places import Placed, key_array, keys_of, read_placed, spread

BANDS = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("same", pa.uint32())])
"""What the scan emits for each document and band: the band's key, and the first four bytes of its class."""
PROBES = pa.schema(
    [
        ("key", pa.binary(8)), ("row", pa.int64()), ("same", pa.uint32()), ("band", pa.int16()),
        ("intersection", pa.int64()), ("union", pa.int64()),
    ]
)  # fmt: skip
"""What the scan emits for each band of a probe; row and class are those of the document that it was made of."""
PAIRS = pa.schema(
    [("key", pa.binary(8)), ("left", pa.int64()), ("right", pa.int64()), ("bands", pa.int16()), ("asks", pa.bool_())]
)
"""Pairs of places by the later one, with the number of buckets of this partition that they share."""
PROBED = pa.schema(
    [
        ("key", pa.binary(8)), ("left", pa.int64()), ("right", pa.int64()), ("original", pa.bool_()),
        ("intersection", pa.int64()), ("union", pa.int64()),
    ]
)  # fmt: skip
"""Pairs of a document (left) and a probe, named by its original (right), one for each bucket; one row with left -1 for
each probe, whatever it meets."""
NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingRules:
    """How large buckets are bounded."""

    small: int = 32
    """Documents of a bucket up to which every two are paired."""
    leaders: int = 8
    """First documents of each split that all others of a larger bucket are paired with."""


@dataclass(frozen=True, slots=True)
class BandLink:
    """The pairs of one partition."""

    pairs: pa.Table
    """Of schema :data:`PAIRS`."""
    probed: pa.Table
    """Of schema :data:`PROBED`."""
    missed: int
    """Pairs that share a bucket and were not formed in it."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one partition, in some order."""

    keys: np.ndarray
    places: np.ndarray
    splits: np.ndarray
    same: np.ndarray

    def take(self, chosen: np.ndarray) -> _Rows:
        return _Rows(self.keys[chosen], self.places[chosen], self.splits[chosen], self.same[chosen])

    def first_of_same(self) -> np.ndarray:
        """Return the indices of the first document of each class in each bucket, by key, then place."""
        order = np.lexsort((self.places, self.same, self.keys))
        new = np.ones(len(order), dtype=bool)
        keys, same = self.keys[order], self.same[order]
        new[1:] = (keys[1:] != keys[:-1]) | (same[1:] != same[:-1])
        firsts = order[new]
        return np.asarray(firsts[np.lexsort((self.places[firsts], self.keys[firsts]))])


def link_bands(
    files: pa.Table, probe_files: pa.Table, start: int, stop: int, *, held_out: np.ndarray, rules: PairingRules
) -> BandLink:
    """Pair the documents of all buckets whose key's first byte is in [start, stop).

    Args:
        files: Of schema :data:`dataaudit.link.exact.LINK_FILES`: the bands of every part of every shard.
        probe_files: Ditto, the probes.
        start: First value of the first byte.
        stop: Value after the last.
        held_out: bool[s] whether each split is held out.
        rules: What bounds the work.

    Raises:
        DamagedRowsError: Files are absent or damaged; it names all of them.
    """
    rows = _rows(read_placed(files, BANDS, start, stop))
    placed_probes = read_placed(probe_files, PROBES, start, stop)
    probes = _rows(placed_probes)
    rows = rows.take(_shared(rows.keys, probes.keys))
    rows = rows.take(rows.first_of_same())
    heads = np.flatnonzero(np.append(True, rows.keys[1:] != rows.keys[:-1])[: len(rows.keys)])
    bounds = np.append(heads, len(rows.keys)).astype(np.int64)
    pairs = form_pairs(bounds, rows.splits, held_out, small=rules.small, leaders=rules.leaders)
    return BandLink(
        _pairs(rows.places[pairs.lefts], rows.places[pairs.rights], pairs.asks),
        _probed(rows, bounds, probes, placed_probes.table, len(held_out), rules),
        pairs.missed,
    )


def _rows(placed: Placed) -> _Rows:
    return _Rows(keys_of(placed.table), placed.places, placed.splits, placed.table["same"].to_numpy())


def _shared(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the indices of the keys that occur more than once, or among the others: most documents meet nobody."""
    everything = np.concatenate([keys, others])
    order = np.argsort(everything)
    equal = everything[order[1:]] == everything[order[:-1]]
    shared = np.zeros(len(everything), dtype=bool)
    shared[order[1:][equal]] = True
    shared[order[:-1][equal]] = True
    return np.flatnonzero(shared[: len(keys)])


def _pairs(lefts: np.ndarray, rights: np.ndarray, asks: np.ndarray) -> pa.Table:
    """Count the buckets of each pair; it is asked for when it is in any of them."""
    order = np.lexsort((lefts, rights))
    lefts, rights, asks = lefts[order], rights[order], asks[order]
    heads = np.flatnonzero(np.append(True, (lefts[1:] != lefts[:-1]) | (rights[1:] != rights[:-1]))[: len(lefts)])
    bands = np.diff(np.append(heads, len(lefts)))
    asked = np.logical_or.reduceat(asks, heads) if len(heads) else asks
    rights = rights[heads]
    columns = [key_array(spread(rights)), lefts[heads], rights, bands.astype(np.int16), asked]
    return pa.table(columns, schema=PAIRS)


def _probed(
    rows: _Rows, bounds: np.ndarray, probes: _Rows, table: pa.Table, num_splits: int, rules: PairingRules
) -> pa.Table:
    chosen = probes.first_of_same()  # equal documents have equal probes: each counts once
    probes, table = probes.take(chosen), table.take(pa.array(chosen))
    heads = rows.keys[bounds[:-1]]
    buckets = np.searchsorted(heads, probes.keys)
    met = np.flatnonzero(np.append(heads, 0)[buckets] == probes.keys) if len(heads) else np.zeros(0, dtype=np.int64)
    documents, by = form_probe_pairs(
        bounds, rows.splits, num_splits, buckets[met].astype(np.int64), small=rules.small, leaders=rules.leaders
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
