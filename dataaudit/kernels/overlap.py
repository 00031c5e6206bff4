"""Which protected n-grams documents hold: every gram of theirs is looked up, rolling over the words once."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.jit import READ_BYTES, Integer, compiled
from dataaudit.kernels.ngrams import (
    READ_ENTRIES,
    READ_PLACES,
    READ_WORDS,
    GramTable,
    find,
    mix64,
    power,
    roll,
    slot_shift,
)


def find_grams(words: np.ndarray, offsets: np.ndarray, length: int, table: GramTable) -> tuple[np.ndarray, np.ndarray]:
    """Find every gram of some documents that is in a table.

    Args:
        words: uint64[w] hashes of the documents' words.
        offsets: int64[n + 1] of the documents in them.
        length: Words of a gram.
        table: What is looked for.

    Returns:
        int64[h] places of the grams' first words in ``words``, ascending, and uint32[h] their entries.
    """
    places, entries = np.empty(len(words), dtype=np.int64), np.empty(len(words), dtype=np.uint32)
    if len(table.keys) == 0:
        return places[:0], entries[:0]
    size = _find_all(
        words, offsets, length, power(length), table.filter, table.slots, slot_shift(table), table.keys, places, entries
    )
    return places[:size].copy(), entries[:size].copy()


def find_long_grams(
    words: np.ndarray, offsets: np.ndarray, places: np.ndarray, short: int, length: int, table: GramTable
) -> tuple[np.ndarray, np.ndarray]:
    """Find long grams that are in a table, where short grams are known to be.

    A long gram is only looked up where all short grams inside it were found: what is protected holds these, too.

    Args:
        words: uint64[w] hashes of the documents' words.
        offsets: int64[n + 1] of the documents in them.
        places: int64[h] first words of the short grams that were found, ascending.
        short: Words of a short gram.
        length: Words of a long one.
        table: The long grams.

    Returns:
        int64[k] places of the long grams' first words, ascending, and uint32[k] their entries.
    """
    found, entries = np.empty(len(places), dtype=np.int64), np.empty(len(places), dtype=np.uint32)
    if len(table.keys) == 0:
        return found[:0], entries[:0]
    size = _find_long(
        words,
        offsets,
        places,
        short,
        length,
        power(length),
        table.filter,
        table.slots,
        slot_shift(table),
        table.keys,
        found,
        entries,
    )
    return found[:size].copy(), entries[:size].copy()


@compiled(
    f"int64({READ_WORDS}, {READ_PLACES}, int64, uint64, {READ_WORDS}, {READ_ENTRIES}, uint64, {READ_WORDS},"
    " int64[::1], uint32[::1])"
)
def _find_all(
    words: np.ndarray,
    offsets: np.ndarray,
    length: Integer,
    out_power: np.uint64,
    known: np.ndarray,
    slots: np.ndarray,
    shift: np.uint64,
    keys: np.ndarray,
    places: np.ndarray,
    entries: np.ndarray,
) -> Integer:
    written, size = np.uintp(0), np.uintp(length)
    for document in range(len(offsets) - 1):
        start, stop = np.uintp(offsets[document]), np.uintp(offsets[document + 1])
        if stop - start < size:
            continue
        acc = np.uint64(0)
        for place in range(start, start + size - np.uintp(1)):
            acc = roll(acc, words[place], np.uint64(0), out_power)
        leaving = np.uint64(0)
        for first in range(start, stop - size + np.uintp(1)):
            acc = roll(acc, words[first + size - np.uintp(1)], leaving, out_power)
            leaving = words[first]
            entry = find(mix64(acc), known, slots, shift, keys)
            if entry >= 0:
                places[written], entries[written] = np.int64(first), np.uint32(entry)
                written += np.uintp(1)
    return np.int64(written)


@compiled(
    f"int64({READ_WORDS}, {READ_PLACES}, {READ_PLACES}, int64, int64, uint64, {READ_WORDS}, {READ_ENTRIES}, uint64,"
    f" {READ_WORDS}, int64[::1], uint32[::1])"
)
def _find_long(
    words: np.ndarray,
    offsets: np.ndarray,
    places: np.ndarray,
    short: Integer,
    length: Integer,
    out_power: np.uint64,
    known: np.ndarray,
    slots: np.ndarray,
    shift: np.uint64,
    keys: np.ndarray,
    found: np.ndarray,
    entries: np.ndarray,
) -> Integer:
    written, need = np.uintp(0), length - short + 1
    index, document = 0, 0
    while index < len(places):
        begun = places[np.uintp(index)]
        while offsets[np.uintp(document + 1)] <= begun:
            document += 1
        stop = offsets[np.uintp(document + 1)]
        last = index
        while (
            last + 1 < len(places)
            and places[np.uintp(last + 1)] == places[np.uintp(last)] + 1
            and places[np.uintp(last + 1)] < stop
        ):
            last += 1
        run = last - index + 1
        acc = np.uint64(0)
        if run >= need:
            for place in range(begun, begun + length - 1):
                acc = roll(acc, words[np.uintp(place)], np.uint64(0), out_power)
            leaving = np.uint64(0)
            for first in range(begun, begun + run - need + 1):
                acc = roll(acc, words[np.uintp(first + length - 1)], leaving, out_power)
                leaving = words[np.uintp(first)]
                entry = find(mix64(acc), known, slots, shift, keys)
                if entry >= 0:
                    found[written], entries[written] = first, np.uint32(entry)
                    written += np.uintp(1)
        index = last + 1
    return np.int64(written)


def count_own(
    spans: np.ndarray, copied: np.ndarray, grams: np.ndarray, common: np.ndarray, lengths: tuple[int, int]
) -> np.ndarray:
    """Return int64[d] how many words of each document lie in copied segments, but in no common gram.

    A segment, a run of words that copied spans cover, counts where it has as many such words as a span.

    Args:
        spans: int64[d + 1] of the documents in ``copied``.
        copied: uint8[s] 1 for each span that is copied, by its first word.
        grams: int64[d + 1] of the documents in ``common``.
        common: uint8[g] 1 for each gram that is common, by its first word.
        lengths: Words of a span, and of a gram, which is shorter.
    """
    counts = np.zeros(len(spans) - 1, dtype=np.int64)
    _count_own(spans, copied, grams, common, *lengths, counts)
    return counts


@compiled(f"void({READ_PLACES}, {READ_BYTES}, {READ_PLACES}, {READ_BYTES}, int64, int64, int64[::1])")
def _count_own(
    spans: np.ndarray,
    copied: np.ndarray,
    grams: np.ndarray,
    common: np.ndarray,
    length: Integer,
    short: Integer,
    counts: np.ndarray,
) -> None:
    for document in range(len(counts)):
        span, span_stop = spans[document], spans[document + 1]
        gram, covered, shared, own = grams[document], 0, 0, 0
        words = span_stop - span + length - 1 if span_stop > span else 0
        for word in range(words):
            if span + word < span_stop and copied[np.uintp(span + word)]:
                covered = word + length
            if word + short <= words and common[np.uintp(gram + word)]:
                shared = word + short
            if word >= covered:
                own = 0
            elif word >= shared:
                own += 1
                if own >= length:
                    counts[document] += length if own == length else 1
