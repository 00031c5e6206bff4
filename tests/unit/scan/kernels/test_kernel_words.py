"""Words of documents: the kernel against its reference implementation, and what must not matter to a word."""

from __future__ import annotations

from unicodedata import combining, normalize

import numpy as np
import pytest
from buffers import buffers
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference.words import word_hash

from dataaudit.scan.kernels.plain_words import folded_words, words_of
from dataaudit.scan.kernels.words import WordBatch, split_words, without_marks

_SCRIPTS = st.one_of(
    st.text(max_size=40),
    st.text(st.sampled_from("abcXYZ059 '\u2019.,-_\n\u00ad\u200b\u0301\u0323\u00e9\u00df"), max_size=60),
    st.text(
        st.characters(categories=["L", "M", "N", "Cf"], max_codepoint=0x33480)
        | st.sampled_from(" .,'1\u0e33\u0345\u30ac\uff76\uff9e\u0915\u093f\u4e2d\ud55c\u1112\u1161"),
        max_size=30,
    ),
)


def _split(texts: list[str]) -> WordBatch:
    return split_words(*buffers(texts))


def _rows(batch: WordBatch, document: int) -> list[tuple[int, int, int]]:
    chosen = slice(batch.offsets[document], batch.offsets[document + 1])
    return list(
        zip(batch.hashes[chosen].tolist(), batch.starts[chosen].tolist(), batch.ends[chosen].tolist(), strict=True)
    )


def _hashes(text: str) -> list[int]:
    hashes: list[int] = _split([text]).hashes.tolist()
    return hashes


@settings(max_examples=examples(300))
@given(st.lists(_SCRIPTS, max_size=4))
def test_words_and_places_are_those_of_the_slow_twin(texts: list[str]) -> None:
    batch = _split(texts)
    for document, text in enumerate(texts):
        words = words_of(text)
        assert _rows(batch, document) == [(word_hash(word.text), word.start, word.end) for word in words]
        assert folded_words(text) == [word.text for word in words]


@settings(max_examples=examples(300))
@given(st.lists(_SCRIPTS, max_size=4))
def test_words_without_marks_are_those_of_the_slow_twin_without_them(texts: list[str]) -> None:
    """Vowel signs, which keep their place, are no marks; a word that was made of others stays."""
    batch = _split(texts)
    bare = without_marks(batch, batch, *buffers(texts))
    bases = ["".join(char for char in word.text if not combining(char)) for text in texts for word in words_of(text)]
    assert bare.hashes.tolist() == [word_hash(base) for base in bases]
    made = WordBatch(batch.hashes ^ np.uint64(2), batch.offsets, batch.starts, batch.ends)
    assert np.array_equal(without_marks(made, batch, *buffers(texts)).hashes, made.hashes)


@settings(max_examples=examples(200))
@given(_SCRIPTS)
def test_canonically_equal_texts_have_equal_words(text: str) -> None:
    assert _hashes(normalize("NFC", text)) == _hashes(normalize("NFD", text))


@given(st.text("ae\u0301\u0302\u0323\u0327\u0e38\u0e48\u09cd\u09bc ", max_size=8))
def test_marks_in_any_order_are_those_of_the_slow_twin(text: str) -> None:
    for form in (text, normalize("NFC", text), normalize("NFD", text)):
        assert _hashes(form) == [word_hash(word.text) for word in words_of(form)] == _hashes(text)


@given(st.lists(st.text("ab 1.\u4e2d", max_size=20), max_size=5))
def test_a_document_has_the_same_words_alone_and_among_others(texts: list[str]) -> None:
    batch = _split(texts)
    for document, text in enumerate(texts):
        assert _rows(batch, document) == _rows(_split([text]), 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The quick brown fox", "the QUICK\n  brown -- fox!"),
        ("don't", "dont"),
        ("Don\u2019t", "don't"),
        ("80,000 and 3.14", "80000 and 314"),
        ("caf\u00e9", "cafe\u0301"),
        ("STRASSE", "stra\u00dfe"),
        ("\uff21\uff22\uff23 \uff11", "abc 1"),
        ("soft\u00adhyphen", "softhyphen"),
        ("\u0661\u0662", "12"),
        ("\u0391\u03a3 \u03a3\u0391\u03a3", "\u03b1\u03c2 \u03c3\u03b1\u03c3"),
        ("\u30ac", "\uff76\uff9e"),
        ("snake_case", "snake case"),
    ],
)
def test_case_punctuation_space_and_form_do_not_matter(one: str, other: str) -> None:
    assert _hashes(one) == _hashes(other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0), (" \n.,'", 0), ("one two", 2), ("1, 2", 2), ("'quoted'", 1), ("\u4e2d\u6587abc\u5b57", 4),
        ("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", 4), ("\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902", 2),
        ("\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8", 2), ("a" * 100_000, 1),
    ],
)  # fmt: skip
def test_texts_have_so_many_words(text: str, words: int) -> None:
    assert len(_hashes(text)) == words


def test_the_lowest_bit_tells_numbers() -> None:
    assert [value & 1 for value in _hashes("12 a1 x 3,000 \u0663 \u4e09")] == [1, 0, 0, 1, 1, 0]


def test_different_words_have_different_hashes() -> None:
    texts = [f"{a}{b}" for a in range(300) for b in ("", "x", "ab", "\u00e9", "abcdefgh", "abcdefghi", "\u4e00")]
    folded = {word.text for text in texts for word in words_of(text)}
    assert len({value for text in texts for value in _hashes(text)}) == len(folded)
