"""How toxic the worst passage of a document is, by a linear model over words: integers only, one pass, no list.

Features of a word are itself, the word before it, and runs of three to five of its letters. Each is hashed to a slot of
one of three tables of weights; :func:`feature_slots` lists the slots, from which a model is trained. Letters are folded
first, so that accents, width and case do not matter, and invisible characters are skipped; a script other than Latin is
one unknown letter after another. A word that occurs again within a window's length counts once, but for the pair, so
that a term of a manual that happens to look like an insult does not add up.

Words in disguise are looked up by a key: with letters masked (``d*mn``, ``d4mn``), stretched (``daaaamn``) or set apart
(``d a m n``). The table has whole keys of 64 bits, so that code, full of asterisks and digits, meets none by chance.
Such a word scores as the word that it disguises, any other as the sum of its features.

A window of ``n`` words scores the sum of its words times ``norms[n]``. A document scores as its worst window of
``len(norms) - 1`` words (a shorter document is a single window), or as its worst passage of ``passage`` words less a
margin, whichever is more. Padding a toxic passage does not hide it, and a long clean document is compared like with
like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.scan.kernels.jit import (
    READ_BYTES,
    READ_FLAGS,
    READ_HASHES,
    READ_IDS,
    READ_OFFSETS,
    Array,
    Int,
    cold,
    compiled,
    helper,
)
from dataaudit.scan.kernels.ngrams import NUMBER, mix64
from dataaudit.scan.kernels.words import WordBatch

WORDS, PAIRS, GRAMS = 0, 1, 2
"""The three tables."""
MAX_LETTERS = 24
"""Letters of a word that are read; words are seldom longer."""
RECENT_BITS = 10
ANY_NUMBER = np.uint64(0x9AE16A3B2F90404F)
"""What every number is to the word after it."""
EDGE = np.uint64(0x60)
"""Stands before the first letter of a word and after its last."""
OTHER = np.uint64(0x7F)
"""A letter that is not Latin."""
NO_LETTER = np.uint64(0)
PAIR = np.uint64(0xC2B2AE3D27D4EB4F)
_SLOT = np.uint64(0x9E3779B97F4A7C15)
_THREE, _FOUR, _FIVE = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F), np.uint64(0xE7037ED1A0B428DB)
_MASK3, _MASK4, _MASK5 = np.uint64(0xFFFFFF), np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFF)
LATIN = b"aaaaaaaceeeeiiiidnooooo\0ouuuuytsaaaaaaaceeeeiiiidnooooo\0ouuuuyty"
"""What U+00C0 to U+00FF are read as."""


def feature_slots(
    values: Array, offsets: Array, words: WordBatch, bits: tuple[int, int, int], window: int
) -> tuple[Array, Array]:
    """List what a model may weigh in every word of some documents, within ``window`` words once.

    The slots, uint32[f], of the second table come after all ``2 ** bits`` of the first, those of the third after the
    second; those of word i are ``slots[bounds[i]:bounds[i + 1]]``.
    """
    sizes = np.minimum(words.ends.astype(np.int64) - words.starts, MAX_LETTERS) + 1
    most = 2 * len(words.hashes) + 3 * int(sizes.sum())
    slots, bounds = np.empty(most, dtype=np.uint32), np.zeros(len(words.hashes) + 1, dtype=np.int64)
    own = words.offsets, words.hashes, words.starts, words.ends
    _list(values, offsets, *own, *bits, window, *_recent_words(), slots, bounds)
    return slots[: bounds[-1]].copy(), bounds


@compiled(
    f"void({READ_BYTES}, {READ_OFFSETS}, {READ_OFFSETS}, {READ_HASHES}, {READ_IDS}, {READ_IDS}, int64, int64, int64,"
    " int64, uint64[::1], int64[::1], uint32[::1], int64[::1])"
)
def _list(
    data: Array,
    offsets: Array,
    word_offsets: Array,
    hashes: Array,
    starts: Array,
    ends: Array,
    word_bits: Int,
    pair_bits: Int,
    gram_bits: Int,
    window_words: Int,
    recent: Array,
    recent_at: Array,
    slots: Array,
    bounds: Array,
) -> None:
    full, count = np.uint64(64), 0
    word_shift, pair_shift, gram_shift = full - word_bits, full - pair_bits, full - gram_bits
    pairs_from = np.uint64(1) << np.uint64(word_bits)
    grams_from = pairs_from + (np.uint64(1) << np.uint64(pair_bits))
    for document in range(len(offsets) - 1):
        begun, before = np.uintp(offsets[document]), np.uint64(0)
        for word in range(word_offsets[document], word_offsets[document + 1]):
            value = hashes[word]
            repeated = is_repeated(value, word, word_offsets[document], window_words, recent, recent_at)
            number = value & NUMBER != np.uint64(0)
            if number:
                value = ANY_NUMBER
            if before != np.uint64(0):
                slots[count] = np.uint32(pairs_from + pair_slot(before, value, pair_shift))
                count += 1
            before = value
            if not number and not repeated:
                slots[count] = np.uint32(word_slot(value, word_shift))
                count += 1
                place, stop = begun + np.uintp(starts[word]), begun + np.uintp(ends[word])
                window, letters = EDGE, 1
                while place <= stop and letters <= MAX_LETTERS:
                    letter = EDGE
                    if place < stop:
                        letter, size = letter_at(data, place)
                        place += size
                    else:
                        place += np.uintp(1)
                    if letter == NO_LETTER:
                        continue
                    window = window << np.uint64(8) | letter
                    letters += 1
                    for length in range(3, min(letters, 5) + 1):
                        slots[count] = np.uint32(grams_from + gram_slot(window, length, gram_shift))
                        count += 1
            bounds[word + 1] = count


def _recent_words() -> tuple[Array, Array]:
    """Return the memory of :func:`is_repeated`."""
    return np.zeros(1 << RECENT_BITS, dtype=np.uint64), np.zeros(1 << RECENT_BITS, dtype=np.int64)


@helper
def is_repeated(value: np.uint64, word: Int, first_word: Int, window: Int, recent: Array, recent_at: Array) -> bool:
    """Tell whether a word was there less than ``window`` words before, and remember it.

    A word is remembered for each ``RECENT_BITS`` bits, so now and then a repeated word counts as new.
    """
    place = value >> np.uint64(64 - RECENT_BITS)
    when = recent_at[place]
    found = recent[place] == value and when >= first_word and word - when < window
    recent[place], recent_at[place] = value, word
    return bool(found)


@helper
def word_slot(value: np.uint64, shift: np.uint64) -> np.uint64:
    """Return the slot of a word."""
    return np.uint64(value * _SLOT) >> shift


@helper
def pair_slot(before: np.uint64, value: np.uint64, shift: np.uint64) -> np.uint64:
    """Return the slot of a word after another."""
    return mix64(np.uint64(before * PAIR) + value) >> shift


@helper
def gram_slot(window: np.uint64, length: Int, shift: np.uint64) -> np.uint64:
    """Return the slot of the last three, four or five letters; the lowest byte is the last."""
    if length == 3:
        return np.uint64((window & _MASK3) * _THREE) >> shift
    if length == 4:
        return np.uint64((window & _MASK4) * _FOUR) >> shift
    return np.uint64((window & _MASK5) * _FIVE) >> shift


@helper
def letter_at(data: Array, place: Int) -> tuple[np.uint64, Int]:
    """Return a letter of a word, folded to ``a-z``, ``0-9`` or ``OTHER``, or ``NO_LETTER``; and its bytes."""
    first = data[place]
    letter, size = OTHER, np.uintp(1)
    if first < 0x80:
        if first >= 97 or 48 <= first <= 57:
            letter = np.uint64(first)
        else:
            letter = np.uint64(first | 32) if first >= 65 else NO_LETTER
    elif first < 0xE0:
        size = np.uintp(2)
        second = data[place + np.uintp(1)]
        if first == 0xC3:
            letter = np.uint64(LATIN[second & 0x3F])
        elif first in (0xC2, 0xCC) or (first == 0xCD and second < 0xB0):  # soft hyphen; accents on their own
            letter = NO_LETTER
    elif first >= 0xF0:
        size = np.uintp(4)
    else:
        size = np.uintp(3)
        second, third = data[place + np.uintp(1)], data[place + np.uintp(2)]
        if first == 0xE2 and second == 0x80:  # zero-width characters, the apostrophe of typesetters
            letter = NO_LETTER
        elif first == 0xEF and second == 0xBC and 0xA1 <= third <= 0xBA:  # full width
            letter = np.uint64(third - 0xA1 + 97)
        elif first == 0xEF and second == 0xBD and 0x81 <= third <= 0x9A:
            letter = np.uint64(third - 0x81 + 97)
        elif first == 0xEF and second == 0xBB and third == 0xBF:
            letter = NO_LETTER
    return letter, size


MIN_DISGUISED, MAX_DISGUISED = 4, 20
"""Letters of a disguised word, masks included."""
MASKED, PLAIN = np.uint64(0x8EBC6AF09C88C6E3), np.uint64(0x589965CC75374CC3)
"""Where the keys of masked words begin, and of stretched and spaced words, whose letters count once a run."""
MASK = 42
_STEP = np.uint64(0xD6E8FEB86659FD93)


def masked_key(letters: bytes) -> int:
    """Return the key of a word's lower-case letters, ``*`` where a letter is masked."""
    return _key_of(int(MASKED), letters)


