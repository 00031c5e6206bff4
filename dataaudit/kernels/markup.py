"""Words in normal form: without the marks of HTML, TeX and Markdown, and with numbers as they are read.

What was split by :mod:`dataaudit.kernels.words` is looked at again, word by word, for what stands around it. A word is

* *dropped* when it is markup alone: a known tag of HTML with its attributes, a named or numbered entity that separates,
  a known command of TeX, the address of a Markdown link, the letter of an escaped line break (``\\n``);
* *written anew* together with what it is glued to where markup stands inside a word (``don&#39;t``, ``H<sub>2</sub>O``,
  ``1{,}000``), and where letters of two scripts are mixed: :func:`dataaudit.kernels.rewriting.rewritten` says how.

A point or comma inside a number stays: ``1.5`` is neither ``15`` nor ``1.25``. Commas between groups of three digits
are ignored, so ``1,000`` is ``1000``. All of it holds for words that are looked for and for those that are searched.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from html.entities import html5

import numpy as np

from dataaudit.kernels.jit import READ_BYTES, READ_OFFSETS, Integer, cold, compiled, helper
from dataaudit.kernels.ngrams import NUMBER, READ_ENTRIES, READ_PLACES, READ_WORDS, mix64
from dataaudit.kernels.rewriting import GREEK, INLINE_TAGS, TAGS, TEX_COMMANDS, TEX_NAMED, rewritten
from dataaudit.kernels.words import WordBatch, split_words

_TAG, _INLINE, _ENTITY, _ENTITY_IN_WORD, _TEX, _TEX_NAMED, _TEX_LETTER = 1, 2, 4, 8, 16, 32, 64
"""What the name of a word is known as."""
_KEPT, _DROPPED, _ANEW = 0, 1, 2
_MOST_TAG_BYTES = 1_024
"""Bytes from a tag's name to its end, at most."""
_MOST_LINK_BYTES = 1_024
_LESS, _GREATER, _SLASH, _AND, _HASH, _SEMICOLON = 60, 62, 47, 38, 35, 59
_BACKSLASH, _APOSTROPHE, _BRACKET, _OPEN, _CLOSE, _BRACE, _END_BRACE = 92, 39, 93, 40, 41, 123, 125
_POINT, _COMMA, _SPACE, _NEWLINE = 46, 44, 32, 10


def normal_words(words: WordBatch, values: np.ndarray, offsets: np.ndarray) -> WordBatch:
    """Return the words of documents in normal form; places are those in the documents as they are.

    Args:
        words: Of :func:`dataaudit.kernels.words.split_words`.
        values: uint8[b] the documents' UTF-8, one after another.
        offsets: int64[n + 1] of the documents in it.
    """
    hashes, actions, glued, found = _marked(words, values, offsets)
    if not found:
        return WordBatch(hashes, words.offsets, words.starts, words.ends)
    counts = (actions == _KEPT).astype(np.int64)
    runs, pieces = _runs_written_anew(words, values, offsets, actions, glued)
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    data = np.frombuffer(b"".join(pieces) or b"\0", dtype=np.uint8)[: bounds[-1]]
    anew = split_words(data, bounds)
    anew_hashes, _, _, _ = _marked(anew, data, bounds)
    for first, stop in runs:
        counts[first:stop] = 0
    counts[runs[:, 0]] = anew.num_words()
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    source = np.repeat(np.arange(len(counts)), counts)
    starts, ends, made = words.starts[source], words.ends[source], hashes[source]
    last = np.arange(len(counts))
    last[runs[:, 0]] = runs[:, 1] - 1
    ends = words.ends[last[source]]
    at = np.repeat(sums[runs[:, 0]] - anew.offsets[:-1], anew.num_words()) + np.arange(len(anew_hashes))
    made[at] = anew_hashes
    return WordBatch(made, sums[words.offsets], starts, ends)


