"""Pairs of large buckets by their sketches, against all pairs written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from scipy.stats import binom
from twins import minhash as twin

from dataaudit.scan.kernels.pairing import (
    APART,
    LATER,
    LEAK,
    MORE,
    MOST_VALUES,
    CrowdLimits,
    agreements,
    form_crowd_pairs,
    least_agreement,
    sketches_of,
    sure_agreement,
)

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
def test_pairs_are_those_of_the_slow_twin(sketches, held_out, data):
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
