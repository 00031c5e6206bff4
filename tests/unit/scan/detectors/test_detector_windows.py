"""How much of a document is looked at."""

from __future__ import annotations

import pyarrow as pa

from dataaudit.scan.detectors.base import Windows, identify

LOOKS = Windows(first=(2, 16), second=(4, 32), sure=0.7)


def look(texts, answers):
    """Identify texts with a detector that says what it is told to; return its answers and what it saw."""
    seen = []

    def classify(text):
        seen.append(text)
        return answers(text)

    codes, confidence = identify(pa.array(texts, pa.large_string()), LOOKS, classify)
    return [(code, round(sure, 3)) for code, sure in zip(codes.tolist(), confidence.tolist(), strict=True)], seen


def test_a_first_look_that_is_sure_is_enough():
    """Two short windows, and that is all."""
    found, seen = look(["word " * 1000], lambda _: (3, 0.9))
    assert found == [(3, 0.9)]
    assert len(seen) == 1
    assert len(seen[0]) <= 2 * (16 + 1)


def test_a_doubt_asks_for_more_text_and_the_second_answer_counts():
    """Also where it is less sure: it has seen more."""
    found, seen = look(["word " * 1000], lambda text: (3, 0.6) if len(text) < 60 else (4, 0.2))
    assert found == [(4, 0.2)]
    assert len(seen) == 2


def test_a_document_that_was_seen_as_a_whole_is_not_looked_at_again():
    """There is no more of it."""
    found, seen = look(["a short one", "word " * 1000], lambda _: (1, 0.1))
    assert found == [(1, 0.1)] * 2
    assert len(seen) == 3


def test_words_without_letters_are_not_shown():
    """Emoji pass as words by their bytes; a detector never sees a text of them alone."""
    found, seen = look(["\U0001f600 \U0001f680", "12", ""], lambda _: (1, 1.0))
    assert found == [(0, 0.0)] * 3
    assert seen == []
