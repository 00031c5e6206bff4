from __future__ import annotations

import hashlib
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import basics

from dataaudit.scan.corpus.texts import normal_digests, normal_form, row_digests, text_digests
from dataaudit.scan.kernels.normal import LONG_RUN, normalized

SPACES = [chr(point) for point in range(0x110000) if chr(point).isspace()]
pieces = st.one_of(
    st.text(max_size=5),
    st.sampled_from(SPACES),
    st.sampled_from(["e\u0301", "\u0301", "\u1100\u1161", "\u0344", "\u2126", "\u2000", "\ufb01", "A", "a", ".", "\0"]),
)
texts = st.lists(pieces, max_size=12).map("".join)


def arrow(values) -> pa.LargeStringArray:
    return pa.array(values, pa.large_string())


@given(st.lists(texts, max_size=5))
@settings(max_examples=examples(300), deadline=None)
def test_digests_of_normal_forms_are_those_of_the_slow_twin(values):
    """Whole arrays and the twin, word by word, agree on every text."""
    expected = [basics.normal_digest(value) for value in values]
    assert [row.tobytes() for row in normal_digests(arrow(values))] == expected


@given(texts)
@settings(max_examples=examples(300), deadline=None)
def test_a_normal_form_is_its_own(text):
    """Normalising twice changes nothing, and the result is NFC without double spaces."""
    form = normal_form(text)
    assert normal_form(form) == form
    assert unicodedata.is_normalized("NFC", form)
    assert form == form.strip()
    assert not any(space in form for space in SPACES if space != " ")
    assert "  " not in form


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (" a\t\n b\u3000", "a b", True), ("caf\u00e9", "cafe\u0301", True), ("", " \n\x1f\x85\u2029", True),
        ("a b", "ab", False), ("A", "a", False), ("a.", "a", False), ("\ufb01", "fi", False),
        ("a\u200bb", "ab", False), ("a\0", "a", False),
    ],
)  # fmt: skip
def test_what_counts_as_equal(one, other, equal):
    """White space and composed characters do not tell texts apart; case, punctuation and all else do."""
    digests = normal_digests(arrow([one, other]))
    assert (digests[0] == digests[1]).all() == equal


@given(st.lists(texts, max_size=5), st.integers(0, 2), st.integers(0, 2))
@settings(max_examples=examples(200), deadline=None)
def test_text_digests_are_of_the_bytes_as_they_stand(values, before, behind):
    """The digest of a text is that of its UTF-8, also in a slice of a larger array."""
    sliced = arrow(["x"] * before + values + ["y"] * behind).slice(before, len(values))
    expected = [hashlib.sha256(value.encode()).digest()[:16] for value in values]
    assert [row.tobytes() for row in text_digests(sliced)] == expected


@given(st.lists(st.tuples(texts, st.sampled_from("abc")), max_size=6))
@settings(max_examples=examples(100), deadline=None)
def test_row_digests_depend_on_text_and_source_alone(rows):
    """Equal rows have equal digests whatever the codes of their sources, and other rows have others."""
    names = tuple(dict.fromkeys(source for _, source in rows))
    digests = text_digests(arrow([text for text, _ in rows]))

    def of(order):
        codes = np.array([order.index(source) for _, source in rows], dtype=np.int32)
        return [row.tobytes() for row in row_digests(digests, codes, order)]

    found = of(names)
    assert found == of(names[::-1])
    assert len(set(found)) == len(set(rows))


def test_nothing_has_no_digests():
    """An empty batch gives empty matrices of the right shape."""
    empty = arrow([])
    assert normal_digests(empty).shape == text_digests(empty).shape == (0, 16)
    assert row_digests(text_digests(empty), np.zeros(0, np.int32), ()).shape == (0, 16)


def test_the_normal_form_is_frozen():
    """A version of the normal form is one set of digests for ever."""
    assert (
        normal_digests(arrow([" Caf\u0065\u0301\n\tau  lait "]))[0].tobytes()
        == hashlib.sha256("Caf\u00e9 au lait".encode()).digest()[:16]
    )


FORMS = ("NFC", "NFD", "NFKC", "NFKD")
MARKS = [chr(point) for point in range(0x110000) if unicodedata.combining(unicodedata.normalize("NFKD", chr(point))[0])]
many_marks = st.integers(LONG_RUN - 2, 4 * LONG_RUN).flatmap(
    lambda size: st.lists(
        st.sampled_from(["\u0301", "\u0323", "\u0344", "\uff9e", *MARKS]), min_size=size, max_size=size
    )
)


@given(st.lists(st.one_of(texts, many_marks.map("".join)), max_size=4).map("".join), st.sampled_from(FORMS))
@settings(max_examples=examples(300), deadline=None)
def test_normal_forms_are_those_of_unicodedata_also_with_long_runs_of_marks(text, form):
    assert normalized(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("start", ["", "a", "\u1ebf", "\uac00", "\u0344", "\u1fb7", "\ufe70", "\ufdfa"])
def test_every_mark_in_a_long_run_is_ordered_and_composed_as_by_unicodedata(start, form):
    """All of them; the pattern for runs looks no further than the second plane."""
    assert max(MARKS) < "\U00020000"
    for first in range(0, len(MARKS), 2 * LONG_RUN):
        text = start + "".join(reversed(MARKS[first : first + 2 * LONG_RUN])) + "b" + "".join(MARKS[first:])
        assert normalized(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize(
    ("form", "pair"), [("NFC", "\u0301\u0323"), ("NFKC", "\u0301\u0323"), ("NFKD", "\u0301\uff9e")]
)
def test_runs_of_marks_reach_unicodedata_in_order(monkeypatch, form, pair):
    """Its insertion takes a step for each pair that is out of order: of a long run, none is left but at the start."""
    seen = []

    def normalize(form, text):
        seen.append(text)
        return unicodedata.normalize(form, text)

    normalized(form, pair * LONG_RUN)
    monkeypatch.setattr("dataaudit.scan.kernels.normal.normalize", normalize)
    normalized(form, "\u1ebf" + pair * 5_000)
    marks = [unicodedata.combining(char) for char in seen[-1][1:]]
    assert marks == sorted(marks)
    assert len(marks) == 10_000