def plain_key(letters: bytes) -> int:
    """Return the key of a word's lower-case letters, whatever the length of runs of a letter."""
    return _key_of(
        int(PLAIN),
        bytes(letter for place, letter in enumerate(letters) if letters[place - 1 : place] != bytes([letter])),
    )


def _key_of(key: int, letters: bytes) -> int:
    for letter in letters:
        key = (key ^ letter) * int(_STEP) % (1 << 64)
        key ^= key >> 32
    return key


@helper
def next_key(key: np.uint64, letter: np.uint64) -> np.uint64:
    """Return the key with another letter."""
    key = np.uint64((key ^ letter) * _STEP)
    return key ^ (key >> np.uint64(32))


@helper
def look_up(key: np.uint64, keys: Array, weights: Array) -> Int:
    """Return a key's weight in an open-addressed table of ``2^k`` slots; 0 where it is not in it."""
    last = np.uint64(len(keys) - 1)
    place = key & last
    while keys[place] != np.uint64(0):
        if keys[place] == key:
            return np.int64(weights[place])
        place = (place + np.uint64(1)) & last
    return np.int64(0)


@helper
def is_mask(byte: Int) -> bool:
    """Tell whether a byte is one of the masks ``! # $ % * @``."""
    return bool(byte == 33 or 35 <= byte <= 37 or byte in (42, 64))


