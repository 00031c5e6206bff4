"""The parts of a corpus as the link steps of repeats see them: each content once, with how often it is listed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.atomic import DamagedFileError
from dataaudit.link.keyed import read_keyed
from dataaudit.manifest.places import ROW_BITS

MAX_FILES = 1 << (63 - ROW_BITS)
"""A document's number is that of a place, with the number of its file for a shard."""


@dataclass(frozen=True, slots=True)
class Listing:
    """``n`` files of keyed rows, in the manifest's order of where each is listed first."""

    paths: tuple[str, ...]
    """[n] the files."""
    times: np.ndarray
    """int64[n] how often each is listed: parts of equal content share a file, and are documents of their own."""

    def tables(self, start: int, stop: int, columns: list[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the number of every file and its rows whose key's first byte is in [start, stop).

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
        damaged: list[str] = []
        for number, path in enumerate(self.paths):
            try:
                table = read_keyed(Path(path), start, stop).select(columns)
            except DamagedFileError as error:
                damaged += error.paths
                continue
            if not damaged:
                yield number, table
        if damaged:
            raise DamagedFileError(*sorted(set(damaged)))


def listing_of(files: pa.Table) -> Listing:
    """Return the listing of a table of :data:`dataaudit.metrics.exact_dup.link.LINK_FILES`."""
    known: dict[bytes, list[tuple[int, int]]] = {}
    for row in files.to_pylist():
        known.setdefault(row["path"], []).append((row["shard"], row["first_row"]))
    ordered = sorted(known, key=lambda path: min(known[path]))
    assert len(ordered) < MAX_FILES, "more parts than a document's number can name"
    return Listing(
        tuple(os.fsdecode(path) for path in ordered),
        np.array([len(known[path]) for path in ordered], dtype=np.int64),
    )


def file_numbers(documents: np.ndarray) -> np.ndarray:
    """int64[n] file of each document."""
    return documents >> ROW_BITS


def by_place(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """int64[n] indices that sort by row, then by position, both of one file; a position is below 2^32."""
    if len(rows) == 0 or int(rows.max()) >= 1 << 31:
        return np.lexsort((positions, rows))
    return np.argsort(rows << 32 | positions, kind="stable")
