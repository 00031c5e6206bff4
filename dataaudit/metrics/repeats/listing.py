"""The parts of a corpus as the link steps of repeats see them: each content once, with how often it is listed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.link.merged import MERGED, each_table
from dataaudit.manifest.places import ROW_BITS

MAX_FILES = 1 << (63 - ROW_BITS)
"""A document's number is that of a place, with the number of its file for a shard."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Keyed rows of parts, in ``m`` files; parts are numbered in the order of where each is listed first."""

    paths: tuple[str, ...]
    """[m] the files."""
    numbers: np.ndarray
    """int64[m] number of the part in each, :data:`dataaudit.link.merged.MERGED` where rows name their parts."""
    times: np.ndarray
    """int64[m] how often that part is listed: parts of equal content share a file, and are documents of their own."""

    def tables(self, start: int, stop: int, columns: list[str]) -> Iterator[tuple[pa.Table, np.ndarray, np.ndarray]]:
        """Yield the rows of each file whose key's first byte is in [start, stop), with part and times of each row.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
        tables = each_table([os.fsencode(path) for path in self.paths], start, stop)
        for table, number, times in zip(tables, self.numbers.tolist(), self.times.tolist(), strict=True):
            if number == MERGED:
                own = table.filter(pc.greater(table["part_times"], 0))
                numbers, repeated = own["part_number"].to_numpy(), own["part_times"].to_numpy()
                yield own.select(columns), numbers.astype(np.int64), repeated.astype(np.int64)
            else:
                yield table.select(columns), *(np.full(table.num_rows, value) for value in (number, times))


def listing_of(files: pa.Table) -> Listing:
    """Return the listing of a table of :data:`dataaudit.link.joins.LINK_FILES`."""
    known: dict[bytes, list[tuple[int, int]]] = {}
    for row in files.to_pylist():
        known.setdefault(row["path"], []).append((row["shard"], row["first_row"]))
    ordered = sorted(known, key=lambda path: min(known[path]))
    assert len(ordered) < MAX_FILES, "more parts than a document's number can name"
    numbers = np.arange(len(ordered))
    if "number" in files.column_names:  # others are in merged files
        named = dict(zip(files["path"].to_pylist(), files["number"].to_pylist(), strict=True))
        numbers = np.array([named[path] for path in ordered], dtype=np.int64)
    return Listing(
        tuple(os.fsdecode(path) for path in ordered),
        numbers,
        np.array([len(known[path]) for path in ordered], dtype=np.int64),
    )


def file_numbers(documents: np.ndarray) -> np.ndarray:
    """int64[n] file of each document."""
    return documents >> ROW_BITS


def by_place(documents: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """int64[n] indices that sort by document, then by position, which is below 2^32; fastest for those of one file."""
    if len(documents) and int(documents.max()) - (first := int(documents.min())) < 1 << 31:
        return np.argsort(documents - first << 32 | positions, kind="stable")
    return np.lexsort((positions, documents))
