import itertools
import unicodedata

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.kernels.normal import collapse_spaces

ODD = [
    " ", "\t", "\x1c", "\x1f", "\x20\x7f", "\x85", "\u00a0", "\u1680", "\u200a", "\u200b", "\u2028", "\u3000", "\0",
    "\u0301", "\u1161", "\u11a8", "\u09be", "\u2126", "\u0344", "\u212b", "\U0001d15e", "\ufb1d", "\U0001f600",
]  # fmt: skip
texts = st.lists(st.one_of(st.text(max_size=6), st.sampled_from(ODD)), max_size=12).map("".join)


def collapsed(values):
    offsets, data, suspect = collapse_spaces(*text_buffers(pa.array(values, pa.large_string())))
    forms = [bytes(data[low:high]) for low, high in itertools.pairwise(offsets)]
    return forms, suspect


@given(st.lists(texts, max_size=6))
@settings(max_examples=examples(400), deadline=None)
def test_white_space_collapses_as_split_and_join_do(values):
    assert collapsed(values)[0] == [" ".join(value.split()).encode() for value in values]


@given(st.lists(texts, max_size=6))
@settings(max_examples=examples(400), deadline=None)
def test_a_document_that_is_not_suspect_is_in_nfc(values):
    _, suspect = collapsed(values)
    assert all(
        unicodedata.is_normalized("NFC", value) for value, marked in zip(values, suspect, strict=True) if not marked
    )


def test_no_code_point_that_nfc_touches_is_missed():
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    _, suspect = collapsed(points)
    spaces = "\u2000\u2001"  # NFC turns them into other white space, which makes no difference here
    harmless = [char for char, marked in zip(points, suspect, strict=True) if not marked and char not in spaces]
    assert all(unicodedata.combining(char) == 0 for char in harmless)
    assert unicodedata.is_normalized("NFC", "".join(harmless))


def test_ordinary_text_is_not_suspect():
    _, suspect = collapsed(["plain", "caf\u00e9 na\u00efve \u4f60\u597d \u043f\u0440\u0438\u0432\u0435\u0442", ""])
    assert not suspect.any()


def test_no_documents_and_slices_are_taken():
    assert collapsed([])[0] == []
    array = pa.array(["skipped  ", " a  b ", "c"], pa.large_string()).slice(1, 1)
    offsets, data, _ = collapse_spaces(*text_buffers(array))
    assert (offsets.tolist(), bytes(data)) == ([0, 3], b"a b")
