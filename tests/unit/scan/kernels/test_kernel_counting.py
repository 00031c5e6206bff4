"""Counting ids and adding up counts, against dictionaries; both ways of each give the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import drift as slow

from dataaudit.scan.kernels import counting
from dataaudit.scan.kernels.counting import add_up, count_ids

DOCUMENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.booleans(), st.lists(st.integers(0, 30), max_size=40)), max_size=12
)
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 2**40)), min_size=1, max_size=300)


@pytest.mark.parametrize("ids_per_place", [0, 10**9])
@given(documents=DOCUMENTS)
def test_ids_are_counted_as_a_loop_counts_them(ids_per_place, documents):
    """Counts and marked counts by group, whether by sorting or by an array of places."""
    ids = np.array([token for *_, tokens in documents for token in tokens], dtype=np.uint32)
    marks = np.array([2 * "abc".index(source) + marked for source, marked, _ in documents], dtype=np.int64)
    lengths = np.array([len(tokens) for *_, tokens in documents], dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_IDS_PER_PLACE", ids_per_place)
        groups, tokens, counts, marked = count_ids(ids, lengths, marks, 31, 3)
    found = list(zip(groups.tolist(), tokens.tolist(), counts.tolist(), marked.tolist(), strict=True))
    expected = slow.count_ids(documents)
    assert found == sorted(("abc".index(source), token, *both) for (source, token), both in expected.items())


def test_keys_that_need_more_than_32_bits_are_counted():
    ids = np.array([7, 7, 2**20 - 1], dtype=np.uint32)
    marks = np.array([2 * 9_999 + 1, 2 * 9_999, 0], dtype=np.int64)
    groups, tokens, counts, marked = count_ids(ids, np.ones(3, dtype=np.int64), marks, 2**20, 10_000)
    assert (groups.tolist(), tokens.tolist()) == ([0, 9_999], [2**20 - 1, 7])
    assert (counts.tolist(), marked.tolist()) == ([1, 2], [0, 1])


@pytest.mark.parametrize("rows_per_run", [0, 10**9])
@given(rows=ROWS, ordered=st.booleans())
def test_rows_add_up_as_in_a_dictionary(rows_per_run, rows, ordered):
    """Sums by (group, value), sorted, by runs or by a sort; a row of zeros stays."""
    rows = sorted(rows) if ordered else rows
    expected = {}
    for group, value, number in rows:
        expected[group, value] = expected.get((group, value), 0) + number
    groups, values, numbers = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_ROWS_PER_RUN", rows_per_run)
        found = add_up(groups, values, [numbers])
    if found is None:
        assert sorted(expected) == [row[:2] for row in rows]
        return
    keys = list(zip(found[0].tolist(), found[1].tolist(), strict=True))
    assert dict(zip(keys, found[2][0].tolist(), strict=True)) == expected
    assert keys == sorted(expected)
