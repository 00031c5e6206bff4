"""Exact intervals against their definition: what a binomial gives at a bound, summed in whole numbers."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from scipy.integrate import quad
from scipy.stats import binom

from dataaudit.scan.kernels.intervals import clopper_pearson


def at_most(number, trials, share):
    """Return the probability of so many successes or fewer, exactly."""
    p = Fraction(share)
    return float(sum(comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(number + 1)))


@given(
    counts=st.integers(1, 80).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    confidence=st.sampled_from([0.9, 0.95, 0.99]),
)
@settings(max_examples=examples(50))
def test_a_bound_leaves_its_tail(counts, confidence):
    """At the lower bound so many successes or more have the tail's probability, at the upper one so many or fewer."""
    successes, trials = counts
    low, high = clopper_pearson(successes, trials, confidence)
    tail = (1 - confidence) / 2
    assert (1 - at_most(successes - 1, trials, low) if successes else 0.0) == pytest.approx(tail if successes else 0.0)
    assert (at_most(successes, trials, high) if successes < trials else 0.0) == pytest.approx(
        tail if successes < trials else 0.0
    )
    assert 0 <= low <= successes / trials <= high <= 1


@given(trials=st.sampled_from([1_000, 10**6, 10**9]), share=st.floats(0.001, 0.999))
@settings(max_examples=examples(50))
def test_many_trials(trials, share):
    """The same where terms cannot be summed one by one."""
    successes = round(share * trials)
    low, high = clopper_pearson(successes, trials, 0.95)
    assert binom.sf(successes - 1, trials, low) == pytest.approx(0.025)
    assert binom.cdf(successes, trials, high) == pytest.approx(0.025)


@pytest.mark.parametrize("trials", [1, 10.5, 10**6])
def test_none_and_all(trials):
    """The bounds are those of the closed form: p^n or (1 - p)^n is the tail."""
    low, high = clopper_pearson(0, trials, 0.95)
    assert (low, high) == (0.0, pytest.approx(1 - 0.025 ** (1 / trials)))
    assert clopper_pearson(trials, trials, 0.95) == (pytest.approx(0.025 ** (1 / trials)), 1.0)


def test_fractions_of_trials_are_allowed():
    """An effective number of trials is seldom whole: a bound cuts the tail off the density of beta."""

    def below(x, a, b):
        part, whole = (quad(lambda t: t ** (a - 1) * (1 - t) ** (b - 1), 0, end)[0] for end in (x, 1))
        return part / whole

    low, high = clopper_pearson(2.5, 10.5, 0.95)
    assert below(low, 2.5, 9.0) == pytest.approx(0.025)
    assert below(high, 3.5, 8.0) == pytest.approx(0.975)
