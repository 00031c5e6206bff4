r"""Words in normal form: without the marks of HTML, TeX and Markdown, and with numbers as they are read.

Each word of :mod:`dataaudit.scan.kernels.words` is read again with the bytes around it. A word is

* *dropped* when it is markup alone: a known tag of HTML with its attributes, a named or numbered entity that separates,
  a known command of TeX, the address of a Markdown link, the letter of an escaped line break (``\n``);
* *written anew* together with the words that it is glued to where markup stands inside a word (``don&#39;t``,
  ``H<sub>2</sub>O``, ``1{,}000``), and where letters of two scripts are mixed, by
  :mod:`dataaudit.scan.kernels.rewriting`.

A point or comma inside a number stays: ``1.5`` is neither ``15`` nor ``1.25``. Commas between groups of three digits
are ignored, so ``1,000`` is ``1000``. All of it applies to protected text and to documents.
"""

from __future__ import annotations

import numpy as np

from dataaudit.scan.kernels.jit import (
    READ_BYTES,
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
from dataaudit.scan.kernels.rewriting import (
    ENTITY,
    ENTITY_IN_WORD,
    INLINE,
    TAG,
    TEX,
    TEX_LETTER,
    TEX_NAMED,
    known_names,
    rewritten_runs,
)
from dataaudit.scan.kernels.words import WordBatch, ascii_hash, split_words

_KEPT, _DROPPED, _ANEW = 0, 1, 2
_MOST_TAGS = 8
"""Tags side by side inside a word, at most."""
_MOST_TAG_BYTES = 1_024
"""Bytes from a tag's name to its end, at most."""
_MOST_LINK_BYTES = 1_024
_LESS, _GREATER, _SLASH, _AND, _HASH, _SEMICOLON = 60, 62, 47, 38, 35, 59
_BACKSLASH, _APOSTROPHE, _BRACKET, _OPEN, _CLOSE, _BRACE, _END_BRACE = 92, 39, 93, 40, 41, 123, 125
_SEVENS, _HIGHS = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x8080808080808080)
_FROM_0 = np.uint64(0x5050505050505050)
_POINT, _COMMA, _SPACE, _NEWLINE = 46, 44, 32, 10
Names = tuple[Array, Array]
"""Of :func:`known_names`."""


def normal_words(words: WordBatch, values: Array, offsets: Array) -> WordBatch:
    """Return the normal form of words of ``split_words(values, offsets)``; positions are those in the documents."""
    hashes, actions, glued, found = _marked(words, values, offsets)
    if not found:
        return WordBatch(hashes, words.offsets, words.starts, words.ends)
    runs, pieces = rewritten_runs(words, values, offsets, np.flatnonzero(actions == _ANEW), glued)
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    data = np.frombuffer(b"".join(pieces) or b"\0", dtype=np.uint8)[: bounds[-1]]
    anew = split_words(data, bounds)
    most = len(hashes) + len(anew.hashes)
    made = np.empty(most, dtype=np.uint64)
    starts, ends = np.empty(most, dtype=np.uint32), np.empty(most, dtype=np.uint32)
    made_offsets = np.zeros(len(words.offsets), dtype=np.int64)
    own, new = (words.offsets, words.starts, words.ends), (_marked(anew, data, bounds)[0], anew.offsets)
    _assemble(hashes, *own, actions, runs, *new, made, starts, ends, made_offsets)
    size = int(made_offsets[-1])
    return WordBatch(made[:size], made_offsets, starts[:size], ends[:size])


def _marked(words: WordBatch, values: Array, offsets: Array) -> tuple[Array, Array, Array, bool]:
    """Return hashes with points, uint8[w] actions, uint8[w] glued to the word before, and whether any is not kept."""
    hashes = words.hashes.copy()
    actions, glued = np.zeros((2, len(hashes)), dtype=np.uint8)
    own = words.offsets, words.starts, words.ends
    number = _mark(values, offsets, *own, *known_names(), hashes, actions, glued)
    return hashes, actions, glued, number > 0


