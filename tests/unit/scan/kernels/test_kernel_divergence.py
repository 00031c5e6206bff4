"""KL and Jensen-Shannon of token counts, against 50 digits and SciPy; chance against every deal and simulations."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import drift as slow
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from dataaudit.base.divergence import (
    CONFIDENCE,
    NULL_FACTOR,
    clump_size,
    divergences,
    js_terms,
    kl_terms,
    pool_counts,
    smoothed,
)

PAIRS = st.integers(2, 30).flatmap(
    lambda size: st.tuples(*(st.lists(st.integers(0, 500), min_size=size, max_size=size) for _ in range(2)))
)


def arrays(pair):
    """Return two lists as int64 arrays."""
    return tuple(np.array(counts, dtype=np.int64) for counts in pair)


@given(PAIRS)
def test_divergences_are_those_of_exact_arithmetic(pair):
    kl, js = divergences(*arrays(pair))
    expected = slow.divergences(*pair)
    assert kl == pytest.approx(float(expected[0]), rel=1e-10, abs=1e-15)
    assert js == pytest.approx(float(expected[1]), rel=1e-10, abs=1e-15)


@given(PAIRS)
def test_divergences_are_scipys(pair):
    """Both agree with SciPy on the smoothed probabilities; its Jensen-Shannon is the square root."""
    now, reference = (np.array(counts) + 0.5 for counts in pair)
    kl, js = divergences(*arrays(pair))
    assert kl == pytest.approx(entropy(now, reference), rel=1e-9, abs=1e-14)
    assert js == pytest.approx(jensenshannon(now, reference) ** 2, rel=1e-6, abs=1e-12)


@given(PAIRS)
def test_terms_add_up_and_those_of_js_are_never_negative(pair):
    """What tokens add is the whole; Jensen-Shannon is symmetric and at most log 2."""
    now, reference = arrays(pair)
    p, q = smoothed(now), smoothed(reference)
    kl, js = divergences(now, reference)
    assert kl_terms(p, q).sum() == pytest.approx(kl, abs=1e-15)
    assert (js_terms(p, q) >= 0).all()
    assert js == pytest.approx(divergences(reference, now)[1], rel=1e-9, abs=1e-15)
    assert 0 <= js <= np.log(2)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50))
def test_equal_counts_are_exactly_0_apart(counts):
    both = np.array(counts, dtype=np.int64)
    assert divergences(both, both.copy()) == (0.0, 0.0)


@given(st.lists(st.tuples(st.integers(0, 23), st.integers(0, 23)), min_size=2, max_size=12), st.floats(1, 9))
def test_chance_is_the_mean_over_every_deal(counts, clump):
    """The expected divergence equals the sum over all outcomes of every token, in exact arithmetic."""
    now, reference = ([pair[side] for pair in counts] for side in (0, 1))
    assume(sum(now) and sum(reference))
    found = pool_counts(*arrays((now, reference))).kl_null(clump)
    assert found == pytest.approx(max(0.0, float(slow.chance(now, reference, clump))), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("sizes", [(2000, 2000), (40, 2500), (2500, 40)])
@pytest.mark.parametrize("clump", [1.0, 6.0])
def test_chance_between_nodes_and_of_large_counts_is_close(sizes, clump):
    """Interpolation and series are within 1 % of the exact mean."""
    rng = np.random.default_rng(2)
    share = rng.dirichlet(np.full(12, 0.6))
    now, reference = (rng.multinomial(size, share) for size in sizes)
    found = pool_counts(now, reference).kl_null(clump)
    assert found == pytest.approx(float(slow.chance(now.tolist(), reference.tolist(), clump)), rel=0.01)


def test_where_every_token_is_frequent_chance_is_the_textbook_bias():
    """It tends to (V - 1) / 2 (1 / N + 1 / M)."""
    rng = np.random.default_rng(3)
    now, reference = rng.multinomial(10**6, np.full(500, 1 / 500)), rng.multinomial(3 * 10**6, np.full(500, 1 / 500))
    assert pool_counts(now, reference).kl_null(1.0) == pytest.approx(499 / 2 * (1 / 10**6 + 1 / (3 * 10**6)), rel=0.01)


@pytest.mark.parametrize("sizes", [(20_000, 20_000), (5_000, 500_000), (500_000, 5_000)])
def test_two_samples_of_one_distribution_are_as_far_apart_as_chance_says(sizes):
    """Independent tokens of a long-tailed vocabulary: the mean of many simulations is met within 2 %."""
    rng = np.random.default_rng(7)
    share = 1 / np.arange(1, 5001) ** 1.1
    share /= share.sum()
    found, expected = [], []
    for _ in range(30):
        now, reference = (rng.multinomial(size, share) for size in sizes)
        found.append(divergences(now, reference)[0])
        expected.append(pool_counts(now, reference).kl_null(1.0))
    assert np.mean(found) == pytest.approx(np.mean(expected), rel=0.02)


def documents(rng, number, *, topics=40, vocabulary=2000):
    """Return int64[number, vocabulary]: documents of some hundred tokens that repeat the words of their topics."""
    common = 1 / np.arange(1, vocabulary + 1) ** 1.1
    common /= common.sum()
    made = []
    for _ in range(number):
        words = np.random.default_rng(int(rng.integers(topics))).permutation(vocabulary)[:200]
        own = common.copy()
        own[words] += rng.gamma(0.3, 0.01, 200)
        made.append(rng.multinomial(int(rng.gamma(1.5, 200)) + 5, rng.dirichlet(3000 * own / own.sum())))
    return np.array(made)


def test_without_drift_kl_stays_in_the_interval_in_95_of_100():
    """Documents with topics and repeated words: the interval that two halves of the first sample give holds."""
    rng = np.random.default_rng(11)
    pile = documents(rng, 700)
    inside, naive = [], []
    for number in range(120):
        sizes = ((60, 60), (40, 400), (400, 40))[number % 3]
        chosen = rng.permutation(len(pile))[: sum(sizes)]
        half = rng.random(sizes[0]) < 0.5
        halves = [pile[chosen[: sizes[0]][mask]].sum(axis=0) for mask in (half, ~half)]
        now, reference = halves[0] + halves[1], pile[chosen[sizes[0] :]].sum(axis=0)
        kl, both = divergences(now, reference)[0], pool_counts(now, reference)
        expected = both.kl_null(clump_size(*halves))
        inside.append(expected / NULL_FACTOR <= kl <= expected * NULL_FACTOR)
        naive.append(kl / both.kl_null(1.0))
    assert np.mean(inside) >= CONFIDENCE
    assert np.median(naive) > 1.3  # tokens are not what is sampled: without clumps the bias is too small


def test_independent_tokens_have_clumps_of_about_one():
    rng = np.random.default_rng(5)
    share = 1 / np.arange(1, 3001)
    first, second = (rng.multinomial(50_000, share / share.sum()) for _ in range(2))
    assert 1.0 <= clump_size(first, second) < 1.2
    assert clump_size(6 * first, 6 * second) == pytest.approx(6, rel=0.25)
