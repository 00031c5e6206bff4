"""Runs of repeated windows by file: consecutive windows of a document that are consecutive at their first occurrences.

A page of 5,000 words that 20 documents hold is 4,951 windows in each, and one run. Files are parts of the corpus:
:class:`Listing` has each content once, with how often it is listed, and :func:`tables_by_file` regroups rows that were
partitioned by hashes.
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
from dataaudit.manifest.locate import ROW_BITS, is_new, places_of, rows_of
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.cross_shard.keyed import MERGED, each_table, key_matrix, read_keyed
from dataaudit.scan.kernels.winnow import SPAN
from dataaudit.scan.stages.partial import TableShape, group

MAX_FILES = 1 << (63 - ROW_BITS)
"""Files that the number of a document can name."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Keyed rows of parts in m files; parts are numbered in the order of their first listing."""

    paths: tuple[str, ...]
    """[m]"""
    numbers: np.ndarray
    """int64[m] part of each file; :data:`dataaudit.scan.cross_shard.keyed.MERGED` where rows name their parts."""
    times: np.ndarray
    """int64[m] how often that part is listed: parts of equal content share a file, and are documents of their own."""

    def tables(self, start: int, stop: int, columns: list[str]) -> Iterator[tuple[pa.Table, np.ndarray, np.ndarray]]:
        """Yield the rows of each file whose key's first byte is in [start, stop), with part and times of each."""
        tables = each_table([os.fsencode(path) for path in self.paths], start, stop)
        for table, number, times in zip(tables, self.numbers.tolist(), self.times.tolist(), strict=True):
            if number == MERGED:
                own = table.filter(pc.greater(table["part_times"], 0))
                numbers, repeated = own["part_number"].to_numpy(), own["part_times"].to_numpy()
                yield own.select(columns), numbers.astype(np.int64), repeated.astype(np.int64)
            else:
                yield table.select(columns), *(np.full(table.num_rows, value) for value in (number, times))


def listing_of(files: pa.Table) -> Listing:
    """Return the listing of a table of :data:`dataaudit.scan.cross_shard.joins.LINK_FILES`."""
    known: dict[bytes, list[tuple[int, int]]] = {}
    for row in files.to_pylist():
        known.setdefault(row["path"], []).append((row["shard"], row["first_row"]))
    ordered = sorted(known, key=lambda path: min(known[path]))
    assert len(ordered) < MAX_FILES, "more parts than a document's number can name"
    numbers = np.arange(len(ordered))
    if "number" in files.column_names:  # merged files hold other parts
        named = dict(zip(files["path"].to_pylist(), files["number"].to_pylist(), strict=True))
        numbers = np.array([named[path] for path in ordered], dtype=np.int64)
    times = np.array([len(known[path]) for path in ordered], dtype=np.int64)
    return Listing(tuple(map(os.fsdecode, ordered)), numbers, times)


def file_numbers(documents: np.ndarray) -> np.ndarray:
    """Return int64[n], the file of each document."""
    return documents >> ROW_BITS


