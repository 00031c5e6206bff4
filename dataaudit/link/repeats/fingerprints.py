"""Fingerprints that enough documents have: where a span that as many documents hold may stand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.link.repeats.hot import hot_rows
from dataaudit.link.repeats.listing import file_numbers, listing_of, row_numbers

WANTED = pa.schema([("file", pa.int32()), ("row", pa.int64()), ("position", pa.uint32()), ("windows", pa.uint8())])
"""Windows to hash, by file, row, position: ``windows`` windows from word ``position`` on."""


def link_fingerprints(files: pa.Table, start: int, stop: int, min_documents: int) -> pa.Table:
    """Return the windows whose selected fingerprint is one that at least ``min_documents`` documents have.

    A span of 50 words that so many documents hold has selected the same fingerprint in each: it is among them.

    Args:
        files: Of :data:`dataaudit.link.exact.LINK_FILES`: keyed rows of the stage ``repeats``.
        start: First value of the first byte of keys.
        stop: Value after the last.
        min_documents: Documents from which on a fingerprint counts.

    Returns:
        Of :data:`WANTED`; ``file`` is the number of the file in :func:`listing_of`.

    Raises:
        DamagedRowsError: Files are absent or damaged; it names all of them.
    """
    rows = hot_rows(listing_of(files), start, stop, min_documents, "windows")
    order = np.lexsort((rows.positions, rows.documents))
    documents = rows.documents[order]
    columns = (file_numbers(documents), row_numbers(documents), rows.positions[order], rows.others[order])
    return pa.table(dict(zip(WANTED.names, columns, strict=True))).cast(WANTED)
