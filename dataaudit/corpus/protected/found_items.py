"""From hits of texts to items found: the rules of short texts, and questions and answers together."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

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
_Key = tuple[int, int, int]
"""(document, item, part)."""
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
    found: dict[_Key, _Found] = {}
    plans: dict[int, _Plan] = {}
    grouped: dict[tuple[int, int], list[list[int]]] = {}
    for hit in hits.tolist():
        grouped.setdefault((hit[DOCUMENT], hit[TEXT]), []).append(hit)
    for (document, text), own in grouped.items():
        whole = _with_rest(own, items, words)
        if whole:
            plan = plans.get(text)
            if plan is None:
                plan = plans[text] = _plan(text, items)
            _resolve_hits(document, whole, plan, items, words, values, bounds, found)
    for document, item in sorted({key[:2] for key in found}):
        parts = [found.get((document, item, part)) for part in (QUESTION, ANSWER)]
        if parts[0] is not None and parts[1] is not None:
            found[document, item, BOTH] = _both(parts[0], parts[1])
    rows = [
        (
            document,
            items.sets[item],
            item,
            part,
            tier,
            rule,
            words.starts[words.offsets[document] + start],
            words.ends[words.offsets[document] + end - 1],
            common,
            of,
        )
        for (document, item, part), (tier, rule, start, end, common, of) in sorted(found.items())
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, 10)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What hits of a text mean for the items that have it."""

    indexed: list[tuple[int, int]]
    """(item, part) that are found with it."""
    alone: list[tuple[int, int]]
    """(item, part) that are found where it stands alone."""
    near: dict[int, list[tuple[int, int]]]
    """By other text: (item, part) that are found, with the item's other part, where that one stands near."""
    by_words: dict[bytes, int]
    """The other texts by their words."""
    lengths: dict[int, list[int]]
    """By first word: how many words other texts that begin with it have."""


def _plan(text: int, items: Items) -> _Plan:
    plan = _Plan([], [], {}, {}, {})
    offsets = items.seeds.offsets
    for holder in items.holders[items.holder_offsets[text] : items.holder_offsets[text + 1]].tolist():
        item, part = divmod(holder, 2)
        other, judged = int(items.texts[item, 1 - part]), items.judged[item, part]
        if items.long[text] and judged == Judged.INDEXED:
            plan.indexed.append((item, part))
        if other in (NONE, text):
            if judged == Judged.SHORT:
                plan.alone.append((item, part))
        elif found_by_text(other, text, items.long, offsets) == text and (
            Judged.SHORT in (judged, items.judged[item, 1 - part])
            and items.rest_offsets[other] == items.rest_offsets[other + 1]
        ):
            plan.near.setdefault(other, []).append((item, part))
    for other in plan.near:
        own = items.seeds.words[offsets[other] : offsets[other + 1]]
        plan.by_words[own.tobytes()] = other
        lengths = plan.lengths.setdefault(int(own[0]), [])
        if len(own) not in lengths:
            lengths.append(len(own))
    return plan


def _resolve_hits(
    document: int,
    hits: list[list[int]],
    plan: _Plan,
    items: Items,
    words: WordBatch,
    values: np.ndarray,
    bounds: np.ndarray,
    found: dict[_Key, _Found],
) -> None:
    """Note what the hits of one text in one document say, the first one near or alone for short texts."""
    if plan.indexed:
        best = _long_hit(hits[0], items)  # a long text has one
        for item, part in plan.indexed:
            found[document, item, part] = best
    if plan.alone:
        spans = ((hit[START], hit[END]) for hit in hits)
        span = next((span for span in spans if _is_alone(document, *span, words, values, bounds)), None)
        if span is not None:
            for item, part in plan.alone:
                found[document, item, part] = _exactly(_ALONE, *span)
    _resolve_near(document, hits, plan, items, words, found)


def _resolve_near(
    document: int, hits: list[list[int]], plan: _Plan, items: Items, words: WordBatch, found: dict[_Key, _Found]
) -> None:
    """Note for every other text the first hit that it is near to."""
    for other, places in _near_places(document, hits, plan, words).items():
        length = int(items.seeds.offsets[other + 1] - items.seeds.offsets[other])
        for hit in hits:
            near = _nearest_place(places, length, hit[START], hit[END])
            if near is None:
                continue
            for item, part in plan.near[other]:
                if items.judged[item, part] == Judged.SHORT:
                    found[document, item, part] = _exactly(_CONTEXT, hit[START], hit[END])
                if items.judged[item, 1 - part] == Judged.SHORT:
                    found[document, item, 1 - part] = _exactly(_CONTEXT, near, near + length)
            break


def _near_places(document: int, hits: list[list[int]], plan: _Plan, words: WordBatch) -> dict[int, list[int]]:
    """Return where other texts stand in the neighbourhood of hits: by text the first words, ascending.

    The words around all hits are looked at once, whatever the number of other texts.
    """
    if not plan.near:
        return {}
    own = words.hashes[words.offsets[document] : words.offsets[document + 1]]
    near = np.zeros(len(own) + 1, dtype=np.int64)
    for hit in hits:
        near[max(0, hit[START] - CONTEXT_WORDS)] += 1
        near[min(len(own), hit[END] + CONTEXT_WORDS)] -= 1
    firsts = np.fromiter(plan.lengths, dtype=np.uint64, count=len(plan.lengths))
    around = np.flatnonzero(np.cumsum(near[:-1]) > 0)
    places: dict[int, list[int]] = {}
    for place in around[np.isin(own[around], firsts)].tolist():
        for length in plan.lengths[int(own[place])]:
            other = plan.by_words.get(own[place : place + length].tobytes())
            if other is not None and place + length <= len(own):
                places.setdefault(other, []).append(place)
    return places


def _nearest_place(places: list[int], length: int, start: int, end: int) -> int | None:
    """Return the first place within 200 words behind a stretch, or else before it."""
    for low, high in ((end, end + CONTEXT_WORDS), (start - CONTEXT_WORDS, start)):
        index = bisect_left(places, low)
        if index < len(places) and places[index] + length <= high:
            return places[index]
    return None


def _with_rest(hits: list[list[int]], items: Items, words: WordBatch) -> list[list[int]]:
    """Return the hits of a text in a document, judged by all of its words.

    Seeds find the first 1,024 words. A longer text is verbatim where the rest follows; where it does not, a long one is
    similar and a short one is not there.
    """
    document, text = hits[0][DOCUMENT], hits[0][TEXT]
    rest = items.rests[items.rest_offsets[text] : items.rest_offsets[text + 1]]
    if len(rest) == 0 or hits[0][TIER] != VERBATIM:
        return hits
    own = words.hashes[words.offsets[document] : words.offsets[document + 1]]
    begun = items.seeds.words[items.seeds.offsets[text] : items.seeds.offsets[text + 1]]
    whole = np.concatenate([begun, rest])
    for place in np.flatnonzero(own[: max(0, len(own) - len(whole) + 1)] == whole[0]).tolist():
        if np.array_equal(own[place : place + len(whole)], whole):
            hit = list(hits[0])
            hit[START], hit[END] = place, place + len(whole)
            return [hit]
    if not items.long[text]:
        return []
    hit = list(hits[0])
    hit[TIER] = SIMILAR
    return [hit]


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
