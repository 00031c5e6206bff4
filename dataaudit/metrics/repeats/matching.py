"""Matching of all documents with the paths of a round: how far they agree around seeds, and where hotspots occur.

A round is written as a file that the tasks of its joins read (:class:`SavedSearch`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from dataaudit.base.files import DamagedFileError
from dataaudit.manifest.locate import is_new
from dataaudit.metrics.repeats.hotspots import Numbers, Round, numbers_of
from dataaudit.metrics.repeats.runs import COVERAGE, coverage, file_numbers, runs_by_file
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.kernels.winnow import SPAN, Runs, extend_matches
from dataaudit.scan.stages.partial import TableShape, group


@dataclass(frozen=True, slots=True)
class Search:
    """What every part is matched with."""

    round: Round
    firsts: pa.Table
    times: pa.Table
    """Column ``times``: how often each file is listed, by its number."""

    def packed(self) -> bytes:
        """Return the tables as Arrow streams, one after the other."""
        sink = pa.BufferOutputStream()
        for table in (self.round.paths, self.round.seeds, self.firsts, self.times):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
        return bytes(sink.getvalue().to_pybytes())


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """The file of a search, and its sha256."""

    path: bytes
    sha256: str

    def load(self) -> Search:
        """Read the search, once a process."""
        return _load(self.path, self.sha256)


@lru_cache(maxsize=1)
def _load(path: bytes, sha256: str) -> Search:
    try:
        with open(path, "rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
    except FileNotFoundError:
        digest = ""
    if digest != sha256:
        raise DamagedFileError(os.fsdecode(path))
    with pa.OSFile(path, "rb") as source:  # each message into aligned memory of its own
        paths, seeds, firsts, times = (pa.ipc.open_stream(source).read_all() for _ in range(4))
    return Search(Round(paths, seeds), firsts, times)


_REACHES = TableShape(keys=dict.fromkeys(("seed", "left", "right"), pa.int64()), sums=("documents", "occurrences"))
REACH = _REACHES.schema()
"""Occurrences of a seed that match its path on so many windows to the left and to the right, and documents of which
this is the widest match."""
MEMBERS = pa.schema([("hotspot", pa.int64()), ("document", pa.int64()), ("start", pa.int64()), ("stop", pa.int64())])
"""Occurrences: words [start, stop) of a document."""


def link_reaches(files: pa.Table, start: int, stop: int, *, floor: int, search: SavedSearch) -> Joined:
    """Return how far around each seed documents agree with its path: ``reaches``, of :data:`REACH`."""
    wanted = search.load()
    numbers, times = numbers_of(wanted.firsts), wanted.times["times"].to_numpy()
    reaches = [reach(runs, numbers, wanted.round, times) for runs in runs_by_file(files, start, stop, floor)]
    return Joined(tables={"reaches": add_reaches(reaches)})


def link_members(files: pa.Table, start: int, stop: int, *, floor: int, search: SavedSearch) -> Joined:
    """Return ``members``, of :data:`MEMBERS`, and ``covered``, the words in repeated spans, of COVERAGE."""
    wanted = search.load()
    numbers = numbers_of(wanted.firsts)
    occurring, covered = [MEMBERS.empty_table()], [COVERAGE.empty_table()]
    for runs in runs_by_file(files, start, stop, floor):
        occurring.append(members(runs, numbers, wanted.round))
        covered.append(coverage(runs))
    return Joined(tables={"members": pa.concat_tables(occurring), "covered": pa.concat_tables(covered)})


def reach(runs: pa.Table, numbers: Numbers, round_: Round, times: np.ndarray) -> pa.Table:
    """Return how far around each seed the documents of some runs agree with its path."""
    seed, document, _, left, right = _matches(runs, numbers, round_)
    order = np.lexsort((-right, -(left + right), document, seed))
    seed, document, left, right = seed[order], document[order], left[order], right[order]
    listed = times[file_numbers(document)]
    widest = is_new(seed, document) * listed
    return add_reaches([pa.table([seed, left, right, widest, listed], schema=REACH)])


def add_reaches(tables: list[pa.Table]) -> pa.Table:
    """Add up equal reaches of several parts."""
    return group(_REACHES, pa.concat_tables([REACH.empty_table(), *tables]))


def members(runs: pa.Table, numbers: Numbers, final: Round) -> pa.Table:
    """Return the occurrences of hotspots in the documents of some runs, by document, start, hotspot."""
    seed, document, position, left, right = _matches(runs, numbers, final)
    path = final.path_runs()
    sizes = np.bincount(path.owners, path.sizes).astype(np.int64)
    at = final.seeds["path_run"].to_numpy()
    before = path.starts[at] + final.seeds["id"].to_numpy() - path.ids[at]
    hotspot = path.owners[at][seed]
    kept = (left == before[seed]) & (left + right + 1 == sizes[hotspot])
    start = (position - left)[kept]
    columns = [hotspot[kept], document[kept], start, start + sizes[hotspot[kept]] + SPAN - 1]
    order = [(name, "ascending") for name in ("document", "start", "hotspot")]
    return pa.table(columns, schema=MEMBERS).sort_by(order)


def _matches(runs: pa.Table, numbers: Numbers, round_: Round) -> tuple[np.ndarray, ...]:
    """Return seed, document, position, and matching windows to the left and right, of each occurrence of a seed."""
    document = Runs(runs["document"].to_numpy(), runs["start"].to_numpy(), runs["windows"].to_numpy(), numbers.of(runs))
    seeds = round_.seeds["id"].to_numpy()
    low = np.searchsorted(seeds, document.ids)
    counts = np.searchsorted(seeds, document.ids + document.sizes) - low
    run = np.repeat(np.arange(len(counts)), counts)
    seed = np.arange(len(run)) + np.repeat(low - np.concatenate([[0], np.cumsum(counts)])[:-1], counts)
    path_runs = round_.seeds["path_run"].to_numpy()[seed]
    left, right = extend_matches(document, run, round_.path_runs(), path_runs, seeds[seed])
    position = document.starts[run] + seeds[seed] - document.ids[run]
    return seed, document.owners[run], position, left, right
