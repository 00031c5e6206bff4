"""How many draws stand behind a share of tokens: chance is counted in documents."""

import random

import pytest
from diff_made import made, shard

from dataaudit.decide.diff.sampling_error import EffectiveSampleSizes, _draws, chance


def lengths(held):
    """Return rows of the table of lengths of {(split, source): {tokens: documents}}."""
    return [
        {"split": split, "source": source, "low": tokens, "high": tokens, "documents": documents}
        for (split, source), counts in held.items()
        for tokens, documents in counts.items()
    ]


def trials(folder, held, languages=()):
    """Return the draws of a manifest with these lengths."""
    names = ("split", "source", "language", "documents", "bytes", "tokens")
    tables = {"lengths": lengths(held), "languages": [dict(zip(names, row, strict=True)) for row in languages]}
    return EffectiveSampleSizes(made(folder, [shard("a")], tables=tables))


def test_documents_of_equal_length_are_as_many_draws(tmp_path):
    """100 documents of 7 tokens are 100 draws, not 700."""
    held = trials(tmp_path / "m", {("train", "a"): {7: 30}, ("train", "b"): {7: 70}})
    assert held.of("source_mix_share", "share", {"split": "train", "source": "a"}, 0.3, 700) == pytest.approx(100)


def test_one_document_is_one_draw(tmp_path):
    """Half of all tokens in a single document: nearly nothing is known of the share."""
    held = trials(tmp_path / "m", {("train", "a"): {10**6: 1}, ("train", "b"): {1: 10**6}})
    found = held.of("source_mix_share", "share", {"split": None, "source": "a"}, 0.5, 2 * 10**6)
    assert found == pytest.approx(4, rel=1e-3)


def test_a_share_of_nothing_has_draws(tmp_path):
    """Where the share is 0 the draws are those of all documents."""
    held = trials(tmp_path / "m", {("train", "b"): {5: 40}})
    assert held.of("source_mix_share", "share", {"split": "train", "source": "a"}, 0.0, 200) == pytest.approx(40)


def test_a_language_has_the_draws_of_its_documents(tmp_path):
    """All documents of one length: as many draws as documents."""
    rows = [("train", "a", "de", 25, 500, 250), ("train", "a", "en", 75, 1500, 750)]
    held = trials(tmp_path / "m", {("train", "a"): {10: 100}}, rows)
    assert held.of("language_share", "share", {"split": "train", "language": "de"}, 0.25, 1000) == pytest.approx(100)
    assert held.of("language_share", "share", {"language": "de"}, 0.25, 1000) == pytest.approx(100)


@pytest.mark.parametrize(
    ("metric", "stat"),
    [
        ("secret_hit_rate", "hits"),
        ("benchmark_contamination", "rate"),
        ("train_val_overlap", "ngram"),
        ("tokens", "count"),
        ("pad_fraction", "packed_2048"),
        ("source_mix_share", "declared"),
    ],
)
def test_chance_is_not_asked_of_leaks_secrets_and_counts(tmp_path, metric, stat):
    """One leak more is one more, whatever chance does."""
    assert trials(tmp_path / "m", {}).of(metric, stat, {"split": "train"}, 0.5, 100) is None


def test_a_share_of_documents_has_them_as_draws(tmp_path):
    """Its denominator."""
    assert trials(tmp_path / "m", {}).of("exact_dup_rate", "rate", {}, 0.5, 100) == 100


def test_two_corpora_of_one_process_differ_by_chance_in_nineteen_of_twenty_cases():
    """Documents of two sources with skewed lengths: taken as tokens nearly every pair would be shouted about."""
    draw = random.Random(11)

    def corpus(size):
        squares, tokens = [0.0, 0.0], [0, 0]
        for _ in range(size):
            source = int(draw.random() < 0.3)
            length = int(draw.lognormvariate(5 + source, 1)) + 1
            tokens[source] += length
            squares[source] += length**2
        share = tokens[1] / sum(tokens)
        return share, _draws(share, sum(tokens), squares[1], sum(squares)), sum(tokens)

    held = naive = 0
    pairs = 600
    for _ in range(pairs):
        one, other = corpus(400), corpus(250)
        found = chance(one[0], one[1], other[0], other[1])
        held += found.low <= 0 <= found.high
        blind = chance(one[0], one[2], other[0], other[2])
        naive += blind.low <= 0 <= blind.high
    assert 0.92 <= held / pairs <= 0.985
    assert naive / pairs < 0.3