@compiled(
    f"int64({READ_BYTES}, {READ_OFFSETS}, {READ_OFFSETS}, {READ_IDS}, {READ_IDS}, {READ_HASHES}, {READ_IDS},"
    " uint64[::1], uint8[::1], uint8[::1])"
)
def _mark(
    data: Array,
    bounds: Array,
    offsets: Array,
    starts: Array,
    ends: Array,
    names: Array,
    kinds: Array,
    hashes: Array,
    actions: Array,
    glued: Array,
) -> Int:
    """Decide the action of every word; return how many are not kept."""
    found, known = 0, (names, kinds)
    total = np.uintp(len(data))
    for document in range(len(bounds) - 1):
        low, high = bounds[document], bounds[document + 1]
        skipped, before = low, low  # words that begin before ``skipped`` are inside a tag or an address
        goes_on, follows = False, False
        for index in range(offsets[document], offsets[document + 1]):
            word = np.uintp(index)
            start, end = low + np.int64(starts[word]), low + np.int64(ends[word])
            gap, last = start - before, before
            before = end
            if start < skipped:
                actions[word], glued[word] = _DROPPED, goes_on
                found, follows = found + 1, True
                continue
            if not _is_plain(data, np.uintp(start), np.uintp(end), total):
                has_points, has_lookalikes = _oddities(data, start, end)
                if has_points:
                    hashes[word] = _with_points(hashes[word], data, start, end)
                if has_lookalikes and _is_mixed(data, low, last, start, end, high):
                    actions[word] = _ANEW
                    found += 1
            glued[word] = goes_on and follows
            goes_on = False
            left = data[np.uintp(start - 1)] if start > low else np.uint8(0)
            if not (gap == 1 and left in (_SPACE, _NEWLINE)):
                left2 = data[np.uintp(start - 2)] if start > low + 1 else np.uint8(0)
                right = data[np.uintp(end)] if end < high else np.uint8(0)
                if _may_be_marked(left, left2, right, gap):
                    action, skipped_to, is_glued, goes_on = _around(
                        data, low, high, last, start, end, hashes[word], follows, known, skipped * glued[word]
                    )
                    skipped = max(skipped, skipped_to)
                    if is_glued and follows:
                        glued[word] = 1
                    if action != _KEPT:
                        found += actions[word] == _KEPT
                        actions[word] = action
            follows = True
    return found


@helper
def _is_plain(data: Array, start: np.uintp, end: np.uintp, total: np.uintp) -> bool:
    """Tell whether a word is of ASCII letters and digits alone, eight bytes at a time."""
    place, eight = start, np.uintp(8)
    while place + eight <= total and place < end:
        block = np.uint64(data[place])
        for step in range(1, 8):
            block |= np.uint64(data[place + np.uintp(step)]) << np.uint64(8 * step)
        # a byte of a word below 48 is a point, a comma or an apostrophe; a byte of 128 and more is no ASCII
        odd = (block | ~((block & _SEVENS) + _FROM_0)) & _HIGHS
        size = end - place
        if size < eight:
            odd &= (np.uint64(1) << (np.uint64(size) << np.uint64(3))) - np.uint64(1)
        if odd:
            return False
        place += eight
    while place < end:
        if data[place] < 48 or data[place] >= 0x80:
            return False
        place += np.uintp(1)
    return True


@helper
def _oddities(data: Array, start: Int, end: Int) -> tuple[bool, bool]:
    """Tell whether a word has points or commas, and whether it has letters of scripts that have lookalikes."""
    points, lookalikes = False, False
    for place in range(start, end):
        byte = data[np.uintp(place)]
        points |= byte in (_POINT, _COMMA)
        lookalikes |= _is_lookalike(byte)
    return points, lookalikes


@helper
def _is_lookalike(byte: Int) -> bool:
    """Tell whether a byte begins a letter of the phonetic alphabet, Greek, Cyrillic or Armenian."""
    return bool(0xCD <= byte <= 0xD6 or byte in (0xC9, 0xCA))


@helper
def _may_be_marked(left: np.uint8, left2: np.uint8, right: np.uint8, gap: Int) -> bool:
    """Tell whether the bytes beside a word allow that it is markup, or inside some."""
    if left in (_BACKSLASH, _LESS) or (left == _SLASH and left2 == _LESS):
        return True
    if right == _SEMICOLON and left in (_AND, _HASH, _SEMICOLON):
        return True
    if left2 == _BACKSLASH:
        return bool(left in (_APOSTROPHE, _COMMA))
    return bool(gap >= 2 and (left in (_OPEN, _END_BRACE, _SLASH, _HASH, _POINT)))


