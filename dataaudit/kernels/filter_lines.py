"""What is known at the end of a line: its kind, its sentences for C4, its place among equal lines and paragraphs."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.characters import TERMINAL, class_and_width, start_before
from dataaudit.kernels.filter_tables import (
    BULLET_LINES,
    CONTENT_LINES,
    DUPLICATE_LINE_CHARS,
    DUPLICATE_LINES,
    DUPLICATE_PARAGRAPH_CHARS,
    DUPLICATE_PARAGRAPHS,
    ELLIPSIS_LINES,
    ENTRIES,
    GAP_CHARS,
    LINE_SENTENCES,
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
    find_or_add,
    shift_for,
)
from dataaudit.kernels.jit import Integer, cold, helper

JAVASCRIPT = 1
"""Bit of a line that holds this word."""
POLICY = 2
"""Bit of a line that holds a phrase of a notice on policies."""
_PARAGRAPH_SALT = np.uint64(0x9E3779B97F4A7C15)
_CITATIONS = (b"[edit]", b"[citation needed]")


@helper
def end_content_line(
    data: np.ndarray,
    first: Integer,
    last: Integer,
    stop: Integer,
    chars: Integer,
    digest: np.uint64,
    pieces: Integer,
    longest: Integer,
    found: Integer,
    classes: np.ndarray,
    limits: np.ndarray,
    words: np.ndarray,
    ends: np.ndarray,
    state: np.ndarray,
    paragraph: np.uint64,
) -> np.uint64:
    """Count a line that has a piece of text; return the digest of its paragraph so far.

    Args:
        data: The bytes.
        first: Start of the first piece.
        last: End of the last piece.
        stop: End of the line, before its break.
        chars: Characters of the line, white space at its ends included, its break not.
        digest: Of the same characters.
        pieces: Pieces between white space.
        longest: Characters of the longest piece.
        found: ``JAVASCRIPT`` and ``POLICY``.
        classes: Of the characters.
        limits: int64[3]: most characters of a short line, least pieces, most characters of a piece.
        words: Lines and paragraphs are put at its end.
        ends: Their characters, at its end; paragraphs below 0.
        state: Counts and state.
        paragraph: Digest of the paragraph before this line.
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
def end_paragraph(words: np.ndarray, ends: np.ndarray, state: np.ndarray, paragraph: np.uint64) -> None:
    """Count the paragraph that a blank line or the end closes."""
    if state[PARAGRAPH_CHARS] >= 0:
        state[PARAGRAPHS] += 1
        _keep(words, ends, state, paragraph ^ _PARAGRAPH_SALT, -state[PARAGRAPH_CHARS])
        state[PARAGRAPH_CHARS] = -1


@helper
def _keep(words: np.ndarray, ends: np.ndarray, state: np.ndarray, digest: np.uint64, chars: Integer) -> None:
    state[ENTRIES] += 1
    place = len(words) - state[ENTRIES]
    words[place] = digest
    ends[place] = chars


@helper
def _is_bullet(data: np.ndarray, first: Integer, last: Integer) -> bool:
    if data[first] == 45:
        return True
    return bool(last - first >= 3 and data[first] == 0xE2 and data[first + 1] == 0x80 and data[first + 2] == 0xA2)


@helper
def _last_three(data: np.ndarray, first: Integer, last: Integer) -> tuple[Integer, Integer, Integer]:
    """Return the last bytes, the very last first; 0 for what is not there."""
    size = last - first
    end = np.int64(data[last - 1])
    before = np.int64(data[max(last - 2, first)]) * np.int64(size > 1)
    return end, before, np.int64(data[max(last - 3, first)]) * np.int64(size > 2)


@helper
def _count_sentences(
    ended: bool, pieces: Integer, longest: Integer, found: Integer, limits: np.ndarray, state: np.ndarray
) -> None:
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
def _ends_before_citation(data: np.ndarray, first: Integer, last: Integer) -> bool:
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
def citation_before(data: np.ndarray, first: Integer, last: Integer) -> Integer:
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
def count_repeats(
    words: np.ndarray, ends: np.ndarray, state: np.ndarray, slots: np.ndarray, fresh: np.uint64
) -> np.uint64:
    """Count lines and paragraphs that are equal to an earlier one; return the next unused number."""
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
