"""Matches batches of training documents against the index: overlap with held-out documents, and evaluation items.

Hits of an item's texts become matches of the item, by the rules of short texts, and of question and answer together.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np

from dataaudit.scan.corpus.protected.eval_items import CONTEXT_WORDS, NONE, ItemIndex, Judged, found_by_text
from dataaudit.scan.corpus.protected.index_file import ProtectedIndex
from dataaudit.scan.corpus.protected.ngram_index import (
    GRAM,
    GRAM_WORDS,
    SPAN,
    SPAN_WORDS,
    WHOLE,
    MatchBatch,
    NgramIndex,
    edited_rows,
    is_short,
    table_of,
    whole_hashes,
)
from dataaudit.scan.corpus.segments import changes
from dataaudit.scan.kernels.items import (
    DISTANCE,
    DOCUMENT,
    END,
    LETTERS_DISTANCE,
    SIMILAR,
    START,
    TEXT,
    TIER,
    VERBATIM,
    Finder,
)
from dataaudit.scan.kernels.markup import normal_words
from dataaudit.scan.kernels.ngrams import NUMBER
from dataaudit.scan.kernels.overlap import find_grams, find_long_grams
from dataaudit.scan.kernels.words import WordBatch, without_marks

_PIECES = 16
"""Rows of a segment at most: of text that repeats itself, each repetition would be a row."""
_NAMED_ONE_IN = 10
"""A training document names a held-out document when it has one in so many of its 13-grams."""


class Matcher:
    """Looks documents up in an index, with buffers that serve every batch."""

    def __init__(self, index: ProtectedIndex) -> None:
        self.index = index
        self._finder = Finder(index.items.seeds)

    def match(self, words: WordBatch, values: np.ndarray, bounds: np.ndarray) -> MatchBatch:
        """Return the matches of documents."""
        entries, rows = self._held_out(words)
        matches = np.zeros((0, 10), dtype=np.int64)
        held_out, items = self.index.held_out, self.index.items
        edits = len(held_out.phrases.table.keys) > 0
        if edits or len(items.sets):
            plain = normal_words(words, values, bounds)
        if edits:
            bare = without_marks(plain, words, values, bounds)
            rows = np.concatenate([rows, edited_rows(bare, held_out.phrases, held_out.places)])
        if len(items.sets):
            matches = resolve(self._finder.find(plain.hashes, plain.offsets), items, plain, values, bounds)
        return MatchBatch(entries=entries, held_out=rows, items=matches)

    def _held_out(self, words: WordBatch) -> tuple[np.ndarray, np.ndarray]:
        index = self.index.held_out
        entries, rows = [np.zeros((0, 3), dtype=np.int64)], [np.zeros((0, 10), dtype=np.int64)]
        places, grams = find_grams(words.hashes, words.offsets, GRAM_WORDS, index.grams.table)
        if len(places):
            documents = np.searchsorted(words.offsets, places, side="right") - 1
            once = _once(documents, grams)
            entries.append(_entries(GRAM, documents[once], grams[once]))
            rows.append(_gram_rows(documents[once], places[once], grams[once], index.grams, words))
            places, spans = find_long_grams(
                words.hashes, words.offsets, places, GRAM_WORDS, SPAN_WORDS, index.spans.table
            )
            documents = np.searchsorted(words.offsets, places, side="right") - 1
            once = _once(documents, spans)
            entries.append(_entries(SPAN, documents[once], spans[once]))
            rows.append(_span_rows(documents, places, spans, index.spans, index.num_words, words))
        keys = index.wholes.table.keys
        if len(keys):
            short = np.flatnonzero(is_short(words.offsets))
            hashes = whole_hashes(words.hashes, words.offsets, short)
            wholes = np.searchsorted(keys, hashes)
            equal = keys[np.minimum(wholes, len(keys) - 1)] == hashes
            documents, wholes = short[equal], wholes[equal]
            entries.append(_entries(WHOLE, documents, wholes))
            rows.append(_whole_rows(documents, wholes, index.wholes, words))
        return np.concatenate(entries), np.concatenate(rows)


def _once(documents: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Return the first index of every (document, entry), ascending by both."""
    first: np.ndarray = np.unique(documents.astype(np.uint64) << np.uint64(32) | entries, return_index=True)[1]
    return first