@compiled(
    f"void({READ_HASHES}, {READ_OFFSETS}, {READ_IDS}, {READ_IDS}, {READ_BYTES}, Array(int64, 2, 'C', readonly=True),"
    f" {READ_HASHES}, {READ_OFFSETS}, uint64[::1], uint32[::1], uint32[::1], int64[::1])"
)
def _assemble(
    hashes: Array,
    offsets: Array,
    starts: Array,
    ends: Array,
    actions: Array,
    runs: Array,
    anew: Array,
    anew_offsets: Array,
    made: Array,
    made_starts: Array,
    made_ends: Array,
    made_offsets: Array,
) -> None:
    """Copy the words that are kept, and those of the rewritten runs, each at its run's position."""
    count, run = np.uintp(0), 0
    next_run = runs[0, 0] if len(runs) else np.int64(-1)
    for document in range(len(offsets) - 1):
        word, stop = offsets[document], offsets[document + 1]
        while word < stop:
            at = np.uintp(word)
            if word == next_run:
                last = np.uintp(runs[run, 1] - 1)
                for place in range(anew_offsets[run], anew_offsets[run + 1]):
                    made[count], made_starts[count], made_ends[count] = anew[place], starts[at], ends[last]
                    count += np.uintp(1)
                word = runs[run, 1]
                run += 1
                next_run = runs[run, 0] if run < len(runs) else np.int64(-1)
                continue
            made[count], made_starts[count], made_ends[count] = hashes[at], starts[at], ends[at]
            count += np.uintp(actions[at] == _KEPT)
            word += 1
        made_offsets[document + 1] = np.int64(count)


@helper
def _known_as(name: np.uint64, known: Names) -> Int:
    names, kinds = known
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) >> 1
        if names[middle] < name:
            low = middle + 1
        else:
            high = middle
    if low < len(names) and names[low] == name:
        return np.int64(kinds[low])
    return np.int64(0)


@cold
def _around(
    data: Array,
    low: Int,
    high: Int,
    before: Int,
    start: Int,
    end: Int,
    name: np.uint64,
    follows: bool,
    known: Names,
    tag: Int,
) -> tuple[Int, Int, bool, bool]:
    """Return the action of a word, the end of the words to drop, whether it is glued to the word before and the next.

    ``before`` is the end of the word before it, ``tag`` the last sign of a tag inside a word that ends before it, or 0.
    """
    gap = start - before
    left = data[start - 1] if start > low else np.uint8(0)
    right = data[end] if end < high else np.uint8(0)
    nothing = np.int64(0)
    if right == _SEMICOLON:
        marks = _entity_marks(data, low, start)
        if marks:
            is_numbered = left == _HASH
            kind = np.int64(ENTITY_IN_WORD) if is_numbered else _known_as(name, known)
            inside = follows and (gap == marks or (gap == marks + 1 and data[before] == _SEMICOLON))
            if kind & (ENTITY | ENTITY_IN_WORD):
                joins = bool(kind & ENTITY_IN_WORD)
                after = end + 1 if end + 2 >= high or data[end + 1] != _APOSTROPHE else end + 2
                goes_on = after < high and _is_wordy(data[after])
                is_amp = end - start == 3 and data[start] | 32 == 97 and data[start + 1] | 32 == 109
                again = is_amp and end + 1 < high and (data[end + 1] == _HASH or _is_wordy(data[end + 1]))
                action = _ANEW if joins else _DROPPED
                return np.int64(action), nothing, inside, bool((joins and goes_on) or again)
    if left == _LESS or (left == _SLASH and start > low + 1 and data[start - 2] == _LESS):
        kind = _known_as(name, known)
        if kind & TAG:
            close = _tag_close(data, end, high)
            if close < high and data[close] == _GREATER and not _is_wordy(right):
                opened = start - (1 if left == _LESS else 2)
                inside = follows and (opened == before or (tag > 0 and opened == tag + 1))
                inside = inside and kind & INLINE != 0 and _word_goes_on(data, close + 1, high, known)
                return np.int64(_ANEW if inside else _DROPPED), np.int64(close), inside, inside
    if left == _BACKSLASH:
        return _after_backslash(data, high, before, start, end, name, follows, known)
    if follows and _joins(data, before, start, end, name & NUMBER != np.uint64(0)):
        return np.int64(_ANEW), nothing, True, False
    close = _link_end(data, before, start, high) if follows else nothing
    return np.int64(_DROPPED if close else _KEPT), close, False, False


