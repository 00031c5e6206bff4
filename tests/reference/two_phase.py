"""Reference implementation of :mod:`dataaudit.scan.kernels.two_phase`, its ratios and its allocation.

Works from the definition: for every share that is tried, the likeliest rates that add up to it are found by halving,
and the share is kept or rejected by the test; the bounds are found by halving over shares.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist

Stratum = tuple[int, int, int]
"""Documents, judged, positives."""
Entry = tuple[float, float, float, float]
"""Weight, rate, effective number of draws, third moment over p (1 - p) (1 - 2 p)."""
_STEPS = 50


def share(strata: list[Stratum]) -> Fraction:
    """Return the stratified estimate; strata of which none was judged are as the rest."""
    seen = [row for row in strata if row[1]]
    positives = sum((Fraction(size * positive, judged) for size, judged, positive in seen), start=Fraction(0))
    return positives / sum(row[0] for row in seen)


def bounds(strata: list[Stratum], confidence: float) -> tuple[float, float]:
    """Return the interval of the share; strata stand in the order of their guesses.

    Args:
        strata: At least one document in all.
        confidence: Coverage, between 0 and 1.
    """
    total = sum(size for size, _, _ in strata)
    known = sum(positive for size, judged, positive in strata if size == judged)
    unseen = sum(size for size, judged, _ in strata if size and not judged)
    found, missed = sum(row[2] for row in strata), sum(row[1] - row[2] for row in strata)
    entries = _merged([row for row in strata if 0 < row[1] < row[0]], total)
    low = high = 0.0
    if entries:
        tail = NormalDist().cdf(-NormalDist().inv_cdf((1 + confidence) / 2))
        other = [(weight, 1 - rate, n, third) for weight, rate, n, third in entries]
        below, above = _one_side(entries, tail, 1.0), _one_side(other, tail, 1.0)
        down, up = _used(entries, below, tail), _used(other, above, tail)
        if up < down:
            below = _one_side(entries, tail * (2 - up), up)
        if down < up:
            above = _one_side(other, tail * (2 - down), down)
        open_ = sum(row[0] for row in entries)
        low, high = below, open_ - above
    return max(low + known / total, found / total), min(high + (known + unseen) / total, 1 - missed / total)


def _merged(strata: list[Stratum], total: int) -> list[Entry]:
    """Return one entry for each run of strata with five judged or more; a short last one joins the one before."""
    runs: list[list[Stratum]] = []
    for row in strata:
        if runs and sum(judged for _, judged, _ in runs[-1]) < 5:
            runs[-1].append(row)
        else:
            runs.append([row])
    if len(runs) > 1 and sum(judged for _, judged, _ in runs[-1]) < 5:
        last = runs.pop()
        runs[-1] += last
    entries = []
    for run in runs:
        weight = Fraction(sum(size for size, _, _ in run), total)
        rate, inverse, third = Fraction(0), Fraction(0), Fraction(0)
        for size, n, x in run:
            part = Fraction(size, total) / weight
            rate += part * Fraction(x, n)
            inverse += part**2 * Fraction(size - n, n * (size - 1))
            if size > 2:
                third += part**3 * Fraction((size - n) * (size - 2 * n), (size - 1) * (size - 2) * n * n)
        entries.append((float(weight), float(rate), float(1 / inverse), float(third)))
    return entries


def _used(entries: list[Entry], bound: float, tail: float) -> float:
    """Return what part of a lower tail's error is left to it when strata of positives alone may hide negatives."""
    if all(rate < 1 for _, rate, _, _ in entries):
        return 1.0
    mixed = [row for row in entries if row[1] < 1]
    far = sum(row[0] * row[1] for row in entries) - bound
    near = sum(row[0] * row[1] for row in mixed) - _one_side(mixed, tail, 1.0)
    if near <= 0:
        return 0.0
    return NormalDist().cdf(NormalDist().inv_cdf(tail) * max(far / near, 1.0)) / tail


def _one_side(entries: list[Entry], tail: float, stepped: float) -> float:
    """Return the lower bound; the upper one is that of the other label."""
    z = -NormalDist().inv_cdf(tail)
    value = sum(weight * rate for weight, rate, _, _ in entries)
    if value <= 0:
        return 0.0
    variance = sum(weight**2 * rate * (1 - rate) / n for weight, rate, n, _ in entries)
    few = 1 - (1 - min(1.0, variance / value**2)) * stepped

    def rejected(tried: float) -> bool:
        rates = _likeliest(entries, tried)
        spread = sum(w**2 * p * (1 - p) / n for p, (w, _, n, _) in zip(rates, entries, strict=True))
        if spread <= 0:
            return False
        skew = sum(w**3 * p * (1 - p) * (1 - 2 * p) * t for p, (w, _, _, t) in zip(rates, entries, strict=True))
        skew /= spread**1.5
        if skew > 0:
            skew *= few
        far = (value - tried) / spread**0.5
        return bool(far - skew * (far**2 - 1) / 6 + skew**2 * far**3 / 108 >= z)

    return _first(rejected, value)