def _entries(kind: int, documents: np.ndarray, entries: np.ndarray) -> np.ndarray:
    return table_of(kind, documents, entries)


def _owners(entries: np.ndarray, grams: NgramIndex) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the documents that some entries name, the index of the entry of each, and its index among owners."""
    starts = grams.owner_offsets[entries]
    counts = grams.owner_offsets[entries.astype(np.int64) + 1] - starts
    index = np.repeat(np.arange(len(entries)), counts)
    places = starts[index] + np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return grams.owners[places].astype(np.int64), index, places


def _gram_rows(
    documents: np.ndarray, places: np.ndarray, entries: np.ndarray, grams: NgramIndex, words: WordBatch
) -> np.ndarray:
    """Return a row for each held-out document of whose 13-grams a document has a tenth or more."""
    owners, index, own = _owners(entries, grams)
    order = np.lexsort((owners, documents[index]))
    owners, index, own = owners[order], index[order], grams.owner_places[own[order]].astype(np.int64)
    documents, places, crowded = documents[index], places[index], grams.crowded[entries[index]]
    starts = _run_starts(documents, owners)
    if len(starts) == 0:
        return np.zeros((0, 10), dtype=np.int64)
    counts = np.diff(np.append(starts, len(owners)))
    sizes = grams.sizes[owners[starts]]
    first, last = np.minimum.reduceat(places, starts), np.maximum.reduceat(places, starts)
    many, start = np.maximum.reduceat(crowded, starts), np.minimum.reduceat(own, starts)
    rows = table_of(
        GRAM,
        documents[starts],
        owners[starts],
        words.starts[first],
        words.ends[last + GRAM_WORDS - 1],
        counts,
        sizes,
        many,
        start,
        np.maximum.reduceat(own, starts) - start + 1,
    )
    named: np.ndarray = rows[_NAMED_ONE_IN * counts >= sizes]
    return named


def _span_rows(
    documents: np.ndarray,
    places: np.ndarray,
    entries: np.ndarray,
    spans: NgramIndex,
    num_words: np.ndarray,
    words: WordBatch,
) -> np.ndarray:
    """Return a row for each longest segment that a document shares with a held-out document.

    Segments are cut where the held-out document repeats itself; only the longest pieces of a segment are rows.
    """
    owners, index, own = _owners(entries, spans)
    order = np.lexsort((places[index], owners, documents[index]))
    owners, index, own = owners[order], index[order], spans.owner_places[own[order]].astype(np.int64)
    documents, places, crowded = documents[index], places[index], spans.crowded[entries[index]]
    starts = _run_starts(documents, owners, places - np.arange(len(places)))
    if len(starts) == 0:
        return np.zeros((0, 10), dtype=np.int64)
    pieces = _run_starts(documents, owners, places - np.arange(len(places)), own - np.arange(len(own)))
    lengths = np.diff(np.append(pieces, len(own)))
    segment = np.searchsorted(starts, pieces, side="right") - 1
    order = np.lexsort((-lengths, segment))
    heads = _run_starts(segment[order])
    rank = np.arange(len(order)) - np.repeat(heads, np.diff(np.append(heads, len(order))))
    chosen = np.sort(order[rank < _PIECES])
    first, num_own = pieces[chosen], lengths[chosen] + SPAN_WORDS - 1
    return table_of(
        SPAN,
        documents[first],
        owners[first],
        words.starts[places[first]],
        words.ends[places[first] + num_own - 1],
        num_own,
        num_words[owners[first]],
        np.maximum.reduceat(crowded, pieces)[chosen],
        own[first],
        num_own,
    )


def _whole_rows(documents: np.ndarray, entries: np.ndarray, wholes: NgramIndex, words: WordBatch) -> np.ndarray:
    """Return a row for each short held-out document that is equal to a document."""
    owners, index, _ = _owners(entries, wholes)
    documents = documents[index]
    first, last = words.offsets[documents], words.offsets[documents + 1] - 1
    return table_of(
        WHOLE,
        documents,
        owners,
        words.starts[first],
        words.ends[last],
        last - first + 1,
        last - first + 1,
        wholes.crowded[entries[index]],
        entries[index],
        0,
    )


def _run_starts(*columns: np.ndarray) -> np.ndarray:
    """Return the rows that differ from the row before them."""
    return np.flatnonzero(changes(*columns))


QUESTION, ANSWER, BOTH = 0, 1, 2
"""Parts of an item."""
RULES = ("verbatim", "similar", "context", "alone")
"""``context``: a short text with the item's other text near it; ``alone``: a short text between line breaks."""
_CONTEXT, _ALONE = 2, 3
_LINE_BREAK = re.compile(
    rb"\n|\\n|</?(?:p|br|li|ul|ol|div|td|th|tr|hr|h[1-6]|dt|dd|pre|blockquote|section|article)\b", re.IGNORECASE
)
_Key = tuple[int, int, int]
"""(document, item, part)."""
_Match = tuple[int, int, int, int, int, int]
"""(tier, rule, first word, word after the last, words in common, of so many)."""


