"""What a batch of training documents holds of everything that is protected."""

from __future__ import annotations

import numpy as np

from dataaudit.corpus.protected.found_items import resolve
from dataaudit.corpus.protected.held_out import GRAM_WORDS, SPAN_WORDS, Grams, is_short, whole_hashes
from dataaudit.corpus.protected.index import ProtectedIndex
from dataaudit.corpus.protected.match_batch import GRAM, SPAN, WHOLE, MatchBatch
from dataaudit.kernels.items import Finder
from dataaudit.kernels.overlap import find_grams, find_long_grams
from dataaudit.kernels.words import WordBatch

_NAMED_ONE_IN = 10
"""A training document names a held-out one when it holds one in so many of its 13-grams."""


class Matcher:
    """Looks documents up in an index; keeps what that needs from batch to batch.

    Args:
        index: What is protected.
    """

    def __init__(self, index: ProtectedIndex) -> None:
        self.index = index
        self._finder = Finder(index.items.seeds)

    def match(self, words: WordBatch, values: np.ndarray, bounds: np.ndarray) -> MatchBatch:
        """Return what documents hold.

        Args:
            words: Their words.
            values: uint8[b] their UTF-8, one after another.
            bounds: int64[n + 1] of the documents in it.
        """
        entries, rows = self._held_out(words)
        hits = self._finder.find(words.hashes, words.offsets)
        items = resolve(hits, self.index.items, words, values, bounds)
        return MatchBatch(entries=entries, held_out=rows, items=items)

    def _held_out(self, words: WordBatch) -> tuple[np.ndarray, np.ndarray]:
        held = self.index.held_out
        entries, rows = [np.zeros((0, 3), dtype=np.int64)], [np.zeros((0, 8), dtype=np.int64)]
        places, found = find_grams(words.hashes, words.offsets, GRAM_WORDS, held.grams.table)
        if len(places):
            documents = np.searchsorted(words.offsets, places, side="right") - 1
            once = _once(documents, found)
            entries.append(_entries(GRAM, documents[once], found[once]))
            rows.append(_gram_rows(documents[once], places[once], found[once], held.grams, words))
            places, found = find_long_grams(
                words.hashes, words.offsets, places, GRAM_WORDS, SPAN_WORDS, held.spans.table
            )
            documents = np.searchsorted(words.offsets, places, side="right") - 1
            once = _once(documents, found)
            entries.append(_entries(SPAN, documents[once], found[once]))
            rows.append(_span_rows(documents, places, found, held.spans, held.num_words, words))
        if len(held.wholes.table.keys):
            short = np.flatnonzero(is_short(words.offsets))
            hashes = whole_hashes(words.hashes, words.offsets, short)
            keys = held.wholes.table.keys
            found = np.searchsorted(keys, hashes)
            equal = keys[np.minimum(found, len(keys) - 1)] == hashes
            documents, found = short[equal], found[equal]
            entries.append(_entries(WHOLE, documents, found))
            rows.append(_whole_rows(documents, found, held.wholes, words))
        return np.concatenate(entries), np.concatenate(rows)


def _once(documents: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Return the first index of every (document, entry), ascending by both."""
    first: np.ndarray = np.unique(documents.astype(np.uint64) << np.uint64(32) | entries, return_index=True)[1]
    return first


def _entries(kind: int, documents: np.ndarray, entries: np.ndarray) -> np.ndarray:
    return np.column_stack([np.full(len(documents), kind), documents, entries.astype(np.int64)])


def _owners(entries: np.ndarray, grams: Grams) -> tuple[np.ndarray, np.ndarray]:
    """Return the documents named for some entries, one after another, and which of the entries each is for."""
    starts = grams.owner_offsets[entries]
    counts = grams.owner_offsets[entries.astype(np.int64) + 1] - starts
    index = np.repeat(np.arange(len(entries)), counts)
    within = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return grams.owners[starts[index] + within].astype(np.int64), index


def _gram_rows(
    documents: np.ndarray, places: np.ndarray, entries: np.ndarray, grams: Grams, words: WordBatch
) -> np.ndarray:
    """Return a row for each held-out document of whose 13-grams a document holds a tenth or more."""
    owners, index = _owners(entries, grams)
    order = np.lexsort((owners, documents[index]))
    owners, index = owners[order], index[order]
    documents, places, crowded = documents[index], places[index], grams.crowded[entries[index]]
    starts = _run_starts(documents, owners)
    if len(starts) == 0:
        return np.zeros((0, 8), dtype=np.int64)
    counts = np.diff(np.append(starts, len(owners)))
    sizes = np.diff(grams.offsets)[owners[starts]]
    first, last = np.minimum.reduceat(places, starts), np.maximum.reduceat(places, starts)
    many = np.maximum.reduceat(crowded, starts)
    kept = _NAMED_ONE_IN * counts >= sizes
    columns = (
        np.full(len(starts), GRAM),
        documents[starts],
        owners[starts],
        words.starts[first],
        words.ends[last + GRAM_WORDS - 1],
        counts,
        sizes,
        many,
    )
    rows: np.ndarray = np.column_stack(columns).astype(np.int64)[kept]
    return rows


def _span_rows(
    documents: np.ndarray,
    places: np.ndarray,
    entries: np.ndarray,
    spans: Grams,
    num_words: np.ndarray,
    words: WordBatch,
) -> np.ndarray:
    """Return a row for each longest stretch of a document all of whose 50-grams a held-out one holds."""
    owners, index = _owners(entries, spans)
    order = np.lexsort((places[index], owners, documents[index]))
    owners, index = owners[order], index[order]
    documents, places, crowded = documents[index], places[index], spans.crowded[entries[index]]
    starts = _run_starts(documents, owners, places - np.arange(len(places)))
    if len(starts) == 0:
        return np.zeros((0, 8), dtype=np.int64)
    last = np.append(starts[1:], len(owners)) - 1
    columns = (
        np.full(len(starts), SPAN),
        documents[starts],
        owners[starts],
        words.starts[places[starts]],
        words.ends[places[last] + SPAN_WORDS - 1],
        last - starts + SPAN_WORDS,
        num_words[owners[starts]],
        np.maximum.reduceat(crowded, starts),
    )
    return np.column_stack(columns).astype(np.int64)


def _whole_rows(documents: np.ndarray, entries: np.ndarray, wholes: Grams, words: WordBatch) -> np.ndarray:
    """Return a row for each short held-out document that a document is."""
    owners, index = _owners(entries, wholes)
    documents = documents[index]
    first, last = words.offsets[documents], words.offsets[documents + 1] - 1
    columns = (
        np.full(len(documents), WHOLE),
        documents,
        owners,
        words.starts[first],
        words.ends[last],
        last - first + 1,
        last - first + 1,
        wholes.crowded[entries[index]],
    )
    return np.column_stack(columns).astype(np.int64)


def _run_starts(*columns: np.ndarray) -> np.ndarray:
    """Return where a row differs from the one before it."""
    if len(columns[0]) == 0:
        return np.zeros(0, dtype=np.int64)
    fresh = np.ones(len(columns[0]), dtype=bool)
    fresh[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(fresh)
