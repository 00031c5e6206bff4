"""Exact intervals of shares (Clopper and Pearson 1934, Biometrika 26:404), by quantiles of the beta distribution."""

from __future__ import annotations


def clopper_pearson(successes: float, trials: float, confidence: float) -> tuple[float, float]:
    """Return the exact interval of a share: it holds the true one at least as often as ``confidence`` says.

    Args:
        successes: Trials that succeeded; may be a fraction where ``trials`` is an effective number of them.
        trials: Independent trials, above 0.
        confidence: Coverage, between 0 and 1.

    Returns:
        Lower and upper bound, within [0, 1].
    """
    from scipy.special import betaincinv  # 0.1 s: only what estimates pays for it

    assert 0 <= successes <= trials
    assert trials > 0
    tail = (1 - confidence) / 2
    failures = trials - successes
    low = 0.0 if successes == 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 1, failures, 1 - tail))
    return low, high
