"""Two-phase estimates of shares: bounds, order, census, what nobody looked at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataaudit.kernels.two_phase import Strata, estimate_share


@st.composite
def some_strata(draw) -> Strata:
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
            max_size=8,
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
@settings(max_examples=50, deadline=None)
def test_the_interval_holds_the_estimate_and_what_is_certain(strata):
    """Bounds stay within what the judged documents leave possible."""
    found = estimate_share(strata)
    seen = int(strata.judged.sum())
    if not seen:
        assert (found.value, found.low, found.high) == (None, 0, 1)
        return
    negatives = seen - int(strata.positives.sum())
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high <= 1 - negatives / found.documents + 1e-12


@given(some_strata(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_order_of_strata_does_not_matter(strata, random):
    """To the last bit."""
    order = list(range(len(strata.sizes)))
    random.shuffle(order)
    other = made(strata.sizes[order], strata.judged[order], strata.positives[order], strata.guesses[order])
    assert estimate_share(other) == estimate_share(strata)


def test_a_census_has_no_interval():
    """Who saw all of it knows."""
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
    assert found.uncovered == 100
