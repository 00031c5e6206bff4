"""``train_val_overlap``, ``ngram``, ``span`` and ``edited``: from what was seen to held-out documents that leaked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.protected.held_out import GRAM_WORDS, SPAN_WORDS, Grams, HeldOut
from dataaudit.corpus.protected.match_batch import GRAM, SPAN, WHOLE
from dataaudit.kernels.intervals import clopper_pearson
from dataaudit.kernels.overlap import count_own
from dataaudit.manifest.metric import Metric, Scope, count
from dataaudit.metrics.overlap.common import by_document

NAME = "train_val_overlap"
LEAKED_PERCENT = 50
"""Of the 13-grams of a document; from that share on it leaked."""
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Leaks:
    """What of some held-out documents is in training data."""

    leaked: np.ndarray
    """bool[d] half of the 13-grams and more; of a shorter document all of it."""
    covered: np.ndarray
    """int64[d] words inside a copied span."""


@dataclass(frozen=True, slots=True)
class _Subset:
    """Some documents, with the grams they hold numbered anew."""

    offsets: np.ndarray
    entries: np.ndarray
    is_first: np.ndarray
    names: np.ndarray
    """uint32[k] the grams' entries."""


def find_leaks(
    placed: Mapping[int, Grams] | Mapping[int, _Subset],
    seen: Mapping[int, np.ndarray],
    common: Mapping[int, np.ndarray] | None = None,
) -> Leaks:
    """Return which documents leaked.

    Args:
        placed: By kind, the grams of the documents.
        seen: By kind, bool[k]: the grams that are in training data.
        common: By kind, uint8[g]: 1 where a gram does not count, in training data or in the document.
    """
    here = {kind: seen[kind][grams.entries] for kind, grams in placed.items()}
    grams, spans, wholes = placed[GRAM], placed[SPAN], placed[WHOLE]
    left_out = common or {kind: np.zeros(len(placed[kind].entries), dtype=np.uint8) for kind in (GRAM, WHOLE)}
    counted = (grams.is_first > 0) & (left_out[GRAM] == 0)
    sizes, found = (by_document(marks, grams.offsets) for marks in (counted, counted & here[GRAM]))
    leaked = (sizes > 0) & (100 * found >= LEAKED_PERCENT * sizes)
    leaked |= by_document(here[WHOLE] & (left_out[WHOLE] == 0), wholes.offsets) > 0
    copied = here[SPAN].astype(np.uint8)
    return Leaks(leaked, count_own(spans.offsets, copied, grams.offsets, left_out[GRAM], (SPAN_WORDS, GRAM_WORDS)))


def documents_with(held: HeldOut, seen: pa.Table) -> dict[int, np.ndarray]:
    """Return by kind int64[k]: the training documents that hold each gram."""
    return {kind: _documents(seen, kind, grams) for kind, grams in _placed(held).items()}


def overlap(
    held: HeldOut,
    splits: Sequence[str],
    split_of: np.ndarray,
    seen: pa.Table,
    documents: Mapping[int, np.ndarray],
    *,
    common: Mapping[int, np.ndarray],
    edited: Mapping[str, np.ndarray],
    version: str,
) -> list[Metric]:
    """Return the metrics of every held-out split, and of all together.

    Args:
        held: The documents that were looked for.
        splits: Names of the held-out splits.
        split_of: int64[d] split of every document, -1 for one that is not in the numbers.
        seen: Of :data:`dataaudit.metrics.overlap.joins.SEEN`, of all partitions.
        documents: Of :func:`documents_with`.
        common: Of :func:`dataaudit.metrics.overlap.common.common_text`.
        edited: By statistic, bool[d]: the documents of which a training document has an edited copy.
        version: Of the definition.
    """
    placed, known = _placed(held), {kind: number > 0 for kind, number in documents.items()}
    whole, rare = find_leaks(placed, known), find_leaks(placed, known, common)
    metrics: list[Metric] = []
    scopes = [(Scope(set=name), split_of == number) for number, name in enumerate(splits)]
    for scope, chosen in [(Scope(), split_of >= 0), *scopes]:
        say = _Say(held, chosen, scope, version)
        metrics += say.coverage()
        metrics += [say.ngram("ngram", whole), say.span("span", whole)]
        metrics += [say.ngram("ngram_without_common", rare), say.span("span_without_common", rare)]
        metrics += [say.ngram(stat, Leaks(marked, whole.covered)) for stat, marked in edited.items()]
        own = np.repeat(chosen, np.diff(held.grams.offsets)) & (common[GRAM] > 0)
        metrics.append(say.number("common_grams", len(np.unique(held.grams.entries[own])), "13-grams"))
    return metrics + _by_source(held, splits, split_of, seen, whole, version)


