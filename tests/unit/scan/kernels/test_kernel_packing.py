"""Packing and random batches from a histogram of lengths, against packing and drawing piece by piece."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import drift as slow

from dataaudit.scan.kernels.lengths import batched_positions, packed_bins


def counted(lengths):
    """Return the distinct lengths and how often each occurs."""
    held = sorted(Counter(lengths).items())
    return np.array([one for one, _ in held], dtype=np.int64), np.array([many for _, many in held], dtype=np.int64)


@given(st.integers(1, 40).flatmap(lambda top: st.tuples(st.just(top), st.lists(st.integers(1, top), max_size=120))))
def test_packing_by_length_is_packing_piece_by_piece(drawn):
    """The number of bins is that of best-fit-decreasing on the list itself, for any lengths."""
    capacity, lengths = drawn
    assert packed_bins(*counted(lengths), capacity) == slow.packed_bins(lengths, capacity)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=200))
def test_packing_never_beats_the_tokens(lengths):
    """Bins hold every token, and never more bins than pieces are needed."""
    bins = packed_bins(*counted(lengths), 4096)
    assert -(-sum(lengths) // 4096) <= bins <= len(lengths)


def test_packing_of_many_equal_pieces_is_immediate():
    """A billion pieces of a few lengths cost no more than a few."""
    lengths, counts = np.array([100, 1000, 4000]), np.array([10**9, 10**9, 10**9])
    bins = packed_bins(lengths, counts, 4096)
    assert bins == 10**9 + 250 * 10**6 + -(-(10**9) // 40)  # 96 left beside 4000 and 4 x 1000: no room for 100


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(1, 5))
def test_expected_batches_are_the_mean_over_every_batch(lengths, batch):
    """The expectation equals the average of the longest over all subsets, the last short batch included."""
    found = batched_positions(*counted(lengths), batch)
    assert found == pytest.approx(float(slow.batched_positions(lengths, batch)), rel=1e-12)


def test_expected_batches_are_what_shuffling_gives():
    """The mean over many random orders comes close to the expectation."""
    rng = np.random.default_rng(4)
    lengths = rng.integers(1, 2000, 203)
    drawn = []
    for _ in range(2000):
        order = rng.permutation(lengths)
        drawn.append(sum(8 * order[start : start + 8].max() for start in range(0, 200, 8)) + 3 * order[200:].max())
    expected = batched_positions(*counted(lengths.tolist()), 8)
    assert abs(np.mean(drawn) - expected) < 4 * np.std(drawn) / len(drawn) ** 0.5
