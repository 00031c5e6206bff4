"""How many names a document may hold: capitalised words within sentences. A cheap screen for named entities."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.jit import READ_BYTES, READ_OFFSETS, compiled


def count_names(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return int64[n]: ASCII capitals before a small letter, after a space that follows a small letter or a comma.

    Args:
        values: uint8[b] UTF-8 of all documents.
        offsets: int64[n + 1] where they begin and end.
    """
    counts = np.zeros(len(offsets) - 1, dtype=np.int64)
    _count(values, offsets, counts)
    return counts


@compiled(f"void({READ_BYTES}, {READ_OFFSETS}, int64[::1])")
def _count(values: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> None:
    for document in range(len(counts)):
        found = 0
        for place in range(offsets[document] + 2, offsets[document + 1] - 1):
            if values[place - 1] != 32 or values[place] < 65 or values[place] > 90:
                continue
            before, after = values[place - 2], values[place + 1]
            if 97 <= after <= 122 and (97 <= before <= 122 or before == 44):
                found += 1
        counts[document] = found
