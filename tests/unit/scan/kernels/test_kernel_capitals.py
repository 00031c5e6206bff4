"""Capitalised words within sentences: compiled against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import basics as twin

from dataaudit.scan.kernels.characters import count_names

TEXT = st.one_of(st.text(alphabet="aB ,.\u00e9", max_size=30), st.text(max_size=20))


def counted(texts):
    data = [text.encode(errors="replace") for text in texts]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int64)
    return count_names(np.frombuffer(b"".join(data), dtype=np.uint8), offsets).tolist()


@given(texts=st.lists(TEXT, max_size=6))
def test_names_are_those_of_plain_python(texts):
    """Any text; a name never reaches into the next document."""
    assert counted(texts) == [twin.names_in(text.encode(errors="replace").decode()) for text in texts]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("met Ada Lovelace, then Alan", 3),
        ("Ada. Then", 0),
        ("an API of IBM", 0),
        ("in Paris", 1),
        ("", 0),
        (" A", 0),
    ],
)
def test_the_first_word_of_a_sentence_and_initials_are_no_names(text, names):
    """What follows a small letter or a comma may be a name."""
    assert counted([text]) == [names]
