"""Documents seen before, and pairs within buckets, small and large, against all pairs written out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import basics
from reference import minhash as twin
from scipy.stats import binom

from dataaudit.scan.kernels.pairing import (
    APART,
    LATER,
    LEAK,
    MORE,
    MOST_VALUES,
    CrowdLimits,
    agreements,
    earlier_duplicates,
    form_crowd_pairs,
    form_pairs,
    form_probe_pairs,
    least_agreement,
    sketches_of,
    sure_agreement,
)

BUCKETS = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=4)
HELD_OUT = st.lists(st.booleans(), min_size=3, max_size=3)


def packed(buckets):
    """Return bounds and splits of buckets of documents that are numbered in order, their splits ascending."""
    bounds = np.append(0, np.cumsum([len(splits) for splits in buckets])).astype(np.int64)
    return bounds, np.array([split for splits in buckets for split in sorted(splits)], dtype=np.int32)


@settings(max_examples=examples(50), deadline=None)
@given(buckets=BUCKETS, held_out=HELD_OUT, small=st.integers(0, 6))
def test_pairs_are_those_of_the_slow_twin(buckets, held_out, small):
    bounds, splits = packed(buckets)
    found = form_pairs(bounds, splits, np.array(held_out), small=small)
    numbered = [
        [(place, int(splits[place])) for place in range(bounds[number], bounds[number + 1])]
        for number in range(len(buckets))
    ]
    expected = twin.form_pairs(numbered, small=small, held_out=dict(enumerate(held_out)))
    assert list(zip(found.lefts.tolist(), found.rights.tolist(), found.flags.tolist(), strict=True)) == expected


def test_a_probe_is_paired_as_one_more_document():
    bounds = np.array([0, 3, 9], dtype=np.int64)
    splits = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1], dtype=np.int32)
    documents, probes = form_probe_pairs(bounds, splits, 2, np.array([0, 1, 1]), small=4, leaders=2)
    assert documents.tolist() == [0, 1, 2, 3, 4, 6, 7, 3, 4, 6, 7]
    assert probes.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


def test_a_probe_can_make_a_bucket_too_large_to_be_small():
    bounds, splits = np.array([0, 4], dtype=np.int64), np.zeros(4, dtype=np.int32)
    documents, _ = form_probe_pairs(bounds, splits, 1, np.array([0]), small=4, leaders=2)
    assert documents.tolist() == [0, 1]


# Few keys, some of which differ in one half only, so that most documents have an equal one.
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
    found = earlier_duplicates(matrix, shards, rows, np.array(splits, dtype=np.int32))
    return list(zip(*(part.tolist() for part in found), strict=True))


@given(places=places, data=st.data())
@settings(max_examples=examples(400), deadline=None)
def test_duplicates_are_those_of_the_slow_twin(places, data):
    """For documents in any order, with many equal keys, every answer is that of comparing all pairs."""
    ordered = data.draw(st.permutations(sorted(places)))
    keys = [data.draw(st.sampled_from(KEYS)) for _ in ordered]
    splits = [shard // 2 for shard, _ in ordered]  # shards are ordered by split
    assert run(keys, ordered, splits) == basics.earlier_duplicates(keys, ordered, splits)


@pytest.mark.parametrize("num_documents", [0, 1, 5])
def test_all_equal_documents_have_one_first(num_documents):
    found = run([KEYS[0]] * num_documents, [(0, row) for row in range(num_documents)], [0] * num_documents)
    assert found == [(row > 0, row > 0, 0) for row in range(num_documents)]


def test_equal_documents_of_two_splits_are_told_apart():
    """The first document of a split may be seen before, but not in its split."""
    found = run([KEYS[0]] * 4, [(0, 0), (0, 1), (1, 0), (1, 1)], [0, 0, 1, 1])
    assert found == [(False, False, 0), (True, True, 0), (True, False, 0), (True, True, 0)]


def test_keys_that_are_not_contiguous_are_read_right():
    matrix = np.zeros((4, 32), dtype=np.uint8)
    matrix[1, 3] = 7
    numbers = np.arange(4)
    seen, _, first = earlier_duplicates(matrix[:, :16], numbers * 0, numbers, numbers * 0)
    assert seen.tolist() == [False, False, True, True]
    assert first.tolist() == [0, 1, 0, 0]


SKETCHES = st.lists(st.lists(st.integers(0, 2), min_size=16, max_size=16), min_size=1, max_size=24)
ALL = CrowdLimits(threshold=0.5, most=64, large=4096, leaders=8)


def crowd(count, seed=0, kept=0.9):
    """Return sketches that agree on most of their values."""
    generator = np.random.default_rng(seed)
    template = generator.integers(0, 256, MOST_VALUES)
    other = generator.integers(0, 256, (count, MOST_VALUES))
    return np.where(generator.random((count, MOST_VALUES)) < kept, template, other).astype(np.uint8)


def as_dict(made):
    """Return {(earlier, later): (values they agree on, flags)}, flags of a pair that both ask for joined."""
    found = {}
    for left, right, agreed, flags in zip(*(column.tolist() for column in columns(made)), strict=True):
        found[left, right] = (agreed, found.get((left, right), (0, 0))[1] | flags)
    return found


def columns(made):
    """Return the columns of pairs."""
    return made.lefts, made.rights, made.agreed, made.flags


@settings(max_examples=examples(80), deadline=None)
@given(sketches=SKETCHES, held_out=st.lists(st.booleans(), min_size=3, max_size=3), data=st.data())
def test_pairs_of_a_large_bucket_are_those_of_the_slow_twin(sketches, held_out, data):
    """Any sketches, splits and limits; a bucket within the limit misses only what the limit leaves out."""
    splits = sorted(data.draw(st.lists(st.integers(0, 2), min_size=len(sketches), max_size=len(sketches))))
    limits = CrowdLimits(threshold=data.draw(st.sampled_from([0.3, 0.6, 1.0])), most=2, large=24, leaders=2)
    made = form_crowd_pairs(
        np.array(sketches, dtype=np.uint8), np.array(splits, dtype=np.int32), np.array(held_out), limits
    )
    expected, left_out, cut = twin.crowd_pairs(
        sketches,
        [held_out[split] for split in splits],
        least=least_agreement(16, limits.threshold),
        likely=math.ceil(16 * limits.threshold),
        most=2,
    )
    assert as_dict(made) == expected
    assert made.missed == left_out
    assert set(made.cut.tolist()) == cut


@pytest.mark.parametrize(("values", "threshold"), [(128, 0.8), (128, 0.3), (64, 0.95), (16, 0.5), (128, 1.0)])
def test_who_is_alike_agrees_enough_but_for_one_in_a_thousand(values, threshold):
    least = least_agreement(values, threshold)
    sure = sure_agreement(values, threshold)
    assert binom.sf(sure - 1, values, threshold) <= 0.001 < binom.sf(sure - 2, values, threshold)
    assert binom.cdf(least - 1, values, threshold) <= 0.001 < binom.cdf(least, values, threshold)


def test_agreements_are_counted_by_value():
    sketches = crowd(50)
    assert agreements(sketches[3], sketches).tolist() == (sketches[3] == sketches).sum(axis=1).tolist()
    assert sketches_of(np.array([[257, 511, 3]], dtype=np.uint32)).tolist() == [[1, 255, 3]]


def test_a_very_large_bucket_costs_a_bounded_number_of_pairs_a_document():
    """Each document meets the leaders and its neighbours by sketch, and is said to have more."""
    sketches, limits = crowd(6000), CrowdLimits(threshold=0.8, most=2, large=100, leaders=3)
    made = form_crowd_pairs(sketches, np.zeros(6000, dtype=np.int32), np.array([False]), limits)
    assert len(made.lefts) <= 6000 * (16 + 3)
    assert np.bincount(made.lefts, minlength=3)[:3].min() >= 6000 - 3
    assert set(made.flags.tolist()) == {LATER | MORE}
    assert 6000 * 5999 // 2 - made.missed < 6000 * (100 + 3)


def test_the_nearest_of_a_very_large_bucket_are_met():
    """Documents that differ in two values from another one, among 3,000 that agree on far fewer."""
    sketches = crowd(3000, kept=0.6)
    sketches[1500:] = sketches[:1500]
    sketches[1500:, [5, 77]] += 1
    made = form_crowd_pairs(
        sketches,
        np.zeros(3000, dtype=np.int32),
        np.array([False]),
        CrowdLimits(threshold=0.8, most=8, large=200, leaders=1),
    )
    found = as_dict(made)
    assert sum((number, number + 1500) in found for number in range(1500)) >= 1350


def test_held_out_documents_meet_training_data_that_comes_later():
    sketches = np.tile(crowd(1), (10, 1))
    splits = np.array([0] * 5 + [1] * 5, dtype=np.int32)
    flags = form_crowd_pairs(sketches, splits, np.array([True, False]), ALL).flags
    assert np.bincount(flags, minlength=4).tolist() == [0, 45, 25, 0]
    swapped = form_crowd_pairs(sketches, splits, np.array([False, True]), ALL).flags
    assert np.bincount(swapped).tolist() == [0, 20, 0, 0, 0, 25]
    assert (LATER, LEAK, LATER | APART) == (1, 2, 5)
