"""The share of a corpus that a judge would call positive, from a stratified sample by a cheap screen.

Every document has a screen score, so the sizes of all strata are known; the judge sees some documents of each, drawn by
hash. The estimate is the stratified mean (Cochran 1977, Sampling Techniques, 5.3); the screen enters by the strata
(post-stratified prediction-powered inference: Fisch et al. 2024, arXiv 2406.04291). It needs no trust in the screen: a
poor screen costs width, never validity.

The interval inverts a score test: a share P is kept when the estimate is not too far from it, by the variance that
the strata would have were P true. The strata would then be the profile of highest likelihood that adds up to P. So a
stratum without a positive does not count as free of them, and a single stratum gives Wilson's interval (1927) with a
third moment (Hall 1992, J. R. Stat. Soc. B 54:221; Laud 2017, Pharm. Stat. 16:334). Formulas, choice among eleven
intervals and coverage: docs/decisions/0006-two-phase-estimates.md.

The sample is allocated by Neyman (1934, J. R. Stat. Soc. 97:558): in proportion to the size of a stratum and the
standard deviation in it. The screen is not trusted wholly: every guess is pulled a third of the way towards the mean
of all, so that no stratum is drawn less than 0.57 times as often as by plain sampling. A screen that is sure and wrong
then costs a few percent of width, and a screen that guesses the same everywhere gives plain sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_LEAST = 5
"""Judged documents that a stratum needs to speak for its own variance; fewer are merged with a neighbour."""
_DOUBLINGS = 80
_STEPS = 150
_CLOSE = 1e-13


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
    """int64[k] strata with equal numbers were sampled together, at one rate; by default each by itself."""

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


@dataclass(frozen=True, slots=True)
class Units:
    """Inputs of the interval: an entry for each stratum, several merged where needed."""

    weights: Floats
    """float64[k] part of all documents."""
    rates: Floats
    """float64[..., k] share of positives among the judged; leading axes are samples of their own."""
    effective: Floats
    """float64[k] independent draws that would tell as much: n (N - 1) / (N - n)."""
    thirds: Floats
    """float64[k] third central moment of the rate, over p (1 - p) (1 - 2 p)."""


def estimate_share(strata: Strata, domain: Mask | None = None, confidence: float = 0.95) -> Estimate:
    """Estimate the share of documents that the judge would call positive, were it to see all of the strata of a domain.

    0 <= low <= value <= high <= 1. The order of strata does not matter.
    """
    size, judged, positives = _chosen(strata, domain)
    total, seen = int(size.sum()), int(judged.sum())
    if seen == 0:
        return Estimate(value=None, low=0.0, high=1.0, documents=total, judged=0)
    rates = np.divide(positives, judged, out=np.zeros(len(size)), where=judged > 0)
    value = float((size * rates).sum()) / int(size[judged > 0].sum())
    low, high = share_bounds(size, judged, positives, confidence)
    return Estimate(value=value, low=min(value, float(low)), high=max(value, float(high)), documents=total, judged=seen)


def share_bounds(sizes: Counts, judged: Counts, positives: Counts, confidence: float) -> tuple[Floats, Floats]:
    """Return the bounds of the share of positives in all strata together.

    Strata that are alike stand side by side; leading axes of ``positives`` are samples of their own. Bounds never lie
    beyond what the judged documents leave possible, and as far as that for strata of which none was judged.
    """
    total, found = int(sizes.sum()), positives.sum(axis=-1)
    known, unseen = judged == sizes, judged == 0
    open_ = ~known & ~unseen
    certain = positives[..., known].sum(axis=-1) / total
    low, high = score_bounds(units_of(sizes[open_], judged[open_], positives[..., open_], total), confidence)
    high = high + certain + sizes[unseen].sum() / total
    return np.maximum(low + certain, found / total), np.minimum(high, 1 - (judged.sum() - found) / total)


def units_of(sizes: Counts, judged: Counts, positives: Counts, total: int) -> Units:
    """Return what the interval is computed from, strata of which few documents were judged merged.

    Arguments are as of :func:`share_bounds`, ``sizes`` above ``judged``, that 1 or more; weights are parts of
    ``total``.
    """
    seen, left = judged.astype(np.float64), (sizes - judged).astype(np.float64)
    weights = sizes / total
    effective = seen * (sizes - 1) / left
    thirds = left * (sizes - 2 * seen) / ((sizes - 1.0) * np.maximum(sizes - 2, 1)) / seen**2
    starts = _starts(judged)
    if len(starts) == len(sizes):
        return Units(weights, positives / seen, effective, thirds)
    merged = np.add.reduceat(weights, starts)
    return Units(
        merged,
        np.add.reduceat(weights * (positives / seen), starts, axis=-1) / merged,
        merged**2 / np.add.reduceat(weights**2 / effective, starts),
        np.add.reduceat(weights**3 * thirds, starts) / merged**3,
    )


def score_bounds(units: Units, confidence: float) -> tuple[Floats, Floats]:
    """Return the bounds of the sum of weights times rates; they may pass the estimate by rounding, no more."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shape = units.rates.shape[:-1]
    rates = units.rates.reshape(prod(shape), units.rates.shape[-1])  # a census leaves no strata
    rows = Units(units.weights, rates, units.effective, units.thirds)
    alike = np.ones(len(rows.rates))
    low, high = _bound(rows, -1.0, alike * z, alike), _bound(rows, 1.0, alike * z, alike)
    down, up = _used(rows, low, -1.0, z), _used(rows, high, 1.0, z)
    for used, other, side, bound in ((up, down, -1.0, low), (down, up, 1.0, high)):
        less = np.flatnonzero(used < other)
        bound[less] = _bound(_some(rows, less), side, _quantile(used[less], z), used[less])
    return low.reshape(shape), high.reshape(shape)


def _some(units: Units, rows: Counts) -> Units:
    """Return some samples of many."""
    weights = units.weights[rows] if units.weights.ndim > 1 else units.weights
    return Units(weights, units.rates[rows], units.effective, units.thirds)


def _used(units: Units, bound: Floats, side: float, z: float) -> Floats:
    """Return float64[...], what part of the error that a tail may make it can make.

    Strata in which all judged documents are of one label push a bound out by what they may hide, without adding to
    the spread of the estimate. A bound that lies so many times further out than without them is passed as seldom as
    so many quantiles are.
    """
    from scipy.special import ndtr  # 0.1 s: only what estimates pays for it

    hiding = units.rates <= 0 if side > 0 else units.rates >= 1
    used = np.ones(len(hiding))
    rows = np.flatnonzero(hiding.any(axis=-1))
    weights, rates = np.where(hiding[rows], 0.0, units.weights), units.rates[rows]
    own = _bound(Units(weights, rates, units.effective, units.thirds), side, used[rows] * z, used[rows])
    far = (bound[rows] - (units.weights * rates).sum(axis=-1)) * side
    near = (own - (weights * rates).sum(axis=-1)) * side
    times = np.divide(far, near, out=np.full_like(far, np.inf), where=near > 0)
    used[rows] = ndtr(-z * np.maximum(times, 1.0)) / ndtr(-z)
    return used


def _quantile(used: Floats, z: float) -> Floats:
    """Return float64[...] the quantile of one tail that may err for both when the other uses only part of its own."""
    from scipy.special import ndtr, ndtri

    return np.asarray(-ndtri(ndtr(-z) * (2 - used)))


def _bound(units: Units, side: float, z: Floats, stepped: Floats) -> Floats:
    """Find how hard the profile must be pushed to one side, 1 up or -1 down, until the test rejects at quantile ``z``.

    ``stepped``, 0 to 1, is how far to count on the other tail to err less than it may (:func:`_distance`).
    """
    variance = (units.weights**2 * units.rates * (1 - units.rates) / units.effective).sum(axis=-1)
    few = 1 - (1 - _fewness(units, variance, side)) * stepped
    largest = float((units.weights / units.effective).max(initial=0.0))
    scale = side / largest if largest > 0 else side

    def beyond(rows: Counts, push: Floats) -> Floats:
        return _distance(_some(units, rows), push * scale, side, few[rows]) - z[rows]

    near = np.zeros(len(z))
    usual = z * largest / np.sqrt(np.where(variance > 0, variance, np.inf))  # how hard, were all normal
    far = np.where(usual > 0, np.clip(usual, 1 / 1024, 1.0), 1.0)
    under, over, rows = -z, beyond(np.arange(len(z)), far), np.arange(len(z))
    for _ in range(_DOUBLINGS):
        rows = rows[over[rows] < 0]
        if len(rows) == 0:
            break
        near[rows], under[rows] = far[rows], over[rows]
        far[rows] *= 2
        over[rows] = beyond(rows, far[rows])
    rows = np.arange(len(z))
    for step in range(_STEPS):
        rows = rows[far[rows] - near[rows] > _CLOSE * far[rows]]
        if len(rows) == 0:
            break
        middle = _between(near[rows], far[rows], under[rows], over[rows], step)
        found = beyond(rows, middle)
        short = found < 0
        near[rows[short]], under[rows[short]] = middle[short], found[short]
        far[rows[~short]], over[rows[~short]] = middle[~short], found[~short]
    return np.asarray((units.weights * _profile(units, far * scale)).sum(axis=-1))


