"""Merging as partials come: the same result, and a bounded number of pending rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.metrics.drift.stage import Histogram
from dataaudit.scan.stages.base import Accumulator, merge, nothing, num_rows
from dataaudit.scan.stages.partial import token_table

STAGE = Histogram()


def partial(rng, rows):
    """Return the partial of so many distinct tokens of one source."""
    tokens = np.sort(rng.permutation(2000)[:rows])
    counts = rng.integers(1, 9, rows)
    return {"histogram": token_table(["web"], np.zeros(rows, dtype=np.int64), tokens, [counts, counts // 2])}


@given(st.lists(st.integers(0, 200), max_size=20), st.integers(1, 500))
def test_whenever_it_merges_the_result_is_the_same(sizes, min_rows):
    rng = np.random.default_rng(1)
    partials = [partial(rng, size) for size in sizes]
    collected = Accumulator(STAGE, min_rows=min_rows)
    for one in partials:
        collected.add(one)
    expected = merge(STAGE, [nothing(STAGE), *partials])
    assert collected.result()["histogram"].equals(expected["histogram"])
    assert collected.result()["histogram"].equals(expected["histogram"])


@pytest.mark.parametrize("number", [10, 400])
def test_rows_that_wait_are_bounded_whatever_their_number(number, monkeypatch):
    """However many partials come, what waits stays within the limit and one partial."""
    rng = np.random.default_rng(2)
    collected = Accumulator(STAGE, min_rows=3000)
    for _ in range(number):
        collected.add(partial(rng, 500))
        assert collected._rows < 3500
        assert num_rows(collected._merged) <= 2000
    assert num_rows(collected.result()) <= 2000


def test_many_tiny_partials_do_not_pile_up():
    collected = Accumulator(STAGE)
    for _ in range(1000):
        collected.add(nothing(STAGE))
        assert len(collected._pending) < 256
