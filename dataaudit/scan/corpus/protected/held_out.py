"""Held-out documents, indexed by the n-grams that training documents are searched for.

MatchBatch: what the documents of a batch hold of everything that is protected.

Edited copies of held-out documents: with words changed, or with marks of HTML, Markdown and others between them.

Words are those of the normal form in which evaluation items are compared, without combining marks. A training document
has an edited copy when half of a document's words, and 50 of them, stand in it in runs of eight words and more, in one
window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dataaudit.scan.kernels.ngrams import GramTable, gram_hashes, make_table
from dataaudit.scan.kernels.overlap import Owners, find_edited, find_grams
from dataaudit.scan.kernels.words import WordBatch

GRAM, SPAN, WHOLE, EDITED = 0, 1, 2, 3
"""Kinds of entries, and rules by which a held-out document is named; of an edited copy there are no entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchBatch:
    """What the documents of a batch hold; a document is named by its place in the batch."""

    entries: np.ndarray
    """int64[k, 3] (kind, document, entry) of every protected gram, once a document; ascending."""
    held_out: np.ndarray
    """int64[h, 10] (rule, document, held-out document, first byte, byte after the last, words or grams in common, of so
    many, crowded, first, length): the segments for which held-out documents are named. ``crowded``: more documents
    than are named hold it. ``first`` and ``length``: of a span the words of the held-out document that it is; of
    13-grams from which to which of that document's they are; of a whole document its entry; of an edited copy from
    which to which of that document's words the words in common are."""
    items: np.ndarray
    """int64[i, 10] (document, set, item, part, tier, rule, first byte, byte after the last, words in common, of so
    many), a row for each item and part in a document."""


PHRASE_WORDS = 8
"""Words of the grams by which edited copies are found: with each tenth word changed, two of them are left in ten."""
EDITED_WORDS = 50
"""Words of a document that an edited copy has, at least."""
EDITED_ONE_IN = 2
"""The same as a share of its words: one in so many."""
PHRASE_OWNERS = 16
"""Documents that a phrase names; a phrase of more is a template's, and is not looked for."""
_PLACE_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWords:
    """Words of documents in normal form, without marks."""

    words: np.ndarray
    """uint64[p] hashes."""
    offsets: np.ndarray
    """int64[n + 1] of the documents in them."""
    places: np.ndarray
    """uint32[p] which of the document's words, as they are, each stands at."""

    @classmethod
    def of(cls, plain: WordBatch, words: WordBatch) -> PlainWords:
        """Return the words of :func:`dataaudit.scan.kernels.words.without_marks`, made of ``words``."""
        documents, own = (
            np.repeat(np.arange(len(word_batch.offsets) - 1), word_batch.num_words()) for word_batch in (plain, words)
        )
        starts = (own << _PLACE_BITS) + words.starts
        places = np.searchsorted(starts, (documents << _PLACE_BITS) + plain.starts) - words.offsets[documents]
        return cls(words=plain.hashes, offsets=plain.offsets, places=places.astype(np.uint32))

    def only(self, kept: np.ndarray) -> PlainWords:
        """Return some of the documents, bool[n]."""
        lengths = np.diff(self.offsets)
        chosen = np.repeat(kept, lengths)
        return PlainWords(words=self.words[chosen], offsets=bounds_of(lengths[kept]), places=self.places[chosen])


