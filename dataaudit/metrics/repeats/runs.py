"""Runs: consecutive windows of a document that stand, in the same order, somewhere before.

A page of 5,000 words that 20 documents hold is 4,951 windows in each, and one run.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dataaudit.kernels.winnow import SPAN
from dataaudit.link.joins import Joined
from dataaudit.manifest.places import rows_of
from dataaudit.metrics.repeats.by_file import FILE_KEY, file_keys, tables_by_file
from dataaudit.metrics.repeats.listing import by_place, file_numbers

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
    """Make runs of the occurrences of each file: keyed ``runs``, of :data:`RUN_ROWS`, and their ``histogram``.

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows OCCURRENCE_ROWS of
            :mod:`dataaudit.metrics.repeats.windows`.
        start: First value of the first byte of keys.
        stop: Value after the last.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
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
    """Yield the runs of some files at a time, of :data:`RUNS`, of windows that ``floor`` documents hold.

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows :data:`RUN_ROWS`.
        start: First value of the first byte of keys.
        stop: Value after the last.
        floor: Documents that hold a window at least.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
    for table in tables_by_file(files, start, stop):
        runs = table.cast(RUNS)
        kept = runs.filter(runs["documents"].to_numpy() >= floor)
        yield kept.sort_by([("document", "ascending"), ("start", "ascending")])


def link_hosts(files: pa.Table, start: int, stop: int, *, floor: int) -> Joined:
    """Return the runs, ``hosts`` of :data:`RUNS`, of documents in which some window stands first.

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows :data:`RUN_ROWS`.
        start: First value of the first byte of keys.
        stop: Value after the last.
        floor: Documents that hold a window at least.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
    pieces = [hosted(runs) for runs in runs_by_file(files, start, stop, floor)]
    return Joined(tables={"hosts": pa.concat_tables([RUNS.empty_table(), *pieces])})


def runs_of(occurrences: pa.Table) -> pa.Table:
    """Return the runs of some documents.

    Args:
        occurrences: All of theirs, as OCCURRENCE_ROWS of :mod:`dataaudit.metrics.repeats.windows`, with ``document``.
    """
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
    same: np.ndarray = np.logical_and.reduce([runs[one].to_numpy() == runs[two].to_numpy() for one, two in pairs])
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

    Args:
        histogram: Of :data:`HISTOGRAM`; rows may repeat.
        min_documents: Least floor.
        max_memory_bytes: The memory.
    """
    columns = (histogram[name].to_numpy() for name in ("documents", "runs", "windows"))
    documents, runs, windows = columns
    order = np.argsort(documents)[::-1]
    above = np.cumsum((runs * _RUN_BYTES + windows * _WINDOW_BYTES)[order])
    too_many = documents[order][above > max_memory_bytes]
    return max(min_documents, int(too_many[0]) + 1 if len(too_many) else 0)