def _between(near: Floats, far: Floats, under: Floats, over: Floats, step: int) -> Floats:
    """Return the next point: along the chord, where it exists; every third step halves, so that none is slow."""
    width = far - near
    middle = near + width / 2
    if step % 3 == 0:
        return middle
    chord = np.isfinite(over) & np.isfinite(under)
    low, high = np.where(chord, under, 0.0), np.where(chord, over, 1.0)
    margin = width / 64 if step % 3 == 1 else width / 4096
    return np.where(chord, np.clip(near - low / (high - low) * width, near + margin, far - margin), middle)


def _fewness(units: Units, variance: Floats, side: float) -> Floats:
    """Return float64[...], 1 over the number of positives (negatives above) that would be known as well, at most 1."""
    counted = units.rates if side < 0 else 1 - units.rates
    square = (units.weights * counted).sum(axis=-1) ** 2
    return np.asarray(np.minimum(1.0, variance / np.where(square > 0, square, 1.0)))


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


def _distance(units: Units, push: Floats, side: float, few: Floats) -> Floats:
    """Return float64[...], how many standard deviations the profile lies from the estimate, skewness allowed for.

    At the far end of the tail (few positives: the upper bound) it is allowed for in full. At the near end it would
    make the bound give way for an error that hardly occurs there, as counts leave steps: only as ``few`` as they are.
    """
    rates = _profile(units, push)
    spread = rates * (1 - rates)
    variance = (units.weights**2 * spread / units.effective).sum(axis=-1)
    third = (units.weights**3 * spread * (1 - 2 * rates) * units.thirds).sum(axis=-1)
    gap = (units.weights * (rates - units.rates)).sum(axis=-1) * side
    some = variance > 0
    sd = np.sqrt(np.where(some, variance, 1.0))
    standard = np.where(some, gap / sd, 0.0)
    skew = np.where(some, third / sd**3, 0.0) * -side
    skew = np.where(skew > 0, skew * few, skew)
    even = standard - skew / 6 * (standard**2 - 1) + skew**2 / 108 * standard**3  # Hall's: grows all the way
    ended = ((rates >= 1 if side > 0 else rates <= 0) | (units.weights <= 0)).all(axis=-1)
    return np.asarray(np.where(some, even, np.where(ended, np.inf, -np.inf)))


def _chosen(strata: Strata, domain: Mask | None) -> tuple[Counts, Counts, Counts]:
    """Return the strata of a domain, those sampled together merged, by ascending guess."""
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


def _starts(judged: Counts) -> Counts:
    """Return int64[g] where groups of strata begin, each with so many judged that its variance is known."""
    starts, gathered = [], _LEAST
    for place, seen in enumerate(judged.tolist()):
        if gathered >= _LEAST:
            starts.append(place)
            gathered = 0
        gathered += seen
    if gathered < _LEAST and len(starts) > 1:
        starts.pop()
    return np.array(starts, dtype=np.int64)


