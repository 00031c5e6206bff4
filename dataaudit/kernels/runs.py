"""Documents with a short sequence of tokens that repeats many times over."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.jit import READ_IDS, READ_OFFSETS, compiled


def has_periodic_run(ids: np.ndarray, offsets: np.ndarray, *, most_period: int, times: int) -> np.ndarray:
    """Return bool[n]: whether a document holds ``times`` copies, one after the other, of 1 to ``most_period`` ids.

    ``times`` copies of p ids are p * (times - 1) consecutive places whose id is that of p places before. So only
    every p * (times - 1)-th place has to be looked at, and around it where it fits: for 32 copies and periods up to
    13 that is one id in ten.

    Args:
        ids: uint32[m] token ids.
        offsets: int64[n + 1] of the documents in them.
        most_period: Longest period looked for, 1 or more.
        times: Copies, 2 or more.
    """
    assert most_period >= 1
    assert times >= 2
    marked = np.zeros(len(offsets) - 1, dtype=np.bool_)
    _mark_runs(ids, offsets, most_period, times, marked)
    return marked


@compiled(f"void({READ_IDS}, {READ_OFFSETS}, int64, int64, boolean[::1])")
def _mark_runs(ids: np.ndarray, offsets: np.ndarray, most_period: int, times: int, marked: np.ndarray) -> None:
    for document in range(len(marked)):
        start, end = offsets[document], offsets[document + 1]
        for period in range(1, most_period + 1):
            first, need = start + period, period * (times - 1)
            place = first + need - 1
            while place < end and not marked[document]:
                if ids[place] != ids[place - period]:
                    place += need
                    continue
                low, high = place, place + 1
                while low > first and ids[low - 1] == ids[low - 1 - period] and place - low < need:
                    low -= 1
                while high < end and ids[high] == ids[high - period] and high - low < need:
                    high += 1
                if high - low >= need:
                    marked[document] = True
                place = high + need
            if marked[document]:
                break
