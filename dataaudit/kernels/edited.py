"""Which held-out documents stand in training documents with words changed: words in common, in windows of a document.

What is looked for are short grams. Each names a few held-out documents, and where in them it stands. A document is
searched for in windows of the training document, two of its lengths long and half overlapping, so that chance does not
grow with the length of what is searched. What counts is how many of its words the grams of a window cover.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.kernels.jit import Integer, cold, compiled
from dataaudit.kernels.ngrams import READ_ENTRIES, READ_PLACES, GramTable

LEAST_WINDOW = 256
"""Words that half a window has at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Short grams of ``d`` documents, with the documents that have each."""

    table: GramTable
    """The grams, ``k`` of them."""
    owner_offsets: np.ndarray
    """int64[k + 1]: the documents with gram i are ``owners[owner_offsets[i]:owner_offsets[i + 1]]``."""
    owners: np.ndarray
    """uint32[o] documents, ascending for each gram."""
    owner_places: np.ndarray
    """uint32[o] the gram's first word in each."""
    offsets: np.ndarray
    """int64[d + 1] of the documents in their words."""
    sizes: np.ndarray
    """int64[d] words of each that its grams cover, where it first has them."""
    needs: np.ndarray
    """int64[d] words that have to be covered; 0 where a document is not looked for."""


def find_edited(places: np.ndarray, entries: np.ndarray, offsets: np.ndarray, length: int, grams: Owners) -> np.ndarray:
    """Return the documents of which a window covers as many words as they need.

    Args:
        places: int64[h] first words of the grams that were found, ascending.
        entries: uint32[h] their entries.
        offsets: int64[n + 1] of the searched documents in their words.
        length: Words of a gram.
        grams: What was looked for.

    Returns:
        int64[r, 7] (searched document, document that was found, first word and word after the last in the searched one,
        words covered, first word and word after the last of those in the document that was found), of each pair the
        first of the best windows, ascending by the first two.
    """
    named = grams.owner_offsets[entries.astype(np.int64) + 1] - grams.owner_offsets[entries]
    total = int(named.sum())
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(named)])
    own = sums[np.searchsorted(places, offsets)]
    most, documents = int(np.diff(own).max(initial=0)), len(grams.needs)
    rows = np.empty((total // max(1, int(grams.needs[grams.needs > 0].min(initial=length)) // length) + 1, 7), np.int64)
    size = _find(
        places,
        entries,
        offsets,
        length,
        grams.owner_offsets,
        grams.owners,
        grams.owner_places,
        grams.offsets,
        grams.needs,
        np.zeros(documents, dtype=np.int64),
        np.empty(min(most, documents), dtype=np.int64),
        np.empty((2, most), dtype=np.int64),
        np.zeros(int(np.diff(grams.offsets).max(initial=0)), dtype=np.uint8),
        rows,
    )
    found = rows[:size]
    return found[np.lexsort((found[:, 1], found[:, 0]))]


@compiled(
    f"int64({READ_PLACES}, {READ_ENTRIES}, {READ_PLACES}, int64, {READ_PLACES}, {READ_ENTRIES}, {READ_ENTRIES},"
    f" {READ_PLACES}, {READ_PLACES}, int64[::1], int64[::1], int64[:, ::1], uint8[::1], int64[:, ::1])"
)
def _find(
    places: np.ndarray,
    entries: np.ndarray,
    bounds: np.ndarray,
    length: Integer,
    owner_offsets: np.ndarray,
    owners: np.ndarray,
    owner_places: np.ndarray,
    offsets: np.ndarray,
    needs: np.ndarray,
    counts: np.ndarray,
    touched: np.ndarray,
    hits: np.ndarray,
    covered: np.ndarray,
    rows: np.ndarray,
) -> Integer:
    written, hit = 0, 0
    for document in range(len(bounds) - 1):
        first = hit
        while hit < len(places) and places[hit] < bounds[document + 1]:
            hit += 1
        number = 0
        for index in range(first, hit):
            for at in range(owner_offsets[entries[index]], owner_offsets[entries[index] + 1]):
                owner = np.int64(owners[at])
                if counts[owner] == 0:
                    touched[number] = owner
                    number += 1
                counts[owner] += 1
        begun = 0  # where the hits of an owner end: those of it that may have enough, behind one another
        for index in range(number):
            owner = touched[index]
            is_near = needs[owner] > 0 and counts[owner] * length >= needs[owner]
            size = counts[owner]
            counts[owner] = begun if is_near else -1
            begun += size if is_near else 0
        for index in range(first, hit):
            for at in range(owner_offsets[entries[index]], owner_offsets[entries[index] + 1]):
                owner = np.int64(owners[at])
                if counts[owner] >= 0:
                    hits[0, counts[owner]] = places[index] - bounds[document]
                    hits[1, counts[owner]] = np.int64(owner_places[at])
                    counts[owner] += 1
        begun = 0
        for index in range(number):
            owner = touched[index]
            stop = counts[owner]
            counts[owner] = 0
            if stop >= 0:
                size = offsets[owner + 1] - offsets[owner]
                most, low, high = _best_window(hits, begun, stop, length, max(size, LEAST_WINDOW), covered)
                if most >= needs[owner]:
                    start, end = hits[1, low], hits[1, low]
                    for at in range(low, high):
                        start, end = min(start, hits[1, at]), max(end, hits[1, at])
                    rows[written, 0], rows[written, 1] = document, owner
                    rows[written, 2], rows[written, 3] = hits[0, low], hits[0, high - 1] + length
                    rows[written, 4], rows[written, 5], rows[written, 6] = most, start, end + length
                    written += 1
                begun = stop
    return np.int64(written)


@cold
def _best_window(
    hits: np.ndarray, begun: Integer, stop: Integer, length: Integer, half: Integer, covered: np.ndarray
) -> tuple[Integer, Integer, Integer]:
    """Return how many words the hits of the best window cover, the first of them, and the one after the last.

    A window begins at each multiple of ``half`` behind which hits stand; ``covered`` is all 0, before and after.
    """
    best, best_low, best_high = np.int64(0), begun, begun
    low, high = begun, begun
    while low < stop:
        number = hits[0, low] // half
        while high < stop and hits[0, high] < (number + 2) * half:
            high += 1
        words = np.int64(0)
        for at in range(low, high):
            for word in range(hits[1, at], hits[1, at] + length):
                words += 1 - np.int64(covered[word])
                covered[word] = 1
        for at in range(low, high):
            for word in range(hits[1, at], hits[1, at] + length):
                covered[word] = 0
        if words > best:
            best, best_low, best_high = words, low, high
        while low < stop and hits[0, low] // half == number:
            low += 1
    return best, best_low, best_high
