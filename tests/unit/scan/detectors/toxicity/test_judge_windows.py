"""Which windows of a document are judged, and how they are put together."""

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.detectors.toxicity.judge import LENGTHS, SEGMENT, batches, draw, window_limit, windows_of


class Letters:
    """A tokenizer that takes each character for a token, and adds one before and one behind."""

    def __init__(self):
        self.longest = 0

    def __call__(self, text, *, max_length, **_):
        self.longest = max(self.longest, len(text))
        size = max_length - 2
        pieces = [text[begin : begin + size] for begin in range(0, max(1, len(text)), size)]
        return {"input_ids": [[1, *map(ord, piece), 2] for piece in pieces]}


def texts_of(windows):
    return ["".join(map(chr, window[1:-1])) for window in windows]


@given(st.text(max_size=200), st.integers(3, 20), st.integers(1, 8), st.integers(0, 3))
@settings(max_examples=examples(50))
def test_windows_are_all_of_a_short_document_and_some_of_a_longer_one(text, window, max_windows, seed):
    found, whole = windows_of(text, Letters(), window=window, max_windows=max_windows, seed=seed)
    every = [text[begin : begin + window - 2] for begin in range(0, max(1, len(text)), window - 2)]
    assert whole == (len(every) <= max_windows)
    if whole:
        assert texts_of(found) == every
    else:
        assert len(found) == max_windows
        assert not Counter(texts_of(found)) - Counter(every)
    assert windows_of(text, Letters(), window=window, max_windows=max_windows, seed=seed) == (found, whole)


def test_a_very_long_document_is_never_encoded_as_a_whole():
    tokenizer = Letters()
    text = "".join(chr(200 + number % 5000) for number in range(20 * SEGMENT + 5))
    found, whole = windows_of(text, tokenizer, window=512, max_windows=8, seed=0)
    assert tokenizer.longest == SEGMENT
    assert (len(found), whole) == (8, False)
    assert all(piece in text for piece in texts_of(found))
    assert len(set(texts_of(found))) == 8


def test_every_window_has_the_same_chance():
    counts = Counter(index for number in range(2000) for index in draw(f"text {number}", 20, 5, 0))
    assert set(counts) == set(range(20))
    assert all(abs(count - 500) < 6 * (500 * 0.75) ** 0.5 for count in counts.values())


def test_a_draw_depends_on_the_text_and_the_seed():
    assert draw("a", 1000, 8, 0) == draw("a", 1000, 8, 0)
    assert len({tuple(draw(text, 1000, 8, seed)) for text in "ab" for seed in (0, 1)}) == 4
    assert draw("a", 3, 8, 0) == [0, 1, 2]


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(60, 70), st.sampled_from([1, 64, 200]))
@settings(max_examples=examples(50))
def test_every_window_is_in_one_batch_whose_shape_its_own_length_decides(sizes, limit, tokens):
    windows = [list(range(10, 10 + size)) for size in sizes]
    seen = []
    for batch in batches(windows, limit=limit, tokens=tokens, pad=7):
        rows, length = batch.ids.shape
        assert rows == max(1, tokens // length)
        assert length in {*(other for other in LENGTHS if other < limit), limit}
        assert 1 <= len(batch.windows) <= rows
        for row, number in enumerate(batch.windows.tolist()):
            size = sizes[number]
            assert length == min([other for other in LENGTHS if size <= other < limit] or [limit])
            assert batch.ids[row].tolist() == windows[number] + [7] * (length - size)
            assert batch.mask[row].tolist() == [1] * size + [0] * (length - size)
            seen.append(number)
        assert (batch.mask[:, 0] == 1).all()
    assert sorted(seen) == list(range(len(sizes)))


@pytest.mark.parametrize(
    ("model_type", "positions", "longest", "expected"),
    [("bert", 512, 10**30, 512), ("bert", 64, 512, 64), ("xlm-roberta", 514, 512, 512), ("roberta", 66, 10**30, 64)],
)
def test_a_window_is_no_longer_than_the_model_can_take(model_type, positions, longest, expected):
    config = SimpleNamespace(model_type=model_type, max_position_embeddings=positions, pad_token_id=1)
    assert window_limit(SimpleNamespace(model_max_length=longest), config, 512) == expected


def test_no_windows_make_no_batches():
    assert list(batches([], limit=512, tokens=512, pad=0)) == []
