"""MatchBatch: what the documents of a batch hold of everything that is protected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GRAM, SPAN, WHOLE, EDITED = 0, 1, 2, 3
"""Kinds of entries, and rules by which a held-out document is named; of an edited copy there are no entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchBatch:
    """What the documents of a batch hold; a document is named by its place in the batch."""

    entries: np.ndarray
    """int64[k, 3] (kind, document, entry) of every protected gram, once a document; ascending."""
    held_out: np.ndarray
    """int64[h, 10] (rule, document, held-out document, first byte, byte after the last, words or grams in common, of so
    many, crowded, first, length): the segments for which held-out documents are named. ``crowded``: more documents
    than are named hold it. ``first`` and ``length``: of a span the words of the held-out document that it is; of
    13-grams from which to which of that document's they are; of a whole document its entry; of an edited copy from
    which to which of that document's words the words in common are."""
    items: np.ndarray
    """int64[i, 10] (document, set, item, part, tier, rule, first byte, byte after the last, words in common, of so
    many), a row for each item and part in a document."""
