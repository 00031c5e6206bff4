"""Regroups what partitions of hashes found by the file that it speaks of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.atomic import DamagedFileError
from dataaudit.link.keyed import key_matrix, read_keyed

FILE_KEY = pa.binary(4)
"""Number of a file, its low byte first: a range of first bytes is some of the files, taken evenly."""


def file_keys(files: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return int64[n] numbers of files as keys."""
    return pa.FixedSizeBinaryArray.from_buffers(FILE_KEY, len(files), [None, pa.py_buffer(files.astype("<u4"))])


def tables_by_file(files: pa.Table, start: int, stop: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield, in order, the number of each file whose key's first byte is in [start, stop), and all rows it has.

    What is held is the rows of the range.

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows whose key is :data:`FILE_KEY`.
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
    present, bounds = np.unique(numbers[order], return_index=True)
    ordered = table.take(pa.array(order))
    bounds = np.append(bounds, len(order))
    for number, low, high in zip(present.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield number, ordered.slice(low, high - low)
