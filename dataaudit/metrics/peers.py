"""Which shards a shard is compared with, and the usual value of those."""

from __future__ import annotations

from collections.abc import Iterator
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
        number = int(self.groups.max(initial=-1)) + 1
        medians, spreads = np.full(number, np.nan), np.full(number, np.nan)
        for own in self.of_each(~np.isnan(values)):
            group = self.groups[own[0]]
            if len(own) >= LEAST_PEERS:
                medians[group], spreads[group] = robust(values[own])
            elif len(own) >= LEAST_OF_SOURCE and self.is_source[own[0]]:
                medians[group] = np.median(values[own])
        medians, spreads = medians[self.groups], spreads[self.groups]
        away = np.abs(values - medians)
        small = np.isnan(spreads) & ~np.isnan(medians)
        for split in np.unique(self.splits[small]).tolist():
            own = away[(self.splits == split) & ~np.isnan(away)]
            if len(own) >= LEAST_PEERS:
                mine = small & (self.splits == split)
                spreads[mine] = np.maximum(_TO_SD * float(np.median(own)), _FLOOR * np.abs(medians[mine]))
        medians[np.isnan(spreads)] = np.nan
        return medians, spreads

    def of_each(self, chosen: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the shards of each group that has any: int64[m] places, ascending.

        Args:
            chosen: bool[n] which shards count.
        """
        places = np.flatnonzero(chosen)
        places = places[np.argsort(self.groups[places], kind="stable")]
        edges = np.flatnonzero(np.diff(self.groups[places])) + 1
        yield from np.split(places, edges) if len(places) else ()


def robust(values: npt.ArrayLike) -> tuple[float, float]:
    """Return median and robust sd, 1.4826 times the median absolute deviation, at least 0.5 % of the median."""
    given = np.asarray(values, dtype=np.float64)
    median = float(np.median(given))
    return median, max(_TO_SD * float(np.median(np.abs(given - median))), _FLOOR * abs(median))
