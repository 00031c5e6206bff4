"""Windows of 50 words that enough documents hold, counted exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.annotators.words import WORDS
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.kernels.winnow import window_hashes
from dataaudit.link.joins import Joined
from dataaudit.link.second_pass import Encode
from dataaudit.manifest.places import rows_of
from dataaudit.metrics.repeats.by_file import FILE_KEY, file_keys
from dataaudit.metrics.repeats.hot import hot_rows
from dataaudit.metrics.repeats.listing import file_numbers, listing_of
from dataaudit.metrics.repeats.stage import KEY_BYTES, hash_keys

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

    Wanted are rows of :data:`dataaudit.metrics.repeats.fingerprints.RANGES`, without the file.
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

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows :data:`WINDOW_ROWS`.
        start: First value of the first byte of keys.
        stop: Value after the last.
        min_documents: Documents from which on a window counts.

    Returns:
        Keyed ``occurrences``, of :data:`OCCURRENCE_ROWS`; the file's number is that in :func:`listing_of`.
        ``counts``: how many rows that is.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
    rows = hot_rows(listing_of(files), start, stop, min_documents)
    sizes, first = np.diff(rows.bounds), rows.bounds[:-1]
    columns = [file_keys(file_numbers(rows.documents)), rows_of(rows.documents), rows.positions]
    per_key = (rows.documents[first], rows.positions[first], rows.held_by, rows.occurrences)
    columns += [np.repeat(values, sizes) for values in per_key]
    table = pa.table(dict(zip(OCCURRENCE_ROWS.names, columns, strict=True))).cast(OCCURRENCE_ROWS)
    return Joined(tables={"counts": pa.table({"rows": [table.num_rows]})}, keyed={"occurrences": table})