def resolve(hits: np.ndarray, items: ItemIndex, words: WordBatch, values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return the items in documents, as :attr:`dataaudit.scan.corpus.protected.ngram_index.MatchBatch.items`."""
    batch = _Batch(items, words, values, bounds)
    plans: dict[int, _Plan] = {}
    grouped: dict[tuple[int, int], list[list[int]]] = {}
    for hit in hits.tolist():
        grouped.setdefault((hit[DOCUMENT], hit[TEXT]), []).append(hit)
    for (document, text), own in grouped.items():
        whole = batch.with_rest(own)
        if whole:
            if text not in plans:
                plans[text] = _plan(text, items)
            batch.match(document, whole, plans[text])
    return batch.rows()


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which (item, part) hits of a text match."""

    indexed: list[tuple[int, int]] = field(default_factory=list)
    """Matched by the text, which is long."""
    itself: list[tuple[int, int]] = field(default_factory=list)
    """Matched by the text, which is short."""
    alone: list[tuple[int, int]] = field(default_factory=list)
    """Matched where the text stands alone."""
    near: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By other text: matched, with the item's other part, where that text stands near."""
    by_words: dict[bytes, int] = field(default_factory=dict)
    """The other texts by their words."""
    lengths: dict[int, list[int]] = field(default_factory=dict)
    """By first word: numbers of words of other texts that begin with it."""


def _plan(text: int, items: ItemIndex) -> _Plan:
    plan = _Plan()
    offsets = items.seeds.offsets
    for holder in items.holders[items.holder_offsets[text] : items.holder_offsets[text + 1]].tolist():
        item, part = divmod(holder, 2)
        other, judged = int(items.texts[item, 1 - part]), items.judged[item, part]
        if items.long[text] and judged == Judged.INDEXED:
            plan.indexed.append((item, part))
        elif judged == Judged.SHORT:
            plan.itself.append((item, part))
        if other in (NONE, text):
            if judged == Judged.CONTEXT:
                plan.alone.append((item, part))
        elif found_by_text(other, text, items.long, offsets) == text and (
            Judged.CONTEXT in (judged, items.judged[item, 1 - part])
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


@dataclass(frozen=True, slots=True)
class _Batch:
    """Documents, and the matches of items in them."""

    items: ItemIndex
    words: WordBatch
    values: np.ndarray
    bounds: np.ndarray
    matches: dict[_Key, _Match] = field(default_factory=dict)

    def own(self, document: int) -> np.ndarray:
        """Return the words of a document."""
        return self.words.hashes[self.words.offsets[document] : self.words.offsets[document + 1]]

    def text(self, number: int) -> np.ndarray:
        """Return the words of an item's text that seeds find."""
        seeds = self.items.seeds
        return seeds.words[seeds.offsets[number] : seeds.offsets[number + 1]]

    def with_rest(self, hits: list[list[int]]) -> list[list[int]]:
        """Return the hits of a text in a document, by all of its words.

        Seeds find the first 1,024 words. A longer text is verbatim where the rest follows. Where it does not, a long
        text is similar, and a short text has no hit.
        """
        document, text = hits[0][DOCUMENT], hits[0][TEXT]
        rest = self.items.rests[self.items.rest_offsets[text] : self.items.rest_offsets[text + 1]]
        if len(rest) == 0 or hits[0][TIER] != VERBATIM:
            return hits
        whole, hit = np.concatenate([self.text(text), rest]), list(hits[0])
        place = _find(self.own(document), whole)
        if place >= 0:
            hit[START], hit[END] = place, place + len(whole)
            return [hit]
        hit[TIER] = SIMILAR
        return [hit] if self.items.long[text] else []

    def match(self, document: int, hits: list[list[int]], plan: _Plan) -> None:
        """Note the matches of a text's hits in a document; of short texts the first hit that is near or alone."""
        if plan.indexed:
            best = self._long_match(hits[0])  # a long text has a single hit
            for item, part in plan.indexed:
                self.matches[document, item, part] = best
        for item, part in plan.itself:
            self.matches[document, item, part] = _exactly(VERBATIM, hits[0][START], hits[0][END])
        if plan.alone:
            spans = ((hit[START], hit[END]) for hit in hits)
            span = next((span for span in spans if self._is_alone(document, *span)), None)
            if span is not None:
                for item, part in plan.alone:
                    self.matches[document, item, part] = _exactly(_ALONE, *span)
        for other, places in self._near_places(document, hits, plan).items():
            self._match_near(document, hits, plan.near[other], places, len(self.text(other)))

    def _match_near(
        self, document: int, hits: list[list[int]], near: list[tuple[int, int]], places: list[int], length: int
    ) -> None:
        """Note the first hit near a place of another text."""
        judged = self.items.judged
        for hit in hits:
            place = _nearest_place(places, length, hit[START], hit[END])
            if place is None:
                continue
            for item, part in near:
                if judged[item, part] == Judged.CONTEXT:
                    self.matches[document, item, part] = _exactly(_CONTEXT, hit[START], hit[END])
                if judged[item, 1 - part] == Judged.CONTEXT:
                    self.matches[document, item, 1 - part] = _exactly(_CONTEXT, place, place + length)
            return

    def _near_places(self, document: int, hits: list[list[int]], plan: _Plan) -> dict[int, list[int]]:
        """Return the positions of other texts near hits: by text its first words, ascending.

        The words around all hits are searched once, whatever the number of other texts.
        """
        if not plan.near:
            return {}
        own = self.own(document)
        firsts = np.fromiter(plan.lengths, dtype=np.uint64, count=len(plan.lengths))
        around = _around(hits, len(own))
        places: dict[int, list[int]] = {}
        for place in around[np.isin(own[around], firsts)].tolist():
            for length in plan.lengths[int(own[place])]:
                other = plan.by_words.get(own[place : place + length].tobytes())
                if other is not None and place + length <= len(own):
                    places.setdefault(other, []).append(place)
        return places

    def _long_match(self, hit: list[int]) -> _Match:
        """Return the match of a long text, with the smaller of its two shares of words in common."""
        own, tier = self.text(hit[TEXT]), hit[TIER]
        size, letters = len(own), int((own & NUMBER == 0).sum())
        common, of = size - hit[DISTANCE], size
        if tier == SIMILAR and (letters - hit[LETTERS_DISTANCE]) * size < common * letters:
            common, of = letters - hit[LETTERS_DISTANCE], letters
        return tier, tier, hit[START], hit[END], common, of

    def _is_alone(self, document: int, start: int, end: int) -> bool:
        """Tell whether line breaks separate a segment of a document from the words around it."""
        words, values = self.words, self.values
        begun, stop = int(words.offsets[document]), int(words.offsets[document + 1])
        first, last = begun + start, begun + end - 1
        base, size = int(self.bounds[document]), int(self.bounds[document + 1] - self.bounds[document])
        before = int(words.ends[first - 1]) if first > begun else 0
        after = int(words.starts[last + 1]) if last + 1 < stop else size
        left = values[base + before : base + int(words.starts[first])]
        right = values[base + int(words.ends[last]) : base + after]
        return (first == begun or _breaks(left)) and (last + 1 == stop or _breaks(right))

    def rows(self) -> np.ndarray:
        """Return the best match of each item and part, questions and answers together too."""
        matches, items, words = self.matches, self.items, self.words
        for document, pair in sorted({key[:2] for key in matches}):
            question, answer = (matches.get((document, pair, part)) for part in (QUESTION, ANSWER))
            if question is not None and answer is not None:
                matches[document, pair, BOTH] = _both(question, answer)
        best: dict[_Key, _Match] = {}
        for (document, pair, part), match in matches.items():
            key = (document, int(items.owners[pair]), part)
            best[key] = min(best.get(key, match), match)
        rows = []
        for (document, item, part), (tier, rule, start, end, common, of) in sorted(best.items()):
            first = words.offsets[document]
            span = words.starts[first + start], words.ends[first + end - 1]
            rows.append((document, items.sets[item], item, part, tier, rule, *span, common, of))
        return np.array(rows, dtype=np.int64).reshape(-1, 10)


def _around(hits: list[list[int]], size: int) -> np.ndarray:
    """Return int64[k] the words of a document of ``size`` around hits, ascending, each once, in the hits' time."""
    ranges: list[range] = []
    stop = 0
    for start, end in sorted((hit[START], hit[END]) for hit in hits):
        ranges.append(range(max(stop, start - CONTEXT_WORDS), min(size, end + CONTEXT_WORDS)))
        stop = max(stop, ranges[-1].stop)
    return np.concatenate([np.arange(span.start, span.stop, dtype=np.int64) for span in ranges])


def _nearest_place(places: list[int], length: int, start: int, end: int) -> int | None:
    """Return the first place within 200 words behind a segment, or else before it."""
    for low, high in ((end, end + CONTEXT_WORDS), (start - CONTEXT_WORDS, start)):
        index = bisect_left(places, low)
        if index < len(places) and places[index] + length <= high:
            return places[index]
    return None


def _find(words: np.ndarray, segment: np.ndarray) -> int:
    """Return the first place of a segment in some words, -1 for none; ``bytes.find`` takes linear time."""
    data, sought = words.tobytes(), segment.tobytes()
    place = data.find(sought)
    while place >= 0 and place % words.itemsize:
        place = data.find(sought, place + 1)
    return place // words.itemsize


def _exactly(rule: int, start: int, end: int) -> _Match:
    return VERBATIM, rule, start, end, end - start, end - start


def _both(question: _Match, answer: _Match) -> _Match:
    """Return the match of both: the weaker tier, and the span from the first word to the last."""
    weaker = min((question, answer), key=lambda item: (-item[0], item[4] / item[5]))
    tier, rule = max(question[0], answer[0]), weaker[1]
    return tier, rule, min(question[2], answer[2]), max(question[3], answer[3]), weaker[4], weaker[5]


def _breaks(between: np.ndarray) -> bool:
    """Tell whether a line ends between two words; tags of HTML that end a line do."""
    return _LINE_BREAK.search(between.tobytes()) is not None
