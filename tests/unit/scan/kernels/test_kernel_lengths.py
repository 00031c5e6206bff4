"""Buckets and quantiles of lengths, packing and random batches, against plain Python and NumPy."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import basics
from reference import drift as slow

from dataaudit.scan.kernels.lengths import EXACT_BELOW, batched_positions, bucket_bounds, packed_bins, quantile_bounds

LARGEST = 2**53 - 1
around_powers = st.builds(
    lambda power, step: min(max((1 << power) + step, 0), LARGEST), st.integers(0, 53), st.integers(-300, 300)
)
values = st.integers(0, LARGEST) | st.integers(0, 2_000) | around_powers
percents = st.integers(1, 100)


@given(st.lists(values, max_size=50))
@settings(max_examples=examples(300), deadline=None)
def test_buckets_are_those_of_the_slow_twin(found):
    """Whole arrays and the reference implementation, digit by digit, agree on every bucket."""
    low, high = bucket_bounds(np.array(found, dtype=np.int64))
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == [basics.bucket_bounds(value) for value in found]
    assert low.dtype == high.dtype == np.int64


@given(values)
@settings(max_examples=examples(500), deadline=None)
def test_a_bucket_holds_its_value_and_its_middle_is_near(value):
    """A bucket's midpoint is within 0.4 % of every value in it, and small values are exact."""
    low, high = (int(bound[0]) for bound in bucket_bounds(np.array([value])))
    assert 0 <= low <= value <= high <= LARGEST
    assert abs(Fraction(low + high, 2) - value) <= Fraction(4, 1_000) * value
    assert Fraction(high - low, 2) <= Fraction(4, 1_000) * low
    if value < 2 * EXACT_BELOW and value < EXACT_BELOW:
        assert low == high == value


@given(values, values)
@settings(max_examples=examples(300), deadline=None)
def test_buckets_are_in_order_and_do_not_overlap(one, other):
    """Two values share a bucket or lie in separate ones, in the order of the values."""
    low, high = bucket_bounds(np.array(sorted([one, other])))
    assert (low[0], high[0]) == (low[1], high[1]) or high[0] < low[1]


def test_buckets_follow_on_each_other():
    low, high = bucket_bounds(np.arange(5_000))
    starts, ends = np.unique(low), np.unique(high)
    assert (starts[1:] == ends[:-1] + 1).all()


def test_no_values_have_no_buckets():
    low, high = bucket_bounds(np.zeros(0, dtype=np.int64))
    assert (len(low), len(high)) == (0, 0)


COUNTED = st.dictionaries(values, st.integers(0, 9), min_size=1, max_size=20).filter(lambda found: sum(found.values()))


@given(COUNTED, st.lists(percents, min_size=1, max_size=5))
@settings(max_examples=examples(300), deadline=None)
def test_quantiles_are_those_of_the_slow_twin_and_of_numpy(found, asked):
    """Counted values give the quantiles of the values written out, in the order asked."""
    ordered = np.array(sorted(found), dtype=np.int64)
    counts = np.array([found[value] for value in ordered.tolist()], dtype=np.int64)
    written_out = np.repeat(ordered, counts)
    bounds = quantile_bounds(ordered, ordered, counts, [Fraction(percent, 100) for percent in asked])
    assert bounds == [(value, value) for value in (basics.quantile(written_out.tolist(), p) for p in asked)]
    # In eighths, which binary fractions hold exactly, NumPy rounds nothing.
    eighths = [Fraction(eighth, 8) for eighth in range(1, 9)]
    expected = np.quantile(written_out, [float(eighth) for eighth in eighths], method="inverted_cdf")
    assert [low for low, _ in quantile_bounds(ordered, ordered, counts, eighths)] == expected.tolist()


@given(st.lists(values, min_size=1, max_size=40), percents)
@settings(max_examples=examples(200), deadline=None)
def test_a_quantile_of_buckets_holds_the_exact_one(found, percent):
    low, high = bucket_bounds(np.array(sorted(found)))
    starts, index, counts = np.unique(low, return_index=True, return_counts=True)
    ((bottom, top),) = quantile_bounds(starts, high[index], counts, [Fraction(percent, 100)])
    assert (bottom, top) == basics.bucket_bounds(basics.quantile(found, percent))


@pytest.mark.parametrize(
    ("quantile", "expected"),
    [(Fraction(1, 2), 10), (Fraction(1, 2) + Fraction(1, 10**30), 20), (Fraction(1, 10**30), 10), (Fraction(1), 20)],
)
def test_quantiles_are_exact_for_counts_that_floats_cannot_hold(quantile, expected):
    """Ranks are integers of any size: no rounding moves a quantile over an edge."""
    half = np.int64(2**62 - 1)
    bounds = quantile_bounds(np.array([10, 20]), np.array([10, 20]), np.array([half, half]), [quantile])
    assert bounds == [(expected, expected)]


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
