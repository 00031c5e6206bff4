"""Periodic runs of tokens: compiled against plain Python, and at the limit itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import filters as twin

from dataaudit.scan.kernels.filters import has_periodic_run

UNIT = st.lists(st.integers(0, 2), min_size=1, max_size=5)
DOCUMENT = st.lists(st.tuples(UNIT, st.integers(1, 6)), max_size=5).map(
    lambda parts: [token for unit, times in parts for token in unit * times]
)


def found(documents, **limits):
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    ids = np.array([token for document in documents for token in document], dtype=np.uint32)
    return has_periodic_run(ids, offsets, **limits).tolist()


@given(documents=st.lists(DOCUMENT, max_size=5), most_period=st.integers(1, 6), times=st.integers(2, 6))
def test_runs_are_those_of_plain_python(documents, most_period, times):
    """Any ids, periods and counts; a run never reaches into the next document."""
    limits = {"most_period": most_period, "times": times}
    assert found(documents, **limits) == [twin.has_periodic_run(document, **limits) for document in documents]


@pytest.mark.parametrize("period", [1, 2, 7, 13])
@pytest.mark.parametrize("before", [0, 1, 5, 400])
def test_the_rule_begins_at_32_copies(period, before):
    """31 copies and all but one id of another pass; 32 are rejected; so is nothing of period 14."""
    lead, unit = [1000 + place for place in range(before)], list(range(period))
    documents = [lead + unit * 32, lead + (unit * 32)[:-1], lead + unit * 40 + lead]
    assert found(documents, most_period=13, times=32) == [True, False, True]
    assert found([lead + list(range(14)) * 40], most_period=13, times=32) == [False]
