"""Exact similarity of sets of hashes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from twins.minhash import jaccard

from dataaudit.scan.kernels.minhash import distinct_sets, intersections

VALUES = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 6), st.integers(2**64 - 4, 2**64 - 1))
SETS = st.lists(st.lists(VALUES, max_size=30), min_size=1, max_size=5)


def packed(lists):
    """Return all values and where each list begins."""
    bounds = np.append(0, np.cumsum([len(values) for values in lists])).astype(np.int64)
    return np.array([value for values in lists for value in values], dtype=np.uint64), bounds


@settings(max_examples=examples(50), deadline=None)
@given(lists=SETS)
def test_sets_are_distinct_and_ascending_whatever_the_values(lists):
    values, bounds = distinct_sets(*packed(lists))
    for number, expected in enumerate(lists):
        assert values[bounds[number] : bounds[number + 1]].tolist() == sorted(set(expected))


def test_long_sets_are_sorted():
    generator = np.random.default_rng(0)
    long = generator.integers(0, 2**64, 5000, dtype=np.uint64)
    values, bounds = distinct_sets(np.concatenate([long, long[:100]]), np.array([0, 5100]))
    assert values.tolist() == np.unique(long).tolist()
    assert bounds.tolist() == [0, len(np.unique(long))]


@settings(max_examples=examples(50), deadline=None)
@given(lists=SETS, data=st.data())
def test_intersections_are_those_of_python_sets(lists, data):
    places = st.integers(0, len(lists) - 1)
    pairs = data.draw(st.lists(st.tuples(places, places), max_size=6))
    lefts, rights = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    shared = intersections(*distinct_sets(*packed(lists)), lefts, rights)
    assert shared.tolist() == [jaccard(lists[left], lists[right])[0] for left, right in pairs]
