"""Near-duplicate joins of large buckets, templates and licences: documents get their sketches, and are paired by them.

A sketch is written once for each document, and joined to those that are in a large bucket alone: by class, as classes
have equal sketches. Then the documents of each large bucket are paired with those that they agree with most.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dataaudit.kernels.crowds import CrowdLimits, CrowdPairs, form_crowd_pairs
from dataaudit.link.joins import Joined
from dataaudit.link.keyed import key_matrix
from dataaudit.link.places import Choose, distinct, key_array, keys_of, named, passes, read_all, read_placed
from dataaudit.metrics.near_dup.bands import CROWDS, PAIRS, pairs_table
from dataaudit.metrics.near_dup.rows import SKETCHES

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
        """Read them; see :func:`dataaudit.link.places.read_placed`.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
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
        """Return ``drawn``, of schema :data:`SKETCHED`, and the keyed rows ``members``, of schema :data:`MEMBERS`.

        Args:
            files: With the rows ``sketches`` of every part and ``crowds`` of the first join.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
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
        """Return ``missed`` and ``cut``, of the schemas of this module, and the keyed rows ``pairs``.

        Args:
            files: With the rows ``members`` of :class:`SketchJoin`.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
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
