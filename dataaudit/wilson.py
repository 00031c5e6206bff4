"""The score interval of a share (Wilson 1927, J. Am. Stat. Assoc. 22:209), for builds and for what reads manifests.

Python's own normal distribution is enough for it: ``gate`` and ``diff`` run without scipy.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist


def wilson(share: float, trials: float, confidence: float) -> tuple[float, float]:
    """Return the interval of a share of independent trials, without correction.

    Args:
        share: Successes / trials, from 0 to 1; what a damaged manifest says beyond them is an error in no caller.
        trials: More than 0; may be a fraction, as an effective number of trials is.
        confidence: Coverage that is aimed at, between 0 and 1; for a single share the true one lies a few points
            around it.

    Returns:
        Lower and upper bound; they hold the share and lie within [0, 1].
    """
    assert trials > 0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrunk = z * z / trials
    middle = (share + shrunk / 2) / (1 + shrunk)
    half = z / (1 + shrunk) * sqrt(max(0.0, share * (1 - share)) / trials + shrunk / (4 * trials))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))
