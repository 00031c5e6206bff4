"""Injected pairs of known similarity in four kinds of text: how many are found, and whether what is found is right."""

import random
from pathlib import Path

import pytest
from near_corpus import Shard, edited, random_words, search, true_similarity
from sentences import SENTENCES

import dataaudit
from dataaudit.metrics.near_dup.stage import NearDup

PAIRS = 240


def english(generator):
    """Return words of English sentences in random order."""
    return random_words(generator, [word for text in SENTENCES["en"] for word in text.split()], 120)


def russian(generator):
    """Return words of Russian sentences in random order."""
    return random_words(generator, [word for text in SENTENCES["ru"] for word in text.split()], 120)


def chinese(generator):
    """Return characters of Chinese sentences in random order."""
    return random_words(generator, [char for text in SENTENCES["zh"] for char in text], 160)


def code(generator):
    """Return lines of this package, in random order; each is one piece."""
    folder = Path(dataaudit.__file__).parent
    lines = [
        line for name in ("base/errors.py", "config.py") for line in (folder / name).read_text("utf-8").splitlines()
    ]
    return [line + "\n" for line in generator.sample([line for line in lines if line.strip()], 40)]


@pytest.mark.tables
@pytest.mark.parametrize(("make", "joint"), [(english, " "), (russian, " "), (chinese, ""), (code, "")])
def test_pairs_at_the_threshold_are_found_and_what_is_found_is_right(make, joint, tmp_path):
    """Recall at least 0.99 at true similarity 0.8 and more, precision at least 0.999."""
    generator = random.Random(11)
    vocabulary = make(generator)
    originals, variants = [], []
    for _ in range(PAIRS):
        pieces = make(generator)
        originals.append(joint.join(pieces))
        variants.append(joint.join(edited(generator, pieces, vocabulary, generator.randrange(1, 4))))
    similarities = [true_similarity(*pair) for pair in zip(originals, variants, strict=True)]
    found = search([Shard(texts=originals), Shard(texts=variants)], tmp_path, NearDup(recall_documents=0)).pairs()
    alike = [row for row, similarity in enumerate(similarities) if similarity >= 0.8]
    assert len(alike) >= 100
    met = [((0, row), (1, row)) in found for row in alike]
    assert sum(met) / len(met) >= 0.99
    texts = originals, variants
    right = [true_similarity(texts[left[0]][left[1]], texts[other[0]][other[1]]) >= 0.8 for left, other in found]
    assert sum(right) / len(right) >= 0.999
