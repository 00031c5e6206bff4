"""Words in normal form, against regular expressions, and where they stand."""

import numpy as np
import pytest
from buffers import buffers
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import markup as slow

from dataaudit.scan.kernels.markup import normal_words
from dataaudit.scan.kernels.plain_words import words_of
from dataaudit.scan.kernels.rewriting import rewritten
from dataaudit.scan.kernels.words import split_words

WORDS = [
    "river", "Town", "x", "caf\u00e9", "don't", "7", "1.5", "15", "1,000", "1000", "1,5", "2.000", "1,234.5", "v2.1",
]  # fmt: skip
MARKED = [
    "<b>river</b>", "<p class='a b'>", "</div>", "H<sub>2</sub>O", "H2O", "ri<b></b>ver",
    "ri<b></b><i class='a b'></i>ver", "river</b></p>Town", "river</b><i>", "&amp;", "&nbsp;", "don&#39;t",
    "don&amp;#39;t", "caf&eacute;", "caf&#233;&#39;s", "caf\u00e9's", "caf&eacute;'s", "&Eacute;", "[river](https://a.b/c?d=e)",
    "[x](#top)", "\\textbf{river}", "\\frac{1}{2}", "$\\alpha$", "\u03b1", "\\begin{align}", "1{,}000",
    "river\\nTown", "don\\'t", "t\u043ewn", "\u0440\u044b\u0431\u0430", "**x**", "a < b", "f(x)", "\u9762\u5305",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from([*WORDS, *MARKED]), max_size=12).map(" ".join)


def slow_normal(text):
    """Return the words of a text in normal form, by the reference implementation and words by plain Python."""
    left = slow.without_markup(text)
    written = left.encode()
    return [slow.normal_word(written[word.start : word.end].decode(), word.text) for word in words_of(left)]


def normal_of(texts):
    """Return the words of some texts in normal form."""
    values, bounds = buffers(texts)
    return normal_words(split_words(values, bounds), values, bounds)


@given(st.lists(TEXTS, min_size=1, max_size=4))
@settings(max_examples=examples(200))
def test_words_are_those_of_the_slow_twin(texts):
    """Equal words have equal hashes, and different words different ones, over all texts of a batch."""
    batch = normal_of(texts)
    known = {}
    for number, text in enumerate(texts):
        own = batch.hashes[batch.offsets[number] : batch.offsets[number + 1]].tolist()
        words = slow_normal(text)
        assert len(own) == len(words), (text, words)
        for word, value in zip(words, own, strict=True):
            assert known.setdefault(word, value) == value
            assert bool(value & 1) == all(char.isdecimal() or char in ".," for char in word)
    assert len(set(known.values())) == len(known)


@given(st.lists(TEXTS, min_size=1, max_size=4))
@settings(max_examples=examples(100))
def test_places_are_inside_the_document_and_ascend(texts):
    """Each word stands where it was written; a document has the same words in any batch."""
    batch = normal_of(texts)
    for number, text in enumerate(texts):
        low, high = batch.offsets[number : number + 2]
        starts, ends = batch.starts[low:high].astype(np.int64), batch.ends[low:high].astype(np.int64)
        assert (starts < ends).all()
        assert (ends <= len(text.encode())).all()
        assert (np.diff(starts) >= 0).all()
        assert np.array_equal(normal_of([text]).hashes, batch.hashes[low:high])


@pytest.mark.parametrize(
    ("left", "right"),
    [("1.5", "15"), ("1.5", "1,5"), ("1.25", "12.5"), ("1.5kg", "15kg"), ("1.2.3", "123"), ("10,00", "1000")],
)
def test_points_tell_numbers_apart(left, right):
    assert len(set(normal_of([left, right]).hashes.tolist())) == 2


def test_what_looks_like_markup_stays():
    for text in ("if a < b and c > d", "vector<int> v", "f(x)[i](y)", "p = &x; q = 1;", "C:\\data\\file", "<stdio.h>"):
        plain = split_words(*buffers([text]))
        assert np.array_equal(normal_of([text]).hashes & ~np.uint64(1), plain.hashes & ~np.uint64(1)), text


def test_a_batch_without_a_word():
    assert len(normal_of(["", " <!> ", ""]).hashes) == 0


@pytest.mark.parametrize(
    ("number", "read"), [("0" * 5_000 + "65", "a"), ("65", "a"), ("1" * 5_000, "\ufffd"), ("10000000", "\ufffd")]
)
@pytest.mark.parametrize("end", [";", ""])
def test_an_entity_of_any_number_of_digits_is_read(number, read, end):
    """Python refuses to read a number of more than 4,300 digits; a document with one is not lost for that."""
    assert rewritten(f"x&#{number}{end}!".encode()) == f"x{read}!".encode()
