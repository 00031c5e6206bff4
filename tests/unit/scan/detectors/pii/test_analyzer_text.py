"""Places as bytes and as characters, and stretches of long texts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.detectors.pii.analyzer_model import byte_of, character_of, segments

TEXTS = st.text(alphabet="ab \n\u00e9\u4e2d\U0001f600", max_size=300)


@given(TEXTS)
@settings(max_examples=examples(50))
def test_bytes_and_characters_are_told_apart(text):
    begins = [len(text[:place].encode()) for place in range(len(text) + 1)]
    assert byte_of(text, np.arange(len(text) + 1)).tolist() == begins
    assert character_of(text, np.array(begins, dtype=np.int64)).tolist() == list(range(len(text) + 1))


def test_a_byte_inside_a_character_belongs_to_it():
    assert character_of("a\u4e2db", np.arange(6)).tolist() == [0, 1, 1, 1, 2, 3]


@given(TEXTS, st.integers(1, 80), st.integers(1, 9), st.integers(0, 2))
@settings(max_examples=examples(50))
def test_stretches_are_all_of_a_text_or_some_of_it(text, size, at_most, seed):
    every, whole = segments(text, size=size, at_most=10**9, seed=seed)
    some, all_of_it = segments(text, size=size, at_most=at_most, seed=seed)
    assert whole
    assert "".join(text[begin:end] for begin, end in every) == text
    assert all(0 < end - begin <= size for begin, end in every)
    assert all_of_it == (len(every) <= at_most)
    assert len(some) == min(len(every), at_most)
    assert some == sorted(set(some) & set(every))
    assert segments(text, size=size, at_most=at_most, seed=seed) == (some, all_of_it)


def test_a_text_is_cut_at_white_space_where_there_is_some():
    words = "word " * 100
    cut, _ = segments(words, size=101, at_most=99, seed=0)
    assert all(words[begin:end].endswith(" ") for begin, end in cut)
    cut, _ = segments("x" * 250, size=100, at_most=99, seed=0)
    assert cut == [(0, 100), (100, 200), (200, 250)]
