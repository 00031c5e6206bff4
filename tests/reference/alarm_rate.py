"""Reference implementation of :mod:`dataaudit.base.statistics`: the posterior by weighted draws from its prior."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence


def rate(
    excesses: Sequence[float], cuts: Sequence[float], steps: int, beyond: float, *, draws: int, seed: int
) -> tuple[float, float, float]:
    """Return median and 95 % interval of the rate of clusters whose excess is larger than ``beyond``.

    Args:
        excesses: Largest excess of each cluster.
        cuts: Excess beyond which each would not have been kept.
        steps: Healthy steps.
        beyond: Excess that is asked about.
        draws: How many points of the prior are drawn.
        seed: Of the drawing.
    """
    source = random.Random(seed)
    mean = sum(excesses) / len(excesses)
    found = []
    for _ in range(draws):
        shape = source.gauss(0.05, 0.15)
        if not -0.4 <= shape <= 0.7:
            continue
        scale = mean * math.exp(source.uniform(-1.6, 1.2))
        weight = 0.0
        for excess, cut in zip(excesses, cuts, strict=True):
            weight += _log_density(excess, shape, scale) - math.log(max(1e-12, 1 - _beyond(cut, shape, scale)))
        kept = sum(1 - _beyond(cut, shape, scale) for cut in cuts) / len(cuts)
        number = source.gammavariate(len(excesses) + 0.5, 1 / steps)
        found.append((number * _beyond(beyond, shape, scale) / kept, weight))
    top = max(weight for _, weight in found)
    weighted = sorted((value, math.exp(weight - top)) for value, weight in found)
    total = sum(weight for _, weight in weighted)
    wanted, said, passed = [0.025, 0.5, 0.975], [], 0.0
    for value, weight in weighted:
        passed += weight
        while wanted and passed >= wanted[0] * total:
            wanted.pop(0)
            said.append(value)
    low, middle, high = said
    return middle, low, high


def _beyond(excess: float, shape: float, scale: float) -> float:
    if abs(shape) < 1e-9:
        return math.exp(-excess / scale)
    inside = 1 + shape * excess / scale
    return inside ** (-1 / shape) if inside > 0 else 0.0


def _log_density(excess: float, shape: float, scale: float) -> float:
    if abs(shape) < 1e-9:
        return -math.log(scale) - excess / scale
    inside = 1 + shape * excess / scale
    return -math.log(scale) - (1 / shape + 1) * math.log(inside) if inside > 0 else -math.inf
