"""How far what stands in a document is also what stands on a path, both given as runs of numbered windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.kernels.jit import READ_OFFSETS, Integer, compiled, helper


@dataclass(frozen=True, slots=True)
class Runs:
    """``n`` runs, by owner (a document, a path) and start; each is ``sizes`` windows, numbered from ``ids`` on."""

    owners: np.ndarray
    """int64[n] document or path."""
    starts: np.ndarray
    """int64[n] place of the first window in its owner."""
    sizes: np.ndarray
    """int64[n] windows, at least 1."""
    ids: np.ndarray
    """int64[n] number of the first window; the next ones have the next numbers."""


def extend_matches(
    document: Runs, document_runs: np.ndarray, path: Runs, path_runs: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many windows match to the left and to the right of windows that match.

    Args:
        document: Runs of documents.
        document_runs: int64[m] run of ``document`` that holds the window.
        path: Runs of paths.
        path_runs: int64[m] run of ``path`` that holds it.
        ids: int64[m] number of the window.

    Returns:
        int64[m] and int64[m].
    """
    left, right = np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    one = (document.owners, document.starts, document.sizes, document.ids)
    two = (path.owners, path.starts, path.sizes, path.ids)
    _extend(*one, document_runs, *two, path_runs, ids, left, right)
    return left, right


@compiled(f"void({', '.join([READ_OFFSETS] * 11)}, int64[::1], int64[::1])")
def _extend(
    owners: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    ids: np.ndarray,
    runs: np.ndarray,
    path_owners: np.ndarray,
    path_starts: np.ndarray,
    path_sizes: np.ndarray,
    path_ids: np.ndarray,
    path_runs: np.ndarray,
    anchors: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
) -> None:
    for index in range(len(anchors)):
        run, other = runs[index], path_runs[index]
        before, before_other = anchors[index] - ids[run], anchors[index] - path_ids[other]
        after, after_other = sizes[run] - before, path_sizes[other] - before_other
        more = True
        while more:  # as many windows before this one match as both runs have
            step = min(before, before_other)
            left[index] += step
            before, before_other = before - step, before_other - step
            if before == 0 and _joined(owners, starts, sizes, run):
                run -= 1
                before = sizes[run]
            if before_other == 0 and _joined(path_owners, path_starts, path_sizes, other):
                other -= 1
                before_other = path_sizes[other]
            more = before > 0 and before_other > 0
            more = more and ids[run] + before == path_ids[other] + before_other
        run, other, more = runs[index], path_runs[index], True
        right[index] = -1
        while more:  # this one and those after it
            step = min(after, after_other)
            right[index] += step
            after, after_other = after - step, after_other - step
            if after == 0 and run + 1 < len(ids) and _joined(owners, starts, sizes, run + 1):
                run += 1
                after = sizes[run]
            if (
                after_other == 0
                and other + 1 < len(path_ids)
                and _joined(path_owners, path_starts, path_sizes, other + 1)
            ):
                other += 1
                after_other = path_sizes[other]
            more = after > 0 and after_other > 0
            more = more and ids[run] + sizes[run] - after == path_ids[other] + path_sizes[other] - after_other


@helper
def _joined(owners: np.ndarray, starts: np.ndarray, sizes: np.ndarray, run: Integer) -> bool:
    """Tell whether a run goes on where the one before it ends."""
    before = run - 1
    return run > 0 and bool(owners[run] == owners[before] and starts[run] == starts[before] + sizes[before])
