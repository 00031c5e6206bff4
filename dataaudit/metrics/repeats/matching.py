"""What the documents of the corpus have of the paths of a round."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.kernels.winnow import SPAN, Runs, extend_matches
from dataaudit.link.joins import Joined
from dataaudit.metrics.repeats.hosts import Numbers, numbers_of
from dataaudit.metrics.repeats.listing import file_numbers
from dataaudit.metrics.repeats.paths import Round
from dataaudit.metrics.repeats.runs import COVERAGE, coverage, runs_by_file
from dataaudit.metrics.repeats.search import SavedSearch

REACH = pa.schema([(name, pa.int64()) for name in ("seed", "left", "right", "documents", "occurrences")])
"""Occurrences of a seed that match its path on so many windows to the left and to the right, and documents in which
such an occurrence is the widest."""
MEMBERS = pa.schema([("hotspot", pa.int64()), ("document", pa.int64()), ("start", pa.int64()), ("stop", pa.int64())])
"""Occurrences: words [start, stop) of a document."""


def link_reaches(files: pa.Table, start: int, stop: int, *, floor: int, search: SavedSearch) -> Joined:
    """Return how far around each seed documents agree with its path: ``reaches``, of :data:`REACH`.

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows RUN_ROWS of :mod:`dataaudit.metrics.repeats.runs`.
        start: First value of the first byte of keys.
        stop: Value after the last.
        floor: Documents that hold a window at least.
        search: What is searched for.

    Raises:
        DamagedFileError: Files, or what is searched for, are absent or damaged.
    """
    wanted = search.load()
    numbers, times = numbers_of(wanted.firsts), wanted.times["times"].to_numpy()
    found = [reach(runs, numbers, wanted.round, times) for runs in runs_by_file(files, start, stop, floor)]
    return Joined(tables={"reaches": add_reaches(found)})


def link_members(files: pa.Table, start: int, stop: int, *, floor: int, search: SavedSearch) -> Joined:
    """Return ``members``, of :data:`MEMBERS`, and ``covered``, the words in repeated spans, of COVERAGE.

    Args:
        files: Of :data:`dataaudit.link.joins.LINK_FILES`: keyed rows RUN_ROWS of :mod:`dataaudit.metrics.repeats.runs`.
        start: First value of the first byte of keys.
        stop: Value after the last.
        floor: Documents that hold a window at least.
        search: What is searched for; its round is that of :func:`dataaudit.metrics.repeats.paths.final_round`.

    Raises:
        DamagedFileError: Files, or what is searched for, are absent or damaged.
    """
    wanted = search.load()
    numbers = numbers_of(wanted.firsts)
    found, covered = [MEMBERS.empty_table()], [COVERAGE.empty_table()]
    for runs in runs_by_file(files, start, stop, floor):
        found.append(members(runs, numbers, wanted.round))
        covered.append(coverage(runs))
    return Joined(tables={"members": pa.concat_tables(found), "covered": pa.concat_tables(covered)})


def reach(runs: pa.Table, numbers: Numbers, round_: Round, times: np.ndarray) -> pa.Table:
    """Return how far around each seed some documents agree with its path.

    Args:
        runs: All of theirs, of the schema RUNS, by document and start.
        numbers: Of windows.
        round_: Paths and seeds.
        times: int64[f] how often each file is listed.

    Returns:
        Of :data:`REACH`; ``seed`` is a row of the round's seeds.
    """
    seed, document, _, left, right = _matches(runs, numbers, round_)
    order = np.lexsort((-right, -(left + right), document, seed))
    seed, document, left, right = seed[order], document[order], left[order], right[order]
    widest = np.ones(len(seed), dtype=bool)
    widest[1:] = (seed[1:] != seed[:-1]) | (document[1:] != document[:-1])
    listed = times[file_numbers(document)]
    columns = (seed, left, right, widest * listed, listed)
    return add_reaches([pa.table(dict(zip(REACH.names, columns, strict=True)))])


def add_reaches(tables: list[pa.Table]) -> pa.Table:
    """Add up equal reaches of several parts."""
    merged = pa.concat_tables([REACH.empty_table(), *(table.cast(REACH) for table in tables)])
    sums = [(name, "sum") for name in REACH.names[3:]]
    grouped = merged.group_by(REACH.names[:3], use_threads=False).aggregate(sums)
    return grouped.rename_columns(REACH.names).cast(REACH).sort_by([(name, "ascending") for name in REACH.names[:3]])


def members(runs: pa.Table, numbers: Numbers, final: Round) -> pa.Table:
    """Return every occurrence of every hotspot in some documents: of :data:`MEMBERS`, by document, start, hotspot.

    Args:
        runs: All of theirs, of the schema RUNS, by document and start.
        numbers: Of windows.
        final: Of :func:`dataaudit.metrics.repeats.paths.final_round`.
    """
    seed, document, place, left, right = _matches(runs, numbers, final)
    path = final.path_runs()
    sizes = np.bincount(path.owners, path.sizes).astype(np.int64)
    at = final.seeds["path_run"].to_numpy()
    before = path.starts[at] + final.seeds["id"].to_numpy() - path.ids[at]
    hotspot = path.owners[at][seed]
    kept = (left == before[seed]) & (left + right + 1 == sizes[hotspot])
    start = (place - left)[kept]
    columns = (hotspot[kept], document[kept], start, start + sizes[hotspot[kept]] + SPAN - 1)
    order = [(name, "ascending") for name in ("document", "start", "hotspot")]
    return pa.table(dict(zip(MEMBERS.names, columns, strict=True))).cast(MEMBERS).sort_by(order)


def _matches(runs: pa.Table, numbers: Numbers, round_: Round) -> tuple[np.ndarray, ...]:
    """Return seed, document, place in it, windows that match to the left and to the right, of every occurrence."""
    document = Runs(runs["document"].to_numpy(), runs["start"].to_numpy(), runs["windows"].to_numpy(), numbers.of(runs))
    seeds = round_.seeds["id"].to_numpy()
    low = np.searchsorted(seeds, document.ids)
    counts = np.searchsorted(seeds, document.ids + document.sizes) - low
    run = np.repeat(np.arange(len(counts)), counts)
    seed = np.arange(len(run)) + np.repeat(low - np.concatenate([[0], np.cumsum(counts)])[:-1], counts)
    path_runs = round_.seeds["path_run"].to_numpy()[seed]
    left, right = extend_matches(document, run, round_.path_runs(), path_runs, seeds[seed])
    place = document.starts[run] + seeds[seed] - document.ids[run]
    return seed, document.owners[run], place, left, right
