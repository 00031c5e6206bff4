"""Counts for the quality rules: one pass over the bytes of each document, then its repeated n-grams.

Scratch memory belongs to a call and is bounded by its longest document of ``n`` bytes: at most 24 bytes for each word,
line and paragraph (8 for a digest, 4 each for characters, number, times and place), which together are at most n + 4,
and tables of at most 34 MiB. Only memory in use is touched. A document of 64 MiB of English takes about 0.4 GB, a
document of nothing but signs 1.5 GB.
"""

from __future__ import annotations

import numpy as np

from dataaudit.scan.kernels.characters import BACK, BREAK, JAY, MARK, SPACE, SPECIAL, character_classes, read_character
from dataaudit.scan.kernels.filter_lines import (
    JAVASCRIPT,
    MARKS,
    POLICY,
    citation_before,
    count_grams,
    count_repeats,
    end_content_line,
    end_paragraph,
)
from dataaudit.scan.kernels.filter_words import (
    BREAK_CHARS,
    BREAKS,
    CHARS,
    CURLY_BRACKETS,
    ELLIPSES,
    GAP_CHARS,
    HASHES,
    LINES,
    LOREM_IPSUM,
    NUM_COUNTS,
    NUM_STATE,
    PARAGRAPH_CHARS,
    PRIME,
    SEED,
    SENTENCE_OPEN,
    STOP_BITS,
    STOP_WORDS,
    add_word,
    split_piece,
    stop_is_cut,
    table_for,
)
from dataaudit.scan.kernels.jit import (
    READ_BYTES,
    READ_IDS,
    READ_OFFSETS,
    READ_SHORTS,
    Array,
    Int,
    cold,
    compiled,
    helper,
)

_SIGNATURE = (
    f"void({READ_BYTES}, {READ_OFFSETS}, {READ_SHORTS}, {READ_OFFSETS}, uint64[::1],"
    " int32[::1], int32[::1], int32[::1], int32[::1], uint64[::1], int64[::1], uint64[::1], int64[:, ::1])"
)
_OF, _PO, _CO, _IP = (int.from_bytes(pair, "big") for pair in (b"of", b"po", b"co", b"ip"))
LIMIT = 2**31 - 16
"""Bytes that a document may have: positions within it are kept in 32 bits."""


def count_for_filters(
    data: Array, offsets: Array, *, short_line_chars: int, least_words: int, most_word_chars: int
) -> Array:
    """Return int64[n, NUM_COUNTS]: the counts of each document, columns as in ``filter_counts.COUNTS``.

    C4 drops lines of fewer than ``least_words`` words, or with a word of more than ``most_word_chars``. A document of 2
    GiB or more is a ``ValueError``.
    """
    longest = int(np.diff(offsets).max(initial=0))
    if longest > LIMIT:
        raise ValueError(f"a document of {longest} bytes is too long for the quality rules, at most {LIMIT}")
    room = longest + 8
    counts = np.zeros((len(offsets) - 1, NUM_COUNTS), dtype=np.int64)
    limits = np.array([short_line_chars, least_words, most_word_chars], dtype=np.int64)
    words = np.empty(room, dtype=np.uint64)
    ends, numbers, times, places = (np.empty(room, dtype=np.int32) for _ in range(4))
    marks = np.empty(MARKS, dtype=np.uint64)
    state = np.empty(NUM_STATE, dtype=np.int64)
    classes, slots = character_classes(), table_for(room)
    _count_documents(data, offsets, classes, limits, words, ends, numbers, times, places, marks, state, slots, counts)
    return counts


@compiled(_SIGNATURE)
def _count_documents(
    data: Array,
    offsets: Array,
    classes: Array,
    limits: Array,
    words: Array,
    ends: Array,
    numbers: Array,
    times: Array,
    places: Array,
    marks: Array,
    state: Array,
    slots: Array,
    counts: Array,
) -> None:
    """Fill ``counts``; the rest is scratch."""
    fresh = np.uint64(1)
    for document in range(len(offsets) - 1):
        for index in range(NUM_STATE):
            state[index] = 0
        ends[0] = 0
        _scan(data, offsets[document], offsets[document + 1], classes, limits, words, ends, state)
        fresh = count_repeats(words, ends, state, slots, fresh)
        fresh = count_grams(words, ends, numbers, times, places, marks, state, slots, fresh)
        bits = state[STOP_BITS]
        while bits:
            state[STOP_WORDS] += bits & 1
            bits >>= 1
        for index in range(NUM_COUNTS):
            counts[document, index] = state[index]


