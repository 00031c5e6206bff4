"""Reference implementation of :mod:`dataaudit.scan.kernels.ngrams`: plain Python, window by window."""

from __future__ import annotations

from collections.abc import Sequence

_BASE = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def sequence_hash(words: Sequence[int]) -> int:
    """Return the hash of a sequence of word hashes: a polynomial in ``_BASE``, its bits mixed (SplitMix64)."""
    value = sum(word * pow(_BASE, len(words) - 1 - place, 1 << 64) for place, word in enumerate(words)) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def fingerprints(words: Sequence[int], gram: int, window: int) -> list[tuple[int, int, int, int]]:
    """Return value, first window that selected it, how many did, and its place in that one, of each fingerprint."""
    grams = [sequence_hash(words[place : place + gram]) for place in range(len(words) - gram + 1)]
    selected: list[int] = []
    for start in range(len(grams) - window + 1):
        inside = range(start, start + window)
        least = min(grams[place] for place in inside)
        equal = [place for place in inside if grams[place] == least]
        kept = selected[-1] if selected and selected[-1] in equal else equal[-1]
        selected.append(kept)
    found: list[tuple[int, int, int, int]] = []
    for start, place in enumerate(selected):
        if start and selected[start - 1] == place:
            value, first, count, offset = found[-1]
            found[-1] = (value, first, count + 1, offset)
        else:
            found.append((grams[place], start, 1, place - start))
    return found