def _runs_written_anew(
    words: WordBatch, values: np.ndarray, offsets: np.ndarray, actions: np.ndarray, glued: np.ndarray
) -> tuple[np.ndarray, list[bytes]]:
    """Return int64[r, 2], first word and word after the last of what is written anew together, and what it becomes."""
    firsts = np.flatnonzero(glued == 0)
    chosen = np.unique(np.searchsorted(firsts, np.flatnonzero(actions == _ANEW), side="right") - 1)
    runs = np.column_stack([firsts[chosen], np.append(firsts[1:], len(glued))[chosen]])
    begun = offsets[np.searchsorted(words.offsets, runs[:, 0], side="right") - 1]
    starts, ends = begun + words.starts[runs[:, 0]], begun + words.ends[runs[:, 1] - 1]
    pieces = []
    for low, start, end in zip(begun.tolist(), starts.tolist(), ends.tolist(), strict=True):
        before = values[max(low, start - 6) : start].tobytes()
        mark = next((mark for mark in (b"&amp;#", b"&amp;", b"&#", b"&", b"\\") if before.endswith(mark)), b"")
        after = b";" if values[end : end + 1].tobytes() == b";" else b""
        pieces.append(rewritten(mark + values[start:end].tobytes() + after))
    return runs, pieces


def _marked(
    words: WordBatch, values: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Return uint64[w] hashes with their points, uint8[w] what becomes of words, uint8[w] which are glued, and whether
    any word is not kept."""
    known = _names()
    hashes = words.hashes.copy()
    actions, glued = np.zeros((2, len(hashes)), dtype=np.uint8)
    found = _mark(values, offsets, words.offsets, words.starts, words.ends, known[0], known[1], hashes, actions, glued)
    return hashes, actions, glued, bool(found)


@cache
def _names() -> tuple[np.ndarray, np.ndarray]:
    """Return uint64[k] hashes of known names, ascending, and uint32[k] what each is known as."""
    known: dict[str, int] = {}
    for kind, names in (
        (_TAG, TAGS),
        (_INLINE, INLINE_TAGS),
        (_TEX, TEX_COMMANDS),
        (_TEX_NAMED, TEX_NAMED),
        (_TEX_LETTER, GREEK),
    ):
        for name in names:
            known[name] = known.get(name, 0) | kind
    for name, value in html5.items():
        kind = _ENTITY if all(map(_separates, value)) else _ENTITY_IN_WORD
        name = name.removesuffix(";").lower()
        known[name] = known.get(name, 0) | kind
    encoded = [name.encode() for name in known]
    bounds = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    batch = split_words(np.frombuffer(b"".join(encoded), dtype=np.uint8), bounds)
    assert len(batch.hashes) == len(encoded)
    order = np.argsort(batch.hashes)
    return batch.hashes[order], np.fromiter(known.values(), dtype=np.uint32)[order]


def _separates(char: str) -> bool:
    """Tell whether no word goes on over a character, whatever stands around it."""
    return unicodedata.category(char)[0] not in "LMN" and unicodedata.category(char) != "Cf" and char not in "'.,\u2019"


@compiled(
    f"int64({READ_BYTES}, {READ_OFFSETS}, {READ_PLACES}, {READ_ENTRIES}, {READ_ENTRIES}, {READ_WORDS}, {READ_ENTRIES},"
    " uint64[::1], uint8[::1], uint8[::1])"
)
def _mark(
    data: np.ndarray,
    bounds: np.ndarray,
    offsets: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    names: np.ndarray,
    kinds: np.ndarray,
    hashes: np.ndarray,
    actions: np.ndarray,
    glued: np.ndarray,
) -> Integer:
    """Say what becomes of every word; return how many are not kept."""
    found = 0
    for document in range(len(bounds) - 1):
        low, high = bounds[document], bounds[document + 1]
        skipped = low  # words before it are inside a tag or an address
        glue_next = False
        for word in range(offsets[document], offsets[document + 1]):
            start, end = low + np.int64(starts[word]), low + np.int64(ends[word])
            before = low + np.int64(ends[word - 1]) if word > offsets[document] else low
            if start < skipped:
                actions[word], glued[word] = _DROPPED, glue_next
                found += 1
                continue
            points = False
            mixed = False
            for place in range(start, end):
                byte = data[place]
                points |= byte in (_POINT, _COMMA)
                mixed |= byte >= 0x80
            if points:
                hashes[word] = _with_points(hashes[word], data, start, end)
            if mixed and _is_mixed(data, low, before, start, end, high):
                actions[word] = _ANEW
                found += 1
            gap = start - before
            if gap == 0 or (gap == 1 and data[before] in (_SPACE, _NEWLINE)):
                glue_next = False
                continue
            if glue_next and word > offsets[document]:
                glued[word] = 1
            glue_next = False
            action, skipped_to, is_glued, glue_next = _around(
                data, low, high, before, start, end, hashes[word], word > offsets[document], names, kinds
            )
            skipped = max(skipped, skipped_to)
            if is_glued and word > offsets[document]:
                glued[word] = 1
            if action != _KEPT:
                found += np.int64(actions[word] == _KEPT)
                actions[word] = action
    return found


@helper
def _known_as(name: np.uint64, names: np.ndarray, kinds: np.ndarray) -> Integer:
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
    data: np.ndarray,
    low: Integer,
    high: Integer,
    before: Integer,
    start: Integer,
    end: Integer,
    name: np.uint64,
    follows: bool,
    names: np.ndarray,
    kinds: np.ndarray,
) -> tuple[Integer, Integer, bool, bool]:
    """Look at what stands around a word of ``data[low:high]``, the word before it ending at ``before``.

    Returns:
        What becomes of it; the place up to which words are dropped; whether it is glued to the word before it, and the
        next one to it.
    """
    gap = start - before
    left = data[start - 1] if start > low else np.uint8(0)
    left2 = data[start - 2] if start > low + 1 else np.uint8(0)
    right = data[end] if end < high else np.uint8(0)
    nothing = np.int64(0)
    if right == _SEMICOLON:
        marks = _entity_marks(data, low, start)
        if marks:
            is_numbered = left == _HASH
            kind = np.int64(_ENTITY_IN_WORD) if is_numbered else _known_as(name, names, kinds)
            inside = follows and gap == marks
            if kind & (_ENTITY | _ENTITY_IN_WORD):
                joins = bool(kind & _ENTITY_IN_WORD)
                goes_on = end + 1 < high and _is_wordy(data[end + 1])
                is_amp = end - start == 3 and data[start] | 32 == 97 and data[start + 1] | 32 == 109
                again = is_amp and end + 1 < high and (data[end + 1] == _HASH or _is_wordy(data[end + 1]))
                action = _ANEW if joins else _DROPPED
                return np.int64(action), nothing, inside, bool((joins and goes_on) or again)
    if left == _LESS or (left == _SLASH and left2 == _LESS):
        kind = _known_as(name, names, kinds)
        if kind & _TAG:
            close = end
            while close < high and close < end + _MOST_TAG_BYTES and data[close] not in (_LESS, _GREATER):
                close += 1
            if close < high and data[close] == _GREATER and not _is_wordy(right):
                opened = start - (1 if left == _LESS else 2)
                inside = follows and opened == before and close + 1 < high and _is_wordy(data[close + 1])
                inside = inside and kind & _INLINE != 0
                return np.int64(_ANEW if inside else _DROPPED), np.int64(close), inside, inside
    if left == _BACKSLASH:
        return _after_backslash(data, low, high, before, start, end, name, follows, names, kinds)
    if gap == 2 and follows and left2 == _BACKSLASH and left == _APOSTROPHE:
        return np.int64(_ANEW), nothing, True, False
    is_number = name & NUMBER != np.uint64(0)
    is_group = is_number and end >= start + 3 and (end == start + 3 or data[start + 3] == _POINT)
    if follows and is_group and _is_digit(data[before - 1]):
        if gap == 3 and data[before] == _BRACE and data[before + 1] == _COMMA and left == _END_BRACE:
            return np.int64(_ANEW), nothing, True, False
        if gap == 2 and left2 == _BACKSLASH and left == _COMMA:
            return np.int64(_ANEW), nothing, True, False
    if follows and gap >= 2:
        close = _link_end(data, before, start, high)
        if close:
            return np.int64(_DROPPED), close, False, False
    return np.int64(_KEPT), nothing, False, False


@helper
def _entity_marks(data: np.ndarray, low: Integer, start: Integer) -> Integer:
    """Return how many bytes before a word make an entity of it, were a semicolon to follow; 0 for none."""
    place = start
    if place > low and data[place - 1] == _HASH:
        place -= 1
    if place > low and data[place - 1] == _AND:
        return start - place + 1
    escaped = (
        place >= low + 5
        and data[place - 1] == _SEMICOLON
        and data[place - 2] | 32 == 112
        and data[place - 3] | 32 == 109
        and data[place - 4] | 32 == 97
        and data[place - 5] == _AND
    )
    return start - place + 1 if escaped else np.int64(0)


@helper
def _after_backslash(
    data: np.ndarray,
    low: Integer,
    high: Integer,
    before: Integer,
    start: Integer,
    end: Integer,
    name: np.uint64,
    follows: bool,
    names: np.ndarray,
    kinds: np.ndarray,
) -> tuple[Integer, Integer, bool, bool]:
    """The same for a word behind a backslash: a command of TeX, or an escaped character."""
    nothing = np.int64(0)
    kind = _known_as(name, names, kinds)
    if kind & _TEX:
        return np.int64(_DROPPED), nothing, False, False
    if kind & _TEX_NAMED:
        close = end
        if close < high and data[close] == _BRACE:
            while close < high and close < end + 64 and data[close] not in (_END_BRACE, _NEWLINE):
                close += 1
        return np.int64(_DROPPED), close, False, False
    if kind & _TEX_LETTER:
        return np.int64(_ANEW), nothing, False, False
    first = data[start]
    if first == 117 and end - start >= 5 and _is_hex(data, start + 1, start + 5):
        return np.int64(_ANEW), nothing, follows and before == start - 1, False
    if first == 110 or first == 116 or first == 114:
        return np.int64(_DROPPED if end - start == 1 else _ANEW), nothing, False, False
    digits = end
    while digits > start and _is_digit(data[digits - 1]):
        digits -= 1
    if start < digits < end and _is_sized(data, start, digits):
        return np.int64(_ANEW), nothing, False, False
    return np.int64(_KEPT), nothing, False, False


@helper
def _is_sized(data: np.ndarray, start: Integer, end: Integer) -> bool:
    """Tell whether a stretch is ``frac``, ``dfrac``, ``tfrac`` or ``sqrt``, which digits may follow at once."""
    size = end - start
    if size == 5 and (data[start] == 100 or data[start] == 116):
        start, size = start + 1, size - 1
    if size != 4:
        return False
    a, b, c, d = data[start], data[start + 1], data[start + 2], data[start + 3]
    return bool((a == 102 and b == 114 and c == 97 and d == 99) or (a == 115 and b == 113 and c == 114 and d == 116))


@helper
def _link_end(data: np.ndarray, before: Integer, start: Integer, high: Integer) -> Integer:
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
        elif byte == _CLOSE:
            if depth == 0:
                return np.int64(place) if told else np.int64(0)
            depth -= 1
        elif byte == _SPACE:
            titled = place + 1 < stop and data[place + 1] in (34, _APOSTROPHE) or titled
            if not titled:
                return np.int64(0)
        told = told or byte in (_SLASH, _POINT, _HASH) or (byte == 58 and not titled)
        place += 1
    return np.int64(0)


@helper
def _is_wordy(byte: np.uint8) -> bool:
    return bool(byte >= 0x80 or 97 <= byte | 32 <= 122 or 48 <= byte <= 57)


@helper
def _is_digit(byte: np.uint8) -> bool:
    return bool(48 <= byte <= 57)


@helper
def _is_hex(data: np.ndarray, start: Integer, end: Integer) -> bool:
    place = start
    while place < end and (48 <= data[place] <= 57 or 97 <= data[place] | 32 <= 102):
        place += 1
    return bool(place == end)


@cold
def _is_mixed(data: np.ndarray, low: Integer, before: Integer, start: Integer, end: Integer, high: Integer) -> bool:
    """Tell whether a word has letters that may stand for Latin ones, and is partly Latin or beside a Latin word."""
    latin, other, rest = False, False, False
    for place in range(start, end):
        byte = data[place]
        latin = latin or 97 <= byte | 32 <= 122
        lookalike = 0xCD <= byte <= 0xD6 or byte in (0xC9, 0xCA)
        other = other or lookalike
        rest = rest or 0xC2 <= byte and not lookalike
    if not other or rest:
        return other and latin
    if latin:
        return True
    behind = end
    while behind < high and behind < end + 3 and data[behind] < 0x80 and not _is_wordy(data[behind]):
        behind += 1
    if behind < high and 97 <= data[behind] | 32 <= 122:
        return True
    return bool(before > low and start - before <= 3 and 97 <= data[before - 1] | 32 <= 122)


@cold
def _with_points(name: np.uint64, data: np.ndarray, start: Integer, end: Integer) -> np.uint64:
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
