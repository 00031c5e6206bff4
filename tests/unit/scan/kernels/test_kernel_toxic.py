"""Scores of the toxicity screen's kernel, against its reference implementation; disguises; windows."""

from dataclasses import replace

import numpy as np
import pytest
from buffers import buffers
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference.toxic import disguised_weight, folded, is_repeated, key_of, window_score, word_features

from dataaudit.scan.kernels.toxic import ToxicWeights, feature_slots, masked_key, plain_key, toxic_scores
from dataaudit.scan.kernels.words import split_words

BITS = (7, 8, 9)
KNOWN = ("damn", "crap", "bugger", "damned")
CHARS = st.one_of(
    st.sampled_from("damncrpbugeDAMN0134 *!#$%@'.,-_\n"),
    st.sampled_from(
        "\u00e1\u00c6\u00f7\u00ad\u200b\u2019\ufeff\uff44\uff21\u0434\u4e2d"
        "\U0001d41d\u0e01\u0660\u00b5\u0378\uff10\u0301"
    ),
)
PIECES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.lists(CHARS, max_size=40).map("".join),
    st.sampled_from([*KNOWN, "d*mn", "d4mn!", "d**n", "daaaamn", "d a m n", "d.a.m.n", "bug", "ger", "d***", "x" * 40]),
)
TEXTS = st.lists(PIECES, max_size=12).map(" ".join)


def hidden_keys():
    """Return the weight of every key that hides one of the known words."""
    table = {key_of(word, masked=False): 1000 + place for place, word in enumerate(KNOWN)}
    for place, word in enumerate(KNOWN):
        for masked in range(1, len(word)):
            hidden = word[:masked] + "*" + word[masked + 1 :]
            table.setdefault(key_of(hidden, masked=True), 2000 + place)
    table.setdefault(key_of("d**n", masked=True), 3000)
    table.setdefault(key_of("d***", masked=True), 3001)
    return table


def model(window=6):
    rng = np.random.default_rng(5)
    table = hidden_keys()
    keys, disguised = np.zeros(64, dtype=np.uint64), np.zeros(64, dtype=np.int16)
    for key, weight in table.items():
        place = key % 64
        while keys[place]:
            place = (place + 1) % 64
        keys[place], disguised[place] = key, weight
    tables = [rng.integers(-127, 128, 1 << bits).astype(np.int8) for bits in BITS]
    norms = np.array([0, *(round((1 << 20) / size) for size in range(1, window + 1))], dtype=np.int64)
    return ToxicWeights(*tables, keys, disguised, norms, passage=min(3, window - 1), margin=9)


def only_disguises():
    """Return weights that are zero but for those of disguises, without a norm."""
    weights = model(window=40)
    plain = {name: np.zeros_like(getattr(weights, name)) for name in ("words", "pairs", "grams")}
    return replace(weights, norms=np.array([0] + [1 << 16] * 40), **plain)


def expected(text, weights):
    """Score a document by the definitions."""
    values, offsets = buffers([text])
    words = split_words(values, offsets)
    places = list(zip(words.hashes.tolist(), words.starts.tolist(), words.ends.tolist(), strict=True))
    scores = []
    for index, features in enumerate(word_features(text, places, BITS, len(weights.norms) - 1)):
        plain = sum(int(getattr(weights, table)[slot]) for table, slot in features)
        scores.append(
            disguised_weight(
                text, places, index, hidden_keys(), repeated=is_repeated(places, index, len(weights.norms) - 1)
            )
            or plain
        )
    return window_score(scores, weights.norms.tolist(), weights.passage, weights.margin)


def scores_of(texts, weights):
    values, offsets = buffers(texts)
    return toxic_scores(values, offsets, split_words(values, offsets), np.ones(len(texts), dtype=bool), weights)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(TEXTS, max_size=5))
