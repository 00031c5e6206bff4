"""Hits per unit from a stratified sample and exact shares: reference, order, census, clumps, coverage."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import two_phase as slow
from scipy.integrate import quad
from scipy.stats import binom

from dataaudit.scan.kernels.intervals import Judged, clopper_pearson, estimate_part, estimate_ratio

DOCUMENTS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10_000)), min_size=1, max_size=6)
STRATA = st.lists(st.tuples(st.integers(0, 10**6), DOCUMENTS), min_size=1, max_size=4)


def judged_of(strata) -> tuple[np.ndarray, Judged]:
    """Return sizes and documents; a stratum has so many documents more than were judged."""
    rows = [(number, *document) for number, (_, documents) in enumerate(strata) for document in documents]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    sizes = np.array([more + len(documents) for more, documents in strata])
    return sizes, Judged(stratum=columns[0], hits=columns[1], units=columns[2])


@given(STRATA)
@settings(max_examples=examples(40), deadline=None)
def test_value_and_bounds_are_those_of_the_twin(strata):
    """Which works with fractions."""
    sizes, judged = judged_of(strata)
    found = estimate_ratio(sizes, judged, per=1000)
    rows = [(int(size), documents) for size, (_, documents) in zip(sizes, strata, strict=True)]
    hits, units = slow.ratio(rows)
    assert found.value == pytest.approx(float(1000 * hits / units), rel=1e-9)
    expected = [1000 * bound for bound in slow.ratio_bounds(rows, 0.95)]
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert 0 <= found.low <= found.value <= found.high


@given(STRATA, st.randoms(use_true_random=False))
@settings(max_examples=examples(40), deadline=None)
def test_the_order_of_documents_does_not_matter(strata, random):
    sizes, judged = judged_of(strata)
    order = list(range(len(judged.hits)))
    random.shuffle(order)
    mixed = Judged(stratum=judged.stratum[order], hits=judged.hits[order], units=judged.units[order])
    assert estimate_ratio(sizes, mixed) == estimate_ratio(sizes, judged)


def test_a_census_has_no_interval():
    sizes, judged = judged_of([(0, [(1, 100), (0, 200)]), (0, [(3, 700)])])
    found = estimate_ratio(sizes, judged, per=1000)
    assert (found.low, found.value, found.high) == pytest.approx((4, 4, 4))


def test_no_hits_are_no_proof_of_none():
    sizes, judged = judged_of([(10**9, [(0, 1000)] * 500)])
    found = estimate_ratio(sizes, judged, per=1)
    assert (found.value, found.low) == (0, 0)
    assert 2.9 / 500_000 < found.high < 3.2 / 500_000


def test_no_judged_document_bounds_nothing():
    empty = np.zeros(0, dtype=np.int64)
    found = estimate_ratio(np.array([10]), Judged(stratum=empty, hits=empty, units=empty))
    assert (found.value, found.low, found.high, found.documents) == (None, 0, float("inf"), 10)


def test_what_nobody_looked_at_widens_both_ways():
    """From no hits to as many as in the worst judged document."""
    sizes, judged = judged_of([(900, [(0, 100)] * 99 + [(5, 100)])])
    known = estimate_ratio(sizes, judged, per=1000)
    found = estimate_ratio(np.append(sizes, 1000), judged, per=1000)
    assert found.value == known.value
    assert found.low == pytest.approx(known.low / 2)
    assert found.high == pytest.approx((known.high + 50) / 2)


def test_a_census_beside_an_unseen_stratum_keeps_its_value_between_its_bounds():
    """All of one stratum and none of another: no rounding puts the value outside."""
    judged = Judged(stratum=np.array([0]), hits=np.array([1]), units=np.array([45]))
    for more in range(1, 300):
        found = estimate_ratio(np.array([1, more]), judged, per=1)
        assert found.low <= found.value <= found.high


def test_a_part_near_one_is_as_unsure_as_one_near_none():
    """49 of 50 units are hits, or 1 of 50: the intervals are mirror images where the tails of either decide."""
    sizes, judged = judged_of([(10_000, [(1, 1)] * 49 + [(0, 1)])])
    most = estimate_part(sizes, judged)
    least = estimate_part(sizes, judged_of([(10_000, [(0, 1)] * 49 + [(1, 1)])])[1])
    assert (most.value, least.value) == pytest.approx((0.98, 0.02))
    assert most.low == pytest.approx(1 - least.high)
    assert most.high <= 1


@pytest.mark.parametrize("each", [1, 20])
def test_a_part_that_is_all_or_nothing_in_few_documents_is_not_sure(each):
    """Five documents, each with one unit or with 20: what decides is how many documents there are."""
    sizes, judged = judged_of([(995, [(each, each)] * 5)])
    every = estimate_part(sizes, judged)
    none = estimate_part(sizes, judged_of([(995, [(0, each)] * 5)])[1])
    assert (every.value, every.high, none.value, none.low) == (1, 1, 0, 0)
    assert every.low == pytest.approx(1 - none.high)
    assert 0.3 < none.high < 0.7


def test_units_that_hits_are_in_proportion_to_leave_no_doubt():
    sizes, judged = judged_of([(10_000, [(number, 100 * number) for number in range(1, 50)])])
    found = estimate_ratio(sizes, judged, per=100)
    assert found.value == pytest.approx(1)
    assert found.low == pytest.approx(1)


@pytest.mark.parametrize(("rate", "clumps"), [(3e-5, 0.5), (1e-3, 0.5), (1e-2, 2.0)])
def test_intervals_hold_the_truth_as_often_as_they_say(rate, clumps):
    """Documents of very different lengths, hits in clumps: over 400 samples, in 92 to 99 of 100."""
    rng = np.random.default_rng(11)
    units = np.exp(rng.normal(6, 1, 30_000)).astype(np.int64) + 1
    hits = rng.poisson(rate * units * rng.gamma(clumps, 1 / clumps, len(units)))
    truth = hits.sum() / units.sum()
    level = np.searchsorted([0.5, 1.5], np.log1p(hits) + rng.normal(0, 0.5, len(units)))
    sizes = np.bincount(level, minlength=3)
    places = [np.flatnonzero(level == number) for number in range(3)]
    held = 0
    for _ in range(400):
        chosen = np.concatenate([rng.choice(own, min(len(own), 300), replace=False) for own in places])
        judged = Judged(stratum=level[chosen], hits=hits[chosen], units=units[chosen])
        found = estimate_ratio(sizes, judged, per=1)
        held += found.low <= truth <= found.high
    assert 0.92 <= held / 400 <= 0.99


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
