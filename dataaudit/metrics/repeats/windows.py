"""Frequent fingerprints and frequent windows: keys that enough documents have, counted exactly over the whole corpus.

:func:`link_fingerprints` finds the fingerprints, :func:`link_ranges` the windows that selected them, the task
:class:`RepeatWindows` hashes these in a second reading, and :func:`link_windows` finds the frequent ones of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.manifest.locate import is_new, places_of, rows_of
from dataaudit.metrics.repeats.runs import (
    FILE_KEY,
    Listing,
    by_place,
    file_keys,
    file_numbers,
    listing_of,
    tables_by_file,
)
from dataaudit.metrics.repeats.stage import KEY_BYTES, hash_keys
from dataaudit.scan.annotators import WORDS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.cross_shard.keyed import MERGED, key_matrix
from dataaudit.scan.cross_shard.step import Encode
from dataaudit.scan.kernels.winnow import window_hashes


@dataclass(frozen=True, slots=True)
class FrequentRows:
    """The n rows of k keys, by key, document and position.

    Those of key i are ``[bounds[i]:bounds[i + 1]]`` of documents, positions and others, the further column (0 without
    one). ``num_documents`` and ``occurrences`` are counts of each key.
    """

    bounds: np.ndarray
    documents: np.ndarray
    positions: np.ndarray
    others: np.ndarray
    num_documents: np.ndarray
    occurrences: np.ndarray


def frequent_rows(
    listing: Listing, start: int, stop: int, min_documents: int, other: str | None = None
) -> FrequentRows:
    """Return the keys whose first byte is in [start, stop) that at least ``min_documents`` documents have.

    Files are read twice, so that keys of few documents take 8 bytes a row: memory is 24 bytes a row of the partition,
    and 88 a row that is returned.
    """
    frequent = _frequent_keys(listing, start, stop, min_documents)
    pieces = []
    names = ["key", "row", "position", *([other] if other else [])]
    for table, numbers, times in listing.tables(start, stop, names):
        keys = _keys(table)
        indices = np.searchsorted(frequent, keys)
        rows = np.flatnonzero(np.take(frequent, indices, mode="clip") == keys) if len(frequent) else indices[:0]
        columns = [table[name].to_numpy()[rows].astype(np.int64) for name in table.column_names[1:]]
        pieces.append((indices[rows], places_of(numbers[rows], columns[0]), times[rows], *columns[1:]))
    indices, documents, times, positions, *rest = (
        np.concatenate([np.zeros(0, np.int64), *(piece[index] for piece in pieces)]) for index in range(len(names) + 1)
    )
    # rows of one key in a file are in order already, and files are unless they hold many parts
    merged = bool((listing.numbers == MERGED).any())
    order = np.lexsort((positions, documents, indices)) if merged else np.argsort(indices, kind="stable")
    indices, documents, times, positions = indices[order], documents[order], times[order], positions[order]
    others = rest[0][order] if rest else np.zeros(len(indices), dtype=np.int64)
    num_documents = _sums(indices, np.where(is_new(indices, documents), times, 0), len(frequent))
    occurrences = _sums(indices, times, len(frequent))
    enough = num_documents >= min_documents
    kept = enough[indices]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(indices, minlength=len(frequent))[enough])]).astype(np.int64)
    return FrequentRows(
        bounds, documents[kept], positions[kept], others[kept], num_documents[enough], occurrences[enough]
    )


def _frequent_keys(listing: Listing, start: int, stop: int, least: int) -> np.ndarray:
    """Return uint64[k], ascending: the keys that occur at least ``least`` times, in however few documents."""
    pieces = [np.zeros(0, dtype=np.uint64)]
    for table, _, times in listing.tables(start, stop, ["key"]):
        pieces.append(np.repeat(_keys(table), np.minimum(times, least)))
    keys = np.concatenate(pieces)
    pieces.clear()
    keys.sort()
    if len(keys) < least:
        return keys[:0]
    ends = keys[least - 1 :]
    return np.unique(ends[ends == keys[: len(ends)]])


def _keys(table: pa.Table) -> np.ndarray:
    """Return uint64[n], keys of 8 bytes as numbers; their order means nothing."""
    matrices = [key_matrix(chunk) for chunk in table["key"].chunks]
    return np.concatenate([np.zeros((0, 8), np.uint8), *matrices]).view(np.uint64).reshape(-1)


def _sums(indices: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Return int64[size], the exact sum of the values of each index; ``indices`` ascend."""
    sums = np.concatenate([[0], np.cumsum(values)])
    return np.diff(sums[np.searchsorted(indices, np.arange(size + 1))])


