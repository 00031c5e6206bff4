"""Batches of fixed shapes: a window's answer does not depend on what else is judged with it.

A product of matrices of another shape may add in another order, and the last digit moves. So a window is padded
to the next of a few lengths, and each length has one number of rows; rows that are left over are filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512)
"""Tokens that windows are padded to."""
CPU_TOKENS = 512
"""Tokens of a batch on a CPU, where more at once gain nothing."""
GPU_TOKENS = 32768
"""Tokens of a batch on a GPU."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows of about the same length."""

    windows: npt.NDArray[np.int64]
    """int64[w] which windows they are, ascending by length, then by number; the first w rows."""
    ids: npt.NDArray[np.int64]
    """int64[r, length] tokens, padded."""
    mask: npt.NDArray[np.int64]
    """int64[r, length] 1 where there is a token."""


def batches(windows: Sequence[Sequence[int]], *, limit: int, tokens: int, pad: int) -> Iterator[Batch]:
    """Put windows into batches.

    Args:
        windows: Ids of each window, each of 1 to ``limit``.
        limit: Tokens of a window at most.
        tokens: Tokens of a batch, padding included, unless one window has more.
        pad: Id of the padding token.
    """
    sizes = np.array([len(window) for window in windows], dtype=np.int64)
    lengths = np.array(sorted({min(length, limit) for length in (*LENGTHS, limit)}), dtype=np.int64)
    order = np.argsort(sizes, kind="stable")
    groups = np.searchsorted(lengths, sizes[order])
    for group in np.unique(groups).tolist():
        length = int(lengths[group])
        rows = max(1, tokens // length)
        members = order[groups == group]
        for begin in range(0, len(members), rows):
            yield _batch(windows, members[begin : begin + rows], rows=rows, length=length, pad=pad)


def _batch(
    windows: Sequence[Sequence[int]], members: npt.NDArray[np.int64], *, rows: int, length: int, pad: int
) -> Batch:
    ids = np.full((rows, length), pad, dtype=np.int64)
    mask = np.zeros((rows, length), dtype=np.int64)
    for row in range(rows):
        # Rows left over repeat the last window: a row of padding alone has no answer.
        window = windows[members[min(row, len(members) - 1)]]
        ids[row, : len(window)] = window
        mask[row, : len(window)] = 1
    return Batch(windows=members, ids=ids, mask=mask)
