"""Host documents: those in which some repeated window stands first. All repeated text can be read in them.

Paths and seeds: stretches of host documents that may be hotspots, and the windows that matches start from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.metrics.repeats.runs import is_first
from dataaudit.scan.kernels.winnow import SPAN, Runs

SHARE_KEPT = (95, 100)
"""A span is extended while it has at least this share of its seed's documents and occurrences."""
_PLACE_BITS = 32


@dataclass(frozen=True, slots=True)
class Numbers:
    """Every window has one number: windows are numbered in the order of the places where they stand first."""

    documents: np.ndarray
    """int64[d] documents, ascending, in which some window stands first."""
    keys: np.ndarray
    """int64[o], ascending, of the runs of such windows: place of the document above, start in 32 bits."""
    bounds: np.ndarray
    """int64[o + 1] number of the first window of each run."""

    def runs(self, first_document: np.ndarray, first_start: np.ndarray) -> np.ndarray:
        """int64[n] run in which windows stand first."""
        place = np.searchsorted(self.documents, first_document)
        run: np.ndarray = np.searchsorted(self.keys, place << _PLACE_BITS | first_start, side="right") - 1
        return run

    def of(self, runs: pa.Table) -> np.ndarray:
        """int64[n] number of the first window of every run."""
        first_start = runs["first_start"].to_numpy()
        home = self.runs(runs["first_document"].to_numpy(), first_start)
        number: np.ndarray = self.bounds[home] + first_start - (self.keys[home] & ((1 << _PLACE_BITS) - 1))
        return number


def numbers_of(firsts: pa.Table) -> Numbers:
    """Return the numbers of windows."""
    document = firsts["document"].to_numpy()
    documents, places = np.unique(document, return_inverse=True)
    keys = places.astype(np.int64) << _PLACE_BITS | firsts["start"].to_numpy()
    order = np.argsort(keys)
    sizes = firsts["windows"].to_numpy()[order]
    return Numbers(documents, keys[order], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Hosts:
    """``n`` runs of all host documents, by document and start."""

    runs: Runs
    """[n] of documents, with the numbers of their windows."""
    home: np.ndarray
    """int64[n] run in which the same windows stand first; its own index where they do here."""
    held_by: np.ndarray
    """int64[n] documents that hold each of the windows."""
    occurrences: np.ndarray
    """int64[n] occurrences of each."""
    numbers: Numbers
    """Of all windows."""

    def first_runs(self) -> np.ndarray:
        """int64[o] runs whose windows stand there first, in order."""
        return np.flatnonzero(self.home == np.arange(len(self.home)))

    def ranked(self) -> np.ndarray:
        """int64[o] the same, by documents, then occurrences, most first, then by place."""
        firsts = self.first_runs()
        return firsts[np.lexsort((firsts, -self.occurrences[firsts], -self.held_by[firsts]))]

    def reach(self, run: int) -> tuple[int, int]:
        """Return the first and the last run of the path through a run, a seed's.

        It goes on to both sides as long as each window has enough of the seed's documents and occurrences, and none is
        one of the seed's run again: of periodic text a path is one period.
        """
        last = run
        while self._joined(last + 1) and self._goes_on(last + 1, run):
            last += 1
        first = run
        while self._joined(first) and self._goes_on(first - 1, run):
            first -= 1
        return first, last

    def _goes_on(self, run: int, seed: int) -> bool:
        """Tell whether the path of a seed goes on through a run."""
        kept, of = SHARE_KEPT
        return bool(
            self.home[run] != seed
            and self.held_by[run] * of >= self.held_by[seed] * kept
            and self.occurrences[run] * of >= self.occurrences[seed] * kept
        )

    def _joined(self, run: int) -> bool:
        """Tell whether a run goes on where the one before it ends."""
        runs = self.runs
        return bool(
            0 < run < len(runs.starts)
            and runs.owners[run] == runs.owners[run - 1]
            and runs.starts[run] == runs.starts[run - 1] + runs.sizes[run - 1]
        )

    def between(self, document: int, start: int, stop: int) -> tuple[int, int]:
        """Return the runs of a document that hold windows of [start, stop), as [first, last)."""
        low, high = np.searchsorted(self.runs.owners, [document, document + 1])
        starts = self.runs.starts[low:high]
        first = int(low + np.searchsorted(starts, start, side="right"))
        if first > low and self.runs.starts[first - 1] + self.runs.sizes[first - 1] > start:
            first -= 1
        return first, int(low + np.searchsorted(starts, stop))


def hosts_of(runs: pa.Table) -> Hosts:
    """Return the host documents."""
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
        held_by=ordered["documents"].to_numpy(),
        occurrences=ordered["occurrences"].to_numpy(),
        numbers=numbers,
    )