def index_phrases(words: np.ndarray, offsets: np.ndarray) -> tuple[Owners, np.ndarray]:
    """Return the phrases of documents, and the words that they cover, where a document first has each: uint8[w]."""
    hashes, bounds = gram_hashes(words, offsets, PHRASE_WORDS)
    documents = np.repeat(np.arange(len(bounds) - 1, dtype=np.uint32), np.diff(bounds))
    order = np.argsort(hashes, kind="stable")
    order = order[_changes(hashes[order], documents[order])]  # of each phrase the first place in each document
    starts = np.flatnonzero(_changes(hashes[order]))
    counts = np.diff(np.append(starts, len(order)))
    kept = counts <= PHRASE_OWNERS
    order = order[np.repeat(kept, counts)]
    counts = counts[kept]
    keys = hashes[order[bounds_of(counts)[:-1]]]
    owners = documents[order]
    places = order - bounds[owners]
    telling = np.zeros(len(words) + 1, dtype=np.int64)
    firsts = offsets[owners] + places
    np.add.at(telling, firsts, 1)
    np.add.at(telling, firsts + PHRASE_WORDS, -1)
    is_telling = (np.cumsum(telling)[:-1] > 0).astype(np.uint8)
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(is_telling, dtype=np.int64)])
    sizes = sums[offsets[1:]] - sums[offsets[:-1]]
    needs = np.maximum(EDITED_WORDS, -(-sizes // EDITED_ONE_IN))
    made = Owners(
        table=make_table(keys),
        owner_offsets=bounds_of(counts),
        owners=owners,
        owner_places=places.astype(np.uint32),
        offsets=offsets,
        sizes=sizes,
        needs=np.where(sizes >= EDITED_WORDS, needs, 0),
    )
    return made, is_telling


def _changes(*columns: np.ndarray) -> np.ndarray:
    """Return bool[n]: rows that differ from the one before them."""
    fresh = np.ones(len(columns[0]), dtype=bool)
    fresh[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return fresh


def edited_rows(plain: WordBatch, phrases: Owners, own_places: np.ndarray) -> np.ndarray:
    """Return the edited copies that documents have, as ``held_out`` of a ``MatchBatch``."""
    places, entries = find_grams(plain.hashes, plain.offsets, PHRASE_WORDS, phrases.table)
    found = find_edited(places, entries, plain.offsets, PHRASE_WORDS, phrases)
    documents, owners, first, stop, common, start, end = found.T
    begun, low = plain.offsets[documents], phrases.offsets[owners]
    start, end = (own_places[place].astype(np.int64) for place in (low + start, low + end - 1))
    columns = (
        np.full(len(found), EDITED),
        documents,
        owners,
        plain.starts[begun + first],
        plain.ends[begun + stop - 1],
        common,
        phrases.sizes[owners],
        np.zeros(len(found), dtype=np.int64),
        start,
        end - start + 1,
    )
    return np.column_stack(columns).astype(np.int64)


def bounds_of(counts: np.ndarray) -> np.ndarray:
    """Return int64[n + 1]: where each of some runs of int64[n] lengths begins, and where the last one ends."""
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds


GRAM_WORDS = 13
"""Words of the grams whose share decides whether a document leaked (Brown et al. 2020, appendix C)."""
SPAN_WORDS = 50
"""Words of the shortest span that counts as copied (Lee et al. 2021, section 4.1, has 50 tokens)."""
OWNERS = 4
"""Documents that are named for one gram; a gram of more is counted for all, but names only the first."""
_BUCKETS = 16
"""Parts in which grams are numbered, so that sorting needs little memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutPart:
    """The words of some held-out documents."""

    shard: int
    """Number of their shard among all held-out ones, in the manifest's order."""
    rows: np.ndarray
    """int64[n] record of the shard."""
    keys: np.ndarray
    """uint64[n] hash of the document's place: which documents are sampled."""
    words: np.ndarray
    """uint64[w] hashes of their words."""
    offsets: np.ndarray
    """int64[n + 1] of the documents in them."""
    plain: PlainWords
    """The words in normal form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grams:
    """The different n-grams of one length, and which documents hold them."""

    table: GramTable
    """The grams."""
    offsets: np.ndarray
    """int64[d + 1]: the grams of document i are ``entries[offsets[i]:offsets[i + 1]]``."""
    entries: np.ndarray
    """uint32[g] their entries in the order of their places."""
    is_first: np.ndarray
    """uint8[g] 1 where a document has a gram for the first time."""
    sizes: np.ndarray
    """int64[d] different grams of each document."""
    owner_offsets: np.ndarray
    """int64[k + 1]: the first documents with gram i are ``owners[owner_offsets[i]:owner_offsets[i + 1]]``."""
    owners: np.ndarray
    """uint32[o] documents, ascending for each gram, at most :data:`OWNERS` of them."""
    owner_places: np.ndarray
    """uint32[o] which of a document's grams it is, where each of the owners has it first."""
    crowded: np.ndarray
    """uint8[k] 1 where a gram has more documents than are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """All held-out documents that are looked for."""

    shards: np.ndarray
    """int32[d] number of the shard among the held-out ones."""
    rows: np.ndarray
    """int64[d] record of the shard."""
    num_words: np.ndarray
    """int64[d] words."""
    grams: Grams
    """13-grams of the documents that have any."""
    spans: Grams
    """50-grams, in the order of their places."""
    wholes: Grams
    """Whole documents of fewer than 13 words, but at least one, as one gram each."""
    phrases: Owners
    """8-grams of the documents in normal form, without those of templates."""
    places: np.ndarray
    """uint32[p] which of the document's words, as they are, each word in normal form stands at."""
    telling: np.ndarray
    """uint8[p] 1 for each word in normal form that a phrase covers, where the document first has that."""
    sample_bits: int
    """One document in 2 ** sample_bits was taken, by its key."""


def index_held_out(parts: Iterable[HeldOutPart], max_grams: int) -> HeldOut:
    """Index documents; when they have more than ``max_grams`` 13-grams, of one in two, four, ... of them.

    Memory: about 150 bytes for each word that is taken.
    """
    taken: list[HeldOutPart] = []
    bits, held = 0, 0
    for part in parts:
        taken.append(_sampled(part, bits))
        held += _num_grams(taken[-1])
        while held > max_grams:
            bits += 1
            taken = [_sampled(held_out_part, bits) for held_out_part in taken]
            held = sum(map(_num_grams, taken))
    words = np.concatenate([np.zeros(0, dtype=np.uint64), *(part.words for part in taken)])
    lengths = np.concatenate([np.zeros(0, dtype=np.int64), *(np.diff(part.offsets) for part in taken)])
    shards = np.repeat(
        np.array([part.shard for part in taken], dtype=np.int32), [len(part.rows) for part in taken]
    ).astype(np.int32)
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *(part.rows for part in taken)])
    plain, places = (
        np.concatenate([np.zeros(0, dtype=kind), *(getattr(part.plain, name) for part in taken)])
        for name, kind in (("words", np.uint64), ("places", np.uint32))
    )
    plain_lengths = np.concatenate([np.zeros(0, dtype=np.int64), *(np.diff(part.plain.offsets) for part in taken)])
    taken.clear()
    offsets = bounds_of(lengths)
    phrases, telling = index_phrases(plain, bounds_of(plain_lengths))
    return HeldOut(
        shards=shards,
        rows=rows,
        num_words=lengths,
        grams=_grams(*gram_hashes(words, offsets, GRAM_WORDS)),
        spans=_grams(*gram_hashes(words, offsets, SPAN_WORDS)),
        wholes=_grams(*_whole_hashes(words, offsets)),
        phrases=phrases,
        places=places,
        telling=telling,
        sample_bits=bits,
    )


def whole_hashes(words: np.ndarray, offsets: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Return uint64[k]: one hash for each of some documents, of all their words and of how many they are."""
    lengths = np.diff(offsets)[documents]
    hashes = np.zeros(len(documents), dtype=np.uint64)
    for length in np.unique(lengths).tolist():
        chosen = np.flatnonzero(lengths == length)
        places = offsets[documents[chosen]][:, None] + np.arange(length)
        own, _ = gram_hashes(words[places].reshape(-1), np.arange(len(chosen) + 1) * length, length)
        hashes[chosen] = own + np.uint64(length)
    return hashes


def is_short(offsets: np.ndarray) -> np.ndarray:
    """Return bool[n]: documents with words, but fewer than a gram has."""
    lengths = np.diff(offsets)
    return (lengths > 0) & (lengths < GRAM_WORDS)


def _whole_hashes(words: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    short = is_short(offsets)
    return whole_hashes(words, offsets, np.flatnonzero(short)), bounds_of(short.astype(np.int64))


def _num_grams(part: HeldOutPart) -> int:
    return int(np.maximum(np.diff(part.offsets) - (GRAM_WORDS - 1), 0).sum())


def _sampled(part: HeldOutPart, bits: int) -> HeldOutPart:
    """Return the documents whose key ends in so many zero bits."""
    kept = part.keys & np.uint64((1 << bits) - 1) == 0
    if kept.all():
        return part
    lengths = np.diff(part.offsets)
    return HeldOutPart(
        shard=part.shard,
        rows=part.rows[kept],
        keys=part.keys[kept],
        words=part.words[np.repeat(kept, lengths)],
        offsets=bounds_of(lengths[kept]),
        plain=part.plain.only(kept),
    )


def _grams(hashes: np.ndarray, bounds: np.ndarray) -> Grams:
    """Number the grams and note which documents hold them; ``hashes`` lie document after document."""
    keys, entries = _numbered(hashes)
    documents = np.repeat(np.arange(len(bounds) - 1, dtype=np.uint32), np.diff(bounds))
    order = np.argsort(entries, kind="stable")
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (np.diff(entries[order]) != 0) | (np.diff(documents[order]) != 0)
    order = order[fresh]  # of each gram the first place in each document
    counts = np.bincount(entries[order], minlength=len(keys))
    starts = bounds_of(counts)[:-1]
    named = np.arange(len(order), dtype=np.int64) - np.repeat(starts, counts) < OWNERS
    named = order[named]
    is_first = np.zeros(len(entries), dtype=np.uint8)
    is_first[order] = 1
    return Grams(
        table=make_table(keys),
        offsets=bounds,
        entries=entries,
        is_first=is_first,
        sizes=np.bincount(documents[order], minlength=len(bounds) - 1),
        owners=documents[named],
        owner_offsets=bounds_of(np.minimum(counts, OWNERS)),
        owner_places=(named - bounds[documents[named]]).astype(np.uint32),
        crowded=(counts > OWNERS).astype(np.uint8),
    )


def _numbered(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different hashes, ascending, and uint32 the number of each hash among them."""
    entries, keys, known = np.empty(len(hashes), dtype=np.uint32), [np.zeros(0, dtype=np.uint64)], 0
    buckets = (hashes >> np.uint64(60)).astype(np.uint8)
    for bucket in range(_BUCKETS):
        chosen = np.flatnonzero(buckets == bucket)
        own, inverse = np.unique(hashes[chosen], return_inverse=True)
        entries[chosen] = (inverse + known).astype(np.uint32)
        keys.append(own)
        known += len(own)
    return np.concatenate(keys), entries