def _placed(held: HeldOut) -> dict[int, Grams]:
    return {GRAM: held.grams, SPAN: held.spans, WHOLE: held.wholes}


def _documents(seen: pa.Table, kind: int, grams: Grams) -> np.ndarray:
    """Return int64[k] training documents that hold each gram."""
    own = seen.filter(pc.equal(seen["kind"], kind))
    documents = np.zeros(len(grams.table.keys), dtype=np.int64)
    np.add.at(documents, own["entry"].to_numpy(), own["documents"].to_numpy())
    return documents


def _by_source(
    held: HeldOut, splits: Sequence[str], split_of: np.ndarray, seen: pa.Table, whole: Leaks, version: str
) -> list[Metric]:
    """Return what each source alone leaked; only documents that leaked at all can have leaked from one."""
    affected = np.flatnonzero(whole.leaked | (whole.covered > 0))
    subsets = {kind: _subset(grams, affected) for kind, grams in _placed(held).items()}
    metrics: list[Metric] = []
    for source, kinds, entries in _sources(seen):
        marked = {kind: np.isin(subset.names, entries[kinds == kind]) for kind, subset in subsets.items()}
        few = find_leaks(subsets, marked)
        leaks = Leaks(np.zeros(len(split_of), dtype=bool), np.zeros(len(split_of), dtype=np.int64))
        leaks.leaked[affected], leaks.covered[affected] = few.leaked, few.covered
        for number, name in enumerate(splits):
            say = _Say(held, split_of == number, Scope(set=name, source=source), version)
            metrics += [say.ngram("ngram", leaks), say.span("span", leaks)]
    return metrics


def _sources(seen: pa.Table) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the sources by name, each with the kinds and entries of the grams that were seen in it."""
    ordered = seen.sort_by("source")
    runs = pc.run_end_encode(ordered["source"].combine_chunks()) if seen.num_rows else None
    kinds, entries, start = ordered["kind"].to_numpy(), ordered["entry"].to_numpy(), 0
    for source, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True) if runs else ():
        yield source, kinds[start:stop], entries[start:stop]
        start = stop


def _subset(grams: Grams, documents: np.ndarray) -> _Subset:
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
class _Say:
    """Metrics of some held-out documents."""

    held: HeldOut
    chosen: np.ndarray
    scope: Scope
    version: str

    def number(self, stat: str, value: int, unit: str = "documents") -> Metric:
        """Return a count."""
        return count(NAME, stat, value, scope=self.scope, unit=unit, n=int(self.chosen.sum()), version=self.version)

    def coverage(self) -> list[Metric]:
        """Return how many documents were looked for, and how."""
        words = self.held.num_words[self.chosen]
        return [
            self.number("documents", len(words)),
            self.number("too_short", int(((words > 0) & (words < GRAM_WORDS)).sum())),
            self.number("no_words", int((words == 0).sum())),
        ]

    def ngram(self, stat: str, leaks: Leaks) -> Metric:
        """Return the share of documents that leaked."""
        judged = self.chosen & (self.held.num_words > 0)
        trials = int(judged.sum())
        return self._share(stat, int((leaks.leaked & judged).sum()), trials, trials)

    def span(self, stat: str, leaks: Leaks) -> Metric:
        """Return the share of words that lie in a copied span.

        In a sample, documents are drawn and not words: as many independent words as their lengths are worth (Kish
        1965, "Survey sampling", section 8.2).
        """
        words = self.held.num_words[self.chosen]
        squares = float((words.astype(np.float64) ** 2).sum())
        effective = float(words.sum()) ** 2 / squares if squares else 0.0
        return self._share(stat, int(leaks.covered[self.chosen].sum()), int(words.sum()), effective)

    def _share(self, stat: str, part: int, whole: int, trials: float) -> Metric:
        made = Metric(
            metric=NAME,
            stat=stat,
            scope=self.scope,
            unit="ratio",
            value=part / whole if whole else None,
            n=int(self.chosen.sum()),
            denominator=whole,
            status="ok" if whole else "not_evaluated",
            reason="" if whole else "empty_denominator",
            version=self.version,
        )
        if not self.held.sample_bits:
            return made
        if not whole:
            return replace(made, method="sampled")
        low, high = clopper_pearson(min(part / whole * trials, trials), trials, _CONFIDENCE)
        return replace(made, method="sampled", low=low, high=high, confidence=_CONFIDENCE)