@helper
def _tag_close(data: Array, place: Int, high: Int) -> Int:
    """Return the position of the next ``>`` or ``<``, or of the byte after the last that was read."""
    close = place
    while close < high and close < place + _MOST_TAG_BYTES and data[close] not in (_LESS, _GREATER):
        close += 1
    return close


@cold
def _word_goes_on(data: Array, place: Int, high: Int, known: Names) -> bool:
    """Tell whether a word stands at ``place``, or behind inline tags there."""
    for _ in range(_MOST_TAGS):
        if place >= high or data[place] != _LESS:
            break
        first = place + 1 + np.int64(place + 1 < high and data[place + 1] == _SLASH)
        end = first
        while end < high and _is_wordy(data[end]) and data[end] < 0x80:
            end += 1
        close = _tag_close(data, end, high)
        if close >= high or data[close] != _GREATER or _known_as(ascii_hash(data, first, end), known) & INLINE == 0:
            return False
        place = close + 1
    return bool(place < high and _is_wordy(data[place]))


@helper
def _joins(data: Array, before: Int, start: Int, end: Int, is_number: bool) -> bool:
    r"""Tell whether a word goes on with what stands before it: ``don\'t``, ``1{,}000``, ``1\,000``."""
    gap, left = start - before, data[start - 1]
    escaped = gap == 2 and data[before] == _BACKSLASH
    if escaped and left == _APOSTROPHE:
        return True
    is_group = is_number and end >= start + 3 and (end == start + 3 or data[start + 3] == _POINT)
    braced = gap == 3 and data[before] == _BRACE and data[before + 1] == _COMMA and left == _END_BRACE
    return bool(is_group and _is_digit(data[before - 1]) and (braced or (escaped and left == _COMMA)))


@helper
def _entity_marks(data: Array, low: Int, start: Int) -> Int:
    """Return how many bytes before a word make an entity of it, were a semicolon to follow; 0 for none."""
    place = start
    if place > low and data[place - 1] == _HASH:
        place -= 1
    if place > low and data[place - 1] == _AND:
        return start - place + 1
    escaped = place >= low + 5 and data[place - 1] == _SEMICOLON and data[place - 5] == _AND
    escaped = escaped and data[place - 2] | 32 == 112 and data[place - 3] | 32 == 109 and data[place - 4] | 32 == 97
    return start - place + 1 if escaped else np.int64(0)


@helper
def _after_backslash(
    data: Array, high: Int, before: Int, start: Int, end: Int, name: np.uint64, follows: bool, known: Names
) -> tuple[Int, Int, bool, bool]:
    """Do the same for a word behind a backslash: a command of TeX, or an escaped character."""
    nothing = np.int64(0)
    kind = _known_as(name, known)
    action, close, is_glued = np.int64(_KEPT), nothing, False
    first = data[start]
    if kind & TEX:
        action = np.int64(_DROPPED)
    elif kind & TEX_NAMED:
        action, close = np.int64(_DROPPED), np.int64(end)
        if close < high and data[close] == _BRACE:
            while close < high and close < end + 64 and data[close] not in (_END_BRACE, _NEWLINE):
                close += 1
    elif kind & TEX_LETTER:
        action = np.int64(_ANEW)
    elif first | 32 == 117 and end - start >= 5 and _is_hex(data, start + 1, start + 5):
        action, is_glued = np.int64(_ANEW), bool(follows and before == start - 1)
    elif first | 32 in (110, 116, 114):
        action = np.int64(_DROPPED if end - start == 1 else _ANEW)
    else:
        digits = end
        while digits > start and _is_digit(data[digits - 1]):
            digits -= 1
        if start < digits < end and _is_sized(data, start, digits):
            action = np.int64(_ANEW)
    return action, close, is_glued, False


