"""Documents of a shard that are in another language than is usual in its source."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric import rounded
from dataaudit.metrics.peers import Peers

COLUMN = "unusual_language_share"
COLUMNS = ("split", "sources", "languages", "documents", "bytes", "wordless_documents")
"""Columns of the table of shards that the share is computed from."""
UND = "und"


def with_unusual_languages(shards: pa.Table) -> pa.Table:
    """Return the table of shards with :data:`COLUMN` filled."""
    values = [None if np.isnan(one) else rounded(one) for one in unusual_language_shares(shards).tolist()]
    place = shards.schema.get_field_index(COLUMN)
    return shards.set_column(place, shards.schema.field(place), pa.array(values, pa.float64()))


def unusual_language_shares(shards: pa.Table) -> np.ndarray:
    """Return float64[n]: the share of a shard's documents that are in a language beyond its usual share.

    The usual share of a language is the median over the shards of the same source; small sources of a split count as
    one. Documents without a language, as code or tables, are in no other language. A shard without documents, or
    without a word in them, or whose languages were not looked for, has NaN: nothing could be found.

    Args:
        shards: The table of shards, with :data:`COLUMNS`.
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
    found: np.ndarray = np.where(known, np.bincount(places, beyond, minlength=len(groups)), np.nan)
    return found


def _usual(shares: np.ndarray, languages: np.ndarray, groups: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return of each share the median of its language over the shards of its group; those without it have 0 of it."""
    order = np.lexsort((shares, languages, groups))
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (np.diff(groups[order]) != 0) | (np.diff(languages[order]) != 0)
    starts = np.flatnonzero(is_first)
    held, number = np.diff(np.append(starts, len(order))), sizes[groups[order[starts]]]
    absent, medians = number - held, np.zeros(len(starts))
    for middle in ((number - 1) // 2, number // 2):
        place = starts + np.maximum(middle - absent, 0)
        medians += np.where(middle >= absent, shares[order[place]], 0.0) / 2
    usual = np.empty(len(order))
    usual[order] = np.repeat(medians, held)
    return usual
