"""From runs of repeated windows to hotspots: rounds of matching, until hotspots account for all repeated text.

*Host documents* are those in which some repeated window occurs first; all repeated text can be read in them. In each
round a *path* is laid through every stretch of host documents that no hotspot accounts for, with *seeds* on it, windows
that matches start from. All documents are matched with the paths (:mod:`.matching`); each seed is extended as far as
enough documents agree, and the resulting spans become hotspots or variants of hotspots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dataaudit.metrics.repeats.runs import is_first
from dataaudit.scan.kernels.winnow import SPAN, Runs

SHARE_KEPT = (95, 100)
"""A span is extended while it has at least this share of its seed's documents and occurrences."""
_PLACE_BITS = 32


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers of windows, in the order of their first occurrences."""

    documents: np.ndarray
    """int64[d], ascending: the host documents."""
    keys: np.ndarray
    """int64[o], ascending, of the runs of first occurrences: index of the document, start in the lower 32 bits."""
    bounds: np.ndarray
    """int64[o + 1] number of the first window of each such run."""

    def runs(self, first_document: np.ndarray, first_start: np.ndarray) -> np.ndarray:
        """Return int64[n], the run of the first occurrence of windows."""
        index = np.searchsorted(self.documents, first_document)
        run: np.ndarray = np.searchsorted(self.keys, index << _PLACE_BITS | first_start, side="right") - 1
        return run

    def of(self, runs: pa.Table) -> np.ndarray:
        """Return int64[n], the number of the first window of each run."""
        first_start = runs["first_start"].to_numpy()
        home = self.runs(runs["first_document"].to_numpy(), first_start)
        number: np.ndarray = self.bounds[home] + first_start - (self.keys[home] & ((1 << _PLACE_BITS) - 1))
        return number


def numbers_of(firsts: pa.Table) -> Numbers:
    """Return the numbers of windows, from the runs of :func:`first_windows`."""
    documents, indices = np.unique(firsts["document"].to_numpy(), return_inverse=True)
    keys = indices.astype(np.int64) << _PLACE_BITS | firsts["start"].to_numpy()
    order = np.argsort(keys)
    sizes = firsts["windows"].to_numpy()[order]
    return Numbers(documents, keys[order], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Hosts:
    """The n runs of all host documents, by document and start."""

    runs: Runs
    """[n], with the numbers of their windows."""
    home: np.ndarray
    """int64[n] run of the first occurrence of the same windows; its own index where that is here."""
    num_documents: np.ndarray
    occurrences: np.ndarray
    numbers: Numbers

    def first_runs(self) -> np.ndarray:
        """Return int64[o], the runs of first occurrences, in order."""
        return np.flatnonzero(self.home == np.arange(len(self.home)))

    def ranked(self) -> np.ndarray:
        """Return the same by documents, then occurrences, most first, then in order."""
        firsts = self.first_runs()
        return firsts[np.lexsort((firsts, -self.occurrences[firsts], -self.num_documents[firsts]))]

    def reach(self, seed: int) -> tuple[int, int]:
        """Return the first and the last run of the path through a seed's run.

        The path continues to both sides while each window has enough of the seed's documents and occurrences, and the
        seed's run does not recur: of periodic text a path is one period.
        """
        last = seed
        while self._follows(last + 1) and self._continues(last + 1, seed):
            last += 1
        first = seed
        while self._follows(first) and self._continues(first - 1, seed):
            first -= 1
        return first, last

    def _continues(self, run: int, seed: int) -> bool:
        """Return whether the path of a seed continues through a run."""
        kept, of = SHARE_KEPT
        return bool(
            self.home[run] != seed
            and self.num_documents[run] * of >= self.num_documents[seed] * kept
            and self.occurrences[run] * of >= self.occurrences[seed] * kept
        )

    def _follows(self, run: int) -> bool:
        """Return whether a run begins where the run before it ends."""
        runs = self.runs
        return bool(
            0 < run < len(runs.starts)
            and runs.owners[run] == runs.owners[run - 1]
            and runs.starts[run] == runs.starts[run - 1] + runs.sizes[run - 1]
        )

    def pieces(self, document: int, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the windows [start, stop) of a document run by run: run, begin, end, and number of the first."""
        low, high = np.searchsorted(self.runs.owners, [document, document + 1]).tolist()
        starts = self.runs.starts[low:high]
        first = max(0, int(np.searchsorted(starts, start, side="right")) - 1)
        for run in range(low + first, low + int(np.searchsorted(starts, stop))):
            own = int(self.runs.starts[run])
            begin, end = max(start, own), min(stop, own + int(self.runs.sizes[run]))
            if begin < end:
                yield run, begin, end, int(self.runs.ids[run]) + begin - own


