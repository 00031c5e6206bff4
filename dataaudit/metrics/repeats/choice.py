"""How far a seed is extended, and which spans are hotspots of their own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dataaudit.kernels.winnow import SPAN
from dataaudit.metrics.repeats.hosts import SHARE_KEPT, Hosts
from dataaudit.metrics.repeats.paths import Open, Round


def extents(reaches: pa.Table, num_seeds: int, floor: int) -> list[tuple[int, int]]:
    """Return for every seed how many windows to the left and right its span has.

    To the right, then to the left, as far as 0.95 of the documents and of the occurrences of the seed, and ``floor``
    documents, go.

    Args:
        reaches: Of the schema REACH, of the whole corpus, by seed.
        num_seeds: Seeds of the round.
        floor: Documents that hold a hotspot at least.
    """
    columns = [reaches[name].to_numpy() for name in reaches.column_names]
    bounds = np.searchsorted(columns[0], np.arange(num_seeds + 1)).tolist()
    kept, of = SHARE_KEPT
    found = []
    for low, high in pairwise(bounds):
        left, right, documents, occurrences = (column[low:high].tolist() for column in columns[1:])
        need = (max(floor, -(-sum(documents) * kept // of)), -(-sum(occurrences) * kept // of))
        rows = list(zip(right, left, documents, occurrences, strict=True))
        most_right = _most([(one[0], *one[2:]) for one in rows], need)
        found.append((_most([one[1:] for one in rows if one[0] >= most_right], need), most_right))
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
