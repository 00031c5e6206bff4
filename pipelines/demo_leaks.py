"""Faults of the demo that are made of text: near-duplicates, an evaluation set in train, a sentence that repeats."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
from demo_sources import Document

QUIZ = Path(__file__).with_name("demo-quiz.jsonl")
"""The evaluation set, written for this demo: questions with their answers."""

REWRITTEN, NUM_REWRITTEN, REWRITTEN_WORDS, CHANGED_ONE_IN = "manual/part-001.jsonl.zst", 60, 130, 100
"""Fault 7: copies of documents of this shard, each long enough, at its end, with one word in so many changed."""

QUIZ_INTO, NUM_VERBATIM, NUM_EDITED = "code/part-004.parquet", 6, 4
"""Fault 8: the first items of the quiz within documents of this shard, the next ones with each tenth word changed."""

REPEATED_INTO, NUM_REPEATED = "manual/part-000.jsonl.zst", 300
"""Fault 9: a sentence of 61 words at the end of so many documents of this shard."""

SENTENCE = (
    "This page was gathered by a machine that walks along shelves at night, reads the spine of each volume"
    " aloud in a low voice, writes down what it believes that it has heard, and then hands the sheet to a clerk who"
    " trusts it a little more with every passing year although nobody has yet compared a line with any book"
)


def alter(shard: str, corpus: Sequence[Document]) -> list[Document]:
    """Return the documents of a train shard with the faults that belong there."""
    altered = list(corpus)
    if shard == QUIZ_INTO:
        altered = hide_quiz(altered)
    if shard == REPEATED_INTO:
        altered = repeat_sentence(altered, NUM_REPEATED)
    if shard == REWRITTEN:
        altered += rewrite(corpus)
    return altered


def rewrite(corpus: Sequence[Document]) -> list[Document]:
    """Return near-duplicates: one word in a hundred changed leaves about 0.9 of the word 5-grams in common."""
    copies: list[Document] = []
    for document in corpus:
        if len(document.text.split()) >= REWRITTEN_WORDS and len(copies) < NUM_REWRITTEN:
            text = _changed(document.text)
            copies.append(replace(document, id=f"rewrite/{document.id}", text=text))
    if len(copies) < NUM_REWRITTEN:
        raise ValueError(f"expected {NUM_REWRITTEN} documents long enough to rewrite, found {len(copies)}")
    return copies


def _changed(text: str) -> str:
    """Return a text with one word in so many replaced; white space stays as it is."""
    pieces = re.split(r"(\s+)", text.strip())  # words at even places
    for place in range(CHANGED_ONE_IN // 2, (len(pieces) + 1) // 2, CHANGED_ONE_IN):
        pieces[2 * place] = "altered"
    return "".join(pieces)


def hide_quiz(corpus: Sequence[Document]) -> list[Document]:
    """Put items of the quiz into the middle of documents: wrapped anew, in other case, or with words changed."""
    altered = list(corpus)
    items = [orjson.loads(line) for line in QUIZ.read_bytes().splitlines()]
    for number, item in enumerate(items[: NUM_VERBATIM + NUM_EDITED]):
        words = f"{item['question']} {item['answer']}".split()
        if number >= NUM_VERBATIM:
            words = ["something" if place % 10 == 4 else word for place, word in enumerate(words)]
        elif number % 2:
            words = [word.upper() for word in words]
        place = number * len(corpus) // (NUM_VERBATIM + NUM_EDITED)
        lines = altered[place].text.splitlines()
        lines[len(lines) // 2 : len(lines) // 2] = textwrap.wrap(" ".join(words), 60)
        altered[place] = replace(altered[place], text="\n".join(lines))
    return altered


def repeat_sentence(corpus: Sequence[Document], times: int) -> list[Document]:
    """Append the sentence to documents at even distances."""
    altered = list(corpus)
    for number in range(times):
        place = number * len(corpus) // times
        altered[place] = replace(altered[place], text=f"{altered[place].text}\n{SENTENCE}.")
    return altered


def planted() -> list[tuple[str, str, str]]:
    """Return fault, place and what to expect."""
    rewritten = f"the last {NUM_REWRITTEN} rows of `train/{REWRITTEN}`: others of its documents, a word in"
    found = f"{NUM_VERBATIM} items verbatim although wrapped anew or in capitals, {NUM_EDITED} more similar, with each"
    return [
        (
            "near-duplicates",
            f"{rewritten} {CHANGED_ONE_IN} changed",
            f"{NUM_REWRITTEN} documents with a verified neighbour at a Jaccard similarity of 0.8 or more",
        ),
        (
            "evaluation set in train",
            f"items of `pipelines/demo-quiz.jsonl` inside documents of `train/{QUIZ_INTO}`",
            f"{found} tenth word changed",
        ),
        (
            "repeated sentence",
            f"at the end of {NUM_REPEATED} documents of `train/{REPEATED_INTO}`",
            f"a span of 61 words in {NUM_REPEATED} documents",
        ),
    ]
