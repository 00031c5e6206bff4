"""Verification: the shingle sets of candidates, made in the second reading, intersected pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.kernels.jaccard import distinct_sets, intersections
from dataaudit.kernels.minhash import shingle_hashes
from dataaudit.kernels.reference_minhash import text_shingles
from dataaudit.kernels.reference_words import words_of
from dataaudit.link.near_pairs import CANDIDATES
from dataaudit.link.places import places_of

SETS = pa.schema([("row", pa.int64()), ("source", pa.string()), ("shingles", pa.large_list(pa.uint64()))])
"""Ascending distinct hashes of a document's shingles."""
CHECKS = pa.schema([("row", pa.int64()), ("digests", pa.large_list(pa.binary(16)))])
"""Ascending digests of a document's shingles as text, made without any kernel."""
VERIFIED = pa.schema([*CANDIDATES, ("intersection", pa.int64()), ("union", pa.int64())])
"""Candidates with the exact sizes of the intersection and union of their shingle sets."""
MOST_SHINGLES = 1 << 24
"""Shingles of the pairs that are intersected at once: 128 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearSets:
    """Visitor: makes the sets of the documents that are in candidate pairs, and of some the slow way too."""

    name: ClassVar[str] = "near_sets"
    version: ClassVar[str] = "1"
    needs_words: ClassVar[bool] = True
    needs_tokens: ClassVar[bool] = False
    ngram: int
    """Words of a shingle."""

    def visit(self, batch: DocBatch, wanted: pa.Table) -> dict[str, pa.Table]:
        """Return ``sets`` of the wanted documents, and ``checks`` of those whose ``check`` is true."""
        assert batch.words is not None, "a visitor that needs words has said so"
        rows, firsts = np.unique(wanted["row"].to_numpy(), return_index=True)
        check = wanted["check"].to_numpy()[firsts]
        order = np.searchsorted(batch.rows, rows)
        shingles, bounds = shingle_hashes(batch.words.hashes, batch.words.offsets, ngram=self.ngram)
        values, ends = distinct_sets(shingles, bounds)
        lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(values)).take(pa.array(order))
        sources = batch.sources().cast(pa.string()).take(pa.array(order))
        sets = pa.table([pa.array(rows), sources, lists], schema=SETS)
        digests = [
            text_shingles([word.text for word in words_of(text)], self.ngram)
            for text in batch.texts.take(pa.array(order[check])).to_pylist()
        ]
        checks = pa.table([pa.array(rows[check]), pa.array(digests, CHECKS.field(1).type)], schema=CHECKS)
        return {"sets": sets, "checks": checks}


@dataclass(frozen=True, slots=True)
class _Part:
    """One part's table as a shard sees it."""

    table: pa.Table
    places: np.ndarray
    """int64[n] of its rows, ascending."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Where some documents' sets lie."""

    places: np.ndarray
    """int64[n], ascending."""
    parts: list[_Part]
    part: np.ndarray
    """int64[n] index into ``parts``."""
    index: np.ndarray
    """int64[n] row of its table."""
    sizes: np.ndarray
    """int64[n] shingles."""

    def gather(self, chosen: np.ndarray, column: str) -> pa.LargeListArray:
        """Return lists of some of them, in their order."""
        arrays = [pa.array([], self.parts[0].table.schema.field(column).type)] if self.parts else []
        order = []
        for part in np.unique(self.part[chosen]).tolist():
            here = np.flatnonzero(self.part[chosen] == part)
            taken = self.parts[part].table[column].take(pa.array(self.index[chosen[here]]))
            arrays.append(taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken)
            order.append(here)
        back = np.argsort(np.concatenate(order)) if order else np.zeros(0, dtype=np.int64)
        return pa.concat_arrays(arrays).take(pa.array(back))


