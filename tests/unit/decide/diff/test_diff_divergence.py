"""Divergence and the least that chance gives, against plain Python to 50 digits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import drift as twin

from dataaudit.decide.diff.drifts import divergence, least_by_chance

COUNTS = st.lists(st.integers(0, 200), min_size=1, max_size=12)


def arrays(*lists):
    """Return counts as a build has them."""
    return [np.array(one, dtype=np.int64) for one in lists]


@given(COUNTS, st.data())
def test_divergence_is_that_of_plain_python(old, data):
    """KL and Jensen-Shannon with half a count added; terms add up to them."""
    new = data.draw(st.lists(st.integers(0, 10**6), min_size=len(old), max_size=len(old)))
    found = divergence(*arrays(old, new))
    kl, js = twin.divergences(new, old)
    assert (found.kl, found.js) == pytest.approx((float(kl), float(js)), rel=1e-9, abs=1e-12)
    assert (found.kl_terms.sum(), found.js_terms.sum()) == pytest.approx((found.kl, found.js), abs=1e-12)
    assert (found.js_terms >= 0).all()


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 60), min_size=2, max_size=6), st.data())
def test_the_least_by_chance_is_the_mean_over_every_way_to_deal_the_tokens(old, data):
    """Each token's occurrences are dealt one by one; within 2 %."""
    new = data.draw(st.lists(st.integers(0, 60), min_size=len(old), max_size=len(old)))
    if not sum(old) or not sum(new):
        return
    assert least_by_chance(*arrays(old, new)) == pytest.approx(float(twin.chance(new, old, 1.0)), rel=0.02, abs=1e-9)


@pytest.mark.parametrize("counts", [([5000, 20, 0, 3], [90, 700, 1, 0]), ([10**5, 3], [10**5, 9]), ([7, 0], [0, 4])])
def test_frequent_tokens_are_within_two_in_a_hundred_too(counts):
    """Where the outcomes are not summed but a normal curve stands for them."""
    exact = _mean(*counts)
    assert least_by_chance(*arrays(*counts)) == pytest.approx(exact, rel=0.02)


def _mean(old, new):
    """Sum over all outcomes of each token with scipy's binomial."""
    from scipy.stats import binom

    share = sum(new) / (sum(new) + sum(old))
    scales = sum(new) + len(new) / 2, sum(old) + len(old) / 2
    total = 0.0
    for pooled in (one + other for one, other in zip(old, new, strict=True)):
        dealt = np.arange(pooled + 1)
        p, q = (dealt + 0.5) / scales[0], (pooled - dealt + 0.5) / scales[1]
        total += float((binom.pmf(dealt, pooled, share) * (p * np.log(p / q) - p + q)).sum())
    return total


def test_two_samples_of_one_pool_are_as_far_apart_as_said():
    """Simulated: tokens drawn one by one from a long tail."""
    draw = np.random.default_rng(5)
    odds = 1 / np.arange(1, 3001)
    odds /= odds.sum()
    found, said = [], []
    for _ in range(30):
        pair = draw.multinomial(4000, odds), draw.multinomial(9000, odds)
        found.append(divergence(*pair).kl)
        said.append(least_by_chance(*pair))
    assert np.mean(found) == pytest.approx(np.mean(said), rel=0.03)
