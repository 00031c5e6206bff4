"""Windows of 50 words that enough documents hold, counted exactly.

Keys that enough documents have, with all their rows: what fingerprints and windows have in common.

Fingerprints that enough documents have: where a span that as many documents hold may stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.manifest.locate import places_of, rows_of
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
from dataaudit.scan.kernels.winnow import window_hashes
from dataaudit.scan.link.joins import Joined
from dataaudit.scan.link.keyed import MERGED, key_matrix
from dataaudit.scan.link.step import Encode


@dataclass(frozen=True, slots=True)
class HotRows:
    """``n`` rows of ``k`` keys, by key, then by document, then by position."""

    bounds: np.ndarray
    """int64[k + 1]: the rows of key i are ``[bounds[i]:bounds[i + 1]]``."""
    documents: np.ndarray
    """int64[n] number of the document."""
    positions: np.ndarray
    """int64[n] word of the document."""
    others: np.ndarray
    """int64[n] the further column, 0 where none is asked for."""
    held_by: np.ndarray
    """int64[k] documents that have the key."""
    occurrences: np.ndarray
    """int64[k] how often it occurs."""


def hot_rows(listing: Listing, start: int, stop: int, min_documents: int, other: str | None = None) -> HotRows:
    """Return the keys whose first byte is in [start, stop) that at least ``min_documents`` documents have.

    Files are read twice, so that what is held of keys that few documents have is the key alone, 8 bytes: memory is
    24 bytes a row of the partition, and 88 a row that is returned.
    """
    frequent = _frequent(listing, start, stop, min_documents)
    pieces = []
    names = ["key", "row", "position", *([other] if other else [])]
    for table, numbers, times in listing.tables(start, stop, names):
        keys = _keys(table)
        places = np.searchsorted(frequent, keys)
        found = np.flatnonzero(np.take(frequent, places, mode="clip") == keys) if len(frequent) else places[:0]
        columns = [table[name].to_numpy()[found].astype(np.int64) for name in table.column_names[1:]]
        pieces.append((places[found], places_of(numbers[found], columns[0]), times[found], *columns[1:]))
    places, documents, times, positions, *rest = (
        np.concatenate([np.zeros(0, np.int64), *(piece[index] for piece in pieces)]) for index in range(len(names) + 1)
    )
    # rows of one key in a file are in order already, and files are unless they hold many parts
    merged = bool((listing.numbers == MERGED).any())
    order = np.lexsort((positions, documents, places)) if merged else np.argsort(places, kind="stable")
    places, documents, times, positions = places[order], documents[order], times[order], positions[order]
    others = rest[0][order] if rest else np.zeros(len(places), dtype=np.int64)
    again = np.zeros(len(places), dtype=bool)
    again[1:] = (places[1:] == places[:-1]) & (documents[1:] == documents[:-1])
    held_by = _sums(places, np.where(again, 0, times), len(frequent))
    occurrences = _sums(places, times, len(frequent))
    hot = held_by >= min_documents
    kept = hot[places]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=len(frequent))[hot])]).astype(np.int64)
    return HotRows(bounds, documents[kept], positions[kept], others[kept], held_by[hot], occurrences[hot])


def _frequent(listing: Listing, start: int, stop: int, least: int) -> np.ndarray:
    """uint64[k], ascending: the keys that occur at least ``least`` times, in however few documents."""
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
    """uint64[n] keys of 8 bytes, as numbers whose order means nothing."""
    matrices = [key_matrix(chunk) for chunk in table["key"].chunks]
    return np.concatenate([np.zeros((0, 8), np.uint8), *matrices]).view(np.uint64).reshape(-1)


def _sums(places: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """int64[size] sum of the values at each place, exactly; ``places`` ascend."""
    sums = np.concatenate([[0], np.cumsum(values)])
    bounds = np.searchsorted(places, np.arange(size + 1))
    return np.diff(sums[bounds])


WINDOW_ROWS = pa.schema([("key", pa.binary(KEY_BYTES)), ("row", pa.int64()), ("position", pa.uint32())])
"""Keyed rows: the hash of 50 words, and where they stand."""
OCCURRENCE_ROWS = pa.schema(
    [
        ("key", FILE_KEY),
        ("row", pa.int64()),
        ("position", pa.uint32()),
        ("first_document", pa.int64()),
        ("first_position", pa.uint32()),
        ("documents", pa.int64()),
        ("occurrences", pa.int64()),
    ]
)
"""Keyed rows, by file: an occurrence of a window, the place where the window stands first, and its counts."""


@dataclass(frozen=True, slots=True)
class RepeatWindows:
    """Hashes every window of 50 words for which a frequent fingerprint was selected.

    Wanted are rows of :data:`dataaudit.metrics.repeats.windows.RANGES`, without the file.
    """

    name: ClassVar[str] = "repeat_windows"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    emits: ClassVar[Mapping[str, pa.Schema]] = {"windows": WINDOW_ROWS}

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return keyed ``windows``, of :data:`WINDOW_ROWS`."""
        del encode
        row, position, windows = (wanted[name].to_numpy() for name in ("row", "position", "windows"))
        document = np.searchsorted(batch.rows, row)
        hashes = window_hashes(batch.get(WORDS).hashes, batch.get(WORDS).offsets[document] + position, windows)
        before = np.concatenate([[0], np.cumsum(windows)])[:-1]
        positions = np.arange(len(hashes)) + np.repeat(position - before, windows)
        columns = (hash_keys(hashes), np.repeat(row, windows), positions)
        return {"windows": pa.table(dict(zip(WINDOW_ROWS.names, columns, strict=True))).cast(WINDOW_ROWS)}