def hosts_of(runs: pa.Table) -> Hosts:
    """Return the host documents of a table of runs."""
    order = np.lexsort((runs["start"].to_numpy(), runs["document"].to_numpy()))
    ordered = runs.take(pa.array(order))
    firsts = np.flatnonzero(is_first(ordered))
    numbers = numbers_of(ordered.take(pa.array(firsts)))
    first_start = ordered["first_start"].to_numpy()
    home = firsts[numbers.runs(ordered["first_document"].to_numpy(), first_start)] if len(firsts) else firsts
    return Hosts(
        runs=Runs(
            ordered["document"].to_numpy(),
            ordered["start"].to_numpy(),
            ordered["windows"].to_numpy(),
            numbers.of(ordered) if len(firsts) else firsts,
        ),
        home=home,
        num_documents=ordered["documents"].to_numpy(),
        occurrences=ordered["occurrences"].to_numpy(),
        numbers=numbers,
    )


PATHS = pa.schema([("path", pa.int64()), ("start", pa.int64()), ("windows", pa.int64()), ("id", pa.int64())])
"""Runs of paths, by path and start."""
SEEDS = pa.schema(
    [("id", pa.int64()), ("path_run", pa.int64()), ("run", pa.int64()), ("document", pa.int64()), ("place", pa.int64())]
)
"""Seeds by ``id``, the number of their window: its row of PATHS, its run of the hosts, and its position there."""

Open = Mapping[int, Sequence[tuple[int, int]]]
"""Windows [start, stop) that no hotspot accounts for, by the run of their first occurrence."""


@dataclass(frozen=True, slots=True)
class Round:
    """What all documents are matched with: tables :data:`PATHS` and :data:`SEEDS`."""

    paths: pa.Table
    seeds: pa.Table

    def path_runs(self) -> Runs:
        """Return the paths as runs."""
        return Runs(*(self.paths[name].to_numpy() for name in PATHS.names))


def all_windows(hosts: Hosts) -> Open:
    """Return all windows as open."""
    starts, sizes = hosts.runs.starts, hosts.runs.sizes
    return {run: [(int(starts[run]), int(starts[run] + sizes[run]))] for run in hosts.first_runs().tolist()}


def make_round(hosts: Hosts, open_windows: Open) -> Round:
    """Lay a path through every open window, in the order of rank, and put seeds on it.

    Seeds are ``SPAN`` windows apart, so that together they hold every word of a path. The first open window of the run
    with the most documents is a seed, too.
    """
    pieces: list[tuple[int, int]] = []
    seeds: list[tuple[int, int, int]] = []
    taken: set[int] = set()
    offset = 0
    for run in hosts.ranked().tolist():
        if run not in open_windows or run in taken:
            continue
        first, last = hosts.reach(run)
        own = [number for number in range(first, last + 1) if number in open_windows and number not in taken]
        taken.update(own)
        places = {(run, open_windows[run][0][0])}
        end = place = -1
        for number in own:
            for low, high in open_windows[number]:
                if low != end:
                    place = low
                while place < high:
                    places.add((number, place))
                    place += SPAN
                end = high
        seeds += [(offset + number - first, number, place) for number, place in places]
        pieces.append((first, last))
        offset += last - first + 1
    return Round(_paths(hosts, pieces), _seeds(hosts, seeds))


