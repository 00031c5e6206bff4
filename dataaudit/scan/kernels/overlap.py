"""Protected n-grams in documents: every gram is looked up, rolling over the words once.

Edited copies of held-out documents are found by short grams, each with the documents that have it. A held-out document
is searched for in windows of a training document, two of its lengths long and half overlapping, so that chance does not
grow with the length of the training document. A window scores the words of the held-out document that its grams cover.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.scan.kernels.jit import READ_BYTES, READ_HASHES, READ_IDS, READ_OFFSETS, Array, Int, cold, compiled
from dataaudit.scan.kernels.ngrams import GramTable, find, mix64, power, roll


def find_grams(words: Array, offsets: Array, length: int, table: GramTable) -> tuple[Array, Array]:
    """Return int64[h] places of the first words of grams that are in a table, ascending; uint32[h] their entries."""
    places, entries = np.empty(len(words), dtype=np.int64), np.empty(len(words), dtype=np.uint32)
    if len(table.keys) == 0:
        return places[:0], entries[:0]
    size = _find_all(words, offsets, length, power(length), *table.lookup(), places, entries)
    return places[:size].copy(), entries[:size].copy()


def find_long_grams(
    words: Array, offsets: Array, places: Array, short: int, length: int, table: GramTable
) -> tuple[Array, Array]:
    """Return the same of long grams, where short grams are known to be: their first words are ``places``, ascending.

    A long gram is only looked up where all short grams inside it matched: protected text has these, too.
    """
    found, entries = np.empty(len(places), dtype=np.int64), np.empty(len(places), dtype=np.uint32)
    if len(table.keys) == 0:
        return found[:0], entries[:0]
    size = _find_long(words, offsets, places, short, length, power(length), *table.lookup(), found, entries)
    return found[:size].copy(), entries[:size].copy()


@compiled(
    f"int64({READ_HASHES}, {READ_OFFSETS}, int64, uint64, {READ_HASHES}, {READ_IDS}, uint64, {READ_HASHES},"
    " int64[::1], uint32[::1])"
)
def _find_all(
    words: Array,
    offsets: Array,
    length: Int,
    out_power: np.uint64,
    known: Array,
    slots: Array,
    shift: np.uint64,
    keys: Array,
    places: Array,
    entries: Array,
) -> Int:
    written, size = np.uintp(0), np.uintp(length)
    for document in range(len(offsets) - 1):
        start, stop = np.uintp(offsets[document]), np.uintp(offsets[document + 1])
        if stop - start < size:
            continue
        acc = np.uint64(0)
        for place in range(start, start + size - np.uintp(1)):
            acc = roll(acc, words[place], np.uint64(0), out_power)
        leaving = np.uint64(0)
        for first in range(start, stop - size + np.uintp(1)):
            acc = roll(acc, words[first + size - np.uintp(1)], leaving, out_power)
            leaving = words[first]
            entry = find(mix64(acc), known, slots, shift, keys)
            if entry >= 0:
                places[written], entries[written] = np.int64(first), np.uint32(entry)
                written += np.uintp(1)
    return np.int64(written)


@compiled(
    f"int64({READ_HASHES}, {READ_OFFSETS}, {READ_OFFSETS}, int64, int64, uint64, {READ_HASHES}, {READ_IDS}, uint64,"
    f" {READ_HASHES}, int64[::1], uint32[::1])"
)
def _find_long(
    words: Array,
    offsets: Array,
    places: Array,
    short: Int,
    length: Int,
    out_power: np.uint64,
    known: Array,
    slots: Array,
    shift: np.uint64,
    keys: Array,
    found: Array,
    entries: Array,
) -> Int:
    written, need = np.uintp(0), length - short + 1
    index, document = 0, 0
    while index < len(places):
        begun = places[np.uintp(index)]
        while offsets[np.uintp(document + 1)] <= begun:
            document += 1
        stop = offsets[np.uintp(document + 1)]
        last = index
        while (
            last + 1 < len(places)
            and places[np.uintp(last + 1)] == places[np.uintp(last)] + 1
            and places[np.uintp(last + 1)] < stop
        ):
            last += 1
        run = last - index + 1
        acc = np.uint64(0)
        if run >= need:
            for place in range(begun, begun + length - 1):
                acc = roll(acc, words[np.uintp(place)], np.uint64(0), out_power)
            leaving = np.uint64(0)
            for first in range(begun, begun + run - need + 1):
                acc = roll(acc, words[np.uintp(first + length - 1)], leaving, out_power)
                leaving = words[np.uintp(first)]
                entry = find(mix64(acc), known, slots, shift, keys)
                if entry >= 0:
                    found[written], entries[written] = first, np.uint32(entry)
                    written += np.uintp(1)
        index = last + 1
    return np.int64(written)


def count_own(spans: Array, copied: Array, grams: Array, common: Array, lengths: tuple[int, int]) -> Array:
    """Return int64[d] how many words of each document lie in copied segments, but in no common gram.

    A segment, a run of words that copied spans cover, counts where it has as many such words as a span. ``copied`` and
    ``common`` are 1 for each span and gram, by its first word; ``lengths`` are the words of a span, and of a gram,
    which is shorter.
    """
    counts = np.zeros(len(spans) - 1, dtype=np.int64)
    _count_own(spans, copied, grams, common, *lengths, counts)
    return counts


@compiled(f"void({READ_OFFSETS}, {READ_BYTES}, {READ_OFFSETS}, {READ_BYTES}, int64, int64, int64[::1])")
def _count_own(
    spans: Array, copied: Array, grams: Array, common: Array, length: Int, short: Int, counts: Array
) -> None:
    for document in range(len(counts)):
        span, span_stop = spans[document], spans[document + 1]
        gram, covered, shared, own = grams[document], 0, 0, 0
        words = span_stop - span + length - 1 if span_stop > span else 0
        for word in range(words):
            if span + word < span_stop and copied[np.uintp(span + word)]:
                covered = word + length
            if word + short <= words and common[np.uintp(gram + word)]:
                shared = word + short
            if word >= covered:
                own = 0
            elif word >= shared:
                own += 1
                if own >= length:
                    counts[document] += length if own == length else 1


LEAST_WINDOW = 256
"""Words that half a window has at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Short grams of ``d`` documents, with the documents that have each."""

    table: GramTable
    """The grams, ``k`` of them."""
    owner_offsets: Array
    """int64[k + 1]: the documents with gram i are ``owners[owner_offsets[i]:owner_offsets[i + 1]]``."""
    owners: Array
    """uint32[o] documents, ascending for each gram."""
    owner_places: Array
    """uint32[o] the gram's first word in each."""
    offsets: Array
    """int64[d + 1] of the documents in their words."""
    sizes: Array
    """int64[d] words of each that its grams cover, where it first has them."""
    needs: Array
    """int64[d] words that have to be covered; 0 where a document is not searched for."""


