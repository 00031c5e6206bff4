"""MinHash: signatures, bands and classes against reference implementations and datasketch; exact Jaccard similarity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples, thinned
from reference import minhash as twin
from reference.minhash import jaccard

from dataaudit.scan.kernels.minhash import (
    SEED,
    band_keys,
    chance_to_meet,
    choose_bands,
    distinct_sets,
    fold,
    intersections,
    permutations,
    shingle_hashes,
    sketch,
)

WORDS = st.integers(0, 2**64 - 1)
DOCUMENTS = st.lists(st.lists(WORDS, max_size=14), max_size=5)


def packed(documents):
    """Return word hashes and offsets of some documents."""
    offsets = np.append(0, np.cumsum([len(words) for words in documents])).astype(np.int64)
    return np.array([word for words in documents for word in words], dtype=np.uint64), offsets


def long_documents(*sizes):
    """Return documents of random words."""
    generator = np.random.default_rng(5)
    return [generator.integers(0, 2**64, size, dtype=np.uint64).tolist() for size in sizes]


@settings(max_examples=examples(50), deadline=None)
@given(documents=DOCUMENTS, ngram=st.integers(1, 6))
def test_shingles_and_signatures_are_those_of_the_slow_twin(documents, ngram):
    hashes, offsets = packed(documents)
    shingles, bounds = shingle_hashes(hashes, offsets, ngram=ngram)
    signatures, _ = sketch(hashes, offsets, ngram=ngram, num_perm=16)
    pairs = list(zip(*(values.tolist() for values in permutations(16)), strict=True))
    for number, words in enumerate(documents):
        expected = [twin.shingle_hash(gram) for gram in twin.grams(words, ngram)]
        assert shingles[bounds[number] : bounds[number + 1]].tolist() == expected
        assert signatures[number].tolist() == twin.signature(expected, pairs)


def test_a_document_longer_than_a_block_is_hashed_like_a_short_one():
    documents = long_documents(1023, 1028, 1029, 5000)
    hashes, offsets = packed(documents)
    shingles, bounds = shingle_hashes(hashes, offsets)
    signatures, _ = sketch(hashes, offsets, num_perm=8)
    pairs = list(zip(*(values.tolist() for values in permutations(8)), strict=True))
    for number, words in enumerate(documents):
        expected = [twin.shingle_hash(gram) for gram in twin.grams(words, 5)]
        assert shingles[bounds[number] : bounds[number + 1]].tolist() == expected
        assert signatures[number].tolist() == twin.signature(expected, pairs)


@settings(max_examples=examples(50), deadline=None)
@given(documents=DOCUMENTS)
def test_classes_are_those_of_the_slow_twin(documents):
    _, classes = sketch(*packed(documents), num_perm=1)
    assert [bytes(row) for row in classes] == [twin.sequence_digest(words) for words in documents]


@settings(max_examples=examples(30), deadline=None)
@given(documents=DOCUMENTS, rows=st.integers(1, 4))
def test_band_keys_are_those_of_the_slow_twin(documents, rows):
    signatures, _ = sketch(*packed(documents), num_perm=16)
    keys = band_keys(signatures, 16 // rows, rows)
    for values, found in zip(signatures.tolist(), keys, strict=True):
        expected = [twin.band_key(values[band * rows : (band + 1) * rows], band) for band in range(16 // rows)]
        assert [bytes(key) for key in found] == expected


def test_signatures_are_those_of_datasketch():
    datasketch = pytest.importorskip("datasketch", minversion="2.0")
    documents = [[], *long_documents(1, 3, 5, 6, 40, 1500)]
    hashes, offsets = packed(documents)
    shingles, bounds = shingle_hashes(hashes, offsets)
    signatures, _ = sketch(hashes, offsets)
    for number in range(len(documents)):
        theirs = datasketch.MinHash(num_perm=128, seed=SEED, scheme="affine32", hashfunc=int)
        for value in fold(shingles[bounds[number] : bounds[number + 1]]).tolist():
            theirs.update(value)
        assert theirs.hashvalues.tolist() == signatures[number].tolist()


def test_a_document_without_words_has_the_signature_of_nothing():
    signatures, _ = sketch(*packed([[], [1]]), num_perm=4)
    assert signatures[0].tolist() == [2**32 - 1] * 4
    assert signatures[1].tolist() != signatures[0].tolist()


def test_how_documents_are_put_together_changes_nothing():
    documents = long_documents(0, 2, 30, 1400)
    together = sketch(*packed(documents))
    for number, words in enumerate(documents):
        for whole, alone in zip(together, sketch(*packed([words])), strict=True):
            assert whole[number].tobytes() == alone[0].tobytes()


def bias(size, jaccard, pairs, seed):
    """Return the mean estimate minus the exact similarity, over random pairs of sets, and its standard error."""
    generator = np.random.default_rng(seed)
    shared = round(2 * size * jaccard / (1 + jaccard))
    exact = shared / (2 * size - shared)
    errors = []
    for _ in range(pairs):
        words = generator.integers(0, 2**64, 2 * size - shared, dtype=np.uint64)
        hashes = np.concatenate([words[:size], words[size - shared :]])
        signatures, _ = sketch(hashes, np.array([0, size, 2 * size]), ngram=1)
        errors.append(float((signatures[0] == signatures[1]).mean()) - exact)
    return float(np.mean(errors)), float(np.std(errors) / np.sqrt(pairs))


@pytest.mark.parametrize("size", [100, 1000])
def test_the_estimate_of_small_sets_has_no_bias(size):
    """Of sets of 10^2 and 10^3 shingles at similarity 0.8, within 0.005."""
    mean, error = bias(size, 0.8, 1500, 1)
    assert error < 0.0012
    assert abs(mean) <= 0.005


@pytest.mark.tables
@pytest.mark.parametrize("size", thinned([10**4, 10**5, 10**6], few=[10**4]))
@pytest.mark.parametrize("jaccard", [0.5, 0.8])
def test_the_estimate_of_large_sets_has_no_bias(size, jaccard):
    mean, error = bias(size, jaccard, 1000, 2)
    assert error < 0.0018
    assert abs(mean) <= 0.005


def test_128_values_make_21_bands_of_6():
    assert choose_bands(128, 0.8, 0.99) == (21, 6)
    assert chance_to_meet(0.8, 21, 6) == pytest.approx(0.99831, abs=1e-5)
    assert chance_to_meet(0.8, 18, 7) < 0.99


def test_one_more_row_would_miss_the_target():
    for num_perm in (16, 64, 256):
        for threshold in (0.5, 0.8, 0.9):
            bands, rows = choose_bands(num_perm, threshold, 0.95)
            assert bands * rows <= num_perm
            assert chance_to_meet(threshold, bands, rows) >= 0.95
            assert chance_to_meet(threshold, num_perm // (rows + 1), rows + 1) < 0.95


def test_a_target_that_is_out_of_reach_has_no_bands():
    assert choose_bands(2, 0.1, 0.99) is None


def test_the_chance_is_the_number_of_ways_to_share_a_band():
    assert chance_to_meet(0.5, 1, 3) == 0.125
    assert chance_to_meet(0.5, 2, 1) == 0.75
    assert chance_to_meet(0.0, 5, 2) == 0.0
    assert chance_to_meet(1.0, 5, 2) == 1.0


VALUES = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 6), st.integers(2**64 - 4, 2**64 - 1))
SETS = st.lists(st.lists(VALUES, max_size=30), min_size=1, max_size=5)


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
