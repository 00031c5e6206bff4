"""What share of a corpus a judge would call positive, from a stratified sample that a cheap screen chose.

Every document has a screen score, so the sizes of all strata are known; a judge looked at some documents of each,
drawn by hash. The estimate is the stratified mean (Cochran 1977, Sampling Techniques, 5.3); what the screen knows
enters by the strata (post-stratified prediction-powered inference: Fisch et al. 2024, arXiv 2406.04291). It needs no
trust in the screen: a poor one costs width, never validity.

The interval inverts a score test: a share P is kept when the estimate is not too far from it, by the variance that
the strata would have were P true. What each stratum would then be is the profile of highest likelihood that adds up
to P. So a stratum without a positive does not count as free of them, and one stratum alone gives Wilson's interval
(1927). A third moment makes both tails even (Hall 1992, J. R. Stat. Soc. B 54:221; Laud 2017, Pharm. Stat. 16:334).
Formulas, choice and coverage: docs/two-phase.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_DOUBLINGS = 80
_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Strata:
    """``k`` strata of a corpus: documents, how many the judge saw and how many of these it called positive."""

    sizes: Counts
    """int64[k] documents of each stratum."""
    judged: Counts
    """int64[k] documents that the judge saw, drawn without regard to anything but the stratum."""
    positives: Counts
    """int64[k] of the judged."""
    guesses: Floats
    """float64[k] what the screen takes the share of positives to be; tells only which strata are neighbours."""
    pools: Counts | None = None
    """int64[k] strata with equal numbers were sampled as one, at one rate; each apart where this is left out."""

    def __post_init__(self) -> None:
        assert len(self.sizes) == len(self.judged) == len(self.positives) == len(self.guesses)
        assert bool((self.positives >= 0).all() and (self.positives <= self.judged).all())
        assert bool((self.judged <= self.sizes).all())
        assert self.pools is None or len(self.pools) == len(self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated share, or an estimated number of hits per unit."""

    value: float | None
    """The estimate; None where the judge saw no document."""
    low: float
    """Lower bound of the interval."""
    high: float
    """Upper bound of the interval."""
    documents: int
    """Documents that it speaks of."""
    judged: int
    """Of these, documents that the judge saw."""
    positives: int
    """Of the judged, those that are positive."""
    uncovered: int
    """Documents in strata of which the judge saw none; the interval holds whatever they are."""
    plain_width: float | None
    """Width that the interval would have, had as many documents been drawn from all alike; None without any."""


@dataclass(frozen=True, slots=True)
class Units:
    """What the interval is computed from, along the last axis: one entry a stratum, several merged where needed."""

    weights: Floats
    """float64[..., k] part of all documents; 0 where every document was judged."""
    rates: Floats
    """float64[..., k] share of positives among the judged."""
    effective: Floats
    """float64[..., k] independent draws that would tell as much: n (N - 1) / (N - n)."""
    thirds: Floats
    """float64[..., k] third central moment of the rate, over p (1 - p) (1 - 2 p)."""


def estimate_share(strata: Strata, domain: Mask | None = None, confidence: float = 0.95) -> Estimate:
    """Estimate the share of documents that the judge would call positive, were it to see all.

    Args:
        strata: Sizes are exact; strata without documents are allowed.
        domain: bool[k] strata that are spoken of; None for all.
        confidence: Coverage, between 0 and 1.

    Returns:
        The estimate; 0 <= low <= value <= high <= 1. The order of strata does not matter.
    """
    size, judged, positives = _chosen(strata, domain)
    total, seen, found = int(size.sum()), int(judged.sum()), int(positives.sum())
    uncovered = int(size[judged == 0].sum())
    if seen == 0:
        return Estimate(
            value=None, low=0.0, high=1.0, documents=total, judged=0, positives=0, uncovered=total, plain_width=None
        )
    known = judged == size
    open_ = (judged > 0) & ~known
    certain = float(positives[known].sum()) / total
    units = units_of(size[open_], judged[open_], positives[open_], total)
    bounds = score_bounds(units, confidence)
    share = float((units.weights * units.rates).sum())
    low, high = certain + min(float(bounds[0]), share), certain + max(float(bounds[1]), share)
    value = (certain + share) * total / (total - uncovered)
    return Estimate(
        value=value,
        low=min(value, max(low, found / total)),
        high=max(value, min(high + uncovered / total, 1 - (seen - found) / total)),
        documents=total,
        judged=seen,
        positives=found,
        uncovered=uncovered,
        plain_width=_plain_width(value, seen, total, confidence),
    )


def units_of(sizes: Counts, judged: Counts, positives: Counts, total: int) -> Units:
    """Return what the interval is computed from; strata of which one document was judged are merged with a neighbour.

    Args:
        sizes: int64[k], above ``judged``, neighbours beside each other.
        judged: int64[k], at least 1.
        positives: int64[k].
        total: Documents of the whole domain.
    """
    units = plain_units(sizes, judged, positives, total)
    group = _groups(judged)
    if len(group) == 0 or group[-1] + 1 == len(sizes):
        return units
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    weights = np.add.reduceat(units.weights, starts)
    return Units(
        weights,
        np.add.reduceat(units.weights * units.rates, starts) / weights,
        weights**2 / np.add.reduceat(units.weights**2 / units.effective, starts),
        np.add.reduceat(units.weights**3 * units.thirds, starts) / weights**3,
    )


def plain_units(sizes: Counts, judged: Counts, positives: Counts, total: int | Counts) -> Units:
    """Return one entry a stratum; arrays of any shape, the last axis is the strata.

    Where all were judged or there are none to judge, the weight is 0.
    """
    size, seen = sizes.astype(np.float64), np.maximum(judged, 1).astype(np.float64)
    left = size - seen
    open_ = left > 0
    left = np.where(open_, left, 1.0)
    weights = np.where(open_, size / total, 0.0)
    effective = np.where(open_, seen * (size - 1) / left, 1.0)
    thirds = np.where(size > 2, left * (size - 2 * seen) / (np.maximum(size - 1, 1) * np.maximum(size - 2, 1)), 0.0)
    return Units(weights, positives / seen, effective, thirds / seen**2)


def score_bounds(units: Units, confidence: float) -> tuple[Floats, Floats]:
    """Return the bounds of the sum of weights times rates.

    Args:
        units: With any leading axes: each entry of them is a corpus of its own.
        confidence: Coverage, between 0 and 1.

    Returns:
        float64[...] lower and upper bounds; they may pass the estimate by rounding, no more.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return _bound(units, -1.0, z), _bound(units, 1.0, z)


def _bound(units: Units, side: float, z: float) -> Floats:
    """Find how hard the profile must be pushed to one side until the test rejects."""
    near = np.zeros(units.weights.shape[:-1])
    largest = (units.weights / units.effective).max(axis=-1, initial=0.0)
    scale = 1 / np.where(largest > 0, largest, 1.0)
    far = np.full_like(near, 1 / 1024)
    for _ in range(_DOUBLINGS):
        rejected = _distance(units, side * far * scale, side) >= z
        if rejected.all():
            break
        near, far = np.where(rejected, near, far), np.where(rejected, far, far * 2)
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        rejected = _distance(units, side * middle * scale, side) >= z
        near, far = np.where(rejected, near, middle), np.where(rejected, middle, far)
    return np.asarray((units.weights * _profile(units, side * far * scale)).sum(axis=-1))


def _profile(units: Units, push: Floats) -> Floats:
    """Return float64[..., k], the likeliest rates with so much push: c p^2 + (n - c) p = n rate, c = push weight."""
    c = push[..., None] * units.weights
    n, x = units.effective, units.effective * units.rates
    left = n - c
    root = np.sqrt(np.maximum(left * left + 4 * c * x, 0.0))
    down = left + root
    gentle = np.where(x > 0, 2 * x / np.where(down > 0, down, 1.0), 0.0)
    hard = (root - left) / np.where(c > 0, 2 * c, 1.0)
    return np.asarray(np.clip(np.where(left >= 0, gentle, hard), 0.0, 1.0))


def _distance(units: Units, push: Floats, side: float) -> Floats:
    """Return float64[...], how many standard deviations the profile lies from the estimate, tails made even."""
    rates = _profile(units, push)
    spread = rates * (1 - rates)
    variance = (units.weights**2 * spread / units.effective).sum(axis=-1)
    third = (units.weights**3 * spread * (1 - 2 * rates) * units.thirds).sum(axis=-1)
    gap = (units.weights * (rates - units.rates)).sum(axis=-1) * side
    some = variance > 0
    sd = np.sqrt(np.where(some, variance, 1.0))
    standard = np.where(some, gap / sd, 0.0)
    skew = np.where(some, third / sd**3, 0.0) * -side
    even = standard - skew / 6 * (standard**2 - 1) + skew**2 / 108 * standard**3  # Hall 1992: grows all the way
    ended = (rates >= 1).all(axis=-1) if side > 0 else (rates <= 0).all(axis=-1)
    return np.asarray(np.where(some, even, np.where(ended, np.inf, -np.inf)))


def _chosen(strata: Strata, domain: Mask | None) -> tuple[Counts, Counts, Counts]:
    """Return the strata of a domain, those sampled as one made one, by ascending guess."""
    chosen = strata.sizes > 0
    if domain is not None:
        chosen = chosen & domain
    size, judged, positives = strata.sizes[chosen], strata.judged[chosen], strata.positives[chosen]
    guesses = strata.guesses[chosen]
    if strata.pools is not None:
        _, place = np.unique(strata.pools[chosen], return_inverse=True)
        mass = np.zeros(int(place.max(initial=-1)) + 1)
        sums = [np.zeros(len(mass), dtype=np.int64) for _ in range(3)]
        for total, part in zip(sums, (size, judged, positives), strict=True):
            np.add.at(total, place, part)
        np.add.at(mass, place, size * guesses)
        size, judged, positives = sums
        guesses = mass / np.maximum(size, 1)
    order = np.lexsort((positives, judged, size, guesses))
    return size[order], judged[order], positives[order]


def _groups(judged: Counts) -> Counts:
    """Return int64[k] ascending group numbers: a stratum of which one document was judged joins one beside it."""
    group = np.arange(len(judged))
    for place in range(1, len(judged)):
        alone = judged[place] < 2 or (place == 1 and judged[0] < 2)
        group[place] = group[place - 1] + (not alone)
    return group


def _plain_width(share: float, judged: int, total: int, confidence: float) -> float:
    if judged == total:
        return 0.0
    one = Units(
        np.array([1.0]), np.array([share]), np.array([judged * (total - 1) / (total - judged)]),
        np.array([(total - judged) * (total - 2 * judged) / ((total - 1) * max(total - 2, 1)) / judged**2]),
    )  # fmt: skip
    low, high = score_bounds(one, confidence)
    return float(high - low)
