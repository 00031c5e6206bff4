"""The counts of the quality rules: compiled against plain Python, text by text."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from buffers import buffers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import WHOLE, examples
from reference import filters as twin

from dataaudit.scan.kernels import filter_words, filters
from dataaudit.scan.kernels.filter_words import COUNTS
from dataaudit.scan.kernels.filters import has_periodic_run

LIMITS = {"short_line_chars": 30, "least_words": 5, "most_word_chars": 1000}
SMALL = {"short_line_chars": 3, "least_words": 2, "most_word_chars": 4}
PIECES = [
    "the", "of", "and", "be", "word", "Word", "WORD", "don't", "don\u2019t", "it's", "IT'S", "we'll", "cat's", "n't",
    "xn't", "'s", "s'", "'tis", "rock'n't", "e.g.", "i.e", "U.S.", "U.S", "USA.", "a.b", "a.B", "3.14", "3.", "10%",
    "10$", "$10", "+1", "1+1", "1-2", "2--", "well-known", "a--b", "a---b", "a----b", "a\u2014b", "a\u2014\u2014b",
    "a\u2013b", "x/y", "x=y", "1:a", "a,b", "1,2", "...", "..", ".", "a...", "...a", "a...b", "\u2026", "a\u2026b",
    "http://a.bc/d-e", "a@b.cd", "@b.cd", "a@@b.cd", "www.x.org:80", "www.x.org:8", "x.Org", "a.bc?d", "a..bc",
    "foo.[1]", "foo![2][]", "foo?[edit]", "foo.[citation", "needed]", "[citation", "[1]", "[]", "]", "\u4e2d\u6587",
    "\u4e2d\u6587\u3002", "\u4e2d.", "\u0416\u0416.", "\xe9t\xe9.", "e\u0301", "\U0001f600", "a\U0001f600b", "\u20ac5",
    "5\u20ac", "m\xb2.", "\xab", "\xbb.", "\u2022", "-", "--", "#", "##", "{", "}", "\x00", "a\x00b", "\x7f", "lorem",
    "ipsum", "Lorem", "IPSUM.", "JavaScript", "xjavascripty", "javascrip", "terms", "of", "use", "uses", "cookies",
    "cookie", "policy", "privacy", "Privacy", "Policy!", "cookies'", "\u212aookie", "\u0130", "\xdf", "\u01c5",
    "\u2167", "\u0300", "\ufeff", "\U000e0001", "\U0010fffd", "\xb4", "`x`", "''", "'\u2019s", "a\u2019s.", ")).",
    "a).", "a%.", "-.", '"Hi".', "(a", "<b>", "_x_", "a_b", "*", "a*b", "1*2", "1*-2",
]  # fmt: skip
SPACES = [
    *[" "] * 4, "  ", "\n", "\n", "\n\n", "\n \n", "\r\n", "\r\n\r\n", "\r", "\t", "\u00a0", "\u3000", "\u2028",
    "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "", "",
]  # fmt: skip
LINES = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(SPACES)), max_size=12).map(
    lambda pairs: "".join(piece + space for piece, space in pairs)
)
TEXTS = st.one_of(
    LINES,
    st.lists(LINES, max_size=3).map("".join),
    st.text(max_size=60),
    st.text(alphabet=".-'st[]1aA \n\r\u2019\u4e2dn:/@", max_size=40),
    st.tuples(st.lists(st.sampled_from(["a", "b", "c,", "d\n"]), max_size=80)).map(lambda words: " ".join(words[0])),
    st.tuples(LINES, st.integers(2, 6), st.sampled_from(["", "\n", "\n\n"])).map(lambda t: (t[0] + t[2]) * t[1]),
)


def counted(texts, **limits):
    """Return the counts of texts as dicts."""
    rows = filters.count_for_filters(*buffers(texts), **limits)
    return [dict(zip(COUNTS, map(int, row), strict=True)) for row in rows]


def assert_same(text, found, **limits):
    expected = twin.filter_counts(text, **limits)
    assert found == {name: expected[name] for name in COUNTS}, ascii(text)


@settings(max_examples=examples(400), deadline=None)
@given(texts=st.lists(TEXTS.filter(lambda text: not any(0xD800 <= ord(c) < 0xE000 for c in text)), max_size=4))
@example(texts=["one\ntwo\n\ntwo\none", "of\r\nthe\n\nthe\r\nof\n", "a\nb\nc\n\nc\nb\na\n\nb\na\nc"])
@example(texts=["", "a", "...", "\n", "\u2028", "a\r\n\r\nb", "one word", "\ufeff", "a" * 3000, "x\u0300\u0301"])
def test_every_count_is_that_of_plain_python(texts):
    """Any text, any neighbours in the batch, at the published limits and at small ones."""
    for limits in (LIMITS, SMALL):
        for text, found in zip(texts, counted(texts, **limits), strict=True):
            assert_same(text, found, **limits)


@pytest.mark.parametrize("piece", PIECES)
def test_every_kind_of_piece_is_cut_as_defined(piece):
    texts = [piece, f"{piece}.", f"({piece})", f"{piece}{piece}", f"{piece},b", f"x {piece} y. Z", f'"{piece}...']
    for text, found in zip(texts, counted(texts, **LIMITS), strict=True):
        assert_same(text, found, **LIMITS)


@pytest.mark.tables
def test_tables_in_parts_count_the_same(monkeypatch):
    """A document with more n-grams than the table holds is counted in several passes."""
    words = [f"w{index * index % 977}" for index in range(4000)]
    text = " ".join(words + words[:300] + ["a", "b"] * 200)
    (whole,) = counted([text], **LIMITS)
    assert_same(text, whole, **LIMITS)
    code = (
        "from dataaudit.scan.kernels import filter_words as t; t.MAX_KEYS = 500\n"
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[3])]!r}\n"
        "import test_kernel_filters as m; from dataaudit.scan.kernels import jit; jit.cache_folder = lambda: None\n"
        "words = [f'w{index * index % 977}' for index in range(4000)]\n"
        "print(m.counted([' '.join(words + words[:300] + ['a', 'b'] * 200)], **m.LIMITS)[0])"
    )
    plain = {} if WHOLE else {"NUMBA_DISABLE_JIT": "1"}  # to compile with another limit takes longer
    environment = {**os.environ, **plain}
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert result.stdout.strip() == str(whole)
    assert filter_words.MAX_KEYS > 10**6
    assert len(filter_words.table_for(1000)) == 2 * 2048  # a table that is full is searched forever


def test_plain_python_runs_the_kernel_as_written():
    """NUMBA_DISABLE_JIT=1 gives the same counts, without warnings."""
    texts = ["The end. Of it...\n\nthe end of it\u2026 \u4e2d\u6587\u3002", "a b c d e f g h " * 4, ""]
    code = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[3])]!r}\n"
        f"import test_kernel_filters as m; print(m.counted({texts!r}, **m.LIMITS))"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=dict(os.environ, NUMBA_DISABLE_JIT="1"),
        check=True,
        capture_output=True,
        text=True,
    )
    assert result.stdout.strip() == str(counted(texts, **LIMITS))


def test_a_document_beyond_32_bits_is_refused():
    """Positions are kept in 32 bits; the message says so."""
    with pytest.raises(ValueError, match="too long"):
        filters.count_for_filters(np.zeros(0, np.uint8), np.array([0, 2**31]), **LIMITS)


UNIT = st.lists(st.integers(0, 2), min_size=1, max_size=5)
DOCUMENT = st.lists(st.tuples(UNIT, st.integers(1, 6)), max_size=5).map(
    lambda parts: [token for unit, times in parts for token in unit * times]
)


def found(documents, **limits):
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    ids = np.array([token for document in documents for token in document], dtype=np.uint32)
    return has_periodic_run(ids, offsets, **limits).tolist()


@given(documents=st.lists(DOCUMENT, max_size=5), most_period=st.integers(1, 6), times=st.integers(2, 6))
def test_runs_are_those_of_plain_python(documents, most_period, times):
    """Any ids, periods and counts; a run never reaches into the next document."""
    limits = {"most_period": most_period, "times": times}
    assert found(documents, **limits) == [twin.has_periodic_run(document, **limits) for document in documents]


@pytest.mark.parametrize("period", [1, 2, 7, 13])
@pytest.mark.parametrize("before", [0, 1, 5, 400])
def test_the_rule_begins_at_32_copies(period, before):
    """31 copies and all but one id of another pass; 32 are rejected; so is nothing of period 14."""
    lead, unit = [1000 + place for place in range(before)], list(range(period))
    documents = [lead + unit * 32, lead + (unit * 32)[:-1], lead + unit * 40 + lead]
    assert found(documents, most_period=13, times=32) == [True, False, True]
    assert found([lead + list(range(14)) * 40], most_period=13, times=32) == [False]
