"""Evaluation items inside documents: found by short grams, verified word by word at once.

*Seeds* are grams of five words in which every number is the same. A text of an item (its question, its answer) comes
into question where two neighbouring stretches of a document, each as long as the text, hold enough of its seeds. Around
them it is verified: ``verbatim`` is the whole text, word for word; ``similar`` is a stretch of a document that becomes
the text by replacing, inserting or deleting at most a given share of its words (:mod:`dataaudit.kernels.nearest`),
numbers being equal to one another - and that holds without the numbers, too, so that tables of numbers are not similar.

A short text has one seed and is compared where that stands, word for word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.kernels.jit import Integer, cold, compiled, helper
from dataaudit.kernels.nearest import nearest, room_for
from dataaudit.kernels.ngrams import (
    NUMBER,
    READ_ENTRIES,
    READ_PLACES,
    READ_WORDS,
    GramTable,
    find,
    mix64,
    plain_word,
    power,
    roll,
    slot_shift,
)

SEED_WORDS = 5
DISTANCE_PERCENT = 30
"""Words in a hundred that may differ in a similar text."""
VERBATIM, SIMILAR = 0, 1
"""Tiers of a hit."""
DOCUMENT, TEXT, TIER, START, END, DISTANCE, LETTERS_DISTANCE = range(7)
"""Columns of a hit: document of the batch, text, tier, first word in the document, word after the last, words that
differ, and how many of those that are no numbers do."""
_STAMP, _BLOCK, _BEFORE, _NOW, _TRIED, _HIT = range(6)
"""Columns of what is known of a text while a document is read: document it speaks of, stretch of the last seed, seeds
in the stretch before and in that one, last stretch that was verified, hit."""
_NO_HIT = -1
READ_NEEDS = "Array(int32, 1, 'C', readonly=True)"


@dataclass(frozen=True, slots=True)
class SeedIndex:
    """Texts and their seeds; all arrays may be mapped from a file."""

    table: GramTable
    """The seeds."""
    post_offsets: np.ndarray
    """int64[k + 1]: the texts with seed i are ``post_texts[post_offsets[i]:post_offsets[i + 1]]``."""
    post_texts: np.ndarray
    """uint32[p] text."""
    post_places: np.ndarray
    """uint32[p] first word of the seed in the text."""
    words: np.ndarray
    """uint64[w] words of all texts."""
    offsets: np.ndarray
    """int64[t + 1] of the texts in them."""
    needs: np.ndarray
    """int32[t] seeds that two stretches have to hold; 0 for a text that is compared word for word at its seed."""

    @property
    def num_texts(self) -> int:
        """Texts."""
        return len(self.needs)


class Finder:
    """Finds the texts of an index in documents; keeps what that needs from batch to batch.

    Args:
        index: What is looked for.
    """

    def __init__(self, index: SeedIndex) -> None:
        self._index = index
        longest = int(np.diff(index.offsets).max(initial=0))
        self._seen = np.full((index.num_texts, 6), _NO_HIT, dtype=np.int64)
        self._room = room_for(longest)
        self._documents = 0
        self._capacity = 1024

    def find(self, words: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return int64[h, 7], a row for each text in a document (its best place), in order of document and place found.

        A short text has a row for every place.

        Args:
            words: uint64[w] hashes of the documents' words.
            offsets: int64[n + 1] of the documents in them.
        """
        index = self._index
        if index.num_texts == 0 or len(index.table.keys) == 0:
            return np.zeros((0, 7), dtype=np.int64)
        while True:
            hits = np.zeros((self._capacity, 7), dtype=np.int64)
            size = _find_texts(
                words,
                offsets,
                self._documents,
                power(SEED_WORDS),
                index.table.filter,
                index.table.slots,
                slot_shift(index.table),
                index.table.keys,
                index.post_offsets,
                index.post_texts,
                index.post_places,
                index.words,
                index.offsets,
                index.needs,
                self._seen,
                self._room,
                hits,
            )
            self._documents += len(offsets) - 1
            if size <= self._capacity:
                return hits[:size]
            self._capacity = 2 * int(size)


@compiled(
    f"int64({READ_WORDS}, {READ_PLACES}, int64, uint64, {READ_WORDS}, {READ_ENTRIES}, uint64, {READ_WORDS},"
    f" {READ_PLACES}, {READ_ENTRIES}, {READ_ENTRIES}, {READ_WORDS}, {READ_PLACES}, {READ_NEEDS}, int64[:, ::1],"
    " uint64[::1], int64[:, ::1])"
)
def _find_texts(
    words: np.ndarray,
    offsets: np.ndarray,
    stamp: Integer,
    out_power: np.uint64,
    known: np.ndarray,
    slots: np.ndarray,
    shift: np.uint64,
    keys: np.ndarray,
    post_offsets: np.ndarray,
    post_texts: np.ndarray,
    post_places: np.ndarray,
    text_words: np.ndarray,
    text_offsets: np.ndarray,
    needs: np.ndarray,
    seen: np.ndarray,
    room: np.ndarray,
    hits: np.ndarray,
) -> Integer:
    """Return how many hits there are; those beyond the capacity of ``hits`` are counted only."""
    size, written = np.uintp(SEED_WORDS), 0
    for document in range(len(offsets) - 1):
        start, stop = np.uintp(offsets[document]), np.uintp(offsets[document + 1])
        if stop - start < size:
            continue
        acc = np.uint64(0)
        for place in range(start, start + size - np.uintp(1)):
            acc = roll(acc, plain_word(words[place], True), np.uint64(0), out_power)
        leaving = np.uint64(0)
        for first in range(start, stop - size + np.uintp(1)):
            acc = roll(acc, plain_word(words[first + size - np.uintp(1)], True), leaving, out_power)
            leaving = plain_word(words[first], True)
            entry = find(mix64(acc), known, slots, shift, keys)
            if entry >= 0:
                written = _follow(
                    words,
                    np.int64(start),
                    np.int64(stop),
                    np.int64(first),
                    entry,
                    document,
                    stamp + document,
                    post_offsets,
                    post_texts,
                    post_places,
                    text_words,
                    text_offsets,
                    needs,
                    seen,
                    room,
                    hits,
                    written,
                )
    return written


