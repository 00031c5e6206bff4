"""Which shards a shard is compared with, and the usual value of those."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ("split", "sources")
"""Columns of the table of shards that tell which shards are peers."""
LEAST_PEERS, LEAST_OF_SOURCE = 5, 3
"""Shards below which there is no usual spread, and below which a source has no usual value of its own."""
_TO_SD = 1.4826
_FLOOR = 0.005
"""Least robust sd as a part of the median: shards that agree to the last digit still differ by chance."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Shards in groups whose texts can be compared: of one split and mainly of one source."""

    splits: np.ndarray
    """int64[n] number of each shard's split."""
    groups: np.ndarray
    """int64[n] number of its group."""
    is_source: np.ndarray
    """bool[n] whether the group is one source, not the rest of the split."""

    @classmethod
    def of(cls, shards: pa.Table) -> Peers:
        """Group rows of the table of shards by :data:`COLUMNS`.

        A shard's source is the one with more than half of its tokens. Shards without one, and those of sources with
        fewer than :data:`LEAST_OF_SOURCE` shards, are the rest of their split.
        """
        splits = shards["split"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        lists = shards["sources"].combine_chunks()
        flat, parents = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
        tokens = pc.struct_field(flat, "tokens").to_numpy()
        most = np.flatnonzero(2 * tokens > np.bincount(parents, tokens, minlength=len(splits))[parents])
        names = pc.struct_field(flat, "source").dictionary_encode().indices.to_numpy(zero_copy_only=False)
        source = np.full(len(splits), -1)
        source[parents[most]] = names[most]
        _, groups, sizes = np.unique(np.stack([splits, source]), axis=1, return_inverse=True, return_counts=True)
        source[sizes[groups.ravel()] < LEAST_OF_SOURCE] = -1
        _, groups = np.unique(np.stack([splits, source]), axis=1, return_inverse=True)
        return cls(splits.astype(np.int64), groups.ravel(), source >= 0)

    def usual(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the median and the robust standard deviation of each shard's group, NaN where there is none.

        A source of fewer than :data:`LEAST_PEERS` shards has a median of its own, and the spread of all shards of the
        split about the medians of their sources.

        Args:
            values: float64[n] a number of each shard, NaN where it has none.
        """
        medians, spreads = np.full(len(values), np.nan), np.full(len(values), np.nan)
        known = ~np.isnan(values)
        for group in np.unique(self.groups).tolist():
            members = self.groups == group
            own = values[members & known]
            if len(own) >= LEAST_PEERS:
                medians[members], spreads[members] = robust(own)
            elif len(own) >= LEAST_OF_SOURCE and self.is_source[members].all():
                medians[members] = np.median(own)
        for split in np.unique(self.splits[np.isnan(spreads) & ~np.isnan(medians)]).tolist():
            rest = (self.splits == split) & known & ~np.isnan(medians)
            small = (self.splits == split) & np.isnan(spreads) & ~np.isnan(medians)
            if rest.sum() >= LEAST_PEERS:
                spread = _TO_SD * float(np.median(np.abs(values - medians)[rest]))
                spreads[small] = np.maximum(spread, _FLOOR * np.abs(medians[small]))
        medians[np.isnan(spreads)] = np.nan
        return medians, spreads


def robust(values: npt.ArrayLike) -> tuple[float, float]:
    """Return median and robust sd, 1.4826 times the median absolute deviation, at least 0.5 % of the median."""
    given = np.asarray(values, dtype=np.float64)
    median = float(np.median(given))
    return median, max(_TO_SD * float(np.median(np.abs(given - median))), _FLOOR * abs(median))
