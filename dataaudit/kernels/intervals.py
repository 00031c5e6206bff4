"""Intervals of sampled shares."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist


def wilson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the score interval of a share (Wilson 1927, J. Am. Stat. Assoc. 22:209), without correction.

    Args:
        successes: Trials that succeeded.
        trials: Independent trials, at least 1.
        confidence: Coverage that is aimed at, between 0 and 1; for a single share the true one lies a few points
            around it.

    Returns:
        Lower and upper bound; they hold ``successes / trials`` and lie within [0, 1].
    """
    assert 0 <= successes <= trials
    assert trials > 0
    share = successes / trials
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrunk = z * z / trials
    middle = (share + shrunk / 2) / (1 + shrunk)
    half = z / (1 + shrunk) * sqrt(share * (1 - share) / trials + shrunk / (4 * trials))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))