DOUBT = 1 / 3
"""How far each guess is pulled towards the mean of all."""
LOWEST_GUESS = 1e-4
"""No stratum is taken to hold fewer positives than this."""
_CLOSE_SPENDING = 1e-9
_HALVINGS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Documents to judge."""

    counts: Counts
    """int64[k] of each stratum, at most its size."""
    wanted: int
    """Documents that the stated half-width asks for, before any limit."""
    half_width: float
    """What to expect of the interval, if the guesses hold."""


def allocate(
    sizes: Counts,
    guesses: Floats,
    *,
    half_width: float = 0.005,
    confidence: float = 0.95,
    minimum: int = 5,
    most: int = 20_000,
) -> Allocation:
    """Return how many documents of each stratum to judge: the same for the same strata in any order.

    ``guesses`` are shares of positives that the screen expects. ``minimum`` of each stratum, or all where it has fewer,
    is halved until all of them together are at most half of ``most``, as the large strata decide how wide the interval
    is. A stratum may get none where ``most`` does not suffice.
    """
    assert half_width > 0
    total = int(sizes.sum())
    counts = np.zeros(len(sizes), dtype=np.int64)
    if total == 0 or most <= 0:
        return Allocation(counts=counts, wanted=0, half_width=1.0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    order = np.lexsort((guesses, sizes))
    sizes, guesses = sizes[order], guesses[order]
    spread = _spreads(sizes, guesses)
    wanted = _wanted(sizes, spread, half_width, z)
    while minimum and 2 * int(np.minimum(sizes, minimum).sum()) > most:
        minimum //= 2
    least = np.minimum(sizes, minimum)
    masses = sizes * spread
    parts = np.clip(wanted * masses / masses.sum(), least, sizes)  # what the least adds is not taken from the rest
    budget = min(int(np.ceil(np.sort(parts).sum())), most, total)
    shared = share_out(sizes, masses, least, budget)
    counts[order] = shared
    return Allocation(counts=counts, wanted=wanted, half_width=_expected(sizes, spread, shared, z))


def _spreads(sizes: Counts, guesses: Floats) -> Floats:
    """Return float64[k] standard deviations that are expected of single documents."""
    mean = float((sizes * guesses).sum()) / int(sizes.sum())
    pulled = np.clip((1 - DOUBT) * guesses + DOUBT * mean, LOWEST_GUESS, 1 - LOWEST_GUESS)
    return np.asarray(np.sqrt(pulled * (1 - pulled)))


def _wanted(sizes: Counts, spread: Floats, half_width: float, z: float) -> int:
    """Return how many documents in all give the half-width (Cochran 1977, 5.25), the few-positives part included."""
    total = int(sizes.sum())
    mean = float((sizes * spread).sum()) / total
    square = float((sizes * spread**2).sum()) / total
    wide = half_width**2
    half = z * z * mean**2 / (2 * wide)
    needed = half + np.sqrt(half**2 + z**4 / (4 * wide))  # h^2 = z^2 S^2 / n + (z^2 / 2 n)^2, Wilson's
    return int(min(total, np.ceil(needed / (1 + z * z * square / (wide * total)))))


def share_out(sizes: Counts, masses: Floats, least: Counts, budget: int) -> Counts:
    """Share a budget out in proportion to masses, between a least and the whole of each stratum.

    Each is within 1 of its exact part, together the budget. Masses are above 0 where there is a document.
    """
    some = sizes > 0
    low, high = 0.0, float((sizes[some] / masses[some]).max()) * (1 + _CLOSE_SPENDING)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(masses * middle, least, sizes).sum() < budget else (low, middle)
    exact = np.clip(masses * low, least, sizes)
    counts = np.floor(exact + _CLOSE_SPENDING).astype(np.int64)
    rest = budget - int(counts.sum())
    room = np.flatnonzero(counts < sizes)
    counts[room[np.argsort(-(exact - counts)[room], kind="stable")][:rest]] += 1
    return np.asarray(counts)


def _expected(sizes: Counts, spread: Floats, counts: Counts, z: float) -> float:
    """Return the half-width that the interval should have; strata without judged documents count in full."""
    total = int(sizes.sum())
    share = sizes / total
    seen = np.maximum(counts, 1)
    left = np.where(counts > 0, 1 - counts / np.maximum(sizes, 1), 0.0)
    variance = float((share**2 * spread**2 / seen * left).sum())
    weight = float((share / seen * (left > 0)).max(initial=0.0))
    unseen = float(share[counts == 0].sum()) / 2
    return min(1.0, float(np.sqrt(z * z * variance + (z * z * weight / 2) ** 2)) + unseen)
