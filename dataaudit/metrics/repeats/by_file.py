"""Regroups what partitions of hashes found by the file that it speaks of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.atomic import DamagedFileError
from dataaudit.link.keyed import key_matrix, read_keyed
from dataaudit.manifest.places import places_of

FILE_KEY = pa.binary(4)
"""Number of a file, its low byte first: a range of first bytes is some of the files, taken evenly."""
_ROWS = 65536
"""Rows after which a table of small files ends."""


def file_keys(files: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return int64[n] numbers of files as keys."""
    return pa.FixedSizeBinaryArray.from_buffers(FILE_KEY, len(files), [None, pa.py_buffer(files.astype("<u4"))])


def tables_by_file(files: pa.Table, start: int, stop: int) -> Iterator[pa.Table]:
    """Yield all rows of the files whose key's first byte is in [start, stop), in order, those of some files at a time.

    In place of key and ``row`` stands ``document``, int64: the place of a document, with the number of its file for a
    shard. A corpus may be a million files of a few rows, so what is done with a table is not done for each of them.

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows whose key is :data:`FILE_KEY`, then ``row``.
        start: First value of the first byte.
        stop: Value after the last.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
    tables, damaged = [], set[str]()
    for path in files["path"].to_pylist():
        try:
            tables.append(read_keyed(Path(os.fsdecode(path)), start, stop))
        except DamagedFileError as error:
            damaged.update(error.paths)
    if damaged:
        raise DamagedFileError(*sorted(damaged))
    if not tables:
        return
    table = pa.concat_tables(tables)
    matrices = [key_matrix(chunk) for chunk in table["key"].chunks]
    numbers = np.concatenate([np.zeros((0, 4), np.uint8), *matrices]).view("<u4").reshape(-1).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    numbers, ordered = numbers[order], table.take(pa.array(order)).drop_columns(["key"])
    bounds = np.flatnonzero(np.diff(numbers, prepend=-1))
    chosen = bounds[np.flatnonzero(np.diff(bounds // _ROWS, prepend=-1))]
    for low, high in pairwise([*chosen.tolist(), len(numbers)]):
        own = ordered.slice(low, high - low)
        document = pa.array(places_of(numbers[low:high], own["row"].to_numpy()))
        yield own.set_column(0, "document", document)
