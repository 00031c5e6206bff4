"""Winnowing: a few n-grams of every document, chosen so that equal spans of text have a chosen n-gram in common.

Robust winnowing (Schleimer, Wilkerson and Aiken 2003, "Winnowing: Local Algorithms for Document Fingerprinting",
section 4): of every window of ``WINDOW`` consecutive ``GRAM``-grams the gram with the least hash is selected; of equal
grams that which was selected for the window before, or else the last. A window is ``SPAN`` words, so

    the value selected for ``SPAN`` words depends on these words alone: documents that have them in common have a
    fingerprint of the same value.

Of random text 2 in ``WINDOW + 1`` positions are selected, of a word repeated for ever 1 in ``WINDOW``.

Matches of a document and a path, both runs of numbered windows, are extended to both sides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.scan.kernels.jit import READ_HASHES, READ_OFFSETS, Array, Int, compiled, helper
from dataaudit.scan.kernels.ngrams import mix64, power, roll

GRAM = 13
"""Words of a fingerprint; those of ``train_val_overlap``."""
WINDOW = 38
"""Fingerprints of which one is selected."""
SPAN = GRAM + WINDOW - 1
"""Words of a window: the shortest span that always has a fingerprint."""
_NONE = np.uint64(0)


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """The selected fingerprints of ``n`` documents, in order."""

    values: Array
    """uint64[f] hash of the n-gram: the least of its windows, so its high bits are not evenly spread; the low are."""
    positions: Array
    """uint32[f] word of the document at which the first window begins that selected it."""
    windows: Array
    """uint8[f] how many windows, from that window on, selected it."""
    offsets: Array
    """uint8[f] words from the beginning of that window to the n-gram."""
    bounds: Array
    """int64[n + 1]: those of document i are ``values[bounds[i]:bounds[i + 1]]``."""


def winnow(hashes: Array, offsets: Array) -> Fingerprints:
    """Select the fingerprints of documents; those of fewer than ``SPAN`` words have none."""
    sizes = np.diff(offsets)
    most = int(np.maximum(sizes - SPAN + 1, 0).sum())
    values, positions = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.uint32)
    windows, inside = np.empty(most, dtype=np.uint8), np.empty(most, dtype=np.uint8)
    bounds = np.zeros(len(offsets), dtype=np.int64)
    grams = np.empty(int(sizes.max(initial=0)), dtype=np.uint64)
    _winnow(hashes, offsets, power(GRAM), grams, values, positions, windows, inside, bounds)
    found = int(bounds[-1])
    return Fingerprints(
        values[:found].copy(), positions[:found].copy(), windows[:found].copy(), inside[:found].copy(), bounds
    )


def window_hashes(hashes: Array, firsts: Array, counts: Array, words: int = SPAN) -> Array:
    """Return uint64: the hashes of windows of ``words`` words, ``counts[i]`` of them from word ``firsts[i]`` on."""
    out = np.empty(int(counts.sum()), dtype=np.uint64)
    _hash_windows(hashes, firsts, counts, words, power(words), out)
    return out


def sequence_hashes(hashes: Array, firsts: Array, lasts: Array) -> Array:
    """uint64[f] hash of the words from each of ``firsts`` up to, not including, each of ``lasts``."""
    out = np.empty(len(firsts), dtype=np.uint64)
    _hash_sequences(hashes, firsts, lasts, out)
    return out


@compiled(
    f"void({READ_HASHES}, {READ_OFFSETS}, uint64, uint64[::1], uint64[::1], uint32[::1], uint8[::1], uint8[::1],"
    " int64[::1])"
)
def _winnow(
    hashes: Array,
    offsets: Array,
    leaving: np.uint64,
    grams: Array,
    values: Array,
    positions: Array,
    windows: Array,
    inside: Array,
    bounds: Array,
) -> None:
    count = 0
    for document in range(len(offsets) - 1):
        size = offsets[document + 1] - offsets[document] - (GRAM - 1)
        if size >= WINDOW:
            _hash_grams(hashes, offsets[document], size, leaving, grams)
            chosen, begun = -1, 0
            for window in range(size - WINDOW + 1):
                last = window + WINDOW - 1
                if chosen >= window and grams[last] >= grams[chosen]:
                    continue
                if window > 0:
                    windows[count - 1] = window - begun
                if chosen < window:
                    chosen = window
                    for place in range(window + 1, last + 1):
                        if grams[place] <= grams[chosen]:
                            chosen = place
                else:
                    chosen = last
                begun = window
                values[count] = grams[chosen]
                positions[count] = window
                inside[count] = chosen - window
                count += 1
            windows[count - 1] = size - WINDOW + 1 - begun
        bounds[document + 1] = count


@helper
def _hash_grams(hashes: Array, first: int, size: int, leaving: np.uint64, grams: Array) -> None:
    acc = _NONE
    for index in range(GRAM - 1):
        acc = roll(acc, hashes[first + index], _NONE, leaving)
    before = _NONE
    for index in range(size):
        acc = roll(acc, hashes[first + index + GRAM - 1], before, leaving)
        before = hashes[first + index]
        grams[index] = mix64(acc)


@compiled(f"void({READ_HASHES}, {READ_OFFSETS}, {READ_OFFSETS}, int64, uint64, uint64[::1])")
def _hash_windows(hashes: Array, firsts: Array, counts: Array, words: int, leaving: np.uint64, out: Array) -> None:
    done, after, acc = 0, -1, _NONE
    for index in range(len(firsts)):
        first = firsts[index]
        if first != after:  # else the sum goes on from the windows before
            acc = _NONE
            for step in range(words - 1):
                acc = roll(acc, hashes[first + step], _NONE, leaving)
        for window in range(first, first + counts[index]):
            gone = hashes[window - 1] if window > first or first == after else _NONE
            acc = roll(acc, hashes[window + words - 1], gone, leaving)
            out[done] = mix64(acc)
            done += 1
        after = first + counts[index]


@compiled(f"void({READ_HASHES}, {READ_OFFSETS}, {READ_OFFSETS}, uint64[::1])")
def _hash_sequences(hashes: Array, firsts: Array, lasts: Array, out: Array) -> None:
    for index in range(len(firsts)):
        acc = _NONE
        for place in range(firsts[index], lasts[index]):
            acc = roll(acc, hashes[place], _NONE, _NONE)
        out[index] = mix64(acc)


@dataclass(frozen=True, slots=True)
class Runs:
    """``n`` runs, by owner (a document, a path) and start; each is ``sizes`` windows, numbered from ``ids`` on."""

    owners: Array
    """int64[n] document or path."""
    starts: Array
    """int64[n] position of the first window in its owner."""
    sizes: Array
    """int64[n] windows, at least 1."""
    ids: Array
    """int64[n] number of the first window; the next ones have the next numbers."""


def extend_matches(
    document: Runs, document_runs: Array, path: Runs, path_runs: Array, ids: Array
) -> tuple[Array, Array]:
    """Return how many windows match to the left and to the right of windows ``ids``, in runs of documents and paths."""
    left, right = np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    item = (document.owners, document.starts, document.sizes, document.ids)
    two = (path.owners, path.starts, path.sizes, path.ids)
    _extend(*item, document_runs, *two, path_runs, ids, left, right)
    return left, right


@compiled(f"void({', '.join([READ_OFFSETS] * 11)}, int64[::1], int64[::1])")
def _extend(
    owners: Array,
    starts: Array,
    sizes: Array,
    ids: Array,
    runs: Array,
    path_owners: Array,
    path_starts: Array,
    path_sizes: Array,
    path_ids: Array,
    path_runs: Array,
    anchors: Array,
    left: Array,
    right: Array,
) -> None:
    for index in range(len(anchors)):
        run, other = runs[index], path_runs[index]
        before, before_other = anchors[index] - ids[run], anchors[index] - path_ids[other]
        after, after_other = sizes[run] - before, path_sizes[other] - before_other
        more = True
        while more:  # as many windows before this window match as both runs have
            step = min(before, before_other)
            left[index] += step
            before, before_other = before - step, before_other - step
            if before == 0 and _joined(owners, starts, sizes, run):
                run -= 1
                before = sizes[run]
            if before_other == 0 and _joined(path_owners, path_starts, path_sizes, other):
                other -= 1
                before_other = path_sizes[other]
            more = before > 0 and before_other > 0
            more = more and ids[run] + before == path_ids[other] + before_other
        run, other, more = runs[index], path_runs[index], True
        right[index] = -1
        while more:  # this window and those after it
            step = min(after, after_other)
            right[index] += step
            after, after_other = after - step, after_other - step
            if after == 0 and run + 1 < len(ids) and _joined(owners, starts, sizes, run + 1):
                run += 1
                after = sizes[run]
            if (
                after_other == 0
                and other + 1 < len(path_ids)
                and _joined(path_owners, path_starts, path_sizes, other + 1)
            ):
                other += 1
                after_other = path_sizes[other]
            more = after > 0 and after_other > 0
            more = more and ids[run] + sizes[run] - after == path_ids[other] + path_sizes[other] - after_other


@helper
def _joined(owners: Array, starts: Array, sizes: Array, run: Int) -> bool:
    """Tell whether a run goes on where the one before it ends."""
    before = run - 1
    return run > 0 and bool(owners[run] == owners[before] and starts[run] == starts[before] + sizes[before])
