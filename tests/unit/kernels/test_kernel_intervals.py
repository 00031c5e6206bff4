"""Intervals of sampled shares: against scipy, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from dataaudit.corpus.tokens.encoder import sample_mask
from dataaudit.kernels.intervals import wilson


@given(
    st.integers(1, 10**7).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_bounds_are_scipys(counts, confidence):
    """The bounds are those of scipy, hold the share and stay within 0 and 1."""
    successes, trials = counts
    low, high = wilson(successes, trials, confidence)
    expected = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)
    assert 0 <= low <= successes / trials <= high <= 1


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 0.99])
def test_a_hash_sample_holds_the_truth_as_often_as_it_says(share):
    """Over 400 seeds, the 95 % interval of a sample of one in 64 holds the share of all about 95 times in 100."""
    rng = np.random.default_rng(7)
    keys = rng.integers(0, 2**64, size=40_000, dtype=np.uint64)
    agreeing = rng.random(len(keys)) < share
    held = 0
    for seed in range(400):
        chosen = agreeing[sample_mask(keys, one_in=64, seed=seed)]
        low, high = wilson(int(chosen.sum()), len(chosen), 0.95)
        held += low <= agreeing.mean() <= high
    assert 0.92 <= held / 400 <= 0.99
