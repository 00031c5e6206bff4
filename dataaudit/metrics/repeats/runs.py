"""Runs: consecutive windows of a document that stand, in the same order, somewhere before.

A page of 5,000 words that 20 documents hold is 4,951 windows in each, and one run.

The parts of a corpus as the link steps of repeats see them: each content once, with how often it is listed.

Regroups what partitions of hashes found by the file that it speaks of.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.files import DamagedFileError
from dataaudit.manifest.locate import ROW_BITS, places_of, rows_of
from dataaudit.scan.kernels.winnow import SPAN
from dataaudit.scan.link.joins import Joined
from dataaudit.scan.link.keyed import MERGED, each_table, key_matrix, read_keyed

MAX_FILES = 1 << (63 - ROW_BITS)
"""A document's number is that of a place, with the number of its file for a shard."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Keyed rows of parts, in ``m`` files; parts are numbered in the order of where each is listed first."""

    paths: tuple[str, ...]
    """[m] the files."""
    numbers: np.ndarray
    """int64[m] number of the part in each, :data:`dataaudit.scan.link.keyed.MERGED` where rows name their parts."""
    times: np.ndarray
    """int64[m] how often that part is listed: parts of equal content share a file, and are documents of their own."""

    def tables(self, start: int, stop: int, columns: list[str]) -> Iterator[tuple[pa.Table, np.ndarray, np.ndarray]]:
        """Yield the rows of each file whose key's first byte is in [start, stop), with part and times of each row."""
        tables = each_table([os.fsencode(path) for path in self.paths], start, stop)
        for table, number, times in zip(tables, self.numbers.tolist(), self.times.tolist(), strict=True):
            if number == MERGED:
                own = table.filter(pc.greater(table["part_times"], 0))
                numbers, repeated = own["part_number"].to_numpy(), own["part_times"].to_numpy()
                yield own.select(columns), numbers.astype(np.int64), repeated.astype(np.int64)
            else:
                yield table.select(columns), *(np.full(table.num_rows, value) for value in (number, times))


def listing_of(files: pa.Table) -> Listing:
    """Return the listing of a table of :data:`dataaudit.scan.link.joins.LINK_FILES`."""
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


RUNS = pa.schema(
    [
        ("document", pa.int64()),
        ("start", pa.int64()),
        ("windows", pa.int64()),
        ("first_document", pa.int64()),
        ("first_start", pa.int64()),
        ("documents", pa.int64()),
        ("occurrences", pa.int64()),
    ]
)
"""By document and start: ``windows`` windows from word ``start`` on; the place where the first of them stands first,
the others after it; and the documents and occurrences of each. Runs are as long as all of that holds."""
RUN_ROWS = pa.schema([("key", FILE_KEY), ("row", pa.int64()), *(RUNS.field(index) for index in range(1, 7))])
"""The same as keyed rows, by file."""
HISTOGRAM = pa.schema([(name, pa.int64()) for name in ("documents", "runs", "windows", "firsts")])
"""Of documents in which some window stands first: so many runs and windows that so many documents hold, and how many
of the windows stand there first."""
_RUN_BYTES = 800
_WINDOW_BYTES = 4
COVERAGE = pa.schema([("document", pa.int64()), ("start", pa.int64()), ("stop", pa.int64())])
"""Words [start, stop) of a document that lie inside repeated spans, by document and start; no two touch."""


def link_runs(files: pa.Table, start: int, stop: int) -> Joined:
    """Make runs of the occurrences of each file: keyed ``runs``, of :data:`RUN_ROWS`, and their ``histogram``."""
    pieces, histograms = [RUN_ROWS.empty_table()], [HISTOGRAM.empty_table()]
    for table in tables_by_file(files, start, stop):
        runs = runs_of(table)
        document = runs["document"].to_numpy()
        keyed = runs.set_column(0, "row", pa.array(rows_of(document)))
        pieces.append(keyed.add_column(0, "key", file_keys(file_numbers(document))).cast(RUN_ROWS))
        hosts = hosted(runs)
        firsts = pa.array(np.where(is_first(hosts), hosts["windows"].to_numpy(), 0))
        counted = hosts.append_column("firsts", firsts).append_column("runs", pa.array(np.ones(len(firsts), np.int64)))
        histograms.append(counted.select(HISTOGRAM.names))
    sums = [(name, "sum") for name in HISTOGRAM.names[1:]]
    grouped = pa.concat_tables(histograms).group_by("documents", use_threads=False).aggregate(sums)
    histogram = grouped.rename_columns(HISTOGRAM.names).cast(HISTOGRAM).sort_by("documents")
    return Joined(tables={"histogram": histogram}, keyed={"runs": pa.concat_tables(pieces)})