def by_place(documents: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return int64[n], indices that sort by document and position (below 2^32); fastest for documents of one file."""
    if len(documents) and int(documents.max()) - (first := int(documents.min())) < 1 << 31:
        return np.argsort(documents - first << 32 | positions, kind="stable")
    return np.lexsort((positions, documents))


FILE_KEY = pa.binary(4)
"""Number of a file, low byte first: so files fall evenly on partitions."""
_ROWS = 65536
"""Rows after which a table of small files ends."""


def file_keys(files: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return int64[n] numbers of files as keys."""
    return pa.FixedSizeBinaryArray.from_buffers(FILE_KEY, len(files), [None, pa.py_buffer(files.astype("<u4"))])


def tables_by_file(files: pa.Table, start: int, stop: int) -> Iterator[pa.Table]:
    """Yield the rows of the files whose key's first byte is in [start, stop), in order, of several small files at once.

    Column ``document``, int64, takes the place of key and ``row``. A corpus may be a million files of a few rows, so a
    table for each would be slow.
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
    (name, pa.int64())
    for name in ("document", "start", "windows", "first_document", "first_start", "documents", "occurrences")
)
"""By document and start: ``windows`` windows from word ``start`` on; the first occurrence of the first of them, which
those of the others follow; and the documents and occurrences of each. Runs are as long as possible."""
RUN_ROWS = pa.schema([("key", FILE_KEY), ("row", pa.int64()), *list(RUNS)[1:]])
"""The same as keyed rows, by file."""
_HISTOGRAM = TableShape(keys={"documents": pa.int64()}, sums=("runs", "windows", "firsts"))
HISTOGRAM = _HISTOGRAM.schema()
"""Runs and windows of host documents by the number of documents that hold them, and how many of the windows are first
occurrences."""
_RUN_BYTES = 800
_WINDOW_BYTES = 4
COVERAGE = pa.schema([("document", pa.int64()), ("start", pa.int64()), ("stop", pa.int64())])
"""Words [start, stop) of a document inside repeated spans, by document and start; no two touch."""


def link_runs(files: pa.Table, start: int, stop: int) -> Joined:
    """Make the runs of each file: keyed ``runs``, of :data:`RUN_ROWS`, and their ``histogram``."""
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
    histogram = group(_HISTOGRAM, pa.concat_tables(histograms))
    return Joined(tables={"histogram": histogram}, keyed={"runs": pa.concat_tables(pieces)})


def runs_by_file(files: pa.Table, start: int, stop: int, floor: int) -> Iterator[pa.Table]:
    """Yield the runs of several files at a time, of windows that ``floor`` documents hold."""
    for table in tables_by_file(files, start, stop):
        runs = table.cast(RUNS)
        kept = runs.filter(runs["documents"].to_numpy() >= floor)
        yield kept.sort_by([("document", "ascending"), ("start", "ascending")])


def link_hosts(files: pa.Table, start: int, stop: int, *, floor: int) -> Joined:
    """Return ``hosts``, the runs of host documents."""
    pieces = [hosted(runs) for runs in runs_by_file(files, start, stop, floor)]
    return Joined(tables={"hosts": pa.concat_tables([RUNS.empty_table(), *pieces])})


def runs_of(occurrences: pa.Table) -> pa.Table:
    """Return the runs of some documents."""
    names = ("document", "position", "first_document", "first_position", "documents", "occurrences")
    columns = [occurrences[name].to_numpy().astype(np.int64) for name in names]
    order = by_place(columns[0], columns[1])
    document, position, first_document, first_position, documents, times = (column[order] for column in columns)
    steps = np.arange(len(order))  # less these, the positions of consecutive windows are equal
    at = np.flatnonzero(is_new(document, position - steps, first_document, first_position - steps, documents, times))
    sizes = np.diff(np.append(at, len(order)))
    starts = [column[at] for column in (document, position, first_document, first_position, documents, times)]
    return pa.table([*starts[:2], sizes, *starts[2:]], schema=RUNS)


def hosted(runs: pa.Table) -> pa.Table:
    """Return the runs of host documents: those in which some window occurs first."""
    document = runs["document"].to_numpy()
    return runs.filter(np.isin(document, document[is_first(runs)]))


def is_first(runs: pa.Table) -> np.ndarray:
    """Return bool[n]: whether this is the first occurrence of the windows of a run."""
    same: np.ndarray = np.logical_and.reduce(
        [runs[name].to_numpy() == runs[f"first_{name}"].to_numpy() for name in ("document", "start")]
    )
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
    new = is_new(document)
    number = np.cumsum(new) - 1
    reach = int(stop.max()) + 1  # so that intervals of a document do not reach into those of the next
    ends = np.maximum.accumulate(stop + number * reach) - number * reach
    new[1:] |= start[1:] > ends[:-1]
    at = np.flatnonzero(new)
    last = np.append(at[1:], len(document)) - 1
    return pa.table({"document": document[at], "start": start[at], "stop": ends[last]}, schema=COVERAGE)


def choose_floor(histogram: pa.Table, min_documents: int, max_memory_bytes: int) -> int:
    """Return the least floor, ``min_documents`` or more, at which the search for hotspots fits into some memory.

    A run of a host document takes 800 bytes, measured, and each of its windows 4.
    """
    documents, runs, windows = (histogram[name].to_numpy() for name in ("documents", "runs", "windows"))
    order = np.argsort(documents)[::-1]
    above = np.cumsum((runs * _RUN_BYTES + windows * _WINDOW_BYTES)[order])
    too_many = documents[order][above > max_memory_bytes]
    return max(min_documents, int(too_many[0]) + 1 if len(too_many) else 0)