@helper
def _scan(
    data: Array, start: Int, end: Int, classes: Array, limits: Array, words: Array, ends: Array, state: Array
) -> None:
    """Walk over a document: pieces between white space, lines, paragraphs."""
    state[PARAGRAPH_CHARS] = -1
    paragraph = SEED
    pos = start
    while pos < end:
        digest, chars, pieces, longest, found = SEED, 0, 0, 0, 0
        first, last, stop, gap = -1, -1, end, 0
        while pos < end and gap == 0:
            kind, width, point = read_character(data, pos, classes)
            if not kind & SPACE:
                begin = pos
                pos, size, piece, either = _read_piece(data, begin, end, classes, words, ends, state)
                digest = (digest ^ piece) * PRIME
                chars += size
                longest = max(longest, size)
                pieces += 1
                if first < 0:
                    first = begin
                last = pos
                found |= _phrases(data, start, begin, pos, end, either, state)
            elif kind & BREAK:
                gap, stop = 1, pos
                if data[pos] == 13 and pos + 1 < end and data[pos + 1] == 10:
                    gap, width = 2, 2
                pos += width
            else:
                digest = (digest ^ np.uint64(point)) * PRIME
                chars += 1
                pos += width
        state[LINES] += 1
        state[CHARS] += chars + gap
        if gap:
            state[BREAKS] += 1
            state[BREAK_CHARS] += gap
        if pieces:
            paragraph = end_content_line(
                data,
                first,
                last,
                stop,
                chars,
                digest,
                pieces,
                longest,
                found,
                classes,
                limits,
                words,
                ends,
                state,
                paragraph,
            )
        else:
            end_paragraph(words, ends, state, paragraph)
        state[GAP_CHARS] = gap
    end_paragraph(words, ends, state, paragraph)


@helper
def _read_piece(
    data: Array, begin: Int, end: Int, classes: Array, words: Array, ends: Array, state: Array
) -> tuple[Int, Int, np.uint64, Int]:
    """Count the words of the piece that begins here; return its end, characters, digest and classes."""
    digest, chars, either = SEED, 0, 0
    head, head_digest, head_either = -1, SEED, 0
    pos = begin
    while pos < end:
        kind, width, point = read_character(data, pos, classes)
        if kind & (SPACE | SPECIAL):
            if kind & SPACE:
                break
            if head < 0:
                head, head_digest, head_either = pos, digest, either
        digest = (digest ^ np.uint64(point)) * PRIME
        either |= kind
        chars += 1
        pos += width
    if head < 0:
        add_word(digest, chars, either, words, ends, state)
    elif begin < head == pos - 1 and _ends_with_one_sign(data, begin, head, either, classes):
        add_word(head_digest, chars - 1, head_either, words, ends, state)
        mark = np.int64(data[head])
        add_word((SEED ^ np.uint64(mark)) * PRIME, 1, np.int64(classes[mark]), words, ends, state)
    else:
        if either & MARK:
            _count_marks(data, head, pos, state)
        split_piece(data, begin, pos, classes, words, ends, state)
        if data[pos - 1] == 93:
            _close_before_citation(data, begin, head, pos, state)
    return pos, chars, digest, either


@helper
def _ends_with_one_sign(data: Array, begin: Int, head: Int, either: Int, classes: Array) -> bool:
    """Tell whether the last byte of a piece without other signs is a word of its own and no mark that is counted."""
    if data[head] == 46:
        return stop_is_cut(data, begin, head, classes)
    return bool(classes[data[head]] & BACK and not either & MARK)


@cold
def _count_marks(data: Array, start: Int, stop: Int, state: Array) -> None:
    """Count hash signs, curly brackets and ellipses (three full stops, or the character)."""
    dots = 0
    for pos in range(start, stop):
        byte = data[pos]
        if byte == 46:
            dots += 1
            if dots == 3:
                state[ELLIPSES] += 1
                dots = 0
            continue
        dots = 0
        if byte == 35:
            state[HASHES] += 1
        elif byte == 123:
            state[CURLY_BRACKETS] += 1
        elif byte == 0xA6 and pos >= 2 and data[pos - 1] == 0x80 and data[pos - 2] == 0xE2:
            state[ELLIPSES] += 1


