"""The end of a line for the quality rules, and repeated lines, paragraphs and n-grams of words.

An n-gram occurs twice only where both (n-1)-grams in it do. So pairs of words are counted all, triples only where two
repeated pairs meet, and so on: in natural text little is left from five words on. A list of (position, number of the
n-gram), in order, shrinks in place.
"""

from __future__ import annotations

import numpy as np

from dataaudit.scan.kernels.characters import TERMINAL, class_and_width, start_before
from dataaudit.scan.kernels.filter_words import (
    BULLET_LINES,
    CONTENT_LINES,
    DUPLICATE_5_GRAM_CHARS,
    DUPLICATE_LINE_CHARS,
    DUPLICATE_LINES,
    DUPLICATE_PARAGRAPH_CHARS,
    DUPLICATE_PARAGRAPHS,
    ELLIPSIS_LINES,
    ENTRIES,
    GAP_CHARS,
    LINE_SENTENCES,
    MAX_KEYS,
    PARAGRAPH_CHARS,
    PARAGRAPHS,
    PRIME,
    SEED,
    SENTENCE_OPEN,
    SENTENCES,
    SENTENCES_LEFT,
    SENTENCES_LONG_ENOUGH,
    SENTENCES_NO_JAVASCRIPT,
    SENTENCES_NO_POLICY,
    SENTENCES_SHORT_WORDS,
    SENTENCES_TERMINAL,
    SHORT_LINES,
    TERMINAL_LINES,
    TOP_2_GRAM_CHARS,
    WORDS,
    find_or_add,
    shift_for,
)
from dataaudit.scan.kernels.jit import Array, Int, cold, helper

JAVASCRIPT = 1
"""Bit of a line that holds this word."""
POLICY = 2
"""Bit of a line that holds a phrase of a notice on policies."""
_PARAGRAPH_SALT = np.uint64(0x9E3779B97F4A7C15)
_CITATIONS = (b"[edit]", b"[citation needed]")


