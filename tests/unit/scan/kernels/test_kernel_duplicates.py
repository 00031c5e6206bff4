from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from twins import basics

from dataaudit.scan.kernels.pairing import earlier_twins

# Few keys, some of which differ in one half only, so that most documents have a twin.
KEYS = [
    bytes([first]) + bytes(7) + bytes([second]) + bytes(6) + bytes([last])
    for first in (0, 255)
    for second in (0, 1)
    for last in (0, 9)
]
places = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2**40) | st.integers(0, 5)), max_size=14)


def run(keys, places, splits):
    matrix = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, 16)
    shards = np.array([shard for shard, _ in places], dtype=np.int32)
    rows = np.array([row for _, row in places], dtype=np.int64)
    found = earlier_twins(matrix, shards, rows, np.array(splits, dtype=np.int32))
    return list(zip(*(part.tolist() for part in found), strict=True))


@given(places=places, data=st.data())
@settings(max_examples=examples(400), deadline=None)
def test_duplicates_are_those_of_the_slow_twin(places, data):
    """For documents in any order, with many equal keys, every answer is that of comparing all pairs."""
    ordered = data.draw(st.permutations(sorted(places)))
    keys = [data.draw(st.sampled_from(KEYS)) for _ in ordered]
    splits = [shard // 2 for shard, _ in ordered]  # shards are ordered by split
    assert run(keys, ordered, splits) == basics.earlier_twins(keys, ordered, splits)


@pytest.mark.parametrize("num_documents", [0, 1, 5])
def test_all_equal_documents_have_one_first(num_documents):
    """Among equal documents, all but the first are seen, and all name the first."""
    found = run([KEYS[0]] * num_documents, [(0, row) for row in range(num_documents)], [0] * num_documents)
    assert found == [(row > 0, row > 0, 0) for row in range(num_documents)]


def test_equal_documents_of_two_splits_are_told_apart():
    """The first document of a split may be seen before, but not in its split."""
    found = run([KEYS[0]] * 4, [(0, 0), (0, 1), (1, 0), (1, 1)], [0, 0, 1, 1])
    assert found == [(False, False, 0), (True, True, 0), (True, False, 0), (True, True, 0)]


def test_keys_that_are_not_contiguous_are_read_right():
    """A view of a larger table gives the same answers as a copy."""
    matrix = np.zeros((4, 32), dtype=np.uint8)
    matrix[1, 3] = 7
    numbers = np.arange(4)
    seen, _, first = earlier_twins(matrix[:, :16], numbers * 0, numbers, numbers * 0)
    assert seen.tolist() == [False, False, True, True]
    assert first.tolist() == [0, 1, 0, 0]
