"""Held-out documents, indexed by the n-grams that training documents are searched for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dataaudit.corpus.protected.edited import PlainWords, bounds_of, index_phrases
from dataaudit.kernels.edited import Owners
from dataaudit.kernels.ngrams import GramTable, gram_hashes, make_table

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

    Args:
        parts: In the manifest's order.
        max_grams: Most 13-grams, repeated ones included, that are taken.
    """
    taken: list[HeldOutPart] = []
    bits, held = 0, 0
    for part in parts:
        taken.append(_sampled(part, bits))
        held += _num_grams(taken[-1])
        while held > max_grams:
            bits += 1
            taken = [_sampled(one, bits) for one in taken]
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
