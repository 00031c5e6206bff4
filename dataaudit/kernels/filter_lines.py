"""What is known at the end of a line: its kind, its sentences for C4, its place among equal lines and paragraphs."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.characters import TERMINAL, class_and_width, start_before
from dataaudit.kernels.filter_counts import (
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
)
from dataaudit.kernels.filter_table import find_or_add, shift_for
from dataaudit.kernels.filter_words import PRIME, SEED
from dataaudit.kernels.jit import helper

JAVASCRIPT = 1
"""Bit of a line that holds this word."""
POLICY = 2
"""Bit of a line that holds a phrase of a notice on policies."""
_PARAGRAPH_SALT = np.uint64(0x9E3779B97F4A7C15)
_CITATIONS = (b"[edit]", b"[citation needed]")


@helper
def end_content_line(
    data: np.ndarray, first: int, last: int, stop: int, chars: int, digest: np.uint64, pieces: int, longest: int,
    found: int, classes: np.ndarray, limits: np.ndarray, words: np.ndarray, ends: np.ndarray, state: np.ndarray,
    paragraph: np.uint64,
) -> np.uint64:  # fmt: skip
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
    if chars <= limits[0]:
        state[SHORT_LINES] += 1
    if data[first] == 45 or (data[first] == 0xE2 and data[first + 1] == 0x80 and data[first + 2] == 0xA2):
        state[BULLET_LINES] += 1
    dots = last - first >= 3 and data[last - 1] == 46 and data[last - 2] == 46 and data[last - 3] == 46
    if dots or (last - first >= 3 and data[last - 1] == 0xA6 and data[last - 2] == 0x80 and data[last - 3] == 0xE2):
        state[ELLIPSIS_LINES] += 1
    if last == stop and class_and_width(data, start_before(data, last), classes)[0] & TERMINAL:
        state[TERMINAL_LINES] += 1
    _count_sentences(data, first, last, pieces, longest, found, limits, state)
    _keep(words, ends, state, digest, chars)
    if state[PARAGRAPH_CHARS] < 0:
        state[PARAGRAPH_CHARS] = chars
        return digest
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
def _keep(words: np.ndarray, ends: np.ndarray, state: np.ndarray, digest: np.uint64, chars: int) -> None:
    state[ENTRIES] += 1
    place = len(words) - state[ENTRIES]
    words[place] = digest
    ends[place] = chars


@helper
def _count_sentences(
    data: np.ndarray, first: int, last: int, pieces: int, longest: int, found: int, limits: np.ndarray,
    state: np.ndarray,
) -> None:  # fmt: skip
    """Add the line's sentences to what each of C4's rules on lines leaves."""
    sentences = state[LINE_SENTENCES] + 1
    state[LINE_SENTENCES] = 0
    state[SENTENCE_OPEN] = 0
    state[SENTENCES] += sentences
    ended = _ends_sentence(data, first, last)
    long_enough, short_words = pieces >= limits[1], longest <= limits[2]
    if ended:
        state[SENTENCES_TERMINAL] += sentences
    if long_enough:
        state[SENTENCES_LONG_ENOUGH] += sentences
    if short_words:
        state[SENTENCES_SHORT_WORDS] += sentences
    if not found & JAVASCRIPT:
        state[SENTENCES_NO_JAVASCRIPT] += sentences
    if not found & POLICY:
        state[SENTENCES_NO_POLICY] += sentences
    if ended and long_enough and short_words and found == 0:
        state[SENTENCES_LEFT] += sentences


@helper
def _ends_sentence(data: np.ndarray, first: int, last: int) -> bool:
    """Tell whether C4 keeps the line: its end, citations taken off, is a terminal mark and no ellipsis."""
    while last > first and data[last - 1] == 93:
        size = citation_before(data, first, last)
        if size == 0:
            break
        last -= size
    if last == first:
        return False
    byte = data[last - 1]
    if byte == 46:
        return not (last - first >= 3 and data[last - 2] == 46 and data[last - 3] == 46)
    return byte in (33, 34, 39, 63)


@helper
def citation_before(data: np.ndarray, first: int, last: int) -> int:
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


@helper
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


__all__ = ["JAVASCRIPT", "POLICY", "SEED", "citation_before", "count_repeats", "end_content_line", "end_paragraph"]
