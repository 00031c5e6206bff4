"""The law of counts agrees with a slow one in whole numbers, and raises few false alarms where a normal's band does."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dataaudit.vitals.shares import RateLaw


def slowly(law, trials):
    """Return the probability of each count in fractions: an urn of Polya, ball by ball."""
    share = Fraction(law.mean).limit_denominator(10**12)
    total = (1 - Fraction(law.dispersion)) / Fraction(law.dispersion)
    alpha, beta = share * total, (1 - share) * total
    found = []
    for k in range(trials + 1):
        p = Fraction(math.comb(trials, k))
        for i in range(k):
            p *= alpha + i
        for i in range(trials - k):
            p *= beta + i
        for i in range(trials):
            p /= alpha + beta + i
        found.append(p)
    return found


LAWS = [(0.01, 0.001), (0.01, 0.2), (0.5, 0.05), (0.999, 0.3), (0.3, 1e-9), (1e-6, 0.5), (1e-4, 1e-9)]


@pytest.mark.parametrize(("mean", "dispersion"), LAWS)
@pytest.mark.parametrize("trials", [1, 2, 7, 32])
def test_probabilities_and_limits_are_those_of_an_urn_of_polya(mean, dispersion, trials):
    law = RateLaw(mean=mean, dispersion=dispersion)
    slow = slowly(law, trials)
    assert sum(slow) == 1
    found = np.exp(law.log_pmf(trials, np.arange(trials + 1.0)))
    assert found == pytest.approx([float(one) for one in slow], rel=1e-6, abs=1e-300)
    for alpha in (1e-2, 1e-4, 1e-9):
        low, high = law.limits(trials, alpha)
        assert sum(slow[high + 1 :]) <= alpha * (1 + 1e-9)
        assert sum(slow[:low]) <= alpha * (1 + 1e-9)
        assert high == trials or sum(slow[high:]) >= alpha * (1 - 1e-9)
        assert low == 0 or sum(slow[: low + 1]) >= alpha * (1 - 1e-9)
        assert 0 <= low <= high <= trials or alpha > 0.1


def test_limits_are_no_shares_below_0():
    rng = np.random.default_rng(0)
    counts = rng.binomial(24_576, 3e-5, 100)
    low, high = RateLaw.fit(counts, 24_576).limits(24_576, 1e-6)
    assert low == 0
    assert 5 <= high <= 20


@pytest.mark.runs
@pytest.mark.parametrize("steps", [10, 100, 1_000])
@pytest.mark.parametrize(("mean", "dispersion"), [(3e-4, 1e-9), (3e-4, 3e-4), (0.05, 0.01), (0.9, 0.05)])
def test_false_alarms_are_no_more_than_asked_for(mean, dispersion, steps):
    """Learnt from few steps and from many; over 400 laws and 100 later steps each, at 1 in 1,000 an end."""
    rng = np.random.default_rng(steps)
    trials, alarms, number = 4_096, 0, 0
    total = (1 - dispersion) / dispersion
    for _ in range(400):
        p = rng.beta(mean * total, (1 - mean) * total, steps + 100)
        counts = rng.binomial(trials, p)
        low, high = RateLaw.fit(counts[:steps], trials).limits(trials, 1e-3)
        alarms += int(((counts[steps:] < low) | (counts[steps:] > high)).sum())
        number += 100
    assert alarms / number <= 2 * 2e-3, alarms


def test_limits_of_many_counts_are_those_of_each_count():
    """Of 20,000 elements and more, counts are looked at in cells; the slow way adds up all of them."""
    for mean, dispersion, trials in ((1e-3, 2e-4, 20_000), (0.4, 1e-3, 60_000), (2e-5, 1e-9, 50_000)):
        law = RateLaw(mean=mean, dispersion=dispersion)
        pmf = np.exp(law.log_pmf(trials, np.arange(trials + 1.0)))
        assert pmf.sum() == pytest.approx(1, rel=1e-6)
        for alpha in (1e-3, 1e-6):
            low, high = law.limits(trials, alpha)
            sd = math.sqrt(trials * mean * (1 - mean) * (1 + (trials - 1) * dispersion))
            assert high == pytest.approx(np.flatnonzero(np.cumsum(pmf[::-1])[::-1] > alpha)[-1], abs=1 + sd / 6)
            assert low == pytest.approx(np.flatnonzero(np.cumsum(pmf) > alpha)[0], abs=1 + sd / 6)


@pytest.mark.parametrize(
    "given", [([], 3), ([1] * 9, 3), ([4] * 10, 3), ([-1] * 10, 3), ([math.nan] * 10, 3), ([0] * 10, 0)]
)
def test_what_is_no_count_is_refused(given):
    with pytest.raises(ValueError, match="counts from 0 to n"):
        RateLaw.fit(*given)
