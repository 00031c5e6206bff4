"""Pairs within buckets, against all pairs written out."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from twins import minhash as twin

from dataaudit.scan.kernels.pairing import form_pairs, form_probe_pairs

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
