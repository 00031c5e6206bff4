"""Reference implementations of token counts, divergence, chance and packing, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations
from math import comb

_DIGITS = 50


def count_ids(documents: Sequence[tuple[str, bool, Sequence[int]]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (occurrences, those in marked documents) by (source, token) of (source, marked, tokens) documents."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for source, marked, tokens in documents:
        for token in tokens:
            known = found.get((source, token), (0, 0))
            found[source, token] = (known[0] + 1, known[1] + (1 if marked else 0))
    return found


def divergences(now: Sequence[int], reference: Sequence[int]) -> tuple[Decimal, Decimal]:
    """Return KL(now || reference) and Jensen-Shannon of counts with one half added to each, to 50 digits."""
    p, q = _smoothed(now), _smoothed(reference)
    middle = [(left + right) / 2 for left, right in zip(p, q, strict=True)]
    with localcontext(prec=_DIGITS):
        return _kl(p, q), (_kl(p, middle) + _kl(q, middle)) / 2


def chance(now: Sequence[int], reference: Sequence[int], clump: float) -> Decimal:
    """Return the mean of KL over every way to deal each token's clumps, token by token.

    A token that occurs s times has max(1, s / clump rounded to even) clumps of equal size; each falls to the first
    sample with the first sample's part of all tokens.
    """
    share = Fraction(sum(now), sum(now) + sum(reference))
    scales = [sum(counts) + Fraction(len(counts), 2) for counts in (now, reference)]
    total = Decimal(0)
    with localcontext(prec=_DIGITS):
        for left, right in zip(now, reference, strict=True):
            pooled = left + right
            clumps = max(1, round(pooled / clump))
            size = Fraction(pooled, clumps)
            for dealt in range(clumps + 1):
                chance_of = comb(clumps, dealt) * share**dealt * (1 - share) ** (clumps - dealt)
                p = (size * dealt + Fraction(1, 2)) / scales[0]
                q = (size * (clumps - dealt) + Fraction(1, 2)) / scales[1]
                total += _decimal(chance_of) * (_decimal(p) * _decimal(p / q).ln() - _decimal(p) + _decimal(q))
    return total


def packed_bins(lengths: Sequence[int], capacity: int) -> int:
    """Return the bins that pieces need: longest first, each into the bin with the least room that holds it."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [index for index, room in enumerate(rooms) if room >= length]
        if fitting:
            rooms[min(fitting, key=lambda index: rooms[index])] -= length
        else:
            rooms.append(capacity - length)
    return len(rooms)


def batched_positions(lengths: Sequence[int], batch: int) -> Fraction:
    """Return the expected positions of all batches, over every subset that a batch can be."""
    whole, rest = divmod(len(lengths), batch)
    total = Fraction(0)
    for size, number in ((batch, whole), (rest, 1)):
        if size and number:
            longest = [max(chosen) for chosen in combinations(lengths, size)]
            total += number * size * Fraction(sum(longest), len(longest))
    return total


def pieces(tokens: int, context: int) -> list[int]:
    """Return the lengths of the pieces that one document is cut into."""
    cut = []
    while tokens > 0:
        cut.append(min(tokens, context))
        tokens -= context
    return cut


def _smoothed(counts: Sequence[int]) -> list[Fraction]:
    total = sum(counts) + Fraction(len(counts), 2)
    return [(count + Fraction(1, 2)) / total for count in counts]


def _kl(p: Sequence[Fraction], q: Sequence[Fraction]) -> Decimal:
    return sum((_decimal(a) * _decimal(a / b).ln() for a, b in zip(p, q, strict=True)), Decimal(0))


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