def _paths(hosts: Hosts, pieces: Sequence[tuple[int, int]]) -> pa.Table:
    firsts = np.array([first for first, _ in pieces], dtype=np.int64)
    counts = np.array([last - first + 1 for first, last in pieces], dtype=np.int64)
    owner = np.repeat(np.arange(len(pieces)), counts)
    runs = np.arange(counts.sum()) + np.repeat(firsts - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    start = hosts.runs.starts[runs] - hosts.runs.starts[firsts][owner] if len(runs) else runs
    return pa.table([owner, start, hosts.runs.sizes[runs], hosts.runs.ids[runs]], schema=PATHS)


def _seeds(hosts: Hosts, seeds: Sequence[tuple[int, int, int]]) -> pa.Table:
    path_run, run, place = (np.array([seed[index] for seed in seeds], dtype=np.int64) for index in range(3))
    number = hosts.runs.ids[run] + place - hosts.runs.starts[run]
    return pa.table([number, path_run, run, hosts.runs.owners[run], place], schema=SEEDS).sort_by("id")


def final_round(hosts: Hosts, spans: Sequence[tuple[int, int, int, int]]) -> Round:
    """Return the round that finds every occurrence of spans, of the form of :attr:`Cover.spans`."""
    paths: list[tuple[int, int, int, int]] = []
    seeds: list[tuple[int, int, int, int, int]] = []
    for index, (document, first, last, seed) in enumerate(spans):
        seeded = False  # once: in periodic text the window occurs several times in its own span
        for run, begin, end, number in hosts.pieces(document, first, last + 1):
            if not seeded and number <= seed < number + end - begin:
                seeded = True
                seeds.append((seed, len(paths), run, document, begin + seed - number))
            paths.append((index, begin - first, end - begin, number))
    table = pa.table([pa.array(list(column), pa.int64()) for column in zip(*paths, strict=True)], schema=PATHS)
    chosen = pa.table([pa.array(list(column), pa.int64()) for column in zip(*seeds, strict=True)], schema=SEEDS)
    return Round(table, chosen.sort_by([("id", "ascending"), ("path_run", "ascending")]))


def extents(reaches: pa.Table, num_seeds: int, floor: int) -> list[tuple[int, int]]:
    """Return for every seed how many windows to the left and right its span has.

    A span goes to the right, then to the left, as far as 0.95 of the seed's documents and occurrences, and ``floor``
    documents, agree.
    """
    columns = [reaches[name].to_numpy() for name in reaches.column_names]
    bounds = np.searchsorted(columns[0], np.arange(num_seeds + 1)).tolist()
    kept, of = SHARE_KEPT
    spans = []
    for low, high in pairwise(bounds):
        left, right, documents, occurrences = (column[low:high].tolist() for column in columns[1:])
        need = (max(floor, -(-sum(documents) * kept // of)), -(-sum(occurrences) * kept // of))
        rows = list(zip(right, left, documents, occurrences, strict=True))
        most_right = _most([(row[0], *row[2:]) for row in rows], need)
        spans.append((_most([row[1:] for row in rows if row[0] >= most_right], need), most_right))
    return spans


def _most(rows: Sequence[tuple[int, int, int]], need: tuple[int, int]) -> int:
    """Return the largest number, of (number, documents, occurrences), that enough documents and occurrences reach."""
    total = times = 0
    for value, documents, occurrences in sorted(rows, reverse=True):
        total += documents
        times += occurrences
        if total >= need[0] and times >= need[1]:
            return value
    raise AssertionError("fewer documents than the floor hold a window that they were counted to hold")


class Cover:
    """Which hotspot accounts for each window of the host documents, and which windows are left."""

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
        order = np.lexsort((place, document, -hosts.occurrences[run], -hosts.num_documents[run]))
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

    def open_windows(self) -> Open:
        """Return the windows of which no word lies in a hotspot."""
        firsts = self.hosts.first_runs()
        runs = self.hosts.runs
        unowned = np.add.reduceat(self._owner < 0, runs.ids[firsts], dtype=np.int64) if len(firsts) else firsts
        left: dict[int, list[tuple[int, int]]] = {}
        for run in firsts[unowned > 0].tolist():
            start, stop = int(runs.starts[run]), int(runs.starts[run] + runs.sizes[run])
            free = _free(self._owners(int(runs.owners[run]), start - SPAN + 1, stop + SPAN - 1))
            edges = np.flatnonzero(np.diff(free, prepend=False, append=False)) + start
            if len(edges):
                left[run] = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
        return left

    def _owners(self, document: int, start: int, stop: int) -> np.ndarray:
        """Return int32[stop - start], the hotspot of each window of a document; -1 where there is none."""
        owners = np.full(stop - start, -1, dtype=np.int32)
        for _, begin, end, number in self.hosts.pieces(document, start, stop):
            owners[begin - start : end - start] = self._owner[number : number + end - begin]
        return owners

    def _take(self, span: tuple[int, int, int], hotspot: int) -> None:
        document, first, last = span
        for _, begin, end, number in self.hosts.pieces(document, first, last + 1):
            owner = self._owner[number : number + end - begin]
            owner[owner < 0] = hotspot


def _free(owners: np.ndarray) -> np.ndarray:
    """Return bool[n - 2 * SPAN + 2]: whether no window that shares a word with this one has a hotspot."""
    taken = np.concatenate([[0], np.cumsum(owners >= 0)])
    width = 2 * SPAN - 1
    free: np.ndarray = taken[width:] == taken[:-width]
    return free


Match = Callable[[Round], pa.Table]
"""Matches a round with every part; returns :data:`.matching.REACH` of the whole corpus."""


@dataclass(frozen=True, slots=True)
class Hotspots:
    """The round that finds their occurrences (path i is hotspot i), and words and merged variants of each, int64[h]."""

    final: Round
    words: np.ndarray
    variants: np.ndarray


def find_hotspots(runs: pa.Table, floor: int, match: Match) -> Hotspots:
    """Find the hotspots of a corpus.

    Seeds are windows, by documents, then occurrences, then first occurrence. A seed is extended along the document of
    its first occurrence, as far as the whole span has 0.95 of the seed's documents and occurrences, and ``floor``
    documents. A span is a hotspot of its own when its first occurrence has 50 words in a row in no earlier hotspot;
    else it is a variant of one: shorter, longer by less, or shifted. So the first occurrence of any 50 words that
    ``floor`` documents hold shares a word with a hotspot.
    """
    hosts = hosts_of(runs)
    cover = Cover(hosts)
    open_windows = all_windows(hosts)
    while open_windows:
        round_ = make_round(hosts, open_windows)
        cover.add(round_, extents(match(round_), round_.seeds.num_rows, floor))
        open_windows = cover.open_windows()
    final = final_round(hosts, cover.spans) if cover.spans else Round(PATHS.empty_table(), SEEDS.empty_table())
    words = np.array([last - first + SPAN for _, first, last, _ in cover.spans], dtype=np.int64)
    return Hotspots(final, words, np.array(cover.variants, dtype=np.int64))


def first_windows(runs: pa.Table) -> pa.Table:
    """Return document, start and windows of the runs of first occurrences: what numbers are made of."""
    return runs.filter(is_first(runs)).select(["document", "start", "windows"])
