"""Code points of a set, and capitalised words within sentences: compiled against plain Python."""

import pyarrow as pa
import pytest
from buffers import buffers
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import basics as twin

from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.kernels.characters import code_point_bits, count_names, documents_with

EDGES = [0x00, 0x0A, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]
texts = st.lists(st.one_of(st.text(max_size=20), st.sampled_from(EDGES).map(chr), st.just("a" * 17)), max_size=6)


def found(values, ranges):
    return documents_with(*text_buffers(pa.array(values, pa.large_string())), code_point_bits(ranges)).tolist()


@given(st.lists(texts.map("".join), max_size=6), st.lists(st.sampled_from(EDGES), max_size=4))
@settings(max_examples=examples(400), deadline=None)
def test_documents_with_a_marked_code_point_are_those_that_python_finds(values, points):
    expected = [any(ord(char) in points for char in value) for value in values]
    assert found(values, [(point, point) for point in points]) == expected


@pytest.mark.parametrize("point", EDGES)
@pytest.mark.parametrize("before", [0, 1, 7, 8, 9, 16])
def test_a_code_point_is_found_wherever_it_stands(point, before):
    values = ["x" * before + chr(point) + "x" * 9, "x" * (before + 10), chr(point)]
    assert found(values, [(point, point)]) == [True, False, True]


def test_ranges_are_inclusive_and_an_empty_set_finds_nothing():
    assert found(["a", "b", "c", "d"], [(0x62, 0x63)]) == [False, True, True, False]
    assert found(["a", ""], []) == [False, False]
    assert found([], [(0, 0x10FFFF)]) == []


TEXT = st.one_of(st.text(alphabet="aB ,.\u00e9", max_size=30), st.text(max_size=20))


def counted(texts):
    return count_names(*buffers([text.encode(errors="replace") for text in texts])).tolist()


@given(texts=st.lists(TEXT, max_size=6))
def test_names_are_those_of_plain_python(texts):
    """Any text; a name never reaches into the next document."""
    assert counted(texts) == [twin.names_in(text.encode(errors="replace").decode()) for text in texts]


@pytest.mark.parametrize(
    ("text", "names"),
    [("met Ada Lovelace, then Alan", 3), ("Ada. Then", 0), ("an API of IBM", 0), ("in Paris", 1), ("", 0), (" A", 0)],
)
def test_the_first_word_of_a_sentence_and_initials_are_no_names(text, names):
    """What follows a small letter or a comma may be a name."""
    assert counted([text]) == [names]
