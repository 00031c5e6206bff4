"""Score intervals: against their equation and scipy, and how often they hold the truth."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from dataaudit.base.statistics import wilson
from dataaudit.scan.corpus.tokens.encoder import sample_mask


@given(
    st.integers(1, 10**7).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_bounds_are_the_roots_of_the_equation_and_scipys(counts, confidence):
    """Of (p - x)^2 = z^2 p (1 - p) / n; they hold the share and stay within 0 and 1."""
    successes, trials = counts
    share, square = successes / trials, norm.ppf((1 + confidence) / 2) ** 2 / trials
    low, high = wilson(share, trials, confidence)
    a, b, c = 1 + square, -(2 * share + square), share * share
    root = sqrt(max(0.0, b * b - 4 * a * c))
    assert (low, high) == pytest.approx(((-b - root) / (2 * a), (-b + root) / (2 * a)), rel=1e-9, abs=1e-12)
    expected = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)
    assert 0 <= low <= share <= high <= 1


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 0.99])
def test_a_hash_sample_holds_the_truth_as_often_as_it_says(share):
    """Over 400 seeds, the 95 % interval of a sample of one in 64 holds the share of all about 95 times in 100."""
    rng = np.random.default_rng(7)
    keys = rng.integers(0, 2**64, size=40_000, dtype=np.uint64)
    agreeing = rng.random(len(keys)) < share
    held = 0
    for seed in range(400):
        chosen = agreeing[sample_mask(keys, one_in=64, seed=seed)]
        low, high = wilson(chosen.mean(), len(chosen), 0.95)
        held += low <= agreeing.mean() <= high
    assert 0.92 <= held / 400 <= 0.99


@pytest.mark.parametrize("trials", [0.1, 7.5, 1e9])
def test_trials_may_be_a_fraction(trials):
    """As an effective number of trials is: the interval is that of the equation."""
    low, high = wilson(0.25, trials, 0.95)
    for bound in (low, high):
        assert (bound - 0.25) ** 2 == pytest.approx(norm.ppf(0.975) ** 2 * bound * (1 - bound) / trials, rel=1e-6)
