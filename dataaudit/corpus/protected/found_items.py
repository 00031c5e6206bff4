"""From hits of texts to items found: the rules of short texts, and questions and answers together."""

from __future__ import annotations

import numpy as np

from dataaudit.corpus.protected.items import CONTEXT_WORDS, NONE, Items, Judged, found_by_text
from dataaudit.kernels.items import (
    DISTANCE,
    DOCUMENT,
    END,
    LETTERS_DISTANCE,
    SIMILAR,
    START,
    TEXT,
    TIER,
    VERBATIM,
)
from dataaudit.kernels.ngrams import NUMBER
from dataaudit.kernels.words import WordBatch

QUESTION, ANSWER, BOTH = 0, 1, 2
"""Parts of an item."""
RULES = ("verbatim", "similar", "context", "alone")
"""``context``: a short text with the item's other text near it; ``alone``: one between line breaks."""
_CONTEXT, _ALONE = 2, 3
_NEWLINE = 10
_Found = tuple[int, int, int, int, int, int]
"""(tier, rule, first word, word after the last, words in common, of so many)."""


def resolve(hits: np.ndarray, items: Items, words: WordBatch, values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return the items that documents hold, as :attr:`dataaudit.corpus.protected.matching.MatchBatch.items`.

    Args:
        hits: Of :meth:`dataaudit.kernels.items.Finder.find`.
        items: What was looked for.
        words: Words of the documents.
        values: uint8[b] their UTF-8, one after another.
        bounds: int64[n + 1] of the documents in it.
    """
    found: dict[tuple[int, int, int], _Found] = {}
    for hit in hits.tolist():
        _resolve_hit(hit, items, words, values, bounds, found)
    for document, item in sorted({key[:2] for key in found}):
        parts = [found.get((document, item, part)) for part in (QUESTION, ANSWER)]
        if parts[0] is not None and parts[1] is not None:
            found[document, item, BOTH] = _both(parts[0], parts[1])
    rows = [
        (document, items.sets[item], item, part, tier, rule, words.starts[words.offsets[document] + start],
         words.ends[words.offsets[document] + end - 1], common, of)
        for (document, item, part), (tier, rule, start, end, common, of) in sorted(found.items())
    ]  # fmt: skip
    return np.array(rows, dtype=np.int64).reshape(-1, 10)


def _resolve_hit(
    hit: list[int], items: Items, words: WordBatch, values: np.ndarray, bounds: np.ndarray,
    found: dict[tuple[int, int, int], _Found],
) -> None:  # fmt: skip
    document, text, start, end = (hit[column] for column in (DOCUMENT, TEXT, START, END))
    for holder in items.holders[items.holder_offsets[text] : items.holder_offsets[text + 1]].tolist():
        item, part = divmod(holder, 2)
        other = int(items.texts[item, 1 - part])
        if items.long[text] and items.judged[item, part] == Judged.INDEXED:
            found[document, item, part] = _long_hit(hit, items)
        if other in (NONE, text):
            if items.judged[item, part] == Judged.SHORT and _is_alone(document, start, end, words, values, bounds):
                found.setdefault((document, item, part), _exactly(_ALONE, start, end))
        elif found_by_text(other, text, items.long, items.seeds.offsets) == text:
            near = _near(document, start, end, other, items, words)
            if near is not None and items.judged[item, part] == Judged.SHORT:
                found.setdefault((document, item, part), _exactly(_CONTEXT, start, end))
            if near is not None and items.judged[item, 1 - part] == Judged.SHORT:
                found.setdefault((document, item, 1 - part), _exactly(_CONTEXT, *near))


def _long_hit(hit: list[int], items: Items) -> _Found:
    """Return what a hit of a long text says: the smaller of its two shares of words in common."""
    text, tier = hit[TEXT], hit[TIER]
    own = items.seeds.words[items.seeds.offsets[text] : items.seeds.offsets[text + 1]]
    size, letters = len(own), int((own & NUMBER == 0).sum())
    common, of = size - hit[DISTANCE], size
    if tier == SIMILAR and (letters - hit[LETTERS_DISTANCE]) * size < common * letters:
        common, of = letters - hit[LETTERS_DISTANCE], letters
    return tier, tier, hit[START], hit[END], common, of


def _exactly(rule: int, start: int, end: int) -> _Found:
    return VERBATIM, rule, start, end, end - start, end - start


def _both(question: _Found, answer: _Found) -> _Found:
    """Return the two as one: the weaker tier, and the span from the first word to the last."""
    weaker = min((question, answer), key=lambda one: (-one[0], one[4] / one[5]))
    tier, rule = max(question[0], answer[0]), weaker[1]
    return tier, rule, min(question[2], answer[2]), max(question[3], answer[3]), weaker[4], weaker[5]


def _near(document: int, start: int, end: int, text: int, items: Items, words: WordBatch) -> tuple[int, int] | None:
    """Return where a text stands, word for word, within 200 words behind a stretch of a document or before it."""
    begun, stop = int(words.offsets[document]), int(words.offsets[document + 1])
    own = items.seeds.words[items.seeds.offsets[text] : items.seeds.offsets[text + 1]]
    start, end = begun + start, begun + end
    for low, high in ((end, min(stop, end + CONTEXT_WORDS)), (max(begun, start - CONTEXT_WORDS), start)):
        window = words.hashes[low:high]
        firsts = np.flatnonzero(window[: max(0, len(window) - len(own) + 1)] == own[0])
        for first in firsts.tolist():
            if np.array_equal(window[first : first + len(own)], own):
                return low - begun + first, low - begun + first + len(own)
    return None


def _is_alone(document: int, start: int, end: int, words: WordBatch, values: np.ndarray, bounds: np.ndarray) -> bool:
    """Tell whether only line breaks and what is no word stand around a stretch of a document."""
    begun, stop = int(words.offsets[document]), int(words.offsets[document + 1])
    first, last = begun + start, begun + end - 1
    base, size = int(bounds[document]), int(bounds[document + 1] - bounds[document])
    before = int(words.ends[first - 1]) if first > begun else 0
    after = int(words.starts[last + 1]) if last + 1 < stop else size
    left = values[base + before : base + int(words.starts[first])]
    right = values[base + int(words.ends[last]) : base + after]
    return (first == begun or bool((left == _NEWLINE).any())) and (last + 1 == stop or bool((right == _NEWLINE).any()))