@cold
def _close_before_citation(data: Array, begin: Int, head: Int, stop: Int, state: Array) -> None:
    """C4 takes citations out before it looks for sentences: a mark right before a citation ends a sentence."""
    last = stop
    while last > head and data[last - 1] == 93:
        size = citation_before(data, begin, last)
        if size == 0:
            break
        last -= size
    if begin < last < stop and data[last - 1] in (33, 46, 63):
        state[SENTENCE_OPEN] = 1


@helper
def _phrases(data: Array, start: Int, begin: Int, stop: Int, end: Int, either: Int, state: Array) -> Int:
    """Look for C4's phrases around a piece, in ASCII without regard to case; return ``JAVASCRIPT`` and ``POLICY``.

    Each phrase of several words is looked for from one of its words, and only where the first two letters fit: one
    test that nearly always fails.
    """
    found = 0
    if either & JAY and stop - begin >= 10 and _holds_javascript(data, begin, stop):
        found = JAVASCRIPT
    if stop - begin > 1:
        pair = (np.int64(data[begin]) | 32) << 8 | np.int64(data[begin + 1]) | 32
        if (pair == _OF) | (pair == _PO) | (pair == _CO) | (pair == _IP):
            found |= _long_phrases(data, start, begin, stop, end, state)
    return found


@cold
def _long_phrases(data: Array, start: Int, begin: Int, stop: Int, end: Int, state: Array) -> Int:
    """Compare what stands around ``of``, ``policy``, ``cookies`` and ``ipsum``."""
    if _matches(data, begin - 6, start, end, b"lorem ipsum"):
        state[LOREM_IPSUM] += 1
        return 0
    if (stop - begin == 2 and _matches(data, begin - 6, start, end, b"terms of use")) or (
        _matches(data, begin - 8, start, end, b"privacy policy")
        or _matches(data, begin - 7, start, end, b"cookie policy")
    ):
        return POLICY
    cookies = (
        _matches(data, begin - 5, start, end, b"uses cookies")
        or _matches(data, begin - 7, start, end, b"use of cookies")
        or _matches(data, begin - 4, start, end, b"use cookies")
    )
    return POLICY if cookies else 0


@cold
def _holds_javascript(data: Array, begin: Int, stop: Int) -> bool:
    for pos in range(begin + 2, stop - 7):
        if data[pos] | 32 == 118 and _matches(data, pos - 2, begin, stop, b"javascript"):
            return True
    return False


@helper
def _matches(data: Array, pos: Int, low: Int, high: Int, phrase: bytes) -> bool:
    """Tell whether the lower-case phrase stands at ``pos`` in either case."""
    if pos < low or pos + len(phrase) > high:
        return False
    for index in range(len(phrase) - 1, -1, -1):
        byte = np.int64(data[pos + index])
        if 65 <= byte <= 90:
            byte += 32
        if byte != phrase[index]:
            return False
    return True


def has_periodic_run(ids: Array, offsets: Array, *, most_period: int, times: int) -> Array:
    """Return bool[n]: whether a document has ``times`` successive copies of 1 to ``most_period`` ids.

    ``times`` copies of p ids are p * (times - 1) consecutive places whose id is that of p places before. So only every
    p * (times - 1)-th place has to be looked at, and around it where it fits: for 32 copies and periods up to 13 that
    is one id in ten.
    """
    assert most_period >= 1
    assert times >= 2
    marked = np.zeros(len(offsets) - 1, dtype=np.bool_)
    _mark_runs(ids, offsets, most_period, times, marked)
    return marked


@compiled(f"void({READ_IDS}, {READ_OFFSETS}, int64, int64, boolean[::1])")
def _mark_runs(ids: Array, offsets: Array, most_period: int, times: int, marked: Array) -> None:
    for document in range(len(marked)):
        start, end = offsets[document], offsets[document + 1]
        for period in range(1, most_period + 1):
            first, need = start + period, period * (times - 1)
            place = first + need - 1
            while place < end and not marked[document]:
                if ids[place] != ids[place - period]:
                    place += need
                    continue
                low, high = place, place + 1
                while low > first and ids[low - 1] == ids[low - 1 - period] and place - low < need:
                    low -= 1
                while high < end and ids[high] == ids[high - period] and high - low < need:
                    high += 1
                if high - low >= need:
                    marked[document] = True
                place = high + need
            if marked[document]:
                break