def link_windows(files: pa.Table, start: int, stop: int, *, min_documents: int) -> Joined:
    """Find every occurrence of every window that at least ``min_documents`` documents hold.

    Windows are told apart by 64 bits: of n windows of different words, two meet with a chance of about n^2 / 2^65.
    """
    rows = hot_rows(listing_of(files), start, stop, min_documents)
    sizes, first = np.diff(rows.bounds), rows.bounds[:-1]
    columns = [file_keys(file_numbers(rows.documents)), rows_of(rows.documents), rows.positions]
    per_key = (rows.documents[first], rows.positions[first], rows.held_by, rows.occurrences)
    columns += [np.repeat(values, sizes) for values in per_key]
    table = pa.table(dict(zip(OCCURRENCE_ROWS.names, columns, strict=True))).cast(OCCURRENCE_ROWS)
    return Joined(tables={"counts": pa.table({"rows": [table.num_rows]})}, keyed={"occurrences": table})


FREQUENT_ROWS = pa.schema([("key", FILE_KEY), ("row", pa.int64()), ("position", pa.uint32()), ("windows", pa.uint8())])
"""Keyed rows of frequent fingerprints, by file, as in FINGERPRINT_ROWS."""
RANGES = pa.schema([("file", pa.int32()), ("row", pa.int64()), ("position", pa.int64()), ("windows", pa.int64())])
"""Windows to hash: ``windows`` of them from word ``position`` on; no two ranges of a document touch."""


def link_fingerprints(files: pa.Table, start: int, stop: int, *, min_documents: int) -> Joined:
    """Find the windows whose selected fingerprint is one that at least ``min_documents`` documents have.

    A span of 50 words that so many documents hold has selected the same fingerprint in each: it is among them.
    """
    rows = hot_rows(listing_of(files), start, stop, min_documents, "windows")
    columns = (file_keys(file_numbers(rows.documents)), rows_of(rows.documents), rows.positions, rows.others)
    table = pa.table(dict(zip(FREQUENT_ROWS.names, columns, strict=True))).cast(FREQUENT_ROWS)
    return Joined(tables={"counts": pa.table({"rows": [table.num_rows]})}, keyed={"frequent": table})


def link_ranges(files: pa.Table, start: int, stop: int) -> Joined:
    """Merge the windows of each document that follow each other: ``ranges``, of :data:`RANGES`, in order."""
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
        columns = (file_numbers(document[at]), rows_of(document[at]), position[at], np.add.reduceat(windows, at))
        pieces.append(pa.table(dict(zip(RANGES.names, columns, strict=True))).cast(RANGES))
    return Joined(tables={"ranges": pa.concat_tables(pieces)})
