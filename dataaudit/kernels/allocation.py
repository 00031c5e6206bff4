"""How many documents of each stratum the judge looks at.

Neyman's allocation (1934, J. R. Stat. Soc. 97:558): in proportion to the size of a stratum and the standard deviation
in it. What the screen guesses is not believed wholly: every guess is pulled a quarter of the way towards the mean of
all, so that no document is drawn less than half as often as by plain sampling. A screen that is sure and wrong then
costs a few percent of width, and a screen that guesses the same everywhere gives plain sampling itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

DOUBT = 0.25
"""How far each guess is pulled towards the mean of all."""
LOWEST_GUESS = 1e-4
"""No stratum is taken to hold fewer positives than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Documents to judge."""

    counts: npt.NDArray[np.int64]
    """int64[k] of each stratum, at most its size."""
    wanted: int
    """Documents that the stated half-width asks for, before any limit."""
    half_width: float
    """What to expect of the interval, if the guesses hold."""


def allocate(
    sizes: npt.NDArray[np.int64],
    guesses: npt.NDArray[np.float64],
    *,
    half_width: float = 0.005,
    confidence: float = 0.95,
    minimum: int = 20,
    most: int = 20_000,
) -> Allocation:
    """Decide how many documents of each stratum to judge.

    Args:
        sizes: int64[k] documents of each stratum; those that are drawn as one, as one.
        guesses: float64[k] shares of positives that the screen expects.
        half_width: Of the interval of the share over all strata, above 0.
        confidence: Coverage of that interval.
        minimum: Documents of each stratum, or all where it has fewer; given up where ``most`` is too few.
        most: Documents in all.

    Returns:
        Counts; the same for the same strata in any order.
    """
    assert half_width > 0
    total = int(sizes.sum())
    counts = np.zeros(len(sizes), dtype=np.int64)
    if total == 0 or most <= 0:
        return Allocation(counts=counts, wanted=0, half_width=1.0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    spread = _spreads(sizes, guesses)
    wanted = _wanted(sizes, spread, half_width, z)
    order = np.lexsort((guesses, sizes))
    counts[order] = _shared_out(sizes[order], spread[order], minimum, min(max(wanted, 1), most, total))
    extra = int(np.minimum(sizes, minimum).sum())
    if counts.sum() < min(extra, most):
        counts[order] = _shared_out(sizes[order], spread[order], minimum, min(extra, most))
    return Allocation(counts=counts, wanted=wanted, half_width=_expected(sizes, spread, counts, z))


def _spreads(sizes: npt.NDArray[np.int64], guesses: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return float64[k] standard deviations that are expected of single documents."""
    mean = float((sizes * guesses).sum()) / int(sizes.sum())
    pulled = np.clip((1 - DOUBT) * guesses + DOUBT * mean, LOWEST_GUESS, 1 - LOWEST_GUESS)
    return np.asarray(np.sqrt(pulled * (1 - pulled)))


def _wanted(sizes: npt.NDArray[np.int64], spread: npt.NDArray[np.float64], half_width: float, z: float) -> int:
    """Return how many documents in all give the half-width (Cochran 1977, 5.25), the few-positives part included."""
    total = int(sizes.sum())
    mean = float((sizes * spread).sum()) / total
    square = float((sizes * spread**2).sum()) / total
    wide = float(np.hypot(half_width, 0.0)) ** 2
    half = z * z * mean**2 / (2 * wide)
    needed = half + np.sqrt(half**2 + z**4 / (4 * wide))  # h^2 = z^2 S^2 / n + (z^2 / 2 n)^2, Wilson's
    return int(min(total, np.ceil(needed / (1 + z * z * square / (wide * total)))))


def _shared_out(
    sizes: npt.NDArray[np.int64], spread: npt.NDArray[np.float64], minimum: int, budget: int
) -> npt.NDArray[np.int64]:
    """Share a budget out in proportion to size and spread, between a least and the whole of each stratum."""
    least = np.minimum(sizes, minimum)
    while int(least.sum()) > budget:
        minimum = minimum // 2 if minimum > 1 else 0
        least = np.minimum(sizes, minimum)
    mass = sizes * spread
    low, high = 0.0, float(sizes.sum()) / max(float(mass[sizes > 0].min()), 1e-300) * int(sizes.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(mass * middle, least, sizes).sum() < budget else (low, middle)
    exact = np.clip(mass * low, least, sizes)
    counts = np.floor(exact).astype(np.int64)
    rest = budget - int(counts.sum())
    room = np.flatnonzero(counts < sizes)
    first = room[np.argsort(-(exact - counts)[room], kind="stable")][:rest]
    counts[first] += 1
    return np.asarray(counts)


def _expected(
    sizes: npt.NDArray[np.int64], spread: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], z: float
) -> float:
    """Return the half-width that the interval should have; what no one looks at counts in full."""
    total = int(sizes.sum())
    share = sizes / total
    seen = np.maximum(counts, 1)
    left = np.where(counts > 0, 1 - counts / np.maximum(sizes, 1), 0.0)
    variance = float((share**2 * spread**2 / seen * left).sum())
    weight = float((share / seen * (left > 0)).max(initial=0.0))
    unseen = float(share[counts == 0].sum()) / 2
    return min(1.0, float(np.sqrt(z * z * variance + (z * z * weight / 2) ** 2)) + unseen)
