"""The sample of a judge: documents of each stratum drawn by a hash, whatever parts, workers or order there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.link.joined import Joined
from dataaudit.link.places import distinct, keys_of, read_placed, rows_of, shards_of, spread
from dataaudit.stages.strata import MEMBER_ROWS

OTHER = "other"
"""Name of sources and languages that have too few documents for strata of their own."""
DRAWN = pa.schema([("stratum", pa.int64()), ("drawn", pa.uint64()), ("place", pa.int64())])
"""Documents drawn, the least ``drawn`` first: their stratum's number and their place in the manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What strata there are: names that are kept apart, and which combinations of them a sample is drawn from."""

    sources: tuple[str, ...]
    """Sources with strata of their own; all others are ``other``."""
    languages: tuple[str, ...]
    """Languages with strata of their own; all others are ``other``."""
    strata: tuple[tuple[int, str, str, int], ...]
    """(split number, source, language, level), sorted; a document of any other kind is not drawn."""

    def numbers(self, splits: np.ndarray, table: pa.Table) -> np.ndarray:
        """Return int64[n] number of each row's stratum, -1 for none.

        Args:
            splits: int[n].
            table: source, language, level.
        """
        source, language = _codes(table["source"], self.sources), _codes(table["language"], self.languages)
        codes = self._code(splits.astype(np.int64), source, language, table["level"].to_numpy())
        by_source = {name: code for code, name in enumerate((*self.sources, OTHER))}
        by_language = {name: code for code, name in enumerate((*self.languages, OTHER))}
        rows = [(split, by_source[one], by_language[two], level) for split, one, two, level in self.strata]
        known = self._code(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)
        order = np.argsort(known)
        places = np.minimum(np.searchsorted(known[order], codes), max(0, len(known) - 1))
        if len(known) == 0:
            return np.full(len(codes), -1, dtype=np.int64)
        return np.where(known[order][places] == codes, order[places], -1)

    def _code(self, split: np.ndarray, source: np.ndarray, language: np.ndarray, level: np.ndarray) -> np.ndarray:
        first = (split * (len(self.sources) + 1) + source) * (len(self.languages) + 1) + language
        return np.asarray(first * _LEVELS + level + 1)


_LEVELS = 1 << 10
"""More than there are levels, from -1 on."""
_WEYL = 0x9E3779B97F4A7C15
"""Odd: its multiples fall evenly on 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleJoin:
    """Draws from one partition the documents that may be among the first of their stratum.

    A document is drawn by the hash of its text, the seed and its number among documents of equal text, so that copies
    are drawn one by one.
    """

    frame: Frame
    counts: tuple[int, ...]
    """Documents wanted of each stratum of the frame."""
    seed: int
    salt: int
    """Tells samples for different metrics apart."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``drawn``, of schema :data:`DRAWN`.

        Args:
            files: Of schema :data:`dataaudit.link.joined.LINK_FILES`.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedRowsError: Files are absent or damaged.
        """
        placed = read_placed(files, MEMBER_ROWS, start, stop)
        strata = self.frame.numbers(placed.splits, placed.table)
        keys = keys_of(placed.table)
        order = np.lexsort((placed.places, keys))
        drawn = np.zeros(len(keys), dtype=np.uint64)
        drawn[order] = self._drawn(keys[order])
        return Joined(tables={"drawn": first_of_each(strata, drawn, placed.places, np.array(self.counts))})

    def _drawn(self, keys: np.ndarray) -> np.ndarray:
        """Return uint64[n] of sorted keys; equal ones are numbered."""
        positions = np.arange(len(keys), dtype=np.int64)
        new = np.ones(len(keys), dtype=bool)
        new[1:] = keys[1:] != keys[:-1]
        first = np.maximum.accumulate(np.where(new, positions, 0)) if len(keys) else positions
        offset = np.uint64(((self.seed + 1) * _WEYL + self.salt * _WEYL**2) % 2**64)
        with np.errstate(over="ignore"):
            salted = spread(keys + offset)
            return spread(salted + (positions - first).astype(np.uint64) * np.uint64(_WEYL))


def first_of_each(strata: np.ndarray, drawn: np.ndarray, places: np.ndarray, counts: np.ndarray) -> pa.Table:
    """Return the ``counts`` rows of each stratum that were drawn first, of schema :data:`DRAWN`.

    Args:
        strata: int64[n] number of the stratum, -1 for none.
        drawn: uint64[n].
        places: int64[n].
        counts: int64[k] wanted of each stratum.
    """
    inside = np.flatnonzero(strata >= 0)
    order = inside[np.lexsort((places[inside], drawn[inside], strata[inside]))]
    ordered = strata[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    chosen = order[rank < counts[ordered]]
    columns = (strata[chosen], drawn[chosen], places[chosen])
    return pa.table(dict(zip(DRAWN.names, columns, strict=True))).cast(DRAWN)


def wanted_rows(places: np.ndarray) -> pa.Table:
    """Return what to visit: shard and row of some places."""
    ordered = distinct(places)
    return pa.table({"shard": shards_of(ordered), "row": rows_of(ordered)})


def _codes(names: pa.ChunkedArray, kept: tuple[str, ...]) -> np.ndarray:
    found = pc.index_in(names, value_set=pa.array(kept, pa.string()))
    return np.asarray(pc.fill_null(found, len(kept)).to_numpy(), dtype=np.int64)
