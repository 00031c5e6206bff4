"""Windows of documents, against their reference implementations and by example."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.windows import window_words

from dataaudit.scan.kernels.windows import gather_windows

PIECES = st.sampled_from(
    [
        " ", "\n", "\x00", "\x7f", "\x80", "<", ">", "</b>", '<a href="x">', "<3", "ab<c", "a", "bc", "word", "123",
        "--", "http://", "https://x.example/y?z=1", "://", "caf\u00e9", "\u4e2d\u6587", "\u0e44\u0e17\u0e22",
        "\U0001f600", "x" * 40, "x" * 41, "\u4e2d" * 60, " " * 40, f"<{'q' * 253}>", f"<{'q' * 254}>", f"<{'q' * 255}>",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=60))


def gather(texts, windows, kept, rows=None):
    """Return (words, whole) of some documents."""
    array = pa.array(texts, pa.large_string())
    _, bounds, content = array.buffers()
    values = np.frombuffer(content or b"", dtype=np.uint8)
    offsets = np.frombuffer(bounds, dtype=np.int64, count=len(texts) + 1)
    chosen = np.arange(len(texts)) if rows is None else np.array(rows)
    words, ends, whole = gather_windows(values, offsets, chosen, windows=windows, kept=kept)
    return [
        (words[ends[index] : ends[index + 1]].tobytes().decode(), bool(whole[index])) for index in range(len(chosen))
    ]


@given(texts=st.lists(TEXTS, min_size=1, max_size=4), windows=st.integers(2, 5), kept=st.integers(8, 60))
def test_words_are_those_of_the_slow_twin(texts, windows, kept):
    """Any text, any number and size of windows: the same words, the same documents seen as a whole, valid UTF-8."""
    assert gather(texts, windows, kept) == [window_words(text, windows, kept) for text in texts]


@given(texts=st.lists(TEXTS, min_size=2, max_size=5), order=st.randoms(use_true_random=False))
def test_a_document_never_changes_another(texts, order):
    rows = list(range(len(texts)))
    order.shuffle(rows)
    together = gather(texts, 3, 16)
    assert gather(texts, 3, 16, rows) == [together[row] for row in rows]
    assert [gather([text], 3, 16)[0] for text in texts] == together


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        (" \n\t 12,000 -- !!! ", ""),
        ("see https://example.org/a?b=c now", "see now "),
        ("\u4e2d\u6587http://x.example/\u4e2d\u6587", "\u4e2d\u6587 \u4e2d\u6587 "),
        ("<p class='x y'>Hello</p><br/>you", "Hello you "),
        ("1 < 2 and b > a", "and b a "),
        ("a" * 40 + " " + "b" * 41, "a" * 40 + " "),
        ("| --- | --- |\n===== ok", "ok "),
        ("nul\x00and\x7fdelete", "nul and delete "),
    ],
)
def test_what_is_no_word_is_left_out(text, words):
    """Numbers, rulers, tags, URLs and endless words tell nothing of a language."""
    assert gather([text], 2, 128) == [(words, True)]


def test_a_long_document_is_seen_at_start_middle_and_end():
    """Windows begin at words and lie at equal distances; what lies between is not looked at."""
    text = " ".join(["start"] * 100 + ["middle"] * 100 + ["finish"] * 100)
    ((words, whole),) = gather([text], 3, 30)
    assert not whole
    assert [words.count(word) for word in ("start ", "middle ", "finish ")] == [5, 4, 4]


def test_a_window_in_noise_gives_up():
    """A megabyte without a letter costs a look at a part of it, and gives nothing."""
    ((words, whole),) = gather(["0 " * 500_000 + "end"], 4, 64)
    assert (words, whole) == ("end ", False)


def test_no_document_is_no_window():
    assert gather([], 2, 8) == []