PATHS = pa.schema([("path", pa.int64()), ("start", pa.int64()), ("windows", pa.int64()), ("id", pa.int64())])
"""Runs of paths, by path and start."""
SEEDS = pa.schema(
    [("id", pa.int64()), ("path_run", pa.int64()), ("run", pa.int64()), ("document", pa.int64()), ("place", pa.int64())]
)
"""Seeds, by ``id``, the number of their window; the row of PATHS and the run of the hosts that hold it; where it
stands there."""

Open = Mapping[int, Sequence[tuple[int, int]]]
"""Windows [start, stop) that no hotspot accounts for, by the run in which they stand first."""


@dataclass(frozen=True, slots=True)
class Round:
    """What is matched with every document of the corpus."""

    paths: pa.Table
    """Of :data:`PATHS`."""
    seeds: pa.Table
    """Of :data:`SEEDS`."""

    def path_runs(self) -> Runs:
        """Return the paths as runs."""
        return Runs(*(self.paths[name].to_numpy() for name in PATHS.names))


def whole(hosts: Hosts) -> Open:
    """Return all windows."""
    starts, sizes = hosts.runs.starts, hosts.runs.sizes
    return {run: [(int(starts[run]), int(starts[run] + sizes[run]))] for run in hosts.first_runs().tolist()}


def make_round(hosts: Hosts, todo: Open) -> Round:
    """Lay a path through every open window, in the order of rank, and put seeds on it.

    Seeds are ``SPAN`` windows apart, so that together they hold every word: whatever the spans that are found from
    them, no 50 words of a path are left out unseen. The first open window of the run with the most documents is one.
    """
    pieces: list[tuple[int, int]] = []
    seeds: list[tuple[int, int, int]] = []
    taken: set[int] = set()
    offset = 0
    for run in hosts.ranked().tolist():
        if run not in todo or run in taken:
            continue
        first, last = hosts.reach(run)
        held = [number for number in range(first, last + 1) if number in todo and number not in taken]
        taken.update(held)
        places = {(run, todo[run][0][0])}
        end = place = -1
        for number in held:
            for low, high in todo[number]:
                if low != end:
                    place = low
                while place < high:
                    places.add((number, place))
                    place += SPAN
                end = high
        seeds += [(offset + item - first, item, place) for item, place in places]
        pieces.append((first, last))
        offset += last - first + 1
    return Round(_paths(hosts, pieces), _seeds(hosts, seeds))


def _paths(hosts: Hosts, pieces: Sequence[tuple[int, int]]) -> pa.Table:
    firsts = np.array([first for first, _ in pieces], dtype=np.int64)
    counts = np.array([last - first + 1 for first, last in pieces], dtype=np.int64)
    owner = np.repeat(np.arange(len(pieces)), counts)
    runs = np.arange(counts.sum()) + np.repeat(firsts - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    start = hosts.runs.starts[runs] - hosts.runs.starts[firsts][owner] if len(runs) else runs
    columns = (owner, start, hosts.runs.sizes[runs], hosts.runs.ids[runs])
    return pa.table(dict(zip(PATHS.names, columns, strict=True))).cast(PATHS)


def _seeds(hosts: Hosts, seeds: Sequence[tuple[int, int, int]]) -> pa.Table:
    path_run, run, place = (np.array([seed[index] for seed in seeds], dtype=np.int64) for index in range(3))
    number = hosts.runs.ids[run] + place - hosts.runs.starts[run]
    columns = (number, path_run, run, hosts.runs.owners[run], place)
    return pa.table(dict(zip(SEEDS.names, columns, strict=True))).cast(SEEDS).sort_by("id")


def final_round(hosts: Hosts, spans: Sequence[tuple[int, int, int, int]]) -> Round:
    """Return the round that finds every occurrence of spans."""
    paths: list[tuple[int, int, int, int]] = []
    seeds: list[tuple[int, int, int, int, int]] = []
    runs = hosts.runs
    for index, (document, first, last, number) in enumerate(spans):
        low, high = hosts.between(document, first, last + 1)
        seeded = False  # once: in periodic text the window stands at several places of its own span
        for run in range(low, high):
            start = max(first, int(runs.starts[run]))
            stop = min(last + 1, int(runs.starts[run] + runs.sizes[run]))
            begin = int(runs.ids[run]) + start - int(runs.starts[run])
            if not seeded and begin <= number < begin + stop - start:
                seeded = True
                seeds.append((number, len(paths), run, document, start + number - begin))
            paths.append((index, start - first, stop - start, begin))
    table = pa.table([pa.array(list(column), pa.int64()) for column in zip(*paths, strict=True)], schema=PATHS)
    chosen = pa.table([pa.array(list(column), pa.int64()) for column in zip(*seeds, strict=True)], schema=SEEDS)
    return Round(table, chosen.sort_by([("id", "ascending"), ("path_run", "ascending")]))
