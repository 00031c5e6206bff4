"""Paths and seeds: stretches of host documents that may be hotspots, and the windows that matches start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.winnow import SPAN, Runs
from dataaudit.metrics.repeats.hosts import Hosts

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
        held = [one for one in range(first, last + 1) if one in todo and one not in taken]
        taken.update(held)
        places = {(run, todo[run][0][0])}
        end = place = -1
        for one in held:
            for low, high in todo[one]:
                if low != end:
                    place = low
                while place < high:
                    places.add((one, place))
                    place += SPAN
                end = high
        seeds += [(offset + one - first, one, place) for one, place in places]
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
    """Return the round that finds every occurrence of spans.

    Args:
        hosts: Where they stand.
        spans: (document, first window, last window, number of a window within) of each, which is then the path of
            the same index.
    """
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