@helper
def end_content_line(
    data: Array,
    first: Int,
    last: Int,
    stop: Int,
    chars: Int,
    digest: np.uint64,
    pieces: Int,
    longest: Int,
    found: Int,
    classes: Array,
    limits: Array,
    words: Array,
    ends: Array,
    state: Array,
    paragraph: np.uint64,
) -> np.uint64:
    """Count a line that has a piece of text; return the digest of its paragraph so far.

    ``limits`` are the most characters of a short line, the least pieces and the most characters of a piece. Digests of
    lines and paragraphs go to the end of ``words``, their characters to that of ``ends``, a paragraph's below 0.
    """
    state[CONTENT_LINES] += 1
    state[SHORT_LINES] += np.int64(chars <= limits[0])
    end, before, third = _last_three(data, first, last)
    state[BULLET_LINES] += np.int64(_is_bullet(data, first, last))
    dots = (end == 46) & (before == 46) & (third == 46)
    state[ELLIPSIS_LINES] += np.int64(dots | ((end == 0xA6) & (before == 0x80) & (third == 0xE2)))
    kind = np.int64(classes[end])
    if end >= 128:
        kind, _ = class_and_width(data, start_before(data, last), classes)
    state[TERMINAL_LINES] += np.int64(last == stop) * (kind // TERMINAL & 1)
    ended = (end == 46) & ((before != 46) | (third != 46))
    ended = ended | (end == 63) | (end == 33) | (end == 34) | (end == 39)
    if end == 93:
        ended = _ends_before_citation(data, first, last)
    _count_sentences(ended, pieces, longest, found, limits, state)
    _keep(words, ends, state, digest, chars)
    if state[PARAGRAPH_CHARS] < 0:
        state[PARAGRAPH_CHARS] = chars
        return (SEED ^ digest) * PRIME  # else two lines would have the digest that they have the other way round
    state[PARAGRAPH_CHARS] += state[GAP_CHARS] + chars
    return (paragraph ^ digest) * PRIME


@helper
def end_paragraph(words: Array, ends: Array, state: Array, paragraph: np.uint64) -> None:
    """Count the paragraph that a blank line or the end closes."""
    if state[PARAGRAPH_CHARS] >= 0:
        state[PARAGRAPHS] += 1
        _keep(words, ends, state, paragraph ^ _PARAGRAPH_SALT, -state[PARAGRAPH_CHARS])
        state[PARAGRAPH_CHARS] = -1


@helper
def _keep(words: Array, ends: Array, state: Array, digest: np.uint64, chars: Int) -> None:
    state[ENTRIES] += 1
    place = len(words) - state[ENTRIES]
    words[place] = digest
    ends[place] = chars


@helper
def _is_bullet(data: Array, first: Int, last: Int) -> bool:
    if data[first] == 45:
        return True
    return bool(last - first >= 3 and data[first] == 0xE2 and data[first + 1] == 0x80 and data[first + 2] == 0xA2)


@helper
def _last_three(data: Array, first: Int, last: Int) -> tuple[Int, Int, Int]:
    """Return the last bytes, the very last first; 0 for what is not there."""
    size = last - first
    end = np.int64(data[last - 1])
    before = np.int64(data[max(last - 2, first)]) * np.int64(size > 1)
    return end, before, np.int64(data[max(last - 3, first)]) * np.int64(size > 2)


@helper
def _count_sentences(ended: bool, pieces: Int, longest: Int, found: Int, limits: Array, state: Array) -> None:
    """Add the line's sentences to what each of C4's rules on lines leaves."""
    sentences = state[LINE_SENTENCES] + 1
    state[LINE_SENTENCES] = 0
    state[SENTENCE_OPEN] = 0
    marked, long_enough = np.int64(ended), np.int64(pieces >= limits[1])
    short_words = np.int64(longest <= limits[2])
    script, policy = np.int64(found & JAVASCRIPT == 0), np.int64(found & POLICY == 0)
    state[SENTENCES] += sentences
    state[SENTENCES_TERMINAL] += sentences * marked
    state[SENTENCES_LONG_ENOUGH] += sentences * long_enough
    state[SENTENCES_SHORT_WORDS] += sentences * short_words
    state[SENTENCES_NO_JAVASCRIPT] += sentences * script
    state[SENTENCES_NO_POLICY] += sentences * policy
    state[SENTENCES_LEFT] += sentences * marked * long_enough * short_words * script * policy


@cold
def _ends_before_citation(data: Array, first: Int, last: Int) -> bool:
    """Tell whether C4 keeps a line that ends with ``]``: its end without citations is a mark and no ellipsis."""
    while last > first and data[last - 1] == 93:
        size = citation_before(data, first, last)
        if size == 0:
            break
        last -= size
    if last == first:
        return False
    end, before, third = _last_three(data, first, last)
    return bool(end in (33, 34, 39, 63) or (end == 46 and not (before == 46 and third == 46)))


@cold
def citation_before(data: Array, first: Int, last: Int) -> Int:
    """Return the bytes of ``[12]``, ``[]``, ``[edit]`` or ``[citation needed]`` that ends at ``last``, else 0."""
    pos = last - 2
    while pos >= first and 48 <= data[pos] <= 57:
        pos -= 1
    if pos >= first and data[pos] == 91:
        return last - pos
    for citation in _CITATIONS:
        if last - first >= len(citation):
            same = True
            for index in range(len(citation)):
                if data[last - len(citation) + index] != citation[index]:
                    same = False
                    break
            if same:
                return len(citation)
    return 0


@cold
def count_repeats(words: Array, ends: Array, state: Array, slots: Array, fresh: np.uint64) -> np.uint64:
    """Count lines and paragraphs that occurred before; return the next unused number."""
    entries = state[ENTRIES]
    shift = shift_for(entries, len(slots))
    base = fresh
    for number in range(1, entries + 1):
        place = len(words) - number
        if find_or_add(slots, shift, base, words[place], fresh) == fresh:
            fresh += np.uint64(1)
        elif ends[place] >= 0:
            state[DUPLICATE_LINES] += 1
            state[DUPLICATE_LINE_CHARS] += ends[place]
        else:
            state[DUPLICATE_PARAGRAPHS] += 1
            state[DUPLICATE_PARAGRAPH_CHARS] -= ends[place]
    return fresh


_MIX = np.uint64(0xD6E8FEB86659FD93)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_SIX = np.uint64(6)
_SIXTY_THREE = np.uint64(63)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
MARKS = 1 << 18
"""Cells of 64 marks at most: 2 MiB, for two marks of eight million hashes."""


@cold
def count_grams(
    words: Array,
    ends: Array,
    numbers: Array,
    times: Array,
    places: Array,
    marks: Array,
    state: Array,
    slots: Array,
    fresh: np.uint64,
) -> np.uint64:
    """Fill the n-gram counts of a document; return the next unused number of the table.

    ``words`` become the list of repeated n-grams; ``numbers``, ``times``, ``places`` and ``marks`` are scratch.
    """
    num_words = state[WORDS]
    listed = 0
    for size in range(2, 11):
        if size == 2:
            listed = _find_candidates(words, num_words - 1, places, marks)
            kinds, fresh = _number_pairs(words, places, listed, numbers, times, slots, fresh)
            listed, best, where = _keep_repeated_pairs(words, places, listed, numbers, times)
        else:
            kinds, fresh = _number_longer(words, listed, numbers, times, slots, fresh)
            listed, best, where = _keep_repeated(words, listed, numbers, times)
        if size <= 4 and num_words >= size:
            if listed == 0:
                best, where = 1, 0
            chars = np.int64(ends[where + size]) - np.int64(ends[where]) + size - 1
            state[TOP_2_GRAM_CHARS + size - 2] = chars * best
        elif size >= 5:
            if listed == 0:
                break
            state[DUPLICATE_5_GRAM_CHARS + size - 5] = _duplicate_chars(words, listed, ends, times, kinds, size)
    return fresh


@helper
def _find_candidates(words: Array, num_pairs: Int, places: Array, marks: Array) -> Int:
    """List where pairs begin that may occur twice, nearly all of them do; return how many.

    Two bits for each hash, "seen" and "seen again", tell without a guess of the processor and mostly from its
    nearest cache that a pair occurs once: half of all pairs in natural text.
    """
    half = len(marks) // 2
    size, shift = 1, 58
    while size < half and size * 8 < num_pairs:
        size *= 2
        shift -= 1
    bits = np.uint64(shift)
    for index in range(size):
        marks[index] = np.uint64(0)
        marks[half + index] = np.uint64(0)
    for index in range(num_pairs):
        spot = (((words[index] * _MIX) ^ words[index + 1]) * _SPREAD) >> bits
        cell = np.int64(spot >> _SIX)
        bit = _ONE << (spot & _SIXTY_THREE)
        seen = marks[cell]
        marks[half + cell] |= seen & bit
        marks[cell] = seen | bit
    found: Int = 0
    for index in range(num_pairs):
        spot = (((words[index] * _MIX) ^ words[index + 1]) * _SPREAD) >> bits
        places[found] = index
        found += np.int64(marks[half + np.int64(spot >> _SIX)] >> (spot & _SIXTY_THREE) & _ONE)
    return found


@helper
def _count_key(
    key: np.uint64, times: Array, slots: Array, shift: np.uint64, base: np.uint64, first: np.uint64, fresh: np.uint64
) -> tuple[Int, np.uint64]:
    """Count an n-gram; return its number, from 0 on, and the table's next unused number."""
    found = find_or_add(slots, shift, base, key, fresh)
    number: Int = np.int64(found - first)
    new = found == fresh
    times[number] = times[number] * (1 - np.int64(new)) + 1
    return number, fresh + np.uint64(new)


@helper
def _number_pairs(
    words: Array, places: Array, length: Int, numbers: Array, times: Array, slots: Array, fresh: np.uint64
) -> tuple[Int, np.uint64]:
    """Number the pairs of neighbours at ``places``; return how many kinds there are, and the next unused number."""
    parts = 1 + length // MAX_KEYS
    shift = shift_for(min(length, MAX_KEYS), len(slots))
    first = fresh
    for part in range(parts):
        base = fresh
        for index in range(length):
            place = places[index]
            key = (words[place] * _MIX) ^ words[place + 1]
            if parts > 1 and np.int64((key * _MIX) >> _HALF) % parts != part:
                continue
            numbers[index], fresh = _count_key(key, times, slots, shift, base, first, fresh)
    return np.int64(fresh - first), fresh


@helper
def _number_longer(
    listed: Array, length: Int, numbers: Array, times: Array, slots: Array, fresh: np.uint64
) -> tuple[Int, np.uint64]:
    """Number the n-grams where two listed neighbours meet; -1 where they do not."""
    parts = 1 + length // MAX_KEYS
    shift = shift_for(min(length, MAX_KEYS), len(slots))
    first = fresh
    for part in range(parts):
        base = fresh
        for index in range(length):
            here = listed[index]
            after = listed[index + 1] if index + 1 < length else np.uint64(0)
            if (here >> _HALF) + _ONE != after >> _HALF:
                numbers[index] = -1
                continue
            key = here << _HALF | after & _LOW
            if parts > 1 and np.int64((key * _MIX) >> _HALF) % parts != part:
                continue
            numbers[index], fresh = _count_key(key, times, slots, shift, base, first, fresh)
    return np.int64(fresh - first), fresh


@helper
def _keep_repeated_pairs(
    words: Array, places: Array, length: Int, numbers: Array, times: Array
) -> tuple[Int, Int, Int]:
    """Turn the words into the list of repeated pairs; return its length, the most occurrences and where they begin."""
    kept: Int = 0
    best: Int = 1
    where: Int = 0
    for index in range(length):
        number = numbers[index]
        count = np.int64(times[number])
        words[kept] = np.uint64(places[index]) << _HALF | np.uint64(number)
        kept += np.int64(count > 1)
        if count > best:
            best, where = count, np.int64(places[index])
    return kept, best, where


@helper
def _keep_repeated(listed: Array, length: Int, numbers: Array, times: Array) -> tuple[Int, Int, Int]:
    """Shrink the list to the repeated n-grams; as :func:`_keep_repeated_pairs`."""
    kept: Int = 0
    best: Int = 1
    where: Int = 0
    for index in range(length):
        number: Int = max(np.int64(numbers[index]), 0)
        count = np.int64(times[number]) * np.int64(numbers[index] >= 0)
        position = listed[index] >> _HALF
        listed[kept] = position << _HALF | np.uint64(number)
        kept += np.int64(count > 1)
        if count > best:
            best, where = count, np.int64(position)
    return kept, best, where


@helper
def _duplicate_chars(listed: Array, length: Int, ends: Array, times: Array, kinds: Int, size: Int) -> Int:
    """Return the characters of n-grams that came before, no character twice: after one, its words are skipped."""
    for kind in range(kinds):
        times[kind] = 0
    chars: Int = 0
    free_from: Int = 0
    for index in range(length):
        position = np.int64(listed[index] >> _HALF)
        if position < free_from:
            continue
        number = np.int64(listed[index] & _LOW)
        if times[number]:
            chars += np.int64(ends[position + size]) - np.int64(ends[position])
            free_from = position + size
        else:
            times[number] = 1
    return chars
