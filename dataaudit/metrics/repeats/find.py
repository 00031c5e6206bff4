"""From runs to hotspots: rounds of matching until no 50 words are left that no hotspot accounts for.

How far a seed is extended, and which spans are hotspots of their own.

What every part of a corpus is searched for, as a file that all tasks of a round read.

What the documents of the corpus have of the paths of a round.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dataaudit.base.files import DamagedFileError
from dataaudit.metrics.repeats.hosts import (
    PATHS,
    SEEDS,
    SHARE_KEPT,
    Hosts,
    Numbers,
    Open,
    Round,
    final_round,
    hosts_of,
    make_round,
    numbers_of,
    whole,
)
from dataaudit.metrics.repeats.runs import COVERAGE, coverage, file_numbers, is_first, runs_by_file
from dataaudit.scan.kernels.winnow import SPAN, Runs, extend_matches
from dataaudit.scan.link.joins import Joined


def extents(reaches: pa.Table, num_seeds: int, floor: int) -> list[tuple[int, int]]:
    """Return for every seed how many windows to the left and right its span has.

    To the right, then to the left, as far as 0.95 of the documents and of the occurrences of the seed, and ``floor``
    documents, go.
    """
    columns = [reaches[name].to_numpy() for name in reaches.column_names]
    bounds = np.searchsorted(columns[0], np.arange(num_seeds + 1)).tolist()
    kept, of = SHARE_KEPT
    found = []
    for low, high in pairwise(bounds):
        left, right, documents, occurrences = (column[low:high].tolist() for column in columns[1:])
        need = (max(floor, -(-sum(documents) * kept // of)), -(-sum(occurrences) * kept // of))
        rows = list(zip(right, left, documents, occurrences, strict=True))
        most_right = _most([(row[0], *row[2:]) for row in rows], need)
        found.append((_most([row[1:] for row in rows if row[0] >= most_right], need), most_right))
    return found


def _most(rows: Sequence[tuple[int, int, int]], need: tuple[int, int]) -> int:
    """Return the largest number that enough reach, of (number, documents, occurrences)."""
    held_by = times = 0
    for value, documents, occurrences in sorted(rows, reverse=True):
        held_by += documents
        times += occurrences
        if held_by >= need[0] and times >= need[1]:
            return value
    raise AssertionError("fewer documents than the floor hold a window that they were counted to hold")


class Cover:
    """Which hotspot accounts for each window, and what is left.

    Args:
        hosts: Host documents.
    """

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.spans: list[tuple[int, int, int, int]] = []
        """(document, first window, last window, number of the seed) of every hotspot."""
        self.variants: list[int] = []
        """Spans that were merged into each."""
        self._owner = np.full(int(hosts.numbers.bounds[-1]), -1, dtype=np.int32)
        self._seen: set[tuple[int, int, int]] = set()

    def add(self, round_: Round, reaches: Sequence[tuple[int, int]]) -> None:
        """Take the spans of a round in the order of rank; each becomes a hotspot or a variant of one."""
        hosts, seeds = self.hosts, round_.seeds
        run, document, place = (seeds[name].to_numpy() for name in ("run", "document", "place"))
        number = seeds["id"].to_numpy()
        order = np.lexsort((place, document, -hosts.occurrences[run], -hosts.held_by[run]))
        for seed in order.tolist():
            left, right = reaches[seed]
            span = (int(document[seed]), int(place[seed]) - left, int(place[seed]) + right)
            if span in self._seen:
                continue
            self._seen.add(span)
            owners = self._owners(span[0], span[1] - SPAN + 1, span[2] + SPAN)
            if not _free(owners).any():
                self.variants[int(owners[owners >= 0].min())] += 1
                continue
            self._take(span, len(self.spans))
            self.spans.append((*span, int(number[seed])))
            self.variants.append(0)

    def left_over(self) -> Open:
        """Return the windows of which no word lies in a hotspot."""
        firsts = self.hosts.first_runs()
        runs = self.hosts.runs
        unowned = np.add.reduceat(self._owner < 0, runs.ids[firsts], dtype=np.int64) if len(firsts) else firsts
        found: dict[int, list[tuple[int, int]]] = {}
        for run in firsts[unowned > 0].tolist():
            start, stop = int(runs.starts[run]), int(runs.starts[run] + runs.sizes[run])
            free = _free(self._owners(int(runs.owners[run]), start - SPAN + 1, stop + SPAN - 1))
            edges = np.flatnonzero(np.diff(free, prepend=False, append=False)) + start
            if len(edges):
                found[run] = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
        return found

    def _owners(self, document: int, start: int, stop: int) -> np.ndarray:
        """int32[stop - start] hotspot of each window of a document; -1 where there is none."""
        runs = self.hosts.runs
        owners = np.full(stop - start, -1, dtype=np.int32)
        for run in range(*self.hosts.between(document, start, stop)):
            begin = max(start, int(runs.starts[run]))
            end = min(stop, int(runs.starts[run] + runs.sizes[run]))
            number = int(runs.ids[run]) + begin - int(runs.starts[run])
            owners[begin - start : end - start] = self._owner[number : number + end - begin]
        return owners

    def _take(self, span: tuple[int, int, int], hotspot: int) -> None:
        runs = self.hosts.runs
        document, first, last = span
        for run in range(*self.hosts.between(document, first, last + 1)):
            begin = max(first, int(runs.starts[run]))
            end = min(last + 1, int(runs.starts[run] + runs.sizes[run]))
            number = int(runs.ids[run]) + begin - int(runs.starts[run])
            owner = self._owner[number : number + end - begin]
            owner[owner < 0] = hotspot


def _free(owners: np.ndarray) -> np.ndarray:
    """bool[n - 2 * SPAN + 2]: of no window that has a word in common with this one is there a hotspot."""
    taken = np.concatenate([[0], np.cumsum(owners >= 0)])
    width = 2 * SPAN - 1
    free: np.ndarray = taken[width:] == taken[:-width]
    return free


Match = Callable[[Round], pa.Table]
"""Matches a round with every part; returns REACH of the whole corpus."""


@dataclass(frozen=True, slots=True)
class Found:
    """Hotspots, in the order in which they were found, and how to find their occurrences."""

    final: Round
    """The span of hotspot i is path i."""
    words: np.ndarray
    """int64[h] length."""
    variants: np.ndarray
    """int64[h] other spans that were merged into it."""
    rounds: int
    """Rounds of matching."""


def find_hotspots(runs: pa.Table, floor: int, match: Match) -> Found:
    """Find the hotspots of a corpus.

    Seeds are windows, in the order of the documents that hold them, then of occurrences, then of their first place.
    A seed is extended along the document where it stands first, as far as the whole span has 0.95 of the seed's
    documents and occurrences, and ``floor`` documents. A span is a hotspot of its own when, where it stands first, 50
    words in a row of it lie in no earlier hotspot; else it is a variant of one: shorter, longer by less, or shifted.
    So all of the 50 words that ``floor`` documents hold share, where they stand first, a word with a hotspot.
    """
    hosts = hosts_of(runs)
    cover = Cover(hosts)
    todo = whole(hosts)
    rounds = 0
    while todo:
        round_ = make_round(hosts, todo)
        cover.add(round_, extents(match(round_), round_.seeds.num_rows, floor))
        rounds += 1
        todo = cover.left_over()
    final = final_round(hosts, cover.spans) if cover.spans else Round(PATHS.empty_table(), SEEDS.empty_table())
    words = np.array([last - first + SPAN for _, first, last, _ in cover.spans], dtype=np.int64)
    return Found(final, words, np.array(cover.variants, dtype=np.int64), rounds)


def first_windows(runs: pa.Table) -> pa.Table:
    """Return document, start and windows of the runs that stand there first: what numbers are made of."""
    return runs.filter(is_first(runs)).select(["document", "start", "windows"])


@dataclass(frozen=True, slots=True)
class Search:
    """What every part is searched for."""

    round: Round
    """Paths and seeds."""
    firsts: pa.Table
    """Columns ``document``, ``start``, ``windows`` of the runs of windows that stand there first."""
    times: pa.Table
    """Column ``times``: how often each file is listed, by its number."""

    def packed(self) -> bytes:
        """Return it as Arrow streams, one after the other."""
        sink = pa.BufferOutputStream()
        for table in (self.round.paths, self.round.seeds, self.firsts, self.times):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
        return bytes(sink.getvalue().to_pybytes())


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """Where a search lies."""

    path: bytes
    """As the file system's bytes."""
    sha256: str
    """Of the file."""

    def load(self) -> Search:
        """Read it, once a process."""
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
    with pa.OSFile(path, "rb") as source:  # each message into memory of its own, aligned as Arrow wants it
        paths, seeds, firsts, times = (pa.ipc.open_stream(source).read_all() for _ in range(4))
    return Search(Round(paths, seeds), firsts, times)


