"""Which shards a shard is compared with, and the usual value of those.

Documents of a shard that are in another language than is usual in its source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.statistics import SIGMA, spread
from dataaudit.manifest.metric import rounded

COLUMNS = ("split", "sources")
"""Columns of the table of shards that tell which shards are peers."""
LEAST_PEERS, LEAST_OF_SOURCE = 5, 3
"""Shards below which there is no usual spread, and below which a source has no usual value of its own."""
_FEW = 20
"""Shards below which the spread of a group is no less than that of all shards about the medians of their groups."""
_FLOOR = 0.02
"""Least robust sd as a part of the median: in an even source a tenth of other text, as Markdown, is no oddity."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Shards in groups whose texts can be compared: of one split and mainly of one source."""

    splits: np.ndarray
    """int64[n] number of each shard's split."""
    groups: np.ndarray
    """int64[n] number of its group."""
    is_source: np.ndarray
    """bool[n] whether the group is a single source, not the rest of the split."""

    @classmethod
    def of(cls, shards: pa.Table) -> Peers:
        """Group rows of the table of shards by :data:`COLUMNS`.

        A shard's source has more than half of its tokens, or of its documents if it has no token. Shards without such
        a source, and those of sources with fewer than :data:`LEAST_OF_SOURCE` shards, are the rest of their split.
        """
        splits = shards["split"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        lists = shards["sources"].combine_chunks()
        flat, parents = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
        tokens, documents = (pc.struct_field(flat, name).to_numpy() for name in ("tokens", "documents"))
        parts = np.where(np.bincount(parents, tokens, minlength=len(splits))[parents] > 0, tokens, documents)
        most = np.flatnonzero(2 * parts > np.bincount(parents, parts, minlength=len(splits))[parents])
        names = pc.struct_field(flat, "source").dictionary_encode().indices.to_numpy(zero_copy_only=False)
        source = np.full(len(splits), -1)
        source[parents[most]] = names[most]
        _, groups, sizes = np.unique(np.stack([splits, source]), axis=1, return_inverse=True, return_counts=True)
        source[sizes[groups.ravel()] < LEAST_OF_SOURCE] = -1
        _, groups = np.unique(np.stack([splits, source]), axis=1, return_inverse=True)
        return cls(splits.astype(np.int64), groups.ravel(), source >= 0)

    def usual(
        self, values: np.ndarray, documents: np.ndarray | None = None, largest: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the median and the robust standard deviation of each shard's group, NaN where there is none.

        The spread of few shards is chance, so it is no less than that of all shards of the split about the medians of
        their groups. Of a source of fewer than :data:`LEAST_PEERS`, a shard has the spread of the others. A share of
        ``documents`` has at least the spread of chance. So has a ratio of which a single document makes the part
        ``largest`` of a shard: a mean varies as the root of the sum of squared weights, which is at most that part.
        """
        medians, spreads, away = (np.full(len(values), np.nan) for _ in range(3))
        few = np.zeros(len(values), dtype=bool)
        for own in self.of_each(~np.isnan(values)):
            is_small = len(own) < LEAST_PEERS
            if is_small and (len(own) < LEAST_OF_SOURCE or not self.is_source[own[0]]):
                continue
            medians[own], spreads[own] = robust(values[own])
            away[own], few[own] = np.abs(values[own] - medians[own]), len(own) < _FEW
            if is_small:
                spreads[own] = [robust(np.delete(values[own], place))[1] for place in range(len(own))]
            if len(own) < _FEW:
                away[own[np.argmin(away[own])]] = np.nan  # the median itself tells nothing of a spread
        for split in np.unique(self.splits[few]).tolist():
            mine = few & (self.splits == split)
            others = away[(self.splits == split) & ~np.isnan(away)]
            enough = len(others) + 1 >= LEAST_PEERS
            spreads[mine] = np.maximum(spreads[mine], SIGMA * float(np.median(others)) if enough else np.nan)
        medians[np.isnan(spreads)] = np.nan
        if documents is not None:
            some = np.maximum(documents, 1)
            spreads = np.maximum(spreads, np.sqrt((np.clip(medians * (1 - medians), 0, None) + 1 / some) / some))
        if largest is not None:
            roots = np.sqrt(largest)
            for own in self.of_each(~np.isnan(medians) & (roots > 0)):
                of_one = SIGMA * float(np.median(np.abs(values[own] - medians[own]) / roots[own]))
                spreads[own] = np.maximum(spreads[own], of_one * roots[own])
        return medians, spreads

    def of_each(self, chosen: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the shards of each group that has any: int64[m] places, ascending."""
        places = np.flatnonzero(chosen)
        places = places[np.argsort(self.groups[places], kind="stable")]
        edges = np.flatnonzero(np.diff(self.groups[places])) + 1
        yield from np.split(places, edges) if len(places) else ()


def robust(values: npt.ArrayLike) -> tuple[float, float]:
    """Return median and robust sd, 1.4826 times the median absolute deviation, at least 2 % of the median."""
    given = np.asarray(values, dtype=np.float64)
    median = float(np.median(given))
    return median, max(spread(given, median), _FLOOR * abs(median))


COLUMN = "unusual_language_share"
UND = "und"


def with_unusual_languages(shards: pa.Table) -> pa.Table:
    """Return the table of shards with :data:`COLUMN` filled."""
    values = [None if np.isnan(share) else rounded(share) for share in unusual_language_shares(shards).tolist()]
    place = shards.schema.get_field_index(COLUMN)
    return shards.set_column(place, shards.schema.field(place), pa.array(values, pa.float64()))


def unusual_language_shares(shards: pa.Table) -> np.ndarray:
    """Return float64[n]: the share of a shard's documents that are in a language beyond its usual share.

    The usual share of a language is the median over the shards of the same source; small sources of a split count
    together. Documents without a language, as code or tables, are in no other language. A shard without documents, or
    without a word in them, or whose languages were not looked for, has NaN: nothing could be found.
    """
    lists = shards["languages"].combine_chunks()
    flat, places = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    documents = pc.fill_null(shards["documents"], 0).to_numpy()
    worded = documents - pc.fill_null(shards["wordless_documents"], 0).to_numpy()
    has_words = (worded > 0) & (pc.fill_null(shards["bytes"], 0).to_numpy() > 0)
    known = lists.is_valid().to_numpy(zero_copy_only=False) & has_words
    kept = known[places] & pc.not_equal(pc.struct_field(flat, "language"), UND).to_numpy(zero_copy_only=False)
    places = places[kept]
    shares = pc.struct_field(flat, "documents").to_numpy()[kept] / documents[places]
    languages = pc.struct_field(flat, "language").dictionary_encode().indices.to_numpy(zero_copy_only=False)[kept]
    groups = Peers.of(shards).groups
    beyond = np.maximum(shares - _usual(shares, languages, groups[places], np.bincount(groups[known])), 0.0)
    shares_beyond: np.ndarray = np.where(known, np.bincount(places, beyond, minlength=len(groups)), np.nan)
    return shares_beyond


def _usual(shares: np.ndarray, languages: np.ndarray, groups: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return of each share the median of its language over the shards of its group; those without it have 0 of it."""
    order = np.lexsort((shares, languages, groups))
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (np.diff(groups[order]) != 0) | (np.diff(languages[order]) != 0)
    starts = np.flatnonzero(is_first)
    present, number = np.diff(np.append(starts, len(order))), sizes[groups[order[starts]]]
    absent, medians = number - present, np.zeros(len(starts))
    for middle in ((number - 1) // 2, number // 2):
        place = starts + np.maximum(middle - absent, 0)
        medians += np.where(middle >= absent, shares[order[place]], 0.0) / 2
    usual = np.empty(len(order))
    usual[order] = np.repeat(medians, present)
    return usual
