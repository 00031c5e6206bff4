"""Looking n-grams up, against sets of words."""

import numpy as np
from buffers import words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import overlap as slow

from dataaudit.scan.kernels.ngrams import gram_hashes, make_table
from dataaudit.scan.kernels.overlap import count_own, find_grams, find_long_grams

DOCUMENTS = st.lists(st.lists(st.sampled_from(["a", "b", "7"]), max_size=30), max_size=6)
EMPTY = np.zeros(0, dtype=np.uint64)


def by_document(batch, places, entries):
    """Return (document, first word of the document, entry)."""
    documents = np.searchsorted(batch.offsets, places, side="right") - 1
    return list(zip(documents.tolist(), (places - batch.offsets[documents]).tolist(), entries.tolist(), strict=True))


@given(protected=DOCUMENTS, training=DOCUMENTS, length=st.integers(1, 5))
@settings(max_examples=examples(50))
def test_grams_are_found_where_they_stand(protected, training, length):
    """Every gram of the table, and no other, at every place and within one document."""
    batch = words_of(protected)
    hashes, _ = gram_hashes(batch.hashes, batch.offsets, length)
    keys = np.unique(hashes)
    written = [gram for words in protected for gram in slow.grams(words, length)]
    known = {gram: int(np.searchsorted(keys, hashed)) for gram, hashed in zip(written, hashes, strict=True)}
    assert len(keys) == len(known)
    other = words_of(training)
    found = by_document(other, *find_grams(other.hashes, other.offsets, length, make_table(keys)))
    assert found == [
        (number, place, known[gram])
        for number, words in enumerate(training)
        for place, gram in enumerate(slow.grams(words, length))
        if gram in known
    ]


@given(protected=DOCUMENTS, training=DOCUMENTS)
@settings(max_examples=examples(50))
def test_long_grams_are_found_through_short_ones(protected, training):
    batch, other = words_of(protected), words_of(training)
    short = make_table(np.unique(gram_hashes(batch.hashes, batch.offsets, 3)[0]))
    long = make_table(np.unique(gram_hashes(batch.hashes, batch.offsets, 8)[0]))
    places, _ = find_grams(other.hashes, other.offsets, 3, short)
    found = find_long_grams(other.hashes, other.offsets, places, 3, 8, long)
    expected = find_grams(other.hashes, other.offsets, 8, long)
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]


@given(held_out=DOCUMENTS, training=DOCUMENTS, marked=st.sets(st.integers(0, 30)))
@settings(max_examples=examples(50))
def test_words_of_copied_segments_outside_of_common_grams_are_those_of_sets(held_out, training, marked):
    """Shares of held-out documents, from what was seen anywhere in training; any short grams are common."""
    batch, other = words_of(held_out), words_of(training)
    hashes, bounds = gram_hashes(batch.hashes, batch.offsets, 4)
    _, found = find_grams(other.hashes, other.offsets, 4, make_table(np.unique(hashes)))
    copied = np.isin(hashes, np.unique(hashes)[found]).astype(np.uint8)
    short, shorts = gram_hashes(batch.hashes, batch.offsets, 2)
    common = np.isin(short, np.unique(short)[[place for place in marked if place < len(np.unique(short))]])
    every = [gram for words in held_out for gram in slow.grams(words, 2)]
    known = {gram for gram, is_common in zip(every, common.tolist(), strict=True) if is_common}
    own = count_own(bounds, copied, shorts, common.astype(np.uint8), (4, 2))
    assert own.tolist() == [slow.covered_words(words, training, 4, known, 2) for words in held_out]


def test_numbers_may_be_made_equal():
    """With wild numbers two grams that differ in numbers alone have one hash, and only those."""
    batch = words_of([["a", "7", "b"], ["a", "19", "b"], ["a", "b", "b"]])
    wild, _ = gram_hashes(batch.hashes, batch.offsets, 3, wild_numbers=True)
    plain, _ = gram_hashes(batch.hashes, batch.offsets, 3)
    assert wild[0] == wild[1] != wild[2]
    assert len(set(plain.tolist())) == 3


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=200), st.lists(st.integers(0, 2**64 - 1), max_size=50))
@settings(max_examples=examples(50))
def test_a_table_holds_exactly_its_keys(keys, others):
    """Keys that crowd at the end of the table, too: a one-word gram is looked up by its mixed hash."""
    words = np.array(sorted(keys), dtype=np.uint64)
    hashes, _ = gram_hashes(words, np.array([0, len(words)]), 1)
    table = make_table(np.unique(hashes))
    asked = np.array(keys + others, dtype=np.uint64)
    places, _ = find_grams(asked, np.array([0, len(asked)]), 1, table)
    assert places.tolist() == [place for place, word in enumerate(asked.tolist()) if word in set(keys)]


def test_an_empty_table_finds_nothing():
    table = make_table(EMPTY)
    words = np.arange(2, 40, 2).astype(np.uint64)
    assert len(find_grams(words, np.array([0, len(words)]), 3, table)[0]) == 0
    assert len(find_long_grams(words, np.array([0, len(words)]), np.zeros(0, np.int64), 3, 5, table)[0]) == 0
