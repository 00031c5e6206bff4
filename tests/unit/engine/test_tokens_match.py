"""Pairing documents by digest: against a slow twin, in any order, with copies."""

import hashlib
from collections import Counter
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.engine.tokens_match import in_order, match

letters = st.lists(st.sampled_from("abcdefgh"), max_size=14)


def digests(names):
    """Return uint8[n, 16] of names."""
    found = b"".join(hashlib.sha256(name.encode()).digest()[:16] for name in names)
    return np.frombuffer(found, dtype=np.uint8).reshape(-1, 16)


@settings(max_examples=examples(400), deadline=None)
@given(letters, letters, st.data())
def test_every_document_finds_an_equal_or_is_left_when_none_is(corpus, files, data):
    """One to one, as many as there can be, and held ones only when no other is left."""
    held = np.array(data.draw(st.lists(st.booleans(), min_size=len(corpus), max_size=len(corpus))), dtype=bool)
    found = match(digests(corpus), held, digests(files))
    paired = found.partner[found.partner >= 0].tolist()
    assert len(set(paired)) == len(paired)
    assert all(corpus[at] == one for at, one in zip(found.partner.tolist(), files, strict=True) if at >= 0)
    wanted, listed, there = (
        Counter(name for name, one in zip(corpus, held, strict=True) if not one),
        Counter(name for name, one in zip(corpus, held, strict=True) if one),
        Counter(files),
    )
    for name, number in there.items():
        mine = [at for at, one in enumerate(files) if one == name]
        same = sum(found.partner[at] >= 0 and not found.excluded[at] for at in mine)
        assert same == min(number, wanted[name])
        assert sum(found.excluded[mine]) == min(number - same, listed[name])
        known = bool(wanted[name] or listed[name])
        assert sum(found.surplus[mine]) == (number - same - sum(found.excluded[mine]) if known else 0)
    assert all(held[found.partner[at]] == found.excluded[at] for at in np.flatnonzero(found.partner >= 0))


@settings(max_examples=examples(200), deadline=None)
@given(st.permutations(range(8)))
def test_the_longest_ascending_part_is_the_longest(places):
    """By trying every part."""
    found = in_order(np.array(places))
    assert (np.diff(np.array(places)[found]) > 0).all()
    every = (part for size in range(9) for part in combinations(places, size))
    assert len(found) == max(len(part) for part in every if list(part) == sorted(part))


def test_the_copy_that_was_taken_out_is_the_one_without_a_partner():
    """Of three copies among other documents, each in turn; and the one that was put in has none."""
    corpus = list("xabxcdxef")
    for gone in (0, 3, 6):
        left = corpus[:gone] + corpus[gone + 1 :]
        found = match(digests(corpus), np.zeros(9, dtype=bool), digests(left))
        assert set(range(9)) - set(found.partner.tolist()) == {gone}
        more = [*corpus[:gone], "b", *corpus[gone:]]
        found = match(digests(corpus), np.zeros(9, dtype=bool), digests(more))
        assert np.flatnonzero(found.surplus).tolist() == [gone]


def test_copies_in_files_that_were_swapped_are_moved_no_more_than_the_rest():
    """Each copy goes with what stands around it, not with the first copy that is met."""
    corpus = list("abxcdxefxg")
    swapped = corpus[5:] + corpus[:5]
    found = match(digests(corpus), np.zeros(10, dtype=bool), digests(swapped))
    assert found.partner.tolist() == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]
