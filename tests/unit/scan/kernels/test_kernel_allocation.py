"""How many documents the judge looks at."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from twins.two_phase import in_proportion

from dataaudit.scan.kernels.two_phase import allocate, share_out

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
    """In proportion to sizes."""
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
    """Within one document of the exact parts, which the twin finds by pinning what is out of bounds."""
    sizes = np.array([row[0] for row in rows])
    masses = sizes * np.array([row[1] for row in rows])
    least = np.minimum(sizes, minimum)
    budget = int(least.sum() + filled * (sizes - least).sum())
    counts = share_out(sizes, masses, least, budget)
    exact = in_proportion(sizes.tolist(), masses.tolist(), least.tolist(), budget)
    assert counts.sum() == budget
    assert np.abs(counts - exact).max() < 1 + 1e-6


@given(STRATA, st.randoms(use_true_random=False))
@settings(max_examples=examples(30), deadline=None)
def test_the_order_of_strata_changes_nothing(rows, random):
    """As many of each kind, wherever it stands."""
    mixed = list(rows)
    random.shuffle(mixed)

    def counted(some):
        counts = allocate(np.array([row[0] for row in some]), np.array([row[1] for row in some]), most=500).counts
        return sorted(zip(some, counts.tolist(), strict=True))

    assert counted(mixed) == counted(rows)


def test_a_narrower_interval_takes_more_calls():
    """About four times as many for half the width."""
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
