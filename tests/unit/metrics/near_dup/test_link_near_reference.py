"""Estimates from signatures: what is near by the estimate, and by its bounds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.manifest.locate import places_of
from dataaudit.metrics.near_dup.candidates import CLASS_MEMBERS
from dataaudit.metrics.near_dup.reference import EXACTLY, count_matches, decide, equal_values


def test_equal_values_are_counted_pair_by_pair():
    generator = np.random.default_rng(1)
    left, right = (generator.integers(0, 3, (4, 16)).astype(np.uint32) for _ in range(2))
    lefts, rights = np.array([0, 3, 3]), np.array([1, 1, 2])
    expected = [sum(a == b for a, b in zip(left[i], right[j], strict=True)) for i, j in zip(lefts, rights, strict=True)]
    assert equal_values(left, right, lefts, rights).tolist() == expected
    assert equal_values(left, right, lefts[:0], rights[:0]).tolist() == []


def test_the_bounds_hold_the_estimate_and_equal_words_are_certain():
    near, low, high = decide(np.array([128, 120, 103, 102, 95, 60, EXACTLY]), 128, 0.8)
    assert near.tolist() == [True, True, True, False, False, False, True]
    assert low.tolist() == [True, True, False, False, False, False, True]
    assert high.tolist() == [True, True, True, True, True, False, True]


def test_documents_of_equal_words_count_with_the_first_of_them():
    places = places_of(np.array([0, 0, 1]), np.array([0, 5, 2]))
    members = pa.table([places[[0, 0]], np.array([places[0], places[2]]), ["a", "a"]], schema=CLASS_MEMBERS)
    found = count_matches(
        places[:2], np.array([128, 100]), members, np.array([0, 1], dtype=np.int32), num_perm=128, threshold=0.8
    )
    assert found.tolist() == [[1, 1, 2], [1, 1, 1]]
