"""Variants of known similarity."""

from __future__ import annotations

import numpy as np
import pytest
from twins import minhash as twin

from dataaudit.kernels.variants import LEAST, MOST, make_variants


def documents(count, words):
    """Return documents of random words, and seeds."""
    generator = np.random.default_rng(3)
    hashes = generator.integers(0, 2**64, count * words, dtype=np.uint64)
    offsets = np.arange(count + 1, dtype=np.int64) * words
    return hashes, offsets, generator.integers(0, 2**64, count, dtype=np.uint64)


def similarities(count, words):
    """Return the exact similarity of each variant, and the variants."""
    hashes, offsets, seeds = documents(count, words)
    made, bounds = make_variants(hashes, offsets, seeds)
    found = []
    for number in range(count):
        left = twin.grams(hashes[offsets[number] : offsets[number + 1]].tolist(), 5)
        right = twin.grams(made[bounds[number] : bounds[number + 1]].tolist(), 5)
        shared, union = twin.jaccard(left, right)
        found.append(shared / union)
    return np.array(found), made, bounds


@pytest.mark.parametrize("words", [30, 300])
def test_most_variants_have_a_similarity_in_range_and_all_of_it_is_covered(words):
    found, _, _ = similarities(400, words)
    inside = found[(found >= LEAST) & (found <= MOST)]
    assert len(inside) >= 0.8 * len(found)
    counts, _ = np.histogram(inside, bins=7, range=(LEAST, MOST))
    assert counts.min() >= 15


def test_variants_follow_from_the_seed_alone():
    hashes, offsets, seeds = documents(20, 50)
    made, bounds = make_variants(hashes, offsets, seeds)
    again, _ = make_variants(hashes, offsets, seeds)
    assert made.tobytes() == again.tobytes()
    alone, _ = make_variants(hashes[100:150], np.array([0, 50]), seeds[2:3])
    assert alone.tobytes() == made[bounds[2] : bounds[3]].tobytes()


def test_words_are_left_out_put_in_and_moved():
    hashes, offsets, seeds = documents(200, 100)
    made, bounds = make_variants(hashes, offsets, seeds)
    kinds = set()
    for number in range(200):
        before = hashes[offsets[number] : offsets[number + 1]].tolist()
        after = made[bounds[number] : bounds[number + 1]].tolist()
        kept = [word for word in after if word in before]
        kinds.add((len(kept) < len(before), len(after) > len(kept), kept != [w for w in before if w in after]))
    assert {(True, False, False), (False, True, False), (True, True, False), (False, False, True)} <= kinds


@pytest.mark.parametrize("words", [5, 6, 12])
def test_short_documents_have_variants_too(words):
    found, made, bounds = similarities(200, words)
    assert (np.diff(bounds) > 0).all()
    assert bounds[-1] == len(made)
    assert found.max() > 0
