"""Documents that have a frequent fingerprint are read again, and the windows that selected it are hashed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.kernels.winnow import window_hashes

KEY_BYTES = 8
WINDOW_ROWS = pa.schema([("key", pa.binary(KEY_BYTES)), ("row", pa.int64()), ("position", pa.uint32())])
"""Keyed rows: the hash of 50 words, and where they stand."""


def as_keys(values: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return uint64[n] as keys, low byte first: of a selected fingerprint only the low bytes are evenly spread."""
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(KEY_BYTES), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, dtype="<u8"))]
    )


@dataclass(frozen=True, slots=True)
class RepeatWindows:
    """Hashes every window of 50 words that a frequent fingerprint was selected for.

    Wanted are rows of :data:`dataaudit.link.repeats.fingerprints.WANTED`, without the file.
    """

    name: ClassVar[str] = "repeat_windows"
    version: ClassVar[str] = "1"
    needs_words: ClassVar[bool] = True
    needs_tokens: ClassVar[bool] = False
    emits: ClassVar[pa.Schema] = WINDOW_ROWS

    def visit(self, batch: DocBatch, wanted: pa.Table) -> dict[str, pa.Table]:
        """Return :data:`WINDOW_ROWS` of the documents of a batch, in order."""
        assert batch.words is not None
        columns = (wanted[name].to_numpy().astype(np.int64) for name in ("row", "position", "windows"))
        row, position, windows = columns
        order = np.lexsort((position, row))
        order = order[np.isin(row[order], batch.rows)]
        row, position, windows = row[order], position[order], windows[order]
        document = np.searchsorted(batch.rows, row)
        hashes = window_hashes(batch.words.hashes, batch.words.offsets[document] + position, windows)
        before = np.concatenate([[0], np.cumsum(windows)])[:-1]
        first = np.repeat(position - before, windows)
        table = pa.table(
            {"key": as_keys(hashes), "row": np.repeat(row, windows), "position": first + np.arange(len(hashes))}
        )
        return {"windows": table.cast(WINDOW_ROWS)}