WINDOW_ROWS = pa.schema([("key", pa.binary(KEY_BYTES)), ("row", pa.int64()), ("position", pa.uint32())])
"""Keyed rows: the hash of 50 words, and their position."""
_AT = [("row", pa.int64()), ("position", pa.uint32())]
_COUNTS = [("documents", pa.int64()), ("occurrences", pa.int64())]
OCCURRENCE_ROWS = pa.schema(
    [("key", FILE_KEY), *_AT, ("first_document", pa.int64()), ("first_position", pa.uint32()), *_COUNTS]
)
"""Keyed rows, by file: an occurrence of a window, the window's first occurrence, and its counts."""


@dataclass(frozen=True, slots=True)
class RepeatWindows:
    """Hashes the windows of 50 words that selected a frequent fingerprint: rows of :data:`RANGES` without the file."""

    name: ClassVar[str] = "repeat_windows"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    emits: ClassVar[Mapping[str, pa.Schema]] = {"windows": WINDOW_ROWS}

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return the keyed rows ``windows``."""
        del encode
        row, position, windows = (wanted[name].to_numpy() for name in ("row", "position", "windows"))
        document = np.searchsorted(batch.rows, row)
        hashes = window_hashes(batch.get(WORDS).hashes, batch.get(WORDS).offsets[document] + position, windows)
        before = np.concatenate([[0], np.cumsum(windows)])[:-1]
        positions = np.arange(len(hashes)) + np.repeat(position - before, windows)
        return {"windows": pa.table([hash_keys(hashes), np.repeat(row, windows), positions], schema=WINDOW_ROWS)}


def link_windows(files: pa.Table, start: int, stop: int, *, min_documents: int) -> Joined:
    """Find every occurrence of every window that at least ``min_documents`` documents hold.

    A window is its hash of 64 bits: of n windows of different words, two have the same with a chance of n^2 / 2^65.
    """
    rows = frequent_rows(listing_of(files), start, stop, min_documents)
    sizes, first = np.diff(rows.bounds), rows.bounds[:-1]
    columns = [file_keys(file_numbers(rows.documents)), rows_of(rows.documents), rows.positions]
    per_key = (rows.documents[first], rows.positions[first], rows.num_documents, rows.occurrences)
    table = pa.table([*columns, *(np.repeat(values, sizes) for values in per_key)], schema=OCCURRENCE_ROWS)
    return Joined(tables={"counts": pa.table({"rows": [table.num_rows]})}, keyed={"occurrences": table})


FREQUENT_ROWS = pa.schema([("key", FILE_KEY), ("row", pa.int64()), ("position", pa.uint32()), ("windows", pa.uint8())])
"""Keyed rows of frequent fingerprints, by file, as in FINGERPRINT_ROWS."""
RANGES = pa.schema([("file", pa.int32()), ("row", pa.int64()), ("position", pa.int64()), ("windows", pa.int64())])
"""Ranges of windows to hash, from word ``position`` on; no two ranges of a document touch."""


def link_fingerprints(files: pa.Table, start: int, stop: int, *, min_documents: int) -> Joined:
    """Find the windows that selected a fingerprint which at least ``min_documents`` documents have.

    A span of 50 words selects the same fingerprint in every document, so the frequent ones are among them.
    """
    rows = frequent_rows(listing_of(files), start, stop, min_documents, "windows")
    columns = [file_keys(file_numbers(rows.documents)), rows_of(rows.documents), rows.positions, rows.others]
    table = pa.table(columns, schema=FREQUENT_ROWS)
    return Joined(tables={"counts": pa.table({"rows": [table.num_rows]})}, keyed={"frequent": table})


def link_ranges(files: pa.Table, start: int, stop: int) -> Joined:
    """Merge consecutive windows of each document: ``ranges``, in order."""
    pieces = [RANGES.empty_table()]
    for table in tables_by_file(files, start, stop):
        document, position, windows = (
            table[name].to_numpy().astype(np.int64) for name in ("document", "position", "windows")
        )
        order = by_place(document, position)
        document, position, windows = document[order], position[order], windows[order]
        begins = np.ones(len(document), dtype=bool)
        begins[1:] = (document[1:] != document[:-1]) | (position[1:] != position[:-1] + windows[:-1])
        at = np.flatnonzero(begins)
        sizes = np.add.reduceat(windows, at)
        columns = [file_numbers(document[at]).astype(np.int32), rows_of(document[at]), position[at], sizes]
        pieces.append(pa.table(columns, schema=RANGES))
    return Joined(tables={"ranges": pa.concat_tables(pieces)})
