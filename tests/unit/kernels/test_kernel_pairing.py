"""Pairs within buckets, against all pairs written out."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from twins import minhash as twin

from dataaudit.kernels.pairing import LEAK, form_pairs, form_probe_pairs

BUCKETS = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=4)
HELD_OUT = st.lists(st.booleans(), min_size=3, max_size=3)


def packed(buckets):
    """Return bounds and splits of buckets of documents that are numbered in order, their splits ascending."""
    bounds = np.append(0, np.cumsum([len(splits) for splits in buckets])).astype(np.int64)
    return bounds, np.array([split for splits in buckets for split in sorted(splits)], dtype=np.int32)


@settings(max_examples=examples(50), deadline=None)
@given(buckets=BUCKETS, held_out=HELD_OUT, small=st.integers(0, 6), leaders=st.integers(1, 3))
def test_pairs_are_those_of_the_slow_twin(buckets, held_out, small, leaders):
    bounds, splits = packed(buckets)
    found = form_pairs(bounds, splits, np.array(held_out), small=small, leaders=leaders)
    numbered = [
        [(place, int(splits[place])) for place in range(bounds[number], bounds[number + 1])]
        for number in range(len(buckets))
    ]
    expected, missed = twin.form_pairs(numbered, small=small, leaders=leaders, held_out=dict(enumerate(held_out)))
    pairs = zip(found.lefts.tolist(), found.rights.tolist(), found.asked.tolist(), strict=True)
    assert {(left, right): [asks] for left, right, asks in pairs} == expected
    assert len(found.lefts) == len(expected)
    assert found.missed == missed


def test_a_hot_bucket_costs_a_bounded_number_of_pairs_a_document():
    splits = np.zeros(50_000, dtype=np.int32)
    found = form_pairs(np.array([0, 50_000]), splits, np.array([False]), small=32, leaders=8)
    assert len(found.lefts) == 50_000 * 8 - 36
    assert found.lefts.max() == 7
    assert len(found.lefts) + found.missed == 50_000 * 49_999 // 2


def test_held_out_documents_meet_the_leaders_of_training_data_that_come_later():
    splits = np.array([0] * 5 + [1] * 5, dtype=np.int32)
    found = form_pairs(np.array([0, 10]), splits, np.array([True, False]), small=2, leaders=1)
    later = found.rights[found.asked == LEAK]
    assert later.tolist() == [5] * 4
    assert found.lefts[found.asked == LEAK].tolist() == [1, 2, 3, 4]


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
