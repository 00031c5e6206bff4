"""Evaluation items inside documents: found by short grams, verified word by word at once.

*Seeds* are grams of five words in which every number is the same. A text of an item (its question, its answer) is a
candidate where two neighbouring segments of a document, each as long as the text, have enough of its seeds. Around
them it is verified: ``verbatim`` is the whole text, word for word; ``similar`` is a segment of a document that becomes
the text by replacing, inserting or deleting at most a given share of its words, numbers being equal to one another -
also without the numbers, so that tables of numbers are not similar. A short text has a single seed and is compared
there, word for word.

The nearest segment is found by Sellers' columns of distances (1980, "The theory and computation of evolutionary
distances"), 64 rows in a step: the differences of neighbours are -1, 0 or 1 and fit into two words of bits (Myers 1999,
"A fast bit-vector algorithm for approximate string matching based on dynamic programming"; Hyyro 2003 for texts of
several blocks). A text of m words in w words of a document takes w * m / 64 steps, so documents that are made to be
compared again and again cost little. The end of the segment is found from left to right, then its begin from there,
from right to left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.scan.kernels.jit import (
    READ_HASHES,
    READ_IDS,
    READ_INTS,
    READ_OFFSETS,
    Array,
    Int,
    cold,
    compiled,
    helper,
)
from dataaudit.scan.kernels.ngrams import ANY_NUMBER, NUMBER, GramTable, find, mix64, plain_word, power, roll

_BITS = 64


def room_for(longest: int) -> Array:
    """Return uint64[...] that :func:`nearest` needs to work with texts of so many words."""
    blocks = -(-longest // _BITS)
    return np.zeros(2 * _num_slots(longest) + 2 * blocks + longest * blocks, dtype=np.uint64)


def _num_slots(size: int) -> int:
    return 1 << max(1, 2 * size - 1).bit_length()


@cold
def nearest(
    words: Array,
    low: Int,
    high: Int,
    text_words: Array,
    text_low: Int,
    text_high: Int,
    room: Array,
    letters_only: bool,
    most: Int,
) -> tuple[Int, Int, Int]:
    """Return the least number of words in which a text and any segment of ``words[low:high]`` differ, and where.

    Of the segments that have it, it is the first to end, and the longest of those; where more than ``most`` words
    differ it is none. Numbers are equal to one another; ``letters_only`` leaves them out, on both sides.
    """
    size, slots = _prepare(text_words, text_low, text_high, room, letters_only, False)
    best, end, score = np.int64(size), np.int64(low), np.int64(size)
    if size == 0:
        return best, np.int64(low), end
    for place in range(low, high):
        word = plain_word(words[place], True)
        if letters_only and word == ANY_NUMBER:
            continue
        score += _step(word, size, slots, room, np.int64(0))
        if score < best:
            best, end = score, np.int64(place + 1)
    if best > most or best == size:
        return best, np.int64(low), np.int64(low)
    _prepare(text_words, text_low, text_high, room, letters_only, True)
    begun, score, taken = end, np.int64(size), np.int64(0)
    for place in range(end - 1, low - 1, -1):
        word = plain_word(words[place], True)
        if letters_only and word == ANY_NUMBER:
            continue
        score += _step(word, size, slots, room, np.int64(1))
        taken += 1
        if score == best:
            begun = np.int64(place)
        if taken > size + best:
            break
    return best, begun, end


@helper
def _prepare(
    text_words: Array, low: Int, high: Int, room: Array, letters_only: bool, backwards: bool
) -> tuple[Int, Int]:
    """Write the positions of every word of a text as bits; return how many words count, and the slots of the table.

    ``room`` holds the words of the table, their numbers from 1 on, the differences that are 1 and those that are -1 by
    block, and the bits of each word by block.
    """
    size = np.int64(0)
    for place in range(low, high):
        size += np.int64(not (letters_only and text_words[place] & NUMBER))
    slots = np.int64(2)
    while slots < 2 * size:
        slots *= 2
    blocks = (size + _BITS - 1) // _BITS
    first = 2 * slots + 2 * blocks
    for place in range(slots, 2 * slots):
        room[place] = np.uint64(0)
    for block in range(blocks):
        room[2 * slots + block] = ~np.uint64(0)
        room[2 * slots + blocks + block] = np.uint64(0)
    known, step = np.int64(0), np.int64(0)
    for place in range(low, high):
        if letters_only and text_words[place] & NUMBER:
            continue
        word = plain_word(text_words[place], True)
        slot = _slot(word, slots, room)
        if room[slots + slot] == np.uint64(0):
            room[slot] = word
            for block in range(blocks):
                room[first + known * blocks + block] = np.uint64(0)
            known += 1
            room[slots + slot] = np.uint64(known)
        bit = size - 1 - step if backwards else step
        at = first + (np.int64(room[slots + slot]) - 1) * blocks + bit // _BITS
        room[at] |= np.uint64(1) << np.uint64(bit % _BITS)
        step += 1
    return size, slots


@helper
def _slot(word: np.uint64, slots: Int, room: Array) -> Int:
    """Return where a word of the text lies in the table, or where it would."""
    last = np.uint64(slots - 1)
    slot = mix64(word) & last
    while room[np.int64(slots) + np.int64(slot)] != np.uint64(0) and room[np.int64(slot)] != word:
        slot = (slot + np.uint64(1)) & last
    return np.int64(slot)


@helper
def _step(word: np.uint64, size: Int, slots: Int, room: Array, carry: Int) -> Int:
    """Go on by a word of the document; return the change of the distance of the whole text.

    ``carry`` is 0 where a stretch may begin anywhere, 1 where it begins at the first word that was taken.
    """
    blocks = (size + _BITS - 1) // _BITS
    number = np.int64(room[slots + _slot(word, slots, room)])
    masks = 2 * slots + 2 * blocks + (number - 1) * blocks
    item, top = np.uint64(1), np.uint64(63)
    for block in range(blocks):
        at = 2 * slots + block
        up, down = room[at], room[at + blocks]
        equal = room[masks + block] if number else np.uint64(0)
        last = np.uint64((size - 1) % _BITS) if block == blocks - 1 else top
        across = equal | down
        if carry < 0:
            equal |= item
        along = (((equal & up) + up) ^ up) | equal
        more, less = down | ~(along | up), up & along
        entering, carry = carry, np.int64((more >> last) & item) - np.int64((less >> last) & item)
        more, less = more << item, less << item
        if entering < 0:
            less |= item
        elif entering > 0:
            more |= item
        room[at] = less | ~(across | more)
        room[at + blocks] = more & across
    return carry


@compiled(f"int64({READ_HASHES}, {READ_HASHES}, uint64[::1], boolean, int64[::1])")
def _nearest(words: Array, text: Array, room: Array, letters_only: bool, found: Array) -> Int:
    distance, found[0], found[1] = nearest(words, 0, len(words), text, 0, len(text), room, letters_only, len(text))
    return distance


def nearest_segment(words: Array, text: Array, *, letters_only: bool = False) -> tuple[int, int, int]:
    """Return (words that differ, first word, word after the last) of the segment of ``words`` nearest to ``text``.

    Both are uint64 hashes of words; ``letters_only`` leaves numbers out, on both sides.
    """
    found = np.zeros(2, dtype=np.int64)
    distance = _nearest(words, text, room_for(len(text)), letters_only, found)
    return int(distance), int(found[0]), int(found[1])


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


@dataclass(frozen=True, slots=True)
class SeedIndex:
    """Texts and their seeds; all arrays may be mapped from a file."""

    table: GramTable
    """The seeds."""
    post_offsets: Array
    """int64[k + 1]: the texts with seed i are ``post_texts[post_offsets[i]:post_offsets[i + 1]]``."""
    post_texts: Array
    """uint32[p] text."""
    post_places: Array
    """uint32[p] first word of the seed in the text."""
    words: Array
    """uint64[w] words of all texts."""
    offsets: Array
    """int64[t + 1] of the texts in them."""
    needs: Array
    """int32[t] seeds that two segments must have; 0 for a text that is compared word for word at its seed."""

    @property
    def num_texts(self) -> int:
        """Texts."""
        return len(self.needs)


class Finder:
    """Finds the texts of an index in documents; keeps what that needs from batch to batch."""

    def __init__(self, index: SeedIndex) -> None:
        self._index = index
        longest = int(np.diff(index.offsets).max(initial=0))
        self._seen = np.full((index.num_texts, 6), _NO_HIT, dtype=np.int64)
        self._room = room_for(longest)
        self._documents = 0
        self._capacity = 1024

    def find(self, words: Array, offsets: Array) -> Array:
        """Return int64[h, 7], a row for each text in a document (its best position), in order of document and match.

        A short text has a row for every place.
        """
        index = self._index
        if index.num_texts == 0 or len(index.table.keys) == 0:
            return np.zeros((0, 7), dtype=np.int64)
        while True:
            hits = np.zeros((self._capacity, 7), dtype=np.int64)
            posts = index.post_offsets, index.post_texts, index.post_places
            texts = index.words, index.offsets, index.needs
            lookup = index.table.lookup()
            size = _find_texts(
                words,
                offsets,
                self._documents,
                power(SEED_WORDS),
                *lookup,
                *posts,
                *texts,
                self._seen,
                self._room,
                hits,
            )
            self._documents += len(offsets) - 1
            if size <= self._capacity:
                return hits[:size]
            self._capacity = 2 * int(size)


@compiled(
    f"int64({READ_HASHES}, {READ_OFFSETS}, int64, uint64, {READ_HASHES}, {READ_IDS}, uint64, {READ_HASHES},"
    f" {READ_OFFSETS}, {READ_IDS}, {READ_IDS}, {READ_HASHES}, {READ_OFFSETS}, {READ_INTS}, int64[:, ::1],"
    " uint64[::1], int64[:, ::1])"
)
def _find_texts(
    words: Array,
    offsets: Array,
    stamp: Int,
    out_power: np.uint64,
    known: Array,
    slots: Array,
    shift: np.uint64,
    keys: Array,
    post_offsets: Array,
    post_texts: Array,
    post_places: Array,
    text_words: Array,
    text_offsets: Array,
    needs: Array,
    seen: Array,
    room: Array,
    hits: Array,
) -> Int:
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
    words: Array,
    start: Int,
    stop: Int,
    place: Int,
    entry: Int,
    document: Int,
    stamp: Int,
    post_offsets: Array,
    post_texts: Array,
    post_places: Array,
    text_words: Array,
    text_offsets: Array,
    needs: Array,
    seen: Array,
    room: Array,
    hits: Array,
    written: Int,
) -> Int:
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
    words: Array,
    start: Int,
    window: Int,
    window_stop: Int,
    document: Int,
    text: Int,
    text_words: Array,
    low: Int,
    high: Int,
    seen: Array,
    room: Array,
    hits: Array,
    written: Int,
) -> Int:
    """Search a window of a document for a text; keep the best position; return the number of hits."""
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
    hits: Array, hit: Int, document: Int, text: Int, tier: Int, start: Int, end: Int, distance: Int, letters: Int
) -> None:
    hits[hit, DOCUMENT], hits[hit, TEXT], hits[hit, TIER] = document, text, tier
    hits[hit, START], hits[hit, END] = start, end
    hits[hit, DISTANCE], hits[hit, LETTERS_DISTANCE] = distance, letters


@helper
def _is_equal(words: Array, place: Int, text_words: Array, low: Int, length: Int) -> bool:
    step = 0
    while step < length and words[place + step] == text_words[low + step]:
        step += 1
    return bool(step == length)