def find_edited(places: Array, entries: Array, offsets: Array, length: int, grams: Owners) -> Array:
    """Return the documents of which a window covers as many words as they need: int64[r, 7].

    Columns are: searched document, document that was found, first word and word after the last in the searched one,
    words covered, first word and word after the last of those in the document that was found; of each pair the first of
    the best windows, ascending by the first two.
    """
    named = grams.owner_offsets[entries.astype(np.int64) + 1] - grams.owner_offsets[entries]
    total = int(named.sum())
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(named)])
    own = sums[np.searchsorted(places, offsets)]
    most, documents = int(np.diff(own).max(initial=0)), len(grams.needs)
    rows = np.empty((total // max(1, int(grams.needs[grams.needs > 0].min(initial=length)) // length) + 1, 7), np.int64)
    counts, touched = np.zeros(documents, dtype=np.int64), np.empty(min(most, documents), dtype=np.int64)
    hits = np.empty((2, most), dtype=np.int64)
    covered = np.zeros(int(np.diff(grams.offsets).max(initial=0)), dtype=np.uint8)
    owners = grams.owner_offsets, grams.owners, grams.owner_places, grams.offsets, grams.needs
    size = _find(places, entries, offsets, length, *owners, counts, touched, hits, covered, rows)
    return rows[:size][np.lexsort((rows[:size, 1], rows[:size, 0]))]


@compiled(
    f"int64({READ_OFFSETS}, {READ_IDS}, {READ_OFFSETS}, int64, {READ_OFFSETS}, {READ_IDS}, {READ_IDS},"
    f" {READ_OFFSETS}, {READ_OFFSETS}, int64[::1], int64[::1], int64[:, ::1], uint8[::1], int64[:, ::1])"
)
def _find(
    places: Array,
    entries: Array,
    bounds: Array,
    length: Int,
    owner_offsets: Array,
    owners: Array,
    owner_places: Array,
    offsets: Array,
    needs: Array,
    counts: Array,
    touched: Array,
    hits: Array,
    covered: Array,
    rows: Array,
) -> Int:
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
        begun = 0  # where the hits of an owner end; owners that may have enough follow each other
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
def _best_window(hits: Array, begun: Int, stop: Int, length: Int, half: Int, covered: Array) -> tuple[Int, Int, Int]:
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
