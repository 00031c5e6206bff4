"""Edited copies of held-out documents: with words changed, or with marks of HTML, Markdown and others between them.

Words are those of the normal form in which evaluation items are compared, without combining marks. A training document
has an edited copy when half of a document's words, and 50 of them, stand in it in runs of eight words and more, in one
window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.corpus.protected.match_batch import EDITED
from dataaudit.kernels.edited import Owners, find_edited
from dataaudit.kernels.ngrams import gram_hashes, make_table
from dataaudit.kernels.overlap import find_grams
from dataaudit.kernels.words import WordBatch

PHRASE_WORDS = 8
"""Words of the grams by which edited copies are found: with each tenth word changed, two of them are left in ten."""
EDITED_WORDS = 50
"""Words of a document that an edited copy has, at least."""
EDITED_ONE_IN = 2
"""The same as a share of its words: one in so many."""
PHRASE_OWNERS = 16
"""Documents that a phrase names; a phrase of more is a template's, and is not looked for."""
_PLACE_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWords:
    """Words of documents in normal form, without marks."""

    words: np.ndarray
    """uint64[p] hashes."""
    offsets: np.ndarray
    """int64[n + 1] of the documents in them."""
    places: np.ndarray
    """uint32[p] which of the document's words, as they are, each stands at."""

    @classmethod
    def of(cls, plain: WordBatch, words: WordBatch) -> PlainWords:
        """Return the words of :func:`dataaudit.kernels.words.without_marks`, made of ``words``."""
        documents, own = (np.repeat(np.arange(len(one.offsets) - 1), one.num_words()) for one in (plain, words))
        starts = (own << _PLACE_BITS) + words.starts
        places = np.searchsorted(starts, (documents << _PLACE_BITS) + plain.starts) - words.offsets[documents]
        return cls(words=plain.hashes, offsets=plain.offsets, places=places.astype(np.uint32))

    def only(self, kept: np.ndarray) -> PlainWords:
        """Return some of the documents, bool[n]."""
        lengths = np.diff(self.offsets)
        chosen = np.repeat(kept, lengths)
        return PlainWords(words=self.words[chosen], offsets=bounds_of(lengths[kept]), places=self.places[chosen])


def index_phrases(words: np.ndarray, offsets: np.ndarray) -> tuple[Owners, np.ndarray]:
    """Return the phrases of documents, and the words that they cover, where a document first has each: uint8[w].

    Args:
        words: uint64[w] hashes of the documents' words in normal form.
        offsets: int64[n + 1] of the documents in them.
    """
    hashes, bounds = gram_hashes(words, offsets, PHRASE_WORDS)
    documents = np.repeat(np.arange(len(bounds) - 1, dtype=np.uint32), np.diff(bounds))
    order = np.argsort(hashes, kind="stable")
    order = order[_changes(hashes[order], documents[order])]  # of each phrase the first place in each document
    starts = np.flatnonzero(_changes(hashes[order]))
    counts = np.diff(np.append(starts, len(order)))
    kept = counts <= PHRASE_OWNERS
    order = order[np.repeat(kept, counts)]
    counts = counts[kept]
    keys = hashes[order[bounds_of(counts)[:-1]]]
    owners = documents[order]
    places = order - bounds[owners]
    telling = np.zeros(len(words) + 1, dtype=np.int64)
    firsts = offsets[owners] + places
    np.add.at(telling, firsts, 1)
    np.add.at(telling, firsts + PHRASE_WORDS, -1)
    is_telling = (np.cumsum(telling)[:-1] > 0).astype(np.uint8)
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(is_telling, dtype=np.int64)])
    sizes = sums[offsets[1:]] - sums[offsets[:-1]]
    needs = np.maximum(EDITED_WORDS, -(-sizes // EDITED_ONE_IN))
    made = Owners(
        table=make_table(keys),
        owner_offsets=bounds_of(counts),
        owners=owners,
        owner_places=places.astype(np.uint32),
        offsets=offsets,
        sizes=sizes,
        needs=np.where(sizes >= EDITED_WORDS, needs, 0),
    )
    return made, is_telling


def _changes(*columns: np.ndarray) -> np.ndarray:
    """Return bool[n]: rows that differ from the one before them."""
    fresh = np.ones(len(columns[0]), dtype=bool)
    fresh[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return fresh


def edited_rows(plain: WordBatch, phrases: Owners, own_places: np.ndarray) -> np.ndarray:
    """Return the edited copies that documents have, as ``held_out`` of a ``MatchBatch``.

    Args:
        plain: Words of the documents in normal form, without marks.
        phrases: Of the held-out documents.
        own_places: uint32[p] of the held-out documents, as :attr:`PlainWords.places`.
    """
    places, entries = find_grams(plain.hashes, plain.offsets, PHRASE_WORDS, phrases.table)
    found = find_edited(places, entries, plain.offsets, PHRASE_WORDS, phrases)
    documents, owners, first, stop, common, start, end = found.T
    begun, low = plain.offsets[documents], phrases.offsets[owners]
    start, end = (own_places[place].astype(np.int64) for place in (low + start, low + end - 1))
    columns = (
        np.full(len(found), EDITED),
        documents,
        owners,
        plain.starts[begun + first],
        plain.ends[begun + stop - 1],
        common,
        phrases.sizes[owners],
        np.zeros(len(found), dtype=np.int64),
        start,
        end - start + 1,
    )
    return np.column_stack(columns).astype(np.int64)


def bounds_of(counts: np.ndarray) -> np.ndarray:
    """Return int64[n + 1]: where each of some runs of int64[n] lengths begins, and where the last one ends."""
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds
