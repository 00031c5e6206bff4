"""N-gram index of held-out documents: 13-grams, 50-grams, whole short documents, and 8-grams for edited copies.

An edited copy has words changed, or marks of HTML, Markdown and others between them. Its words are compared in the
normal form of evaluation items, without combining marks. A training document has an edited copy when a window of it has
half of a document's words, and 50 of them, in runs of eight words and more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dataaudit.scan.corpus.segments import bounds_of, changes
from dataaudit.scan.kernels.ngrams import GramTable, gram_hashes, make_table
from dataaudit.scan.kernels.overlap import Owners, find_edited, find_grams
from dataaudit.scan.kernels.words import WordBatch

GRAM, SPAN, WHOLE, EDITED = 0, 1, 2, 3
"""Kinds of entries, and rules by which a held-out document is named; edited copies have no entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchBatch:
    """Matches in the documents of a batch, which are numbered in it."""

    entries: np.ndarray
    """int64[k, 3] (kind, document, entry) of every protected n-gram, once a document; ascending."""
    held_out: np.ndarray
    """int64[h, 10] (rule, document, held-out document, first byte, byte after the last, words or n-grams in common, of
    so many, crowded, first, length) of each matching segment. ``crowded``: more documents have it than are named.
    ``first`` and ``length`` are a range of the held-out document: of its words for a span or an edited copy, of its
    13-grams for these; of a whole document its entry."""
    items: np.ndarray
    """int64[i, 10] (document, set, item, part, tier, rule, first byte, byte after the last, words in common, of so
    many) of each matching item and part."""


PHRASE_WORDS = 8
"""Words of the n-grams that find edited copies: with each tenth word changed, two in ten are left."""
EDITED_WORDS = 50
"""Words of a document in an edited copy, at least."""
EDITED_ONE_IN = 2
"""The same as a share of its words: one in so many."""
PHRASE_OWNERS = 16
"""Documents that a phrase names; a phrase of more is a template's, and is not searched for."""
_PLACE_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWords:
    """Words of documents in normal form, without marks."""

    words: np.ndarray
    """uint64[p] hashes."""
    offsets: np.ndarray
    """int64[n + 1] of the documents in them."""
    places: np.ndarray
    """uint32[p] number of the document's word, as it is, at which each stands."""

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
    """Return the phrases of documents, and uint8[w]: words under the first occurrence of a phrase in a document."""
    hashes, bounds = gram_hashes(words, offsets, PHRASE_WORDS)
    documents = np.repeat(np.arange(len(bounds) - 1, dtype=np.uint32), np.diff(bounds))
    order = np.argsort(hashes, kind="stable")
    order = order[changes(hashes[order], documents[order])]  # of each phrase its first place in each document
    starts = np.flatnonzero(changes(hashes[order]))
    counts = np.diff(np.append(starts, len(order)))
    is_rare = counts <= PHRASE_OWNERS
    order = order[np.repeat(is_rare, counts)]
    counts = counts[is_rare]
    keys = hashes[order[bounds_of(counts)[:-1]]]
    owners = documents[order]
    places = order - bounds[owners]
    telling = np.zeros(len(words) + 1, dtype=np.int64)
    firsts = offsets[owners] + places
    np.add.at(telling, firsts, 1)
    np.add.at(telling, firsts + PHRASE_WORDS, -1)
    is_telling = (np.cumsum(telling)[:-1] > 0).astype(np.uint8)
    sums = bounds_of(is_telling)
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


def edited_rows(plain: WordBatch, phrases: Owners, own_places: np.ndarray) -> np.ndarray:
    """Return the edited copies in documents, as ``held_out`` of a ``MatchBatch``."""
    places, entries = find_grams(plain.hashes, plain.offsets, PHRASE_WORDS, phrases.table)
    edited = find_edited(places, entries, plain.offsets, PHRASE_WORDS, phrases)
    documents, owners, first, stop, common, start, end = edited.T
    begun, low = plain.offsets[documents], phrases.offsets[owners]
    start, end = (own_places[place].astype(np.int64) for place in (low + start, low + end - 1))
    return table_of(
        EDITED,
        documents,
        owners,
        plain.starts[begun + first],
        plain.ends[begun + stop - 1],
        common,
        phrases.sizes[owners],
        0,
        start,
        end - start + 1,
    )


def table_of(*columns: np.ndarray | int) -> np.ndarray:
    """Return int64[n, k] of k columns; a number stands for a column of it."""
    table: np.ndarray = np.column_stack(np.broadcast_arrays(*columns)).astype(np.int64)
    return table


GRAM_WORDS = 13
"""Words of the n-grams whose share decides whether a document leaked (Brown et al. 2020, appendix C)."""
SPAN_WORDS = 50
"""Words of the shortest span that counts as copied (Lee et al. 2021, section 4.1, has 50 tokens)."""
OWNERS = 4
"""Documents that an n-gram names; an n-gram of more counts for all, but names only the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutPart:
    """The words of some held-out documents."""

    shard: int
    """Number of their shard among all held-out ones, in the manifest's order."""
    rows: np.ndarray
    """int64[n] record of the shard."""
    keys: np.ndarray
    """uint64[n] hash of the document's place, which decides whether it is sampled."""
    words: np.ndarray
    """uint64[w] hashes of their words."""
    offsets: np.ndarray
    """int64[n + 1] of the documents in them."""
    plain: PlainWords
    """The words in normal form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramIndex:
    """The distinct n-grams of a length, and the documents that have them."""

    table: GramTable
    offsets: np.ndarray
    """int64[d + 1]: the grams of document i are ``entries[offsets[i]:offsets[i + 1]]``."""
    entries: np.ndarray
    """uint32[g] entries of the n-grams, in the documents' order."""
    is_first: np.ndarray
    """uint8[g] 1 where a document has an n-gram for the first time."""
    sizes: np.ndarray
    """int64[d] distinct n-grams of each document."""
    owner_offsets: np.ndarray
    """int64[k + 1]: the first documents with n-gram i are ``owners[owner_offsets[i]:owner_offsets[i + 1]]``."""
    owners: np.ndarray
    """uint32[o] documents, ascending for each n-gram, at most :data:`OWNERS` of them."""
    owner_places: np.ndarray
    """uint32[o] number of the n-gram in its owner, where that has it first."""
    crowded: np.ndarray
    """uint8[k] 1 where an n-gram has more documents than are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """All held-out documents that are searched for."""

    shards: np.ndarray
    """int32[d] number of the shard among the held-out ones."""
    rows: np.ndarray
    """int64[d] record of the shard."""
    num_words: np.ndarray
    grams: NgramIndex
    """13-grams of the documents that have any."""
    spans: NgramIndex
    """50-grams, in the documents' order."""
    wholes: NgramIndex
    """Documents of 1 to 12 words, an n-gram each."""
    phrases: Owners
    """8-grams of the documents in normal form, without those of templates."""
    places: np.ndarray
    """uint32[p] number of the document's word, as it is, at which each word in normal form stands."""
    telling: np.ndarray
    """uint8[p] 1 for words in normal form under the first occurrence of a phrase in a document."""
    sample_bits: int
    """A document in 2 ** sample_bits was taken, by its key."""


def index_held_out(parts: Iterable[HeldOutPart], max_grams: int) -> HeldOut:
    """Index documents; where they have more than ``max_grams`` 13-grams, a half, a quarter, ... of them.

    Memory: about 150 bytes for each word that is taken.
    """
    taken: list[HeldOutPart] = []
    bits, total = 0, 0
    for part in parts:
        taken.append(_sampled(part, bits))
        total += _num_grams(taken[-1])
        while total > max_grams:
            bits += 1
            taken = [_sampled(held_out_part, bits) for held_out_part in taken]
            total = sum(map(_num_grams, taken))
    words = _joined(np.uint64, (part.words for part in taken))
    lengths = _joined(np.int64, (np.diff(part.offsets) for part in taken))
    shards = _joined(np.int32, (np.full(len(part.rows), part.shard, dtype=np.int32) for part in taken))
    rows = _joined(np.int64, (part.rows for part in taken))
    plain = _joined(np.uint64, (part.plain.words for part in taken))
    places = _joined(np.uint32, (part.plain.places for part in taken))
    plain_lengths = _joined(np.int64, (np.diff(part.plain.offsets) for part in taken))
    taken.clear()
    offsets = bounds_of(lengths)
    phrases, telling = index_phrases(plain, bounds_of(plain_lengths))
    short = is_short(offsets)
    return HeldOut(
        shards=shards,
        rows=rows,
        num_words=lengths,
        grams=_grams(*gram_hashes(words, offsets, GRAM_WORDS)),
        spans=_grams(*gram_hashes(words, offsets, SPAN_WORDS)),
        wholes=_grams(whole_hashes(words, offsets, np.flatnonzero(short)), bounds_of(short)),
        phrases=phrases,
        places=places,
        telling=telling,
        sample_bits=bits,
    )


def _joined(dtype: npt.DTypeLike, pieces: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=dtype), *pieces])


def whole_hashes(words: np.ndarray, offsets: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Return uint64[k]: the hash of each of some documents, of all their words and their number."""
    lengths = np.diff(offsets)[documents]
    hashes = np.zeros(len(documents), dtype=np.uint64)
    for length in np.unique(lengths).tolist():
        chosen = np.flatnonzero(lengths == length)
        places = offsets[documents[chosen]][:, None] + np.arange(length)
        own, _ = gram_hashes(words[places].reshape(-1), np.arange(len(chosen) + 1) * length, length)
        hashes[chosen] = own + np.uint64(length)
    return hashes


def is_short(offsets: np.ndarray) -> np.ndarray:
    """Return bool[n]: documents with words, but fewer than a 13-gram has."""
    lengths = np.diff(offsets)
    return (lengths > 0) & (lengths < GRAM_WORDS)


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


def _grams(hashes: np.ndarray, bounds: np.ndarray) -> NgramIndex:
    """Number the n-grams and note which documents have them; ``hashes`` are in the documents' order."""
    keys, entries = _numbered(hashes)
    documents = np.repeat(np.arange(len(bounds) - 1, dtype=np.uint32), np.diff(bounds))
    order = np.argsort(entries, kind="stable")
    order = order[changes(entries[order], documents[order])]  # of each n-gram the first place in each document
    counts = np.bincount(entries[order], minlength=len(keys))
    starts = bounds_of(counts)[:-1]
    named = np.arange(len(order), dtype=np.int64) - np.repeat(starts, counts) < OWNERS
    named = order[named]
    is_first = np.zeros(len(entries), dtype=np.uint8)
    is_first[order] = 1
    return NgramIndex(
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
    """Return the distinct hashes, ascending, and uint32 the number of each; sorted in 16 parts to spare memory."""
    entries, keys, known = np.empty(len(hashes), dtype=np.uint32), [np.zeros(0, dtype=np.uint64)], 0
    buckets = (hashes >> np.uint64(60)).astype(np.uint8)
    for bucket in range(16):
        chosen = np.flatnonzero(buckets == bucket)
        own, inverse = np.unique(hashes[chosen], return_inverse=True)
        entries[chosen] = (inverse + known).astype(np.uint32)
        keys.append(own)
        known += len(own)
    return np.concatenate(keys), entries
