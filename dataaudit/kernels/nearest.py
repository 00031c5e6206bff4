"""The stretch of a document that is nearest to a text: by the least number of words to replace, insert or delete.

Sellers' columns of distances (1980, "The theory and computation of evolutionary distances"), 64 rows in a step: the
differences of neighbours are -1, 0 or 1 and fit into two words of bits (Myers 1999, "A fast bit-vector algorithm for
approximate string matching based on dynamic programming"; Hyyro 2003 for texts of several blocks). A text of m words in
w words of a document takes w * m / 64 steps, so documents that are made to be compared again and again cost little.

Where the stretch ends is found from left to right. Where it begins is found from there, from right to left.
"""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.jit import Integer, cold, compiled, helper
from dataaudit.kernels.ngrams import ANY_NUMBER, NUMBER, READ_WORDS, mix64, plain_word

_BITS = 64


def room_for(longest: int) -> np.ndarray:
    """Return uint64[...] that :func:`nearest` needs to work with texts of so many words."""
    blocks = -(-longest // _BITS)
    return np.zeros(2 * _num_slots(longest) + 2 * blocks + longest * blocks, dtype=np.uint64)


def _num_slots(size: int) -> int:
    return 1 << max(1, 2 * size - 1).bit_length()


@cold
def nearest(
    words: np.ndarray,
    low: Integer,
    high: Integer,
    text_words: np.ndarray,
    text_low: Integer,
    text_high: Integer,
    room: np.ndarray,
    letters_only: bool,
    most: Integer,
) -> tuple[Integer, Integer, Integer]:
    """Return the least number of words in which a text and any stretch of ``words[low:high]`` differ, and where.

    Of the stretches that have it, it is the first to end, and the longest of those; where more than ``most`` words
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
    text_words: np.ndarray, low: Integer, high: Integer, room: np.ndarray, letters_only: bool, backwards: bool
) -> tuple[Integer, Integer]:
    """Write the places of every word of a text as bits; return how many words count, and the slots of the table.

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
def _slot(word: np.uint64, slots: Integer, room: np.ndarray) -> Integer:
    """Return where a word of the text lies in the table, or where it would."""
    last = np.uint64(slots - 1)
    slot = mix64(word) & last
    while room[np.int64(slots) + np.int64(slot)] != np.uint64(0) and room[np.int64(slot)] != word:
        slot = (slot + np.uint64(1)) & last
    return np.int64(slot)


@helper
def _step(word: np.uint64, size: Integer, slots: Integer, room: np.ndarray, carry: Integer) -> Integer:
    """Go on by one word of the document; return by how much the distance of the whole text changes.

    ``carry`` is 0 where a stretch may begin anywhere, 1 where it begins at the first word that was taken.
    """
    blocks = (size + _BITS - 1) // _BITS
    number = np.int64(room[slots + _slot(word, slots, room)])
    masks = 2 * slots + 2 * blocks + (number - 1) * blocks
    one, top = np.uint64(1), np.uint64(63)
    for block in range(blocks):
        at = 2 * slots + block
        up, down = room[at], room[at + blocks]
        equal = room[masks + block] if number else np.uint64(0)
        last = np.uint64((size - 1) % _BITS) if block == blocks - 1 else top
        across = equal | down
        if carry < 0:
            equal |= one
        along = (((equal & up) + up) ^ up) | equal
        more, less = down | ~(along | up), up & along
        entering, carry = carry, np.int64((more >> last) & one) - np.int64((less >> last) & one)
        more, less = more << one, less << one
        if entering < 0:
            less |= one
        elif entering > 0:
            more |= one
        room[at] = less | ~(across | more)
        room[at + blocks] = more & across
    return carry


@compiled(f"int64({READ_WORDS}, {READ_WORDS}, uint64[::1], boolean, int64[::1])")
def _nearest(words: np.ndarray, text: np.ndarray, room: np.ndarray, letters_only: bool, found: np.ndarray) -> Integer:
    distance, found[0], found[1] = nearest(words, 0, len(words), text, 0, len(text), room, letters_only, len(text))
    return distance


def nearest_stretch(words: np.ndarray, text: np.ndarray, *, letters_only: bool = False) -> tuple[int, int, int]:
    """Return (words that differ, first word, word after the last) of the stretch of ``words`` nearest to ``text``.

    Args:
        words: uint64[w] hashes of words.
        text: uint64[t] hashes of words.
        letters_only: Whether numbers are left out, on both sides.
    """
    found = np.zeros(2, dtype=np.int64)
    distance = _nearest(words, text, room_for(len(text)), letters_only, found)
    return int(distance), int(found[0]), int(found[1])
