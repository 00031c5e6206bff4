"""Two-phase estimates of shares: bounds, order, census, what nobody looked at."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import examples, sample
from reference import two_phase as slow
from reference.two_phase import in_proportion

from dataaudit.scan.kernels.two_phase import Strata, allocate, estimate_share, share_bounds, share_out


@st.composite
def some_strata(draw, most: int = 8) -> Strata:
    rows = draw(
        st.lists(
            st.integers(0, 10**6).flatmap(
                lambda size: st.integers(0, min(size, 500)).flatmap(
                    lambda judged: st.tuples(
                        st.just(size), st.just(judged), st.integers(0, judged), st.floats(0, 1, width=16)
                    )
                )
            ),
            min_size=1,
            max_size=most,
        ).filter(lambda rows: sum(row[0] for row in rows) > 0)
    )
    sizes, judged, positives, guesses = zip(*rows, strict=True)
    return made(sizes, judged, positives, guesses)


def made(sizes, judged, positives, guesses=None, pools=None) -> Strata:
    return Strata(
        sizes=np.array(sizes),
        judged=np.array(judged),
        positives=np.array(positives),
        guesses=np.zeros(len(sizes)) if guesses is None else np.array(guesses, dtype=np.float64),
        pools=None if pools is None else np.array(pools),
    )


@given(some_strata())
@settings(max_examples=examples(50), deadline=None)
def test_the_interval_holds_the_estimate_and_what_is_certain(strata):
    found = estimate_share(strata)
    seen = int(strata.judged.sum())
    if not seen:
        assert (found.value, found.low, found.high) == (None, 0, 1)
        return
    negatives = seen - int(strata.positives.sum())
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high <= 1 - negatives / found.documents + 1e-12


@given(some_strata(), st.randoms(use_true_random=False))
@settings(max_examples=examples(50), deadline=None)
def test_the_order_of_strata_does_not_matter(strata, random):
    order = list(range(len(strata.sizes)))
    random.shuffle(order)
    other = made(strata.sizes[order], strata.judged[order], strata.positives[order], strata.guesses[order])
    assert estimate_share(other) == estimate_share(strata)


def test_a_census_has_no_interval():
    found = estimate_share(made([10, 90], [10, 90], [3, 1]))
    assert (found.low, found.value, found.high) == pytest.approx((0.04, 0.04, 0.04))


def test_no_positive_is_no_proof_of_none():
    """The upper bound is about three positives over those who were judged."""
    found = estimate_share(made([10**9], [1000], [0]))
    assert (found.value, found.low) == (0, 0)
    assert 0.0029 < found.high < 0.0031


def test_what_nobody_looked_at_may_be_anything():
    """The interval is wider by its whole share of documents."""
    found = estimate_share(made([900, 100], [900, 0], [90, 0], [0.1, 0.9]))
    assert (found.low, found.value, found.high) == pytest.approx((0.09, 0.1, 0.19))


def twin(strata) -> list[slow.Stratum]:
    rows = zip(strata.guesses, strata.sizes, strata.judged, strata.positives, strict=True)
    return [tuple(int(number) for number in row[1:]) for row in sorted(rows) if row[1]]


@pytest.mark.tables
@given(some_strata(most=3), st.sampled_from([0.9, 0.95]))
@example(made([1000, 3000, 500], [1, 50, 3], [1, 5, 0], [0.2, 0.1, 0.3]), 0.95)  # of few judged: merged
@settings(max_examples=examples(20), deadline=None)
def test_the_bounds_are_those_of_the_twin(strata, confidence):
    if not strata.judged.any():
        return
    found, rows = estimate_share(strata, confidence=confidence), twin(strata)
    value = float(slow.share(rows))
    low, high = slow.bounds(rows, confidence)
    assert found.value == pytest.approx(value, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((min(low, value), max(high, value)), abs=1e-7)


@given(some_strata())
@settings(max_examples=examples(50), deadline=None)
def test_the_other_label_has_the_other_interval(strata):
    other = made(strata.sizes, strata.judged, strata.judged - strata.positives, strata.guesses)
    one, two = estimate_share(strata), estimate_share(other)
    assert (one.low, one.high) == pytest.approx((1 - two.high, 1 - two.low), abs=1e-9)


@given(st.integers(10, 10**6), st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
@settings(max_examples=examples(50), deadline=None)
def test_strata_that_were_sampled_as_one_count_as_one(size, judged, found, cut):
    judged = min(size, judged)
    found, cut = min(judged, found), min(judged, cut)
    whole = made([size, 5000], [judged, 200], [found, 3])
    split = made(
        [cut, size - cut, 5000],
        [cut, judged - cut, 200],
        [min(cut, found), found - min(cut, found), 3],
        pools=[7, 7, 2],
    )
    if found > cut or judged - cut >= found - min(cut, found):
        assert estimate_share(split) == estimate_share(whole)


@pytest.mark.parametrize("judged", sample([34, 5, 13, 20, 60], 5))
def test_one_positive_more_lowers_a_bound_by_at_most_11_percent_of_the_width(judged):
    """By that much where a stratum of one label becomes mixed, or the other way round; all counts are tried."""
    few, many = np.meshgrid(np.arange(judged + 1), np.arange(301), indexing="ij")
    low, high = share_bounds(np.array([3000, 70_000]), np.array([judged, 300]), np.stack([few, many], -1), 0.95)
    width = (high - low)[:-1]
    assert ((low[:-1] - low[1:]) / width).max() <= 0.11
    assert ((high[:-1] - high[1:]) / width).max() <= 0.11


def test_a_domain_is_its_strata_alone():
    strata = made([1000, 500, 800], [50, 50, 50], [1, 20, 9], [0.1, 0.2, 0.3])
    inside = np.array([True, False, True])
    own = made([1000, 800], [50, 50], [1, 9], [0.1, 0.3])
    assert estimate_share(strata, inside) == estimate_share(own)


def test_a_domain_without_a_judged_document_is_not_estimated():
    strata = made([1000, 500], [50, 0], [1, 0])
    found = estimate_share(strata, np.array([False, True]))
    assert (found.value, found.low, found.high, found.documents) == (None, 0, 1, 500)


def test_no_documents_are_no_estimate():
    found = estimate_share(made([1000], [50], [1]), np.array([False]))
    assert (found.value, found.low, found.high, found.documents) == (None, 0, 1, 0)


def test_one_judged_document_of_a_stratum_joins_its_neighbour():
    """Alone it would have no variance."""
    found = estimate_share(made([1000, 1000], [1, 50], [1, 5], [0.2, 0.1]))
    assert found.high - found.low > 0.5


STRATA = st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1, width=16)), min_size=1, max_size=12)


@given(STRATA, st.integers(0, 50), st.integers(0, 5000))
@settings(max_examples=examples(50), deadline=None)
def test_no_stratum_gives_more_than_it_has_and_no_limit_is_passed(rows, minimum, most):
    """The least of each stratum is kept unless the limit forbids it."""
    sizes, guesses = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    counts = allocate(sizes, guesses, minimum=minimum, most=most).counts
    assert (counts >= 0).all()
    assert (counts <= sizes).all()
    assert counts.sum() <= most
    if 2 * np.minimum(sizes, minimum).sum() <= most:
        assert (counts >= np.minimum(sizes, minimum)).all()


def test_equal_guesses_give_plain_sampling():
    counts = allocate(np.array([100_000, 300_000]), np.array([0.01, 0.01]), minimum=0).counts
    assert abs(3 * counts[0] - counts[1]) <= 3


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.floats(1 / 64, 1, width=16)), min_size=1, max_size=8).filter(
        lambda rows: any(row[0] for row in rows)
    ),
    st.integers(0, 20),
    st.floats(0, 1),
)
@settings(max_examples=examples(50), deadline=None)
def test_parts_are_in_proportion(rows, minimum, filled):
    """Within a document of the exact parts, found by pinning what is out of bounds."""
    sizes = np.array([row[0] for row in rows])
    masses = sizes * np.array([row[1] for row in rows])
    least = np.minimum(sizes, minimum)
    budget = int(least.sum() + filled * (sizes - least).sum())
    counts = share_out(sizes, masses, least, budget)
    exact = in_proportion(sizes.tolist(), masses.tolist(), least.tolist(), budget)
    assert counts.sum() == budget
    assert np.abs(counts - exact).max() < 1 + 1e-6


@given(STRATA, st.randoms(use_true_random=False))
@example([(1024, 0.0), (2828, 0.53369140625), (1000000, 1.0)], Random(1))
@example([(1024, 0.0), (2828, 0.53369140625), (1000000, 1.0)], Random(2))
@settings(max_examples=examples(30), deadline=None)
def test_the_order_of_strata_changes_nothing(rows, random):
    mixed = list(rows)
    random.shuffle(mixed)

    def counted(some):
        counts = allocate(np.array([row[0] for row in some]), np.array([row[1] for row in some]), most=500).counts
        return sorted(zip(some, counts.tolist(), strict=True))

    assert counted(mixed) == counted(rows)


def test_a_narrower_interval_takes_more_calls():
    sizes, guesses = np.array([10**7, 10**6]), np.array([0.001, 0.3])
    wide, narrow = (allocate(sizes, guesses, half_width=half, most=10**6) for half in (0.004, 0.002))
    assert 3 < narrow.counts.sum() / wide.counts.sum() < 5
    assert narrow.half_width < 1.2 * 0.002


def test_a_sure_screen_is_not_believed_wholly():
    """No document is drawn less than half as often as by plain sampling."""
    sizes = np.array([990_000, 10_000])
    counts = allocate(sizes, np.array([0.0, 1.0]), half_width=0.001, minimum=0).counts
    assert counts[0] / sizes[0] > 0.5 * counts.sum() / sizes.sum()


def test_few_calls_go_where_the_documents_are():
    """The least of each stratum takes no more than half of the calls."""
    sizes = np.array([10**6] + [100] * 99)
    counts = allocate(sizes, np.full(100, 0.01), half_width=0.001, minimum=20, most=400).counts
    assert counts.sum() == 400
    assert counts[0] >= 200


def test_the_least_of_small_strata_is_not_taken_from_large_ones():
    """They are judged on top of what the half-width asks for."""
    sizes, guesses = np.array([10**6] + [100] * 99), np.full(100, 0.01)
    alone = allocate(sizes, guesses, minimum=0)
    more = allocate(sizes, guesses, minimum=20)
    assert more.counts[0] >= alone.counts[0] - 1
    assert more.counts[1:].min() == 20
