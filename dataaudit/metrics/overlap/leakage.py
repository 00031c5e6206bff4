"""``train_val_overlap``, ``ngram``, ``span`` and ``edited``: held-out documents that leaked into training data.

*Common text* (notices, licences) is in very many training documents; leaks are counted with it and without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric import Metric, Scope, count
from dataaudit.scan.corpus.protected.ngram_index import (
    EDITED,
    EDITED_ONE_IN,
    EDITED_WORDS,
    GRAM,
    GRAM_WORDS,
    SPAN,
    SPAN_WORDS,
    WHOLE,
    HeldOut,
    NgramIndex,
)
from dataaudit.scan.kernels.intervals import clopper_pearson
from dataaudit.scan.kernels.overlap import count_own

_WIDE, _VERY_WIDE = 20, 100
_ONE_IN = 1_000
_WORD_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Numbers of training documents above which text is common; both also exceed a thousandth of all."""

    wide: int
    """For text that is a smaller part of some held-out document."""
    very_wide: int
    """For any text: a held-out document that is copied often is no notice."""

    @classmethod
    def of(cls, documents: int) -> Limits:
        """Return the limits of a number of training documents."""
        return cls(wide=max(_WIDE, documents // _ONE_IN), very_wide=max(_VERY_WIDE, documents // _ONE_IN))


def common_text(held_out: HeldOut, documents: Mapping[int, np.ndarray], limits: Limits) -> dict[int, np.ndarray]:
    """Return by kind uint8[g], 1 for common 13-grams and whole documents, in the order of entries.

    Wide 13-grams are common when they are a smaller part of some held-out document; 13-grams of documents that mostly
    consist of such text are common when they are very wide.
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
    """Return int64[d], the number of marks of each document, of bool[g] marks and int64[d + 1] offsets."""
    sums = np.zeros(len(marks) + 1, dtype=np.int64)
    np.cumsum(marks, out=sums[1:])
    return np.asarray(sums[offsets[1:]] - sums[offsets[:-1]])


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonText:
    """The common text of held-out documents.

    Ranges of words are int64[r, 2], first and stop, each with its document in the upper 32 bits; ascending, apart.
    """

    words: np.ndarray
    """Ranges of common words."""
    wholes: np.ndarray
    """int64[k] entries of common whole documents, ascending."""
    grams: np.ndarray
    """Ranges of the first words of the different common 13-grams of a document."""
    telling: np.ndarray
    """Ranges of the common words among those by which edited copies are found."""
    very_wide: int
    """Training documents above which an edited document is common as a whole."""

    @classmethod
    def of(cls, held_out: HeldOut, common: Mapping[int, np.ndarray], very_wide: int) -> CommonText:
        """Return the ranges of :func:`common_text`."""
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
        """Return its sha256, hex."""
        state = hashlib.sha256(str(self.very_wide).encode())
        for values in (self.words, self.wholes, self.grams, self.telling):
            state.update(np.array(values.shape).tobytes() + np.ascontiguousarray(values).tobytes())
        return state.hexdigest()

    def without(self, rules: np.ndarray, targets: np.ndarray, *numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how much matches share without common text, and of how much: int64[n] each.

        A span needs as many words outside of common 13-grams as a span has. A match of 13-grams is assumed to include
        all common ones from its first to its last: so its share is the least possible. The same holds for the words of
        an edited copy, which needs as many of them, and as large a share, as any edited copy; nor does it count where
        too many training documents have an edited copy of that document.
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
    """Return the ranges that pieces of a length cover, of int64[m] ascending starts."""
    stops = np.minimum(starts + length, np.append(starts[1:], np.iinfo(np.int64).max))
    apart = starts[1:] != stops[:-1]
    first, last = (np.append(*edges)[: len(starts)] for edges in ((True, apart), (apart, True)))
    return np.column_stack([starts[first], stops[last]])


def _inside(runs: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return int64[n], how many words of ranges lie between starts and stops."""
    edges = np.vstack([np.zeros((1, 2), dtype=np.int64), runs])
    sums = np.append(0, np.cumsum(edges[:, 1] - edges[:, 0]))

    def before(places: np.ndarray) -> np.ndarray:
        run = np.searchsorted(edges[:, 0], places, side="right") - 1
        covered: np.ndarray = sums[run] + np.minimum(places - edges[run, 0], sums[run + 1] - sums[run])
        return covered

    return np.asarray(before(stops) - before(starts))


NAME = "train_val_overlap"
LEAKED_PERCENT = 50
"""Share of a document's 13-grams from which on it leaked."""
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Leaks:
    """int64[d] words of held-out documents inside a copied span, and bool[d] whether a document leaked."""

    leaked: np.ndarray
    """bool[d] half of the 13-grams and more; of a shorter document all of it."""
    covered: np.ndarray


@dataclass(frozen=True, slots=True)
class _Subset:
    """Some documents, with their grams numbered anew."""

    offsets: np.ndarray
    entries: np.ndarray
    is_first: np.ndarray
    names: np.ndarray
    """uint32[k] the grams' entries."""


def find_leaks(
    placed: Mapping[int, NgramIndex] | Mapping[int, _Subset],
    seen: Mapping[int, np.ndarray],
    common: Mapping[int, np.ndarray] | None = None,
) -> Leaks:
    """Return which documents leaked."""
    here = {kind: seen[kind][grams.entries] for kind, grams in placed.items()}
    grams, spans, wholes = placed[GRAM], placed[SPAN], placed[WHOLE]
    left_out = common or {kind: np.zeros(len(placed[kind].entries), dtype=np.uint8) for kind in (GRAM, WHOLE)}
    counted = (grams.is_first > 0) & (left_out[GRAM] == 0)
    sizes, found = (by_document(marks, grams.offsets) for marks in (counted, counted & here[GRAM]))
    leaked = (sizes > 0) & (100 * found >= LEAKED_PERCENT * sizes)
    leaked |= by_document(here[WHOLE] & (left_out[WHOLE] == 0), wholes.offsets) > 0
    copied = here[SPAN].astype(np.uint8)
    return Leaks(leaked, count_own(spans.offsets, copied, grams.offsets, left_out[GRAM], (SPAN_WORDS, GRAM_WORDS)))


def documents_with(index: HeldOut, seen: pa.Table) -> dict[int, np.ndarray]:
    """Return by kind int64[k]: the training documents that hold each gram."""
    return {kind: _documents(seen, kind, grams) for kind, grams in _placed(index).items()}


def overlap(
    index: HeldOut,
    splits: Sequence[str],
    split_of: np.ndarray,
    seen: pa.Table,
    documents: Mapping[int, np.ndarray],
    *,
    common: Mapping[int, np.ndarray],
    edited: Mapping[str, np.ndarray],
    version: str,
) -> list[Metric]:
    """Return the metrics of every held-out split, and of all together."""
    placed, known = _placed(index), {kind: number > 0 for kind, number in documents.items()}
    whole, rare = find_leaks(placed, known), find_leaks(placed, known, common)
    metrics: list[Metric] = []
    scopes = [(Scope(set=name), split_of == number) for number, name in enumerate(splits)]
    for scope, chosen in [(Scope(), split_of >= 0), *scopes]:
        records = _Records(index, chosen, scope, version)
        metrics += records.coverage()
        metrics += [records.ngram("ngram", whole), records.span("span", whole)]
        metrics += [records.ngram("ngram_without_common", rare), records.span("span_without_common", rare)]
        metrics += [records.ngram(stat, Leaks(marked, whole.covered)) for stat, marked in edited.items()]
        own = np.repeat(chosen, np.diff(index.grams.offsets)) & (common[GRAM] > 0)
        metrics.append(records.number("common_grams", len(np.unique(index.grams.entries[own])), "13-grams"))
    return metrics + _by_source(index, splits, split_of, seen, whole, version)


def _placed(index: HeldOut) -> dict[int, NgramIndex]:
    return {GRAM: index.grams, SPAN: index.spans, WHOLE: index.wholes}


def _documents(seen: pa.Table, kind: int, grams: NgramIndex) -> np.ndarray:
    """Return int64[k] training documents that hold each gram."""
    own = seen.filter(pc.equal(seen["kind"], kind))
    documents = np.zeros(len(grams.table.keys), dtype=np.int64)
    np.add.at(documents, own["entry"].to_numpy(), own["documents"].to_numpy())
    return documents


def _by_source(
    index: HeldOut, splits: Sequence[str], split_of: np.ndarray, seen: pa.Table, whole: Leaks, version: str
) -> list[Metric]:
    """Return the leaks of each source alone; only documents that leaked at all can have leaked from one."""
    affected = np.flatnonzero(whole.leaked | (whole.covered > 0))
    subsets = {kind: _subset(grams, affected) for kind, grams in _placed(index).items()}
    metrics: list[Metric] = []
    for source, kinds, entries in _sources(seen):
        marked = {kind: np.isin(subset.names, entries[kinds == kind]) for kind, subset in subsets.items()}
        few = find_leaks(subsets, marked)
        leaks = Leaks(np.zeros(len(split_of), dtype=bool), np.zeros(len(split_of), dtype=np.int64))
        leaks.leaked[affected], leaks.covered[affected] = few.leaked, few.covered
        for number, name in enumerate(splits):
            records = _Records(index, split_of == number, Scope(set=name, source=source), version)
            metrics += [records.ngram("ngram", leaks), records.span("span", leaks)]
    return metrics


def _sources(seen: pa.Table) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the sources by name, each with the kinds and entries of the grams that were seen in it."""
    ordered = seen.sort_by("source")
    runs = pc.run_end_encode(ordered["source"].combine_chunks()) if seen.num_rows else None
    kinds, entries, start = ordered["kind"].to_numpy(), ordered["entry"].to_numpy(), 0
    for source, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True) if runs else ():
        yield source, kinds[start:stop], entries[start:stop]
        start = stop


def _subset(grams: NgramIndex, documents: np.ndarray) -> _Subset:
    bounds = [(int(grams.offsets[number]), int(grams.offsets[number + 1])) for number in documents.tolist()]
    entries, is_first = (
        np.concatenate([values[:0], *(values[start:stop] for start, stop in bounds)])
        for values in (grams.entries, grams.is_first)
    )
    names, places = np.unique(entries, return_inverse=True)
    offsets = np.zeros(len(documents) + 1, dtype=np.int64)
    np.cumsum([stop - start for start, stop in bounds], out=offsets[1:])
    return _Subset(offsets, places.astype(np.uint32), is_first, names)


@dataclass(frozen=True, slots=True)
class _Records:
    """Metric records of some held-out documents."""

    index: HeldOut
    chosen: np.ndarray
    scope: Scope
    version: str

    def number(self, stat: str, value: int, unit: str = "documents") -> Metric:
        """Return a count."""
        return count(NAME, stat, value, scope=self.scope, unit=unit, n=int(self.chosen.sum()), version=self.version)

    def coverage(self) -> list[Metric]:
        """Return how many documents were searched for, and how many of them have too few words."""
        words = self.index.num_words[self.chosen]
        return [
            self.number("documents", len(words)),
            self.number("too_short", int(((words > 0) & (words < GRAM_WORDS)).sum())),
            self.number("no_words", int((words == 0).sum())),
        ]

    def ngram(self, stat: str, leaks: Leaks) -> Metric:
        """Return the share of documents that leaked."""
        worded = self.chosen & (self.index.num_words > 0)
        trials = int(worded.sum())
        return self._share(stat, int((leaks.leaked & worded).sum()), trials, trials)

    def span(self, stat: str, leaks: Leaks) -> Metric:
        """Return the share of words that lie in a copied span.

        In a sample, documents are drawn and not words: as many independent words as their lengths are worth (Kish
        1965, "Survey sampling", section 8.2).
        """
        words = self.index.num_words[self.chosen]
        squares = float((words.astype(np.float64) ** 2).sum())
        effective = float(words.sum()) ** 2 / squares if squares else 0.0
        return self._share(stat, int(leaks.covered[self.chosen].sum()), int(words.sum()), effective)

    def _share(self, stat: str, part: int, whole: int, trials: float) -> Metric:
        named = partial(Metric, metric=NAME, stat=stat, scope=self.scope, unit="ratio", version=self.version)
        record = partial(named, n=int(self.chosen.sum()), denominator=whole)
        if self.index.sample_bits:
            record = partial(record, method="sampled")
        if not whole:
            return record(value=None, status="not_evaluated", reason="empty_denominator")
        if not self.index.sample_bits:
            return record(value=part / whole)
        low, high = clopper_pearson(min(part / whole * trials, trials), trials, _CONFIDENCE)
        return record(value=part / whole, low=low, high=high, confidence=_CONFIDENCE)
