"""Which shards a shard is compared with, and the usual value of those."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ("split", "sources")
"""Columns of the table of shards that tell which shards are peers."""
LEAST_PEERS = 5
"""Shards below which there is no usual value."""
_TO_SD = 1.4826
_FLOOR = 0.005
"""Least robust sd as a part of the median: shards that agree to the last digit still differ by chance."""


def peer_groups(shards: pa.Table) -> np.ndarray:
    """Return int64[n]: numbers of groups of shards whose texts can be compared.

    Shards of a split are peers when one source has more than half of the tokens of each. Of a split, the shards of
    sources with fewer than :data:`LEAST_PEERS` such shards are one group, with those of no such source.

    Args:
        shards: Rows of the table of shards, with :data:`COLUMNS`.
    """
    splits = shards["split"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    lists = shards["sources"].combine_chunks()
    flat, parents = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    tokens = pc.struct_field(flat, "tokens").to_numpy()
    totals = np.bincount(parents, tokens, minlength=len(splits))
    most = np.flatnonzero(2 * tokens > totals[parents])
    names = pc.struct_field(flat, "source").dictionary_encode().indices.to_numpy(zero_copy_only=False)
    source = np.full(len(splits), -1)
    source[parents[most]] = names[most]
    _, groups, sizes = np.unique(np.stack([splits, source]), axis=1, return_inverse=True, return_counts=True)
    source[sizes[groups.ravel()] < LEAST_PEERS] = -1
    _, groups = np.unique(np.stack([splits, source]), axis=1, return_inverse=True)
    return np.asarray(groups.ravel())


def robust(values: npt.ArrayLike) -> tuple[float, float]:
    """Return median and robust sd, 1.4826 times the median absolute deviation, at least 0.5 % of the median."""
    given = np.asarray(values, dtype=np.float64)
    median = float(np.median(given))
    return median, max(_TO_SD * float(np.median(np.abs(given - median))), _FLOOR * abs(median))
