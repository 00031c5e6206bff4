"""How many documents of each stratum the judge looks at.

Neyman's allocation (1934, J. R. Stat. Soc. 97:558): in proportion to the size of a stratum and the standard deviation
in it. What the screen guesses is not believed wholly: every guess is pulled a third of the way towards the mean of
all, so that none is drawn less than 0.57 times as often as by plain sampling. A screen that is sure and wrong then
costs a few percent of width, and a screen that guesses the same everywhere gives plain sampling itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DOUBT = 1 / 3
"""How far each guess is pulled towards the mean of all."""
LOWEST_GUESS = 1e-4
"""No stratum is taken to hold fewer positives than this."""
_CLOSE = 1e-9
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
    """Decide how many documents of each stratum to judge.

    Args:
        sizes: int64[k] documents of each stratum; those that are drawn as one, as one.
        guesses: float64[k] shares of positives that the screen expects.
        half_width: Of the interval of the share over all strata, above 0.
        confidence: Coverage of that interval.
        minimum: Documents of each stratum, or all where it has fewer; halved until all of them together are at most
            half of ``most``, as the large strata decide how wide the interval is.
        most: Documents in all.

    Returns:
        Counts; the same for the same strata in any order. A stratum may get none where ``most`` does not suffice.
    """
    assert half_width > 0
    total = int(sizes.sum())
    counts = np.zeros(len(sizes), dtype=np.int64)
    if total == 0 or most <= 0:
        return Allocation(counts=counts, wanted=0, half_width=1.0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    spread = _spreads(sizes, guesses)
    wanted = _wanted(sizes, spread, half_width, z)
    while minimum and 2 * int(np.minimum(sizes, minimum).sum()) > most:
        minimum //= 2
    least = np.minimum(sizes, minimum)
    order = np.lexsort((guesses, sizes))
    masses = sizes * spread
    parts = np.clip(wanted * masses / masses.sum(), least, sizes)  # what the least adds is not taken from the rest
    budget = min(int(np.ceil(np.sort(parts).sum())), most, total)
    counts[order] = share_out(sizes[order], masses[order], least[order], budget)
    return Allocation(counts=counts, wanted=wanted, half_width=_expected(sizes, spread, counts, z))


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

    Args:
        sizes: int64[k].
        masses: float64[k], above 0 where there is a document.
        least: int64[k], at most ``sizes``, together at most ``budget``.
        budget: At most all of ``sizes``.

    Returns:
        int64[k], each within 1 of its exact part; together the budget.
    """
    some = sizes > 0
    low, high = 0.0, float((sizes[some] / masses[some]).max()) * (1 + _CLOSE)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(masses * middle, least, sizes).sum() < budget else (low, middle)
    exact = np.clip(masses * low, least, sizes)
    counts = np.floor(exact + _CLOSE).astype(np.int64)
    rest = budget - int(counts.sum())
    room = np.flatnonzero(counts < sizes)
    counts[room[np.argsort(-(exact - counts)[room], kind="stable")][:rest]] += 1
    return np.asarray(counts)


def _expected(sizes: Counts, spread: Floats, counts: Counts, z: float) -> float:
    """Return the half-width that the interval should have; what no one looks at counts in full."""
    total = int(sizes.sum())
    share = sizes / total
    seen = np.maximum(counts, 1)
    left = np.where(counts > 0, 1 - counts / np.maximum(sizes, 1), 0.0)
    variance = float((share**2 * spread**2 / seen * left).sum())
    weight = float((share / seen * (left > 0)).max(initial=0.0))
    unseen = float(share[counts == 0].sum()) / 2
    return min(1.0, float(np.sqrt(z * z * variance + (z * z * weight / 2) ** 2)) + unseen)
