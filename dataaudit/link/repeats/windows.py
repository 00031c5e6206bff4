"""Windows of 50 words that enough documents hold, counted exactly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.link.repeats.hot import hot_rows
from dataaudit.link.repeats.listing import file_numbers, listing_of, row_numbers

OCCURRENCES = pa.schema(
    [
        ("file", pa.int32()), ("row", pa.int64()), ("position", pa.int64()),
        ("first_document", pa.int64()), ("first_position", pa.int64()),
        ("documents", pa.int64()), ("occurrences", pa.int64()),
    ]
)  # fmt: skip
"""Every occurrence of a window, by file, row, position: the place where the window stands first, and its counts."""


def link_windows(files: pa.Table, start: int, stop: int, min_documents: int) -> pa.Table:
    """Return every occurrence of every window that at least ``min_documents`` documents hold.

    Windows are told apart by 64 bits: of n windows of different words, two meet with a chance of about n^2 / 2^65.

    Args:
        files: Of :data:`dataaudit.link.exact.LINK_FILES`: keyed rows of :class:`RepeatWindows`.
        start: First value of the first byte of keys.
        stop: Value after the last.
        min_documents: Documents from which on a window counts.

    Returns:
        Of :data:`OCCURRENCES`; ``file`` is the number of the file in :func:`listing_of`.

    Raises:
        DamagedRowsError: Files are absent or damaged; it names all of them.
    """
    rows = hot_rows(listing_of(files), start, stop, min_documents)
    sizes, first = np.diff(rows.bounds), rows.bounds[:-1]
    order = np.lexsort((rows.positions, rows.documents))
    per_key = (rows.documents[first], rows.positions[first], rows.held_by, rows.occurrences)
    documents = rows.documents[order]
    columns = [file_numbers(documents), row_numbers(documents), rows.positions[order]]
    columns += [np.repeat(values, sizes)[order] for values in per_key]
    return pa.table(dict(zip(OCCURRENCES.names, columns, strict=True))).cast(OCCURRENCES)
