"""Does a change exceed sampling error? Intervals of a difference, from the intervals of its two sides.

**Sampled and estimated values.** The interval of new - old is recovered from the two intervals by the method of
variance estimates recovery (MOVER: Zou and Donner 2008, Statistics in Medicine 27:1693; for two proportions with
Wilson's intervals it is method 10 of Newcombe 1998, Statistics in Medicine 17:873). It takes the two errors as
independent.

**Bounds that are certain** (confidence 1, a value known to lie in its bucket) add up instead of adding in squares, and
so do intervals of different confidence: then both hold with at least the sum of the confidences less 1 (Bonferroni).

**Exact ratios.** There is no error of measurement. What is asked instead is what chance gives: were each corpus a
random sample of a process, the interval of the difference of the processes is Newcombe's, from Wilson's two.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from dataaudit.wilson import wilson

CONFIDENCE = 0.95
"""Of the intervals of chance."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and between which bounds the true one lies."""

    value: float
    low: float
    high: float
    confidence: float = 1.0
    """Chance that the bounds hold the true value; 1 of a value that is exact."""

    @property
    def certain(self) -> bool:
        """Whether the true value lies within the bounds for sure."""
        return self.confidence >= 1.0

    @property
    def exact(self) -> bool:
        """Whether the bounds are the value."""
        return self.low == self.high


def difference(old: Interval, new: Interval) -> Interval:
    """Return new - old with the interval that both intervals leave."""
    moved = new.value - old.value
    if old.exact or new.exact:
        confidence = new.confidence if old.exact else old.confidence
        return Interval(moved, new.low - old.high, new.high - old.low, confidence)
    if old.confidence != new.confidence or old.certain:
        confidence = max(0.0, old.confidence + new.confidence - 1)
        return Interval(moved, new.low - old.high, new.high - old.low, confidence)
    low = moved - sqrt((new.value - new.low) ** 2 + (old.high - old.value) ** 2)
    high = moved + sqrt((new.high - new.value) ** 2 + (old.value - old.low) ** 2)
    return Interval(moved, low, high, old.confidence)


def chance(old: float, old_trials: float, new: float, new_trials: float) -> Interval:
    """Return the difference of two shares with Newcombe's interval: what chance leaves open of the two processes."""
    sides = [Interval(x, *wilson(x, n, CONFIDENCE), CONFIDENCE) for x, n in ((old, old_trials), (new, new_trials))]
    return difference(*sides)