def verify_pairs(
    candidates: pa.Table, files: pa.Table, read: Callable[[bytes], pa.Table], *, most_shingles: int = MOST_SHINGLES
) -> pa.Table:
    """Return the candidates with the sizes of intersection and union, of schema :data:`VERIFIED`.

    Args:
        candidates: Of schema :data:`dataaudit.link.near_pairs.CANDIDATES`.
        files: Of schema :data:`dataaudit.link.exact.LINK_FILES`: where the sets of each part are.
        read: Returns the sets of one path, of schema :data:`SETS`; best memory-mapped.
        most_shingles: Shingles that are held at once, unless one pair has more.

    Raises:
        LookupError: Sets are missing.
    """
    lefts, rights = candidates["left"].to_numpy(), candidates["right"].to_numpy()
    found = _find(np.unique(np.concatenate([lefts, rights])), files, read, "shingles")
    left, right = np.searchsorted(found.places, lefts), np.searchsorted(found.places, rights)
    shared = np.empty(len(lefts), dtype=np.int64)
    for start, stop in _slices(found.sizes[left] + found.sizes[right], most_shingles):
        chosen, dense = np.unique(np.concatenate([left[start:stop], right[start:stop]]), return_inverse=True)
        lists = found.gather(chosen, "shingles")
        bounds = np.asarray(lists.offsets)
        values = np.asarray(lists.values) if len(lists.values) else np.zeros(0, dtype=np.uint64)
        half = stop - start
        shared[start:stop] = intersections(values, bounds, dense[:half].copy(), dense[half:].copy())
    union = found.sizes[left] + found.sizes[right] - shared
    return pa.table([*candidates.select(CANDIDATES.names).columns, shared, union], schema=VERIFIED)


def check_pairs(
    lefts: np.ndarray, rights: np.ndarray, files: pa.Table, read: Callable[[bytes], pa.Table]
) -> tuple[np.ndarray, np.ndarray]:
    """Return int64[p] intersections and int64[p] unions of pairs of checked documents, of their shingles as text.

    Args:
        lefts: int64[p] places.
        rights: int64[p] places.
        files: As for :func:`verify_pairs`.
        read: Returns the checks of one path, of schema :data:`CHECKS`.

    Raises:
        LookupError: Checks are missing.
    """
    found = _find(np.unique(np.concatenate([lefts, rights])), files, read, "digests")
    shared, union = np.empty(len(lefts), dtype=np.int64), np.empty(len(lefts), dtype=np.int64)
    for pair, (left, right) in enumerate(zip(lefts.tolist(), rights.tolist(), strict=True)):
        chosen = np.searchsorted(found.places, [left, right])
        first, second = (set(digests) for digests in found.gather(chosen, "digests").to_pylist())
        shared[pair], union[pair] = len(first & second), len(first | second)
    return shared, union


def _find(places: np.ndarray, files: pa.Table, read: Callable[[bytes], pa.Table], column: str) -> _Found:
    """Find where each document's list lies."""
    part, index = np.full(len(places), -1), np.zeros(len(places), dtype=np.int64)
    sizes, parts = np.zeros(len(places), dtype=np.int64), list[_Part]()
    for row in files.to_pylist():
        table = read(row["path"])
        rows = table["row"].to_numpy()
        there = places_of(np.full(len(rows), row["shard"]), row["first_row"] + rows)
        at = np.searchsorted(there, places)
        here = np.flatnonzero(np.append(there, -1)[np.minimum(at, len(there))] == places)
        if len(here) == 0:
            continue
        lengths = pa.chunked_array([pa.compute.list_value_length(chunk) for chunk in table[column].chunks])
        part[here], index[here] = len(parts), at[here]
        sizes[here] = lengths.to_numpy()[at[here]]
        parts.append(_Part(table, there))
    if (part < 0).any():
        raise LookupError(f"{int((part < 0).sum())} of {len(places)} documents have no set")
    return _Found(places, parts, part, index, sizes)


def _slices(weights: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges whose weights add up to at most ``most``, or that are one alone."""
    ends = np.cumsum(weights)
    start = 0
    while start < len(weights):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield start, stop
        start = stop
