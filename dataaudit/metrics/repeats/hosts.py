"""Host documents: those in which some repeated window stands first. All repeated text can be read in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.winnow import Runs
from dataaudit.metrics.repeats.runs import is_first

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
    """Return the numbers of windows.

    Args:
        firsts: Columns ``document``, ``start``, ``windows`` of all runs of windows that stand there first.
    """
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
    """Return the host documents.

    Args:
        runs: Of the schema RUNS, of all host documents, in any order.
    """
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