REACH = pa.schema([(name, pa.int64()) for name in ("seed", "left", "right", "documents", "occurrences")])
"""Occurrences of a seed that match its path on so many windows to the left and to the right, and documents in which
such an occurrence is the widest."""
MEMBERS = pa.schema([("hotspot", pa.int64()), ("document", pa.int64()), ("start", pa.int64()), ("stop", pa.int64())])
"""Occurrences: words [start, stop) of a document."""


def link_reaches(files: pa.Table, start: int, stop: int, *, floor: int, search: SavedSearch) -> Joined:
    """Return how far around each seed documents agree with its path: ``reaches``, of :data:`REACH`."""
    wanted = search.load()
    numbers, times = numbers_of(wanted.firsts), wanted.times["times"].to_numpy()
    found = [reach(runs, numbers, wanted.round, times) for runs in runs_by_file(files, start, stop, floor)]
    return Joined(tables={"reaches": add_reaches(found)})


def link_members(files: pa.Table, start: int, stop: int, *, floor: int, search: SavedSearch) -> Joined:
    """Return ``members``, of :data:`MEMBERS`, and ``covered``, the words in repeated spans, of COVERAGE."""
    wanted = search.load()
    numbers = numbers_of(wanted.firsts)
    found, covered = [MEMBERS.empty_table()], [COVERAGE.empty_table()]
    for runs in runs_by_file(files, start, stop, floor):
        found.append(members(runs, numbers, wanted.round))
        covered.append(coverage(runs))
    return Joined(tables={"members": pa.concat_tables(found), "covered": pa.concat_tables(covered)})


def reach(runs: pa.Table, numbers: Numbers, round_: Round, times: np.ndarray) -> pa.Table:
    """Return how far around each seed some documents agree with its path."""
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
    """Return every occurrence of every hotspot in some documents: of :data:`MEMBERS`, by document, start, hotspot."""
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
