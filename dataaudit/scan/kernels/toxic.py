"""How toxic the worst passage of a document is, by a linear model over words: integers only, one pass, no list.

A word's score is the sum of the weights of its features (:mod:`dataaudit.scan.kernels.toxic_features`), or that of the
word it disguises (:mod:`dataaudit.scan.kernels.toxic_features`). A window of ``n`` words scores the sum of its words'
scores times ``norms[n]``. A document scores as its worst window of ``len(norms) - 1`` consecutive words (a shorter
document is one window), or as its worst passage of ``passage`` words less a margin, whichever is more. A word that is
repeated within a window's length counts once, so that a term of a manual that happens to look like an insult does not
add up. Padding a toxic passage does not hide it, and a long clean document is compared like with like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.scan.kernels.jit import READ_BYTES, READ_IDS, READ_OFFSETS, Array, Integer, compiled
from dataaudit.scan.kernels.ngrams import NUMBER
from dataaudit.scan.kernels.toxic_features import (
    ANY_NUMBER,
    EDGE,
    MAX_LETTERS,
    NO_LETTER,
    READ_HASHES,
    gram_slot,
    is_mask,
    is_repeated,
    letter_at,
    masked_weight,
    pair_slot,
    recent_words,
    spaced_weight,
    stretched_weight,
    word_slot,
)
from dataaudit.scan.kernels.words import WordBatch

READ_WEIGHTS = "Array(int8, 1, 'C', readonly=True)"
NORM_BITS = 16
"""A window's score is ``sum * norm >> NORM_BITS``."""


@dataclass(frozen=True, slots=True, eq=False)
class ToxicWeights:
    """A model: integers, so that a score is the same on every machine."""

    words: Array
    """int8[2^a] weight of a word."""
    pairs: Array
    """int8[2^b] of a word after another."""
    grams: Array
    """int8[2^c] of three to five consecutive letters."""
    keys: Array
    """uint64[2^d] keys of disguised words, in open addressing; 0 where there is none."""
    disguised: Array
    """int16[2^d] what they weigh, in the unit of the others."""
    norms: Array
    """int64[m + 1] what a window's sum is multiplied with, by its number of words; m are a whole window."""
    passage: int
    """Words of a passage, fewer than m."""
    margin: int
    """What a passage scores less than a document of as many words."""


def toxic_scores(values: Array, offsets: Array, words: WordBatch, wanted: Array, weights: ToxicWeights) -> Array:
    """Score the worst window of each document.

    Args:
        values: uint8[b] the documents' valid UTF-8, one after another.
        offsets: int64[n + 1] of the documents in it.
        words: The words of these documents.
        wanted: bool[n] which are scored.
        weights: The model.

    Returns:
        int64[n]; 0 where a document is not wanted or has no words.
    """
    scores, window = np.zeros(len(offsets) - 1, dtype=np.int64), np.empty(len(weights.norms) - 1, dtype=np.int32)
    _score(
        values,
        offsets,
        words.offsets,
        words.hashes,
        words.starts,
        words.ends,
        wanted,
        weights.words,
        weights.pairs,
        weights.grams,
        weights.keys,
        weights.disguised,
        weights.norms,
        weights.passage,
        weights.margin,
        window,
        *recent_words(),
        scores,
    )
    return scores


