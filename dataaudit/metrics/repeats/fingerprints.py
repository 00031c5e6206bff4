"""Fingerprints that enough documents have: where a span that as many documents hold may stand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.link.joins import Joined
from dataaudit.manifest.places import rows_of
from dataaudit.metrics.repeats.by_file import FILE_KEY, file_keys, tables_by_file
from dataaudit.metrics.repeats.hot import hot_rows
from dataaudit.metrics.repeats.listing import by_place, file_numbers, listing_of

FREQUENT_ROWS = pa.schema([("key", FILE_KEY), ("row", pa.int64()), ("position", pa.uint32()), ("windows", pa.uint8())])
"""Keyed rows of frequent fingerprints, by file, as in FINGERPRINT_ROWS."""
RANGES = pa.schema([("file", pa.int32()), ("row", pa.int64()), ("position", pa.int64()), ("windows", pa.int64())])
"""Windows to hash: ``windows`` of them from word ``position`` on; no two ranges of a document touch."""


def link_fingerprints(files: pa.Table, start: int, stop: int, *, min_documents: int) -> Joined:
    """Find the windows whose selected fingerprint is one that at least ``min_documents`` documents have.

    A span of 50 words that so many documents hold has selected the same fingerprint in each: it is among them.

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows FINGERPRINT_ROWS
            of :mod:`dataaudit.metrics.repeats.stage`.
        start: First value of the first byte of keys.
        stop: Value after the last.
        min_documents: Documents from which on a fingerprint counts.

    Returns:
        Keyed ``frequent``, of :data:`FREQUENT_ROWS`; the file's number is that in :func:`listing_of`. ``counts``:
        how many rows that is.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
    rows = hot_rows(listing_of(files), start, stop, min_documents, "windows")
    columns = (file_keys(file_numbers(rows.documents)), rows_of(rows.documents), rows.positions, rows.others)
    table = pa.table(dict(zip(FREQUENT_ROWS.names, columns, strict=True))).cast(FREQUENT_ROWS)
    return Joined(tables={"counts": pa.table({"rows": [table.num_rows]})}, keyed={"frequent": table})


def link_ranges(files: pa.Table, start: int, stop: int) -> Joined:
    """Merge the windows of each document that follow each other: ``ranges``, of :data:`RANGES`, in order.

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows :data:`FREQUENT_ROWS`.
        start: First value of the first byte of keys.
        stop: Value after the last.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
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