@helper
def _is_letter(data: Array, place: Int, stop: Int) -> bool:
    return bool(place < stop and 97 <= data[place] | np.uint8(32) <= 122)


@cold
def masked_weight(data: Array, place: Int, stop: Int, keys: Array, weights: Array) -> Int:
    """Weigh the word at ``place``, symbols and digits between letters being masks; to its end, or its last letter.

    Two digits are no mask: ``F105`` is the name of something.
    """
    key, upto, count, count_upto, masks, masks_upto = MASKED, MASKED, 0, 0, 0, 0
    while place < stop and count < MAX_DISGUISED:
        byte = data[place]
        lower = byte | np.uint8(32)
        if 97 <= lower <= 122:
            key = next_key(key, np.uint64(lower))
            count += 1
            upto, count_upto, masks_upto = key, count, masks
        elif count and (is_mask(byte) or (48 <= byte <= 57 and _is_letter(data, place + np.uintp(1), stop))):
            key = next_key(key, np.uint64(MASK))
            count += 1
            masks += 1
        else:
            break
        place += np.uintp(1)
    found = np.int64(0)
    if masks and count >= MIN_DISGUISED:
        found = look_up(key, keys, weights)
    if found == 0 and masks_upto and count_upto >= MIN_DISGUISED:
        found = look_up(upto, keys, weights)
    return found


@cold
def stretched_weight(data: Array, place: Int, stop: Int, keys: Array, weights: Array) -> Int:
    """Weigh a word of which some letter is repeated three times or more."""
    key, last, count = PLAIN, EDGE, 0
    while place < stop:
        letter, size = letter_at(data, place)
        place += size
        if letter in (NO_LETTER, last):
            continue
        key, last = next_key(key, letter), letter
        count += 1
        if count > MAX_DISGUISED:
            return np.int64(0)
    return look_up(key, keys, weights)


@cold
def spaced_weight(
    data: Array, begun: Int, word: Int, last_word: Int, starts: Array, ends: Array, keys: Array, weights: Array
) -> Int:
    """Weigh single letters that follow each other with a byte between, from ``word`` on; the shortest match counts."""
    key, last, count = PLAIN, EDGE, 0
    while word < last_word and count < MAX_DISGUISED:
        letter = np.uint64(data[begun + np.uintp(starts[word])] | np.uint8(32))
        if ends[word] - starts[word] != 1 or letter < 97 or letter > 122:
            break
        if count and starts[word] - ends[word - 1] != 1:
            break
        count += 1
        if letter != last:
            key, last = next_key(key, letter), letter
        if count >= MIN_DISGUISED:
            found = look_up(key, keys, weights)
            if found != 0:
                return found
        word += 1
    return np.int64(0)


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
    """Return int64[n], the score of each document's worst window; 0 where it is not ``wanted`` or has no words."""
    scores, window = np.zeros(len(offsets) - 1, dtype=np.int64), np.empty(len(weights.norms) - 1, dtype=np.int32)
    own = words.offsets, words.hashes, words.starts, words.ends
    tables = weights.words, weights.pairs, weights.grams, weights.keys, weights.disguised, weights.norms
    passage = weights.passage, weights.margin
    _score(values, offsets, *own, wanted, *tables, *passage, window, *_recent_words(), scores)
    return scores


@compiled(
    f"void({READ_BYTES}, {READ_OFFSETS}, {READ_OFFSETS}, {READ_HASHES}, {READ_IDS}, {READ_IDS},"
    f" {READ_FLAGS}, {READ_WEIGHTS}, {READ_WEIGHTS}, {READ_WEIGHTS}, {READ_HASHES},"
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
    passage: Int,
    margin: Int,
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