@cold
def _follow(
    words: np.ndarray,
    start: Integer,
    stop: Integer,
    place: Integer,
    entry: Integer,
    document: Integer,
    stamp: Integer,
    post_offsets: np.ndarray,
    post_texts: np.ndarray,
    post_places: np.ndarray,
    text_words: np.ndarray,
    text_offsets: np.ndarray,
    needs: np.ndarray,
    seen: np.ndarray,
    room: np.ndarray,
    hits: np.ndarray,
    written: Integer,
) -> Integer:
    """Count a seed for every text that has it, and verify the texts that have enough; return the number of hits."""
    for post in range(post_offsets[entry], post_offsets[entry + 1]):
        text = np.int64(post_texts[post])
        low, high = text_offsets[text], text_offsets[text + 1]
        length = high - low
        if needs[text] == 0:
            begun = place - np.int64(post_places[post])
            if begun >= start and begun + length <= stop and _is_equal(words, begun, text_words, low, length):
                if written < len(hits):
                    _set_hit(hits, written, document, text, VERBATIM, begun - start, begun - start + length, 0, 0)
                written += 1
            continue
        block = (place - start) // length
        if seen[text, _STAMP] != stamp:
            seen[text, _STAMP], seen[text, _BLOCK], seen[text, _BEFORE] = stamp, block, 0
            seen[text, _NOW], seen[text, _TRIED], seen[text, _HIT] = 0, -1, _NO_HIT
        if block > seen[text, _BLOCK]:
            seen[text, _BEFORE] = seen[text, _NOW] if block == seen[text, _BLOCK] + 1 else 0
            seen[text, _BLOCK], seen[text, _NOW] = block, 0
        seen[text, _NOW] += 1
        if seen[text, _BEFORE] + seen[text, _NOW] < needs[text] or seen[text, _TRIED] == block:
            continue
        seen[text, _TRIED] = block
        window = max(start, start + (block - 1) * length - length // 2)
        window_stop = min(stop, start + (block + 2) * length + length // 2)
        written = _verify(
            words, start, window, window_stop, document, text, text_words, low, high, seen, room, hits, written
        )
    return written


@helper
def _verify(
    words: np.ndarray,
    start: Integer,
    window: Integer,
    window_stop: Integer,
    document: Integer,
    text: Integer,
    text_words: np.ndarray,
    low: Integer,
    high: Integer,
    seen: np.ndarray,
    room: np.ndarray,
    hits: np.ndarray,
    written: Integer,
) -> Integer:
    """Look for a text in a window of a document; note the best place; return the number of hits."""
    hit = seen[text, _HIT]
    if 0 <= hit < len(hits) and hits[hit, TIER] == VERBATIM:
        return written
    length = high - low
    tier, most = np.int64(SIMILAR), DISTANCE_PERCENT * length // 100
    distance, begun, end = nearest(words, window, window_stop, text_words, low, high, room, False, most)
    if distance > most:
        return written
    letters = np.int64(0)
    place, last = window, window_stop - length
    while distance == 0 and tier == SIMILAR and place <= last:
        if words[place] == text_words[low] and _is_equal(words, place, text_words, low, length):
            tier, begun, end = np.int64(VERBATIM), np.int64(place), np.int64(place + length)
        place += 1
    if tier == SIMILAR:
        num_letters = np.int64(0)
        for place in range(low, high):
            num_letters += np.int64(not text_words[place] & NUMBER)
        letters, _, _ = nearest(words, begun, end, text_words, low, high, room, True, np.int64(-1))
        if 100 * letters > DISTANCE_PERCENT * num_letters:
            return written
    if hit == _NO_HIT:
        hit = written
        seen[text, _HIT] = hit
        written += 1
    elif hit < len(hits) and tier == SIMILAR and distance >= hits[hit, DISTANCE]:
        return written
    if hit < len(hits):
        _set_hit(hits, hit, document, text, tier, begun - start, end - start, distance, letters)
    return written


@helper
def _set_hit(
    hits: np.ndarray,
    hit: Integer,
    document: Integer,
    text: Integer,
    tier: Integer,
    start: Integer,
    end: Integer,
    distance: Integer,
    letters: Integer,
) -> None:
    hits[hit, DOCUMENT], hits[hit, TEXT], hits[hit, TIER] = document, text, tier
    hits[hit, START], hits[hit, END] = start, end
    hits[hit, DISTANCE], hits[hit, LETTERS_DISTANCE] = distance, letters


@helper
def _is_equal(words: np.ndarray, place: Integer, text_words: np.ndarray, low: Integer, length: Integer) -> bool:
    step = 0
    while step < length and words[place + step] == text_words[low + step]:
        step += 1
    return bool(step == length)
