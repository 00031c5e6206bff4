"""Exact intervals against scipy's beta distribution."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from levels import examples
from scipy.stats import beta

from dataaudit.kernels.beta import beta_cdf, clopper_pearson


@given(trials=st.sampled_from([1, 2, 10, 1_000, 10**6]), share=st.floats(0, 1), confidence=st.sampled_from([0.9, 0.99]))
@settings(max_examples=examples(50))
def test_bounds_are_the_quantiles_of_beta(trials, share, confidence):
    """For any share, none and all included."""
    successes = round(share * trials)
    low, high = clopper_pearson(successes, trials, confidence)
    tail = (1 - confidence) / 2
    assert low == pytest.approx(beta.ppf(tail, successes, trials - successes + 1) if successes else 0, abs=1e-9)
    assert high == pytest.approx(
        beta.isf(tail, successes + 1, trials - successes) if successes < trials else 1, abs=1e-9
    )
    assert low <= successes / trials <= high


def test_fractions_of_trials_are_allowed():
    """An effective number of trials is seldom whole."""
    low, high = clopper_pearson(2.5, 10.5, 0.95)
    assert beta_cdf(low, 2.5, 9.0) == pytest.approx(0.025)
    assert beta_cdf(high, 3.5, 8.0) == pytest.approx(0.975)
    assert (beta_cdf(0, 1, 2), beta_cdf(1, 1, 2)) == (0, 1)
