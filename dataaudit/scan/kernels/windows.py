"""Windows of documents for language detectors: some of the words of each, from its start to its end."""

from __future__ import annotations

import numpy as np

from dataaudit.scan.kernels.jit import READ_BYTES, READ_OFFSETS, Array, compiled, helper

SCAN = 8
"""A window reads so many times the bytes that it copies at most."""
TAG_BYTES = 256
"""Longest tag, brackets included."""
WORD_BYTES = 40
"""Longest word of ASCII: what is longer is a path, a hash or encoded data."""
BORDER_BYTES = 32
"""How far the start of a window moves on to the end of a word."""

_SPACE, _DELETE, _LESS, _GREATER, _SLASH, _COLON = 32, 127, 60, 62, 47, 58
_BANG, _QUESTION = 33, 63


def gather_windows(
    values: Array, offsets: Array, rows: Array, *, windows: int, kept: int
) -> tuple[Array, Array, Array]:
    """Copy some words of each document, a space after each.

    A document of at most ``windows * kept`` bytes is one window. A longer one has ``windows`` of them, at equal
    distances, the first at its start, the last ``kept`` bytes before its end; a window that begins within a word
    moves on to its end. Each ends when it has copied ``kept`` bytes, has looked at ``SCAN`` times as many, or
    meets the next. A word is a run of bytes above 0x20, without 0x7F; not copied are

    * words without a letter (an ASCII letter or any byte of a character beyond ASCII),
    * words of ASCII alone that are longer than ``WORD_BYTES``, or that the end of what is looked at cuts,
    * from the scheme of a URL (``letters://``) to the end of its ASCII bytes,
    * tags: ``<``, then a letter, ``/``, ``!`` or ``?``, up to ``>``, at most ``TAG_BYTES``.

    No character is cut.

    Args:
        values: uint8[b] the documents' valid UTF-8, one after another.
        offsets: int64[n + 1] document i is ``values[offsets[i]:offsets[i + 1]]``.
        rows: int64[m] the documents to look at.
        windows: Windows of a long document, at least 2.
        kept: Bytes that a window copies, at least 8.

    Returns:
        ``words`` uint8, ``bounds`` int64[m + 1] of the documents in it, and ``whole`` bool[m]: the document was
        one window, so there is no more of it to see.
    """
    assert windows >= 2
    assert kept >= 8
    sizes = np.minimum(offsets[rows + 1] - offsets[rows], windows * kept)
    words = np.empty(int(sizes.sum()) + windows * (len(rows) + 1), dtype=np.uint8)
    bounds = np.zeros(len(rows) + 1, dtype=np.int64)
    whole = np.zeros(len(rows), dtype=np.bool_)
    _gather(values, offsets, rows, windows, kept, words, bounds, whole)
    return words[: bounds[-1]], bounds, whole


@compiled(f"void({READ_BYTES}, {READ_OFFSETS}, {READ_OFFSETS}, int64, int64, uint8[::1], int64[::1], boolean[::1])")
def _gather(
    values: Array, offsets: Array, rows: Array, windows: int, kept: int, words: Array, bounds: Array, whole: Array
) -> None:
    done = 0
    for index in range(len(rows)):
        start, stop = offsets[rows[index]], offsets[rows[index] + 1]
        size = stop - start
        if size <= windows * kept:
            whole[index] = True
            done = _copy_words(values, start, stop, True, size, words, done)
        else:
            step = (size - kept) // (windows - 1)
            for window in range(windows):
                first = start + window * step
                last = stop if window == windows - 1 else first + step
                last = _character_start(values, min(last, first + SCAN * kept), stop)
                begin = _word_start(values, first, start, last)
                done = _copy_words(values, begin, last, last == stop, kept, words, done)
        bounds[index + 1] = done


@helper
def _character_start(values: Array, place: int, stop: int) -> int:
    """Return the first byte at or after ``place`` that begins a character."""
    while place < stop and values[place] & 0xC0 == 0x80:
        place += 1
    return place


@helper
def _word_start(values: Array, place: int, start: int, stop: int) -> int:
    """Return the end of the word around ``place``, or ``place`` when that is far."""
    if place == start:
        return place
    place = _character_start(values, place, stop)
    if _is_space(values[place - 1]):
        return place
    for ahead in range(place, min(stop, place + BORDER_BYTES)):
        if _is_space(values[ahead]):
            return ahead
    return place


@helper
def _is_space(byte: int) -> bool:
    return byte <= _SPACE or byte == _DELETE


@helper
def _is_letter(byte: int) -> bool:
    return 97 <= (byte | 32) <= 122


@helper
def _copy_words(values: Array, start: int, stop: int, final: bool, kept: int, words: Array, done: int) -> int:
    """Copy words of ``values[start:stop]`` until ``kept`` bytes are copied; return where the next goes.

    ``final``: the document ends at ``stop``.
    """
    used = 0
    place = start
    while place < stop and used < kept:
        if _is_space(values[place]):
            place += 1
            continue
        tag = _tag_end(values, place, stop)
        if tag:
            place = tag
            continue
        end, after, wanted = _word(values, place, stop, final)
        if wanted:
            end = min(end, place + kept - used)
            while end > place and end < stop and values[end] & 0xC0 == 0x80:
                end -= 1
            if end == place:
                return done
            for step in range(end - place):
                words[done + step] = values[place + step]
            words[done + end - place] = _SPACE
            done += end - place + 1
            used += end - place + 1
        place = after
    return done


@helper
def _tag_end(values: Array, place: int, stop: int) -> int:
    """Return the byte after the tag at ``place``, 0 when there is none."""
    if values[place] != _LESS or place + 1 >= stop:
        return 0
    byte = values[place + 1]
    if not (_is_letter(byte) or byte in (_SLASH, _BANG, _QUESTION)):
        return 0
    for ahead in range(place + 2, min(stop, place + TAG_BYTES)):
        if values[ahead] == _GREATER:
            return ahead + 1
    return 0


@helper
def _word(values: Array, place: int, stop: int, final: bool) -> tuple[int, int, bool]:
    """Return the end of the word at ``place``, where the next begins, and whether it is copied."""
    letters, ascii_only, end = 0, True, place
    while end < stop and not _is_space(values[end]):
        byte = values[end]
        if byte == _LESS and end > place and _tag_end(values, end, stop):
            break
        if byte == _COLON and end + 2 < stop and values[end + 1] == _SLASH and values[end + 2] == _SLASH:
            scheme = end
            while scheme > place and _is_letter(values[scheme - 1]):
                scheme -= 1
            if scheme < end:
                after = end + 3
                while after < stop and values[after] < 0x80 and not _is_space(values[after]):
                    after += 1
                letters -= end - scheme
                return scheme, after, letters > 0 and (not ascii_only or scheme - place <= WORD_BYTES)
        if byte >= 0x80:
            ascii_only = False
            letters += 1
        elif _is_letter(byte):
            letters += 1
        end += 1
    plain = end - place <= WORD_BYTES and (final or end < stop)
    return end, end, letters > 0 and (not ascii_only or plain)
