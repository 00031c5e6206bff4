"""Text that very many training documents share, notices and licences: what of held-out documents it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dataaudit.corpus.protected.edited import EDITED_ONE_IN, EDITED_WORDS
from dataaudit.corpus.protected.held_out import GRAM_WORDS, SPAN_WORDS, HeldOut
from dataaudit.corpus.protected.match_batch import EDITED, GRAM, SPAN, WHOLE

_WIDE, _VERY_WIDE = 20, 100
_ONE_IN = 1_000
_WORD_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Training documents above which text is common: more than 20, or 100, and than one in a thousand."""

    wide: int
    """Of text that is a smaller part of some held-out document."""
    very_wide: int
    """Of any text: a held-out document that is copied often is no notice."""

    @classmethod
    def of(cls, documents: int) -> Limits:
        """Return the limits in so many training documents."""
        return cls(wide=max(_WIDE, documents // _ONE_IN), very_wide=max(_VERY_WIDE, documents // _ONE_IN))


def common_text(held_out: HeldOut, documents: Mapping[int, np.ndarray], limits: Limits) -> dict[int, np.ndarray]:
    """Return which 13-grams and whole documents are common, by kind: uint8[g], 1 for those, in the order of entries.

    Wide 13-grams are common where they are a smaller part of some held-out document; of text that only documents hold
    that mostly consist of such text, the very wide ones are.

    Args:
        held_out: The documents.
        documents: By kind, int64[k]: the training documents that hold each gram.
        limits: Above which they are common.
    """
    grams = held_out.grams
    wide, very_wide = (documents[GRAM] > limit for limit in (limits.wide, limits.very_wide))
    here = wide[grams.entries]
    mostly = 2 * by_document(here & (grams.is_first > 0), grams.offsets) > grams.sizes
    aside = np.zeros(len(wide), dtype=bool)
    aside[grams.entries[here & ~np.repeat(mostly, np.diff(grams.offsets))]] = True
    common = (wide & aside | very_wide)[grams.entries]
    wholes = (documents[WHOLE] > limits.very_wide)[held_out.wholes.entries]
    return {GRAM: common.astype(np.uint8), WHOLE: wholes.astype(np.uint8)}


def by_document(marks: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return int64[d]: how many places of each document are marked, of bool[g] marks and int64[d + 1] offsets."""
    sums = np.zeros(len(marks) + 1, dtype=np.int64)
    np.cumsum(marks, out=sums[1:])
    return np.asarray(sums[offsets[1:]] - sums[offsets[:-1]])


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonText:
    """The common text of held-out documents, to judge matches by."""

    words: np.ndarray
    """int64[r, 2] from which word to which, each with its document in the upper 32 bits; ascending, apart."""
    wholes: np.ndarray
    """int64[k] entries of common whole documents, ascending."""
    grams: np.ndarray
    """int64[s, 2] the same of the first words of its different common 13-grams."""
    telling: np.ndarray
    """int64[t, 2] the same of the words by which edited copies are found, as far as they are common."""
    very_wide: int
    """Training documents above which an edited document is common as a whole."""

    @classmethod
    def of(cls, held_out: HeldOut, common: Mapping[int, np.ndarray], very_wide: int) -> CommonText:
        """Return the common text of held-out documents, of :func:`common_text`."""
        grams, marks = held_out.grams, common[GRAM] > 0
        places = np.flatnonzero(marks)
        owners = np.searchsorted(grams.offsets, places, side="right") - 1
        starts = (owners << _WORD_BITS) + places - grams.offsets[owners]
        words = _runs(starts, GRAM_WORDS)
        owners = np.repeat(np.arange(len(held_out.num_words)), np.diff(held_out.phrases.offsets))
        telling = np.unique(((owners << _WORD_BITS) + held_out.places)[held_out.telling > 0])
        return cls(
            words=words,
            wholes=np.unique(held_out.wholes.entries[common[WHOLE] > 0]).astype(np.int64),
            grams=_runs(starts[grams.is_first[places] > 0], 1),
            telling=_runs(telling[_inside(words, telling, telling + 1) > 0], 1),
            very_wide=very_wide,
        )

    @property
    def digest(self) -> str:
        """Return the sha256 of it, hex."""
        state = hashlib.sha256(str(self.very_wide).encode())
        for values in (self.words, self.wholes, self.grams, self.telling):
            state.update(np.array(values.shape).tobytes() + np.ascontiguousarray(values).tobytes())
        return state.hexdigest()

    def without(self, rules: np.ndarray, targets: np.ndarray, *numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what matches share without common text, and of how much: int64[n] each.

        A span needs as many words outside of common 13-grams as a span has. Of the 13-grams of a held-out document that
        a training document holds, all common ones from the first to the last are taken to be among those: the least
        that it can share. The same holds for the words of an edited copy, which is none without as many words, and as
        large a share of them, as one needs; nor is it one where too many training documents have one of that document.

        Args:
            rules: int64[n] GRAM, SPAN, WHOLE or EDITED.
            targets: int64[n] held-out documents.
            numbers: int64[n] each: words or 13-grams in common, of so many, ``first`` and ``length``, as in
                :attr:`dataaudit.corpus.protected.match_batch.MatchBatch.held_out`.
        """
        shared, of, firsts, lengths = numbers
        own, own_of = shared.copy(), of.copy()
        span, whole, gram, edited = (np.flatnonzero(rules == rule) for rule in (SPAN, WHOLE, GRAM, EDITED))
        start = (targets[span] << _WORD_BITS) + firsts[span]
        words = lengths[span] - _inside(self.words, start, start + lengths[span])
        own[span] = np.where(words >= SPAN_WORDS, words, 0)
        own[whole[np.isin(firsts[whole], self.wholes)]] = 0
        for kind, runs in ((gram, self.grams), (edited, self.telling)):
            document = targets[kind] << _WORD_BITS
            first = document + firsts[kind]
            own[kind] = np.maximum(shared[kind] - _inside(runs, first, first + lengths[kind]), 0)
            own_of[kind] = of[kind] - _inside(runs, document, document + (1 << _WORD_BITS))
        is_copy = (own >= EDITED_WORDS) & (EDITED_ONE_IN * own >= own_of)
        _, target, copies = np.unique(targets[edited], return_inverse=True, return_counts=True)
        own[edited[~is_copy[edited] | (copies[target] > self.very_wide)]] = 0
        return own, own_of


def _runs(starts: np.ndarray, length: int) -> np.ndarray:
    """Return int64[r, 2], ascending and apart: the places that pieces of a length cover, int64[m] ascending starts."""
    stops = np.minimum(starts + length, np.append(starts[1:], np.iinfo(np.int64).max))
    apart = starts[1:] != stops[:-1]
    first, last = (np.append(*edges)[: len(starts)] for edges in ((True, apart), (apart, True)))
    return np.column_stack([starts[first], stops[last]])


def _inside(runs: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return int64[n]: how many places of runs lie from some places to others."""
    edges = np.vstack([np.zeros((1, 2), dtype=np.int64), runs])
    sums = np.append(0, np.cumsum(edges[:, 1] - edges[:, 0]))

    def before(places: np.ndarray) -> np.ndarray:
        run = np.searchsorted(edges[:, 0], places, side="right") - 1
        found: np.ndarray = sums[run] + np.minimum(places - edges[run, 0], sums[run + 1] - sums[run])
        return found

    return np.asarray(before(stops) - before(starts))