@compiled(
    f"void({READ_BYTES}, {READ_OFFSETS}, {READ_OFFSETS}, {READ_HASHES}, {READ_IDS}, {READ_IDS},"
    f" Array(boolean, 1, 'C', readonly=True), {READ_WEIGHTS}, {READ_WEIGHTS}, {READ_WEIGHTS}, {READ_HASHES},"
    f" Array(int16, 1, 'C', readonly=True), {READ_OFFSETS}, int64, int64, int32[::1],"
    " uint64[::1], int64[::1], int64[::1])"
)
def _score(
    data: Array,
    offsets: Array,
    word_offsets: Array,
    hashes: Array,
    starts: Array,
    ends: Array,
    wanted: Array,
    word_weights: Array,
    pair_weights: Array,
    gram_weights: Array,
    keys: Array,
    disguised: Array,
    norms: Array,
    passage: Integer,
    margin: Integer,
    ring: Array,
    recent: Array,
    recent_at: Array,
    scores: Array,
) -> None:
    zero, item, eight = np.uint64(0), np.uintp(1), np.uint64(8)
    word_shift, pair_shift, gram_shift = np.uint64(64), np.uint64(64), np.uint64(64)
    while 1 << (np.uint64(64) - word_shift) < len(word_weights):
        word_shift -= np.uint64(1)
    while 1 << (np.uint64(64) - pair_shift) < len(pair_weights):
        pair_shift -= np.uint64(1)
    while 1 << (np.uint64(64) - gram_shift) < len(gram_weights):
        gram_shift -= np.uint64(1)
    whole = len(norms) - 1
    for document in range(len(offsets) - 1):
        if not wanted[document]:
            continue
        begun, end_of_document = np.uintp(offsets[document]), np.uintp(offsets[document + 1])
        first_word, last_word = word_offsets[document], word_offsets[document + 1]
        before, total, worst, slot, seen = zero, np.int64(0), np.int64(0), 0, 0
        in_passage, worst_passage = np.int64(0), np.int64(0)
        for word in range(first_word, last_word):
            value, score = hashes[word], np.int64(0)
            repeated = is_repeated(value, word, first_word, whole, recent, recent_at)
            number = value & NUMBER != zero
            if number:
                value = ANY_NUMBER
            if before != zero:
                score += np.int64(pair_weights[pair_slot(before, value, pair_shift)])
            before = value
            if not number:
                place, stop = begun + np.uintp(starts[word]), begun + np.uintp(ends[word])
                first = place
                window, letters, last, run, stretched, digits = EDGE, 1, EDGE, 1, False, False
                if not repeated:
                    score += np.int64(word_weights[word_slot(value, word_shift)])
                    while place < stop and letters <= MAX_LETTERS:
                        letter, size = letter_at(data, place)
                        place += size
                        if letter == NO_LETTER:
                            continue
                        window = window << eight | letter
                        letters += 1
                        if letters >= 3:
                            score += np.int64(gram_weights[gram_slot(window, 3, gram_shift)])
                            if letters >= 4:
                                score += np.int64(gram_weights[gram_slot(window, 4, gram_shift)])
                                if letters >= 5:
                                    score += np.int64(gram_weights[gram_slot(window, 5, gram_shift)])
                        run = run + 1 if letter == last else 1
                        last = letter
                        stretched = stretched or run == 3
                        digits = bool(digits or letter <= 57)
                    if letters <= MAX_LETTERS:
                        window = window << eight | EDGE
                        letters += 1
                        for length in range(3, min(letters, 5) + 1):
                            score += np.int64(gram_weights[gram_slot(window, length, gram_shift)])
                found = np.int64(0)
                if digits or (stop < end_of_document and is_mask(data[stop])):
                    found = masked_weight(data, first, end_of_document, keys, disguised)
                elif stretched:
                    found = stretched_weight(data, first, stop, keys, disguised)
                elif stop - first == item and word + 1 < last_word and starts[word + 1] - ends[word] == 1:
                    found = spaced_weight(data, begun, word, last_word, starts, ends, keys, disguised)
                if found != 0:
                    score = found
            total += score
            in_passage += score
            if seen >= passage:
                in_passage -= np.int64(ring[slot - passage if slot >= passage else slot - passage + whole])
            if seen >= whole:
                total -= np.int64(ring[slot])
            ring[slot] = np.int32(score)
            slot = slot + 1 if slot + 1 < whole else 0
            seen += 1
            if seen == whole or (seen > whole and total > worst):
                worst = total
            if seen == passage or (seen > passage and in_passage > worst_passage):
                worst_passage = in_passage
        if seen < whole:
            worst = total
        found = worst * norms[min(seen, whole)] >> np.int64(NORM_BITS)
        if seen > passage:
            found = max(found, (worst_passage * norms[passage] >> np.int64(NORM_BITS)) - margin)
        scores[document] = found