def test_scores_are_those_of_the_slow_twin(texts):
    weights = model()
    assert scores_of(texts, weights).tolist() == [expected(text, weights) for text in texts]


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(TEXTS, max_size=4))
def test_listed_slots_are_those_of_the_slow_twin(texts):
    """What a model learns from is what it is scored by."""
    values, offsets = buffers(texts)
    words = split_words(values, offsets)
    slots, bounds = feature_slots(values, offsets, words, BITS, 6)
    starts = {"words": 0, "pairs": 1 << BITS[0], "grams": (1 << BITS[0]) + (1 << BITS[1])}
    found = [sorted(slots[bounds[word] : bounds[word + 1]].tolist()) for word in range(len(words.hashes))]
    wanted = []
    for index, text in enumerate(texts):
        part = slice(words.offsets[index], words.offsets[index + 1])
        places = zip(words.hashes[part].tolist(), words.starts[part].tolist(), words.ends[part].tolist(), strict=True)
        wanted += [
            sorted(starts[table] + slot for table, slot in features)
            for features in word_features(text, list(places), BITS, 6)
        ]
    assert found == wanted


@pytest.mark.parametrize(
    "text",
    ["d*mn", "d4mn", "say D4MN now", "d**n!", "it is d*mn!!", "daaaamn", "DDDamn", "d a m n", "d.a.m.n.", "d***"],
)
def test_a_disguised_word_weighs_what_the_table_says(text):
    assert scores_of([text], only_disguises())[0] >= 1000


@pytest.mark.parametrize(
    "text",
    [
        "damn", "d*", "a*b", "f(*damn)", "0xdam4", "D105", "da44mn", "damn4", "d a n", "d  a  m  n", "x1y2z3",
        "**p = &q;",
    ],
)  # fmt: skip
def test_what_is_no_disguise_is_not_looked_up(text):
    assert scores_of([text], only_disguises())[0] == 0


@settings(max_examples=examples(30), deadline=None)
@given(st.permutations([f"word{chr(97 + place)}" for place in range(20)]), st.integers(0, 20), st.integers(2, 9))
def test_a_document_scores_as_its_worst_window(words, count, size):
    """The score of different words is the most that windows of them score, each by itself."""
    words = words[:count]
    weights = replace(model(window=size), pairs=np.zeros(1 << BITS[1], dtype=np.int8))
    passages = [" ".join(words[place : place + size]) for place in range(max(1, len(words) - size + 1))]
    assert scores_of([" ".join(words)], weights)[0] == scores_of(passages, weights).max()


def test_a_word_counts_once_within_a_window():
    weights = replace(
        model(window=4), pairs=np.zeros(1 << BITS[1], dtype=np.int8), norms=np.full(5, 1 << 16), margin=9999
    )
    once, often = scores_of(["damned tea", "damned damned tea damned"], weights)
    assert once == often


def test_a_passage_counts_less_its_margin():
    """Three bad words among many that weigh nothing: what they score by themselves, less the margin."""
    weights = replace(model(window=20), passage=3, margin=9)
    plain = {name: np.zeros_like(getattr(weights, name)) for name in ("words", "pairs", "grams")}
    quiet = replace(weights, **plain)
    alone = scores_of(["daaamn craaap buuugger"], quiet)[0]
    assert scores_of(["a tea is daaamn craaap buuugger and tea"], quiet)[0] == alone - 9


def test_documents_that_are_not_wanted_score_nothing():
    values, offsets = buffers(["damn crap", "damn crap"])
    found = toxic_scores(values, offsets, split_words(values, offsets), np.array([False, True]), model())
    assert found[0] == 0
    assert found[1] != 0


def test_a_document_without_words_scores_nothing():
    assert scores_of(["", "!!! ...", " "], model()).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("word", "letters"),
    [
        ("Caf\u00e9", "cafe"),
        ("don\u2019t", "dont"),
        ("da\u200bmn", "damn"),
        ("\uff24amn", "damn"),
        ("\u0434a", "\x7fa"),
    ],
)
def test_letters_are_folded(word, letters):
    assert folded(word) == letters


@given(st.text("abz*", min_size=1, max_size=9))
def test_keys_of_disguises_are_those_of_the_slow_twin(letters):
    assert masked_key(letters.encode()) == key_of(letters, masked=True)
    assert plain_key(letters.encode()) == key_of(letters, masked=False)