def _first(rejected: Callable[[float], bool], value: float) -> float:
    """Return where rejection begins below a value; 0 where it never does."""
    low, high = 0.0, value
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def _likeliest(entries: list[Entry], tried: float) -> list[float]:
    """Return the rates of highest likelihood that add up to a share below the estimate."""
    weakest, hardest = 0.0, 1.0
    while _sum(entries, _rates(entries, hardest)) > tried:
        weakest, hardest = hardest, hardest * 2
        if hardest > 1e30:
            break
    for _ in range(2 * _STEPS):
        middle = (weakest + hardest) / 2
        if _sum(entries, _rates(entries, middle)) > tried:
            weakest = middle
        else:
            hardest = middle
    return _rates(entries, (weakest + hardest) / 2)


def _sum(entries: list[Entry], rates: list[float]) -> float:
    return sum(weight * rate for rate, (weight, _, _, _) in zip(rates, entries, strict=True))


def _rates(entries: list[Entry], push: float) -> list[float]:
    """Return where each likelihood, less ``push`` for each unit of the sum, is highest."""
    rates = []
    for weight, rate, n, _ in entries:
        low, high = 0.0, rate
        for _ in range(_STEPS):  # the derivative falls: positive near 0, negative at the observed rate
            p = (low + high) / 2
            rising = n * rate * (1 - p) - n * (1 - rate) * p > push * weight * p * (1 - p)
            low, high = (p, high) if rising else (low, p)
        rates.append((low + high) / 2)
    return rates


def in_proportion(sizes: list[int], masses: list[float], least: list[int], budget: int) -> list[float]:
    """Return exact parts of a budget in proportion to masses, each between its least and its size."""
    fixed: dict[int, float] = {}
    while True:
        free = [place for place in range(len(sizes)) if place not in fixed]
        left = budget - sum(fixed.values())
        mass = sum(masses[place] for place in free)
        parts = {place: left * masses[place] / mass if mass else 0.0 for place in free}
        under = {place: float(least[place]) for place in free if parts[place] < least[place]}
        over = {place: float(sizes[place]) for place in free if parts[place] > sizes[place]}
        lacking = sum(under[place] - parts[place] for place in under)
        beyond = sum(parts[place] - over[place] for place in over)
        pinned = under if lacking >= beyond and under else over
        if not pinned:
            return [fixed.get(place, parts.get(place, 0.0)) for place in range(len(sizes))]
        fixed |= pinned


def ratio(strata: list[tuple[int, list[tuple[int, int]]]]) -> tuple[Fraction, Fraction]:
    """Return estimated hits and units of all documents.

    Args:
        strata: Documents of each, with (hits, units) of those that were judged.
    """
    hits, units = Fraction(0), Fraction(0)
    for size, judged in strata:
        for row in judged:
            hits += Fraction(size * row[0], len(judged))
            units += Fraction(size * row[1], len(judged))
    return hits, units


def ratio_bounds(strata: list[tuple[int, list[tuple[int, int]]]], confidence: float) -> tuple[float, float]:
    """Return the interval of hits for each unit, where some document of every stratum was judged."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    hits, units = ratio(strata)
    variance, third, heaviest = Fraction(0), Fraction(0), Fraction(0)
    for size, judged in strata:
        n = len(judged)
        if n == size:
            continue
        heaviest = max(heaviest, Fraction(size, n))
        rests = [row[0] - hits / units * row[1] for row in judged]
        middle = sum(rests, start=Fraction(0)) / n if n > 1 else Fraction(0)
        square = sum(((rest - middle) ** 2 for rest in rests), start=Fraction(0)) / max(n - 1, 1)
        cube = sum(((rest - middle) ** 3 for rest in rests), start=Fraction(0)) / n
        variance += Fraction(size * (size - n), n) * square
        third += Fraction(size * (size - n) * (size - 2 * n), n * n) * cube
    with_hits = [row[0] for _, judged in strata for row in judged if row[0]]
    step = heaviest * (Fraction(sum(with_hits), len(with_hits)) if with_hits else 1)
    clump = max(step, variance / hits) if hits else step

    def below(tried: float) -> bool:
        left = tried / float(hits)
        return _far(float(hits) - tried, float(variance) * left, float(third) * left) >= z

    def above(more: float) -> bool:
        spread, cube = float(variance + clump * Fraction(more)), float(third + clump**2 * Fraction(more))
        return _far(more, spread, -cube) >= z

    low = _first(below, float(hits)) if hits and variance else float(hits)
    near, far = 0.0, float(max(hits, clump))
    while step and not above(far):
        near, far = far, 2 * far
    for _ in range(2 * _STEPS):
        middle_ = (near + far) / 2
        near, far = (near, middle_) if above(middle_) else (middle_, far)
    high = float(hits) + (far if step else 0.0)
    return low / float(units), high / float(units)


def _far(gap: float, spread: float, third: float) -> float:
    """Return how many standard deviations a gap is, skewness allowed for in full."""
    if spread <= 0:
        return float("inf")
    far, skew = gap / spread**0.5, third / spread**1.5
    return float(far - skew * (far**2 - 1) / 6 + skew**2 * far**3 / 108)
