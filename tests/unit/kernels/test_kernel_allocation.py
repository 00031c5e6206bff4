"""How many documents the judge looks at."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dataaudit.kernels.allocation import allocate

STRATA = st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1, width=16)), min_size=1, max_size=12)


@given(STRATA, st.integers(0, 50), st.integers(0, 5000))
@settings(max_examples=50, deadline=None)
def test_no_stratum_gives_more_than_it_has_and_no_limit_is_passed(rows, minimum, most):
    """The least of each stratum is kept unless the limit forbids it."""
    sizes, guesses = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    counts = allocate(sizes, guesses, minimum=minimum, most=most).counts
    assert (counts >= 0).all()
    assert (counts <= sizes).all()
    assert counts.sum() <= most
    if np.minimum(sizes, minimum).sum() <= most:
        assert (counts >= np.minimum(sizes, minimum)).all()


def test_equal_guesses_give_plain_sampling():
    """In proportion to sizes."""
    counts = allocate(np.array([100_000, 300_000]), np.array([0.01, 0.01]), minimum=0).counts
    assert abs(3 * counts[0] - counts[1]) <= 3