def runs_by_file(files: pa.Table, start: int, stop: int, floor: int) -> Iterator[pa.Table]:
    """Yield the runs of some files at a time, of :data:`RUNS`, of windows that ``floor`` documents hold."""
    for table in tables_by_file(files, start, stop):
        runs = table.cast(RUNS)
        kept = runs.filter(runs["documents"].to_numpy() >= floor)
        yield kept.sort_by([("document", "ascending"), ("start", "ascending")])


def link_hosts(files: pa.Table, start: int, stop: int, *, floor: int) -> Joined:
    """Return the runs, ``hosts`` of :data:`RUNS`, of documents in which some window stands first."""
    pieces = [hosted(runs) for runs in runs_by_file(files, start, stop, floor)]
    return Joined(tables={"hosts": pa.concat_tables([RUNS.empty_table(), *pieces])})


def runs_of(occurrences: pa.Table) -> pa.Table:
    """Return the runs of some documents."""
    names = ("document", "position", "first_document", "first_position", "documents", "occurrences")
    columns = [occurrences[name].to_numpy().astype(np.int64) for name in names]
    order = by_place(columns[0], columns[1])
    document, position, first_document, first_position, documents, times = (column[order] for column in columns)
    begins = np.ones(len(document), dtype=bool)
    begins[1:] = (
        (document[1:] != document[:-1])
        | (position[1:] != position[:-1] + 1)
        | (first_document[1:] != first_document[:-1])
        | (first_position[1:] != first_position[:-1] + 1)
        | (documents[1:] != documents[:-1])
        | (times[1:] != times[:-1])
    )
    at = np.flatnonzero(begins)
    sizes = np.diff(np.append(at, len(document)))
    kept = (document[at], position[at], sizes, first_document[at], first_position[at])
    return pa.table(dict(zip(RUNS.names, (*kept, documents[at], times[at]), strict=True)), schema=RUNS)


def hosted(runs: pa.Table) -> pa.Table:
    """Return the runs of documents in which some window of theirs stands first."""
    document = runs["document"].to_numpy()
    return runs.filter(np.isin(document, document[is_first(runs)]))


def is_first(runs: pa.Table) -> np.ndarray:
    """bool[n]: the windows of the run stand here first."""
    pairs = (("document", "first_document"), ("start", "first_start"))
    same: np.ndarray = np.logical_and.reduce([runs[pair].to_numpy() == runs[two].to_numpy() for pair, two in pairs])
    return same


def coverage(runs: pa.Table) -> pa.Table:
    """Return the words that lie in some window of the runs."""
    document, start = runs["document"].to_numpy(), runs["start"].to_numpy()
    stop = start + runs["windows"].to_numpy() + SPAN - 1
    return merged(document, start, stop)


def merged(document: np.ndarray, start: np.ndarray, stop: np.ndarray) -> pa.Table:
    """Merge the intervals [start, stop) of each document that touch; they are sorted by document and start."""
    if len(document) == 0:
        return COVERAGE.empty_table()
    new = np.ones(len(document), dtype=bool)
    new[1:] = document[1:] != document[:-1]
    group = np.cumsum(new) - 1
    reach = int(stop.max()) + 1  # so that no document's intervals reach into the next one's
    ends = np.maximum.accumulate(stop + group * reach) - group * reach
    new[1:] |= start[1:] > ends[:-1]
    at = np.flatnonzero(new)
    last = np.append(at[1:], len(document)) - 1
    return pa.table({"document": document[at], "start": start[at], "stop": ends[last]}, schema=COVERAGE)


def choose_floor(histogram: pa.Table, min_documents: int, max_memory_bytes: int) -> int:
    """Return the least floor, ``min_documents`` or more, at which finding hotspots fits into some memory.

    A run of a document in which some window stands first is 800 bytes, measured, and each of its windows 4.
    """
    columns = (histogram[name].to_numpy() for name in ("documents", "runs", "windows"))
    documents, runs, windows = columns
    order = np.argsort(documents)[::-1]
    above = np.cumsum((runs * _RUN_BYTES + windows * _WINDOW_BYTES)[order])
    too_many = documents[order][above > max_memory_bytes]
    return max(min_documents, int(too_many[0]) + 1 if len(too_many) else 0)