@helper
def _is_sized(data: Array, start: Int, end: Int) -> bool:
    """Tell whether the bytes are ``frac``, ``dfrac``, ``tfrac`` or ``sqrt``, which digits may follow at once."""
    size = end - start
    if size == 5 and (data[start] == 100 or data[start] == 116):
        start, size = start + 1, size - 1
    if size != 4:
        return False
    a, b, c, d = data[start], data[start + 1], data[start + 2], data[start + 3]
    return bool((a == 102 and b == 114 and c == 97 and d == 99) or (a == 115 and b == 113 and c == 114 and d == 116))


@helper
def _link_end(data: Array, before: Int, start: Int, high: Int) -> Int:
    """Return where the address of a Markdown link ends that begins between two words; 0 without one."""
    place = before
    while place + 1 < start and not (data[place] == _BRACKET and data[place + 1] == _OPEN):
        place += 1
    if place + 1 >= start:
        return np.int64(0)
    place += 2
    depth, told, titled = 0, False, False
    stop = min(high, place + _MOST_LINK_BYTES)
    while place < stop and data[place] != _NEWLINE:
        byte = data[place]
        if byte == _OPEN:
            depth += 1
        elif byte == _BRACKET:
            return np.int64(0)
        elif byte == _CLOSE:
            if depth == 0:
                return np.int64(place) if told else np.int64(0)
            depth -= 1
        elif byte == _SPACE:
            titled = titled or (place + 1 < stop and data[place + 1] in (34, _APOSTROPHE))
            if not titled:
                return np.int64(0)
        told = told or byte in (_SLASH, _POINT, _HASH) or (byte == 58 and not titled)
        place += 1
    return np.int64(0)


@helper
def _is_wordy(byte: Int) -> bool:
    return bool(byte >= 0x80 or 97 <= byte | 32 <= 122 or 48 <= byte <= 57)


@helper
def _is_digit(byte: Int) -> bool:
    return bool(48 <= byte <= 57)


@helper
def _is_hex(data: Array, start: Int, end: Int) -> bool:
    place = start
    while place < end and (48 <= data[place] <= 57 or 97 <= data[place] | 32 <= 102):
        place += 1
    return bool(place == end)


@cold
def _is_mixed(data: Array, low: Int, before: Int, start: Int, end: Int, high: Int) -> bool:
    """Tell whether a word has lookalikes of Latin letters, and is partly Latin or beside a Latin word."""
    latin, only = False, True
    for place in range(start, end):
        byte = data[place]
        latin = latin or 97 <= byte | 32 <= 122
        only = only and (byte < 0xC2 or _is_lookalike(byte))
    if not only:
        return latin
    if latin:
        return True
    behind = end
    while behind < high and behind < end + 3 and data[behind] < 0x80 and not _is_wordy(data[behind]):
        behind += 1
    if behind < high and 97 <= data[behind] | 32 <= 122:
        return True
    return bool(before > low and start - before <= 3 and 97 <= data[before - 1] | 32 <= 122)


@cold
def _with_points(name: np.uint64, data: Array, start: Int, end: Int) -> np.uint64:
    """Return a hash of a word that its points and commas change, those between groups of three digits excepted."""
    grouped, plain, since = True, True, 0
    first = True
    for place in range(start, end):  # is every comma before exactly three digits, and are there one to three before?
        byte = data[place]
        if _is_digit(byte):
            since += 1
        elif byte == _COMMA:
            grouped = grouped and plain and (1 <= since <= 3 if first else since == 3)
            first, since = False, 0
        elif byte == _POINT:
            grouped = grouped and plain and (first or since == 3)
            plain, since = False, 0
        else:
            break
    if plain:
        grouped = grouped and (first or since == 3)
    digits, marks = np.uint64(0), np.uint64(0)
    for place in range(start, end):
        byte = data[place]
        if byte == _POINT or (byte == _COMMA and not grouped):
            marks = mix64(marks + digits * np.uint64(4) + np.uint64(1 + (byte == _COMMA)))
        elif byte != _COMMA:
            digits += np.uint64(1)
    if marks == np.uint64(0):
        return name
    value = mix64(name ^ marks) | NUMBER
    return value if name & NUMBER else value ^ NUMBER
