"""Intervals of shares, and of hits per unit in a stratified sample.

That of a share is exact (Clopper and Pearson 1934, Biometrika 26:404), by quantiles of the beta distribution.

Hits per unit (of a million tokens, say) have the combined ratio estimator (Cochran 1977, 6.11): estimated hits over the
estimated units of the same documents, so that long documents with many hits do not blur it. Its variance is that of
the residuals ``hits - ratio x units`` of single documents, by stratum. Hits are few and come in clumps, so the interval
is that of a count: the variance grows with the ratio (as in Fay and Feuer 1997, Stat. Med. 16:791), another hit may
turn up where a single document weighs most, and the third moment makes both tails even. Formulas and coverage:
docs/decisions/0006-two-phase-estimates.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dataaudit.scan.kernels.two_phase import Estimate


def clopper_pearson(successes: float, trials: float, confidence: float) -> tuple[float, float]:
    """Return the exact interval of a share: it covers the true share with at least the probability ``confidence``.

    ``successes`` may be a fraction where ``trials``, above 0, is an effective number of them.
    """
    from scipy.special import betaincinv  # 0.1 s: only what estimates pays for it

    assert 0 <= successes <= trials
    assert trials > 0
    tail = (1 - confidence) / 2
    failures = trials - successes
    low = 0.0 if successes == 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 1, failures, 1 - tail))
    return low, high


Counts = npt.NDArray[np.int64]

_DOUBLINGS = 80
_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Documents that the judge saw, in any order."""

    stratum: Counts
    """int64[n] number of the stratum that each was drawn from; strata that were sampled together share a number."""
    hits: Counts
    """int64[n] what was counted in it."""
    units: Counts
    """int64[n] its size, tokens for example."""

    def __post_init__(self) -> None:
        assert len(self.stratum) == len(self.hits) == len(self.units)
        assert bool((self.hits >= 0).all() and (self.units >= 0).all())


def estimate_ratio(sizes: Counts, judged: Judged, *, per: int = 1_000_000, confidence: float = 0.95) -> Estimate:
    """Estimate hits per so many units in the documents of all strata; ``sizes`` are 0 outside the domain.

    Documents are drawn without regard to anything but the stratum. ``high`` is infinite where nothing bounds it: no
    document was judged. For strata of which none was judged, the interval reaches from no hits to as many as in the
    judged document that has most for its size.
    """
    seen = np.bincount(judged.stratum, minlength=len(sizes)).astype(np.int64)
    assert bool((seen <= sizes).all())
    total, uncovered = int(sizes.sum()), int(sizes[seen == 0].sum())
    positives = int(np.count_nonzero(judged.hits))
    factor = np.divide(sizes, seen, out=np.zeros(len(sizes)), where=seen > 0)
    weight = factor[judged.stratum]
    hits, units = fsum(weight * judged.hits), fsum(weight * judged.units)
    if units <= 0:
        return Estimate(value=None, low=0.0, high=float("inf"), documents=total, judged=int(seen.sum()))
    residuals = judged.hits - hits / units * judged.units
    variance, third = _moments(sizes, seen, judged.stratum, residuals)
    clump = fsum(judged.hits) / positives if positives else 1.0
    step = float(factor[(seen > 0) & (seen < sizes)].max(initial=0.0)) * clump
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    low = _bound(hits, variance, third, step, -1.0, z)
    high = _bound(hits, variance, third, step, 1.0, z)
    low, high = low / units, high / units
    if uncovered:
        part = uncovered / total
        worst = float((judged.hits[judged.units > 0] / judged.units[judged.units > 0]).max())
        low, high = low * (1 - part), high * (1 - part) + max(high, worst) * part
    value = hits / units * per
    low, high = min(value, low * per), max(value, high * per)
    return Estimate(value=value, low=low, high=high, documents=total, judged=int(seen.sum()))


def estimate_part(sizes: Counts, judged: Judged, *, confidence: float = 0.95) -> Estimate:
    """Estimate which part of all units are hits, where every hit is a unit of its document; within [0, 1].

    Units that are not hits are counted as hits are, so that the interval near 1 is the mirror of that near 0. Where no
    unit is a hit, or all are, one document more of the other kind may turn up, with all of its units: not one unit.
    ``high`` is infinite where no document holds a unit.
    """
    assert bool((judged.hits <= judged.units).all())
    found = estimate_ratio(sizes, judged, per=1, confidence=confidence)
    if found.value is None:
        return found
    others = replace(judged, hits=judged.units - judged.hits)
    low = min(found.low, max(0.0, 1 - _highest_part(sizes, others, confidence)))
    return replace(found, low=low, high=max(found.value, min(1.0, _highest_part(sizes, judged, confidence))))


def _highest_part(sizes: Counts, judged: Judged, confidence: float) -> float:
    if not judged.hits.any():
        judged = replace(judged, units=np.minimum(judged.units, 1))
    return estimate_ratio(sizes, judged, per=1, confidence=confidence).high


def _moments(sizes: Counts, seen: Counts, stratum: Counts, residuals: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return variance and third central moment of the estimated sum of residuals."""
    order = np.lexsort((residuals, stratum))
    bounds = np.searchsorted(stratum[order], np.arange(len(sizes) + 1))
    variances, thirds = [], []
    for number in np.flatnonzero((seen > 0) & (seen < sizes)):
        own = residuals[order[bounds[number] : bounds[number + 1]]]
        n, size = len(own), int(sizes[number])
        apart = own - fsum(own) / n if n > 1 else own
        square = fsum(apart**2) / max(n - 1, 1)
        cube = fsum(apart**3) / n
        variances.append(size * (size - n) * square / n)
        thirds.append(size * (size - n) * (size - 2 * n) * cube / n**2)
    return fsum(sorted(variances)), fsum(sorted(thirds))


def _bound(hits: float, variance: float, third: float, step: float, side: float, z: float) -> float:
    """Return the number of hits that the test rejects first, to one side."""
    if side < 0 and (hits == 0 or variance == 0):
        return hits
    if side > 0 and step == 0:
        return hits
    clump = max(variance / hits, step) if hits > 0 else step
    near, far = 0.0, (hits if side < 0 else max(hits, clump))
    for _ in range(_DOUBLINGS):
        if side < 0 or _distance(far, hits, variance, third, clump, side) >= z:
            break
        near, far = far, far * 2
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        if _distance(middle, hits, variance, third, clump, side) >= z:
            far = middle
        else:
            near = middle
    return hits + far if side > 0 else hits - far


def _distance(moved: float, hits: float, variance: float, third: float, clump: float, side: float) -> float:
    """Return how many standard deviations the estimate lies from a number of hits, tails made even."""
    if side > 0:
        spread = variance + clump * moved
        cube = third + clump**2 * moved
    else:
        left = (hits - moved) / hits
        spread, cube = variance * left, third * left
    if spread <= 0:
        return float("inf")
    standard = moved / sqrt(spread)
    skew = -side * cube / spread**1.5
    return float(standard - skew / 6 * (standard**2 - 1) + skew**2 / 108 * standard**3)
