"""Exact intervals of shares (Clopper and Pearson 1934, Biometrika 26:404), by the beta distribution."""

from __future__ import annotations

from math import exp, lgamma, log, log1p

_STEPS = 100_000
_CLOSE = 1e-15
_TINY = 1e-300
_HALVINGS = 60


def clopper_pearson(successes: float, trials: float, confidence: float) -> tuple[float, float]:
    """Return the exact interval of a share: it holds the true one at least as often as ``confidence`` says.

    Args:
        successes: Trials that succeeded; may be a fraction where ``trials`` is an effective number of them.
        trials: Independent trials, above 0.
        confidence: Coverage, between 0 and 1.

    Returns:
        Lower and upper bound, within [0, 1].
    """
    assert 0 <= successes <= trials
    assert trials > 0
    tail = (1 - confidence) / 2
    failures = trials - successes
    low = 0.0 if successes == 0 else _quantile(successes, failures + 1, tail)
    high = 1.0 if failures == 0 else _quantile(successes + 1, failures, 1 - tail)
    return low, high


def _quantile(a: float, b: float, probability: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    value, upper, lower = 1.0, 1.0, 0.0
    for step in range(_STEPS):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = half * (b - half) * x / ((a + step - 1) * (a + step))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + step - 1) * (a + step))
        lower = 1 / (_nonzero(1 + term * lower))
        upper = _nonzero(1 + term / upper)
        value *= upper * lower
        if step and abs(1 - upper * lower) < _CLOSE:
            break
    return front * (value - 1)


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
