"""From a judge's answers on a sample to rates: estimates for every scope, and the table that they rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import places_of
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.manifest.tables import TABLES
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.cross_shard.sampling import Question, Sampled
from dataaudit.scan.cross_shard.step import SecondPassResult
from dataaudit.scan.kernels.intervals import Judged, estimate_part, estimate_ratio
from dataaudit.scan.kernels.two_phase import Estimate, Strata, estimate_share

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Verdicts on the ``m`` documents that the judge could judge, in the order of the sample."""

    strata: np.ndarray
    """int64[m]"""
    tokens: np.ndarray
    """int64[m] units in which hits are counted."""
    hits: np.ndarray
    """int64[m] findings of the class; 1 or 0 for a class of whole documents."""


class Rates:
    """Records of a metric, from the sample of a judge; ``version`` is that of the metric's definition."""

    def __init__(self, question: Question, sampled: Sampled, version: str) -> None:
        self._question, self._sampled, self._version = question, sampled, version
        self._shares: dict[tuple[int, bytes, bytes], Estimate] = {}
        keys = sampled.frame.strata
        self._split, self._source, self._language = (
            np.array([key[place] for key in keys], dtype=object) for place in range(3)
        )

    def scopes(self) -> Iterator[tuple[Scope, np.ndarray]]:
        """Yield every scope with bool[k], its strata: all, each language, each split, and the sources of these."""
        frame, every = self._sampled.frame, np.ones(len(self._sampled.documents), dtype=bool)
        splits = [(None, every), *((name, self._split == number) for number, name in enumerate(self._sampled.splits))]
        for split, inside in splits:
            yield Scope(split=split), inside
            for source in frame.sources:
                own = inside & (self._source == source)
                if own.any():
                    yield Scope(split=split, source=source), own
        for language in frame.languages:
            yield Scope(language=language), self._language == language

    def shares(self, stat: str, entity: str | None, verdicts: Verdicts) -> list[Metric]:
        """Return the share of documents with a hit, in every scope."""
        size = len(self._sampled.documents)
        strata = Strata(
            sizes=self._sampled.documents,
            judged=np.bincount(verdicts.strata, minlength=size),
            positives=np.bincount(verdicts.strata[verdicts.hits > 0], minlength=size),
            guesses=self._sampled.guesses,
        )
        return [
            self._record(stat, entity, scope, self._share(number, strata, inside), "ratio")
            for number, (scope, inside) in enumerate(self.scopes())
        ]

    def _share(self, number: int, strata: Strata, inside: np.ndarray) -> Estimate:
        """Estimate the share of a scope, once for all classes with equal counts: most have no positive in most."""
        key = (number, strata.judged[inside].tobytes(), strata.positives[inside].tobytes())
        if key not in self._shares:
            self._shares[key] = estimate_share(strata, inside, CONFIDENCE)
        return self._shares[key]

    def per_million(self, stat: str, entity: str | None, verdicts: Verdicts) -> list[Metric]:
        """Return the hits per million tokens, in every scope."""
        unit = "hits per million tokens"
        return [
            self._record(stat, entity, scope, estimate_ratio(sizes, judged, confidence=CONFIDENCE), unit)
            for scope, sizes, judged in self._samples(verdicts)
        ]

    def parts(self, stat: str, entity: str | None, verdicts: Verdicts) -> list[Metric]:
        """Return hits as a share of their units, which are at least as many, in every scope."""
        return [
            self._record(stat, entity, scope, estimate_part(sizes, judged, confidence=CONFIDENCE), "ratio")
            for scope, sizes, judged in self._samples(verdicts)
        ]

    def _samples(self, verdicts: Verdicts) -> Iterator[tuple[Scope, np.ndarray, Judged]]:
        """Yield the sizes of the strata and the judged documents of every scope."""
        for scope, inside in self.scopes():
            own = inside[verdicts.strata]
            judged = Judged(stratum=verdicts.strata[own], hits=verdicts.hits[own], units=verdicts.tokens[own])
            yield scope, np.where(inside, self._sampled.documents, 0), judged

    def coverage(self, judged: int) -> list[Metric]:
        """Return the share of documents in languages that the judge reads, and the share of these that it saw."""
        read = int(self._sampled.documents.sum())
        shares = (("judge_reads", read, read + self._sampled.unread), ("judged_share", judged, read))
        return [
            ratio(self._question.metric, stat, some, whole, scope=Scope(), unit="ratio", version=self._version)
            for stat, some, whole in shares
        ]

    def table(self, entity: str, verdicts: Verdicts) -> pa.Table:
        """Return rows for the manifest's table ``judged``."""
        sampled, size = self._sampled, len(self._sampled.documents)
        seen, positive = verdicts.strata, verdicts.strata[verdicts.hits > 0]
        columns = {
            "metric": [self._question.metric] * size,
            "class": [entity] * size,
            "split": [sampled.splits[number] for number in self._split],
            "source": list(self._source),
            "language": list(self._language),
            "level": [key[3] for key in sampled.frame.strata],
            "documents": sampled.documents,
            "tokens": sampled.tokens,
            "judged": np.bincount(seen, minlength=size),
            "judged_tokens": _sums(seen, verdicts.tokens, size),
            "positive": np.bincount(positive, minlength=size),
            "hits": _sums(seen, verdicts.hits, size),
        }
        return pa.table(columns).cast(TABLES["judged"].schema)

    def _record(self, stat: str, entity: str | None, scope: Scope, estimate: Estimate, unit: str) -> Metric:
        record = partial(
            Metric,
            metric=self._question.metric,
            stat=stat,
            scope=replace(scope, entity=entity),
            unit=unit,
            n=estimate.judged,
            denominator=estimate.documents,
            method="sampled",
            version=self._version,
        )
        if estimate.value is None:
            reason = "empty_denominator" if estimate.judged or not estimate.documents else "not_judged"
            return record(value=None, status="not_evaluated", reason=reason)
        return record(value=estimate.value, low=estimate.low, high=estimate.high, confidence=CONFIDENCE)


def not_evaluated(question: Question, stats: dict[str, str], reason: str, version: str) -> list[Metric]:
    """Return records without a rate, for a reason."""
    record = partial(Metric, metric=question.metric, method="sampled", version=version)
    return [
        record(stat=stat, unit=unit, value=None, status="not_evaluated", reason=reason) for stat, unit in stats.items()
    ]


def _sums(groups: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Return int64[size]: the sum of the values of each group."""
    totals = np.zeros(size, dtype=np.int64)
    np.add.at(totals, groups, values)
    return totals


SEEN = pa.schema([("row", pa.int64()), ("tokens", pa.int64()), ("whole", pa.bool_()), ("failure", pa.string())])
"""A row a document: its tokens (for personal data: of what the judge saw, by its bytes), whether the judge saw all of
it, and why it has no verdict; empty when it has a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """Base of tasks that ask judges: they take long, see texts alone, and list the documents with a verdict."""

    seconds: ClassVar[float] = 20.0
    """For up to eight windows, a large model and a busy core."""
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    emits: ClassVar[Mapping[str, pa.Schema]] = MappingProxyType({})
    tokenizer: str
    """Digest of what decides tokens."""


def seen_table(batch: DocBatch, tokens: np.ndarray, whole: np.ndarray, failures: Sequence[str | None]) -> pa.Table:
    """Return the table :data:`SEEN` of a batch."""
    return pa.table([batch.rows, tokens, whole, [str(failure or "") for failure in failures]], schema=SEEN)


class Answers:
    """The documents with a verdict, in the manifest's order, and the number of those without."""

    def __init__(self, result: SecondPassResult, sampled: Sampled) -> None:
        self._result = result
        seen = self._rows("seen", SEEN, sampled.places)
        places = _places(seen)
        good = pc.equal(seen["failure"], "").to_numpy()
        order = np.argsort(sampled.places)
        strata = sampled.strata[order][np.searchsorted(sampled.places[order], places)]
        self.failed = int((~good).sum())
        self.partly = int((~seen["whole"].to_numpy()[good]).sum())
        self._strata, self._tokens, self._places = strata[good], seen["tokens"].to_numpy()[good], places[good]

    def __len__(self) -> int:
        return len(self._places)

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return the rows of a table of the task for documents with a verdict, with their shards."""
        return self._rows(name, schema, self._places)

    def verdicts(self, rows: pa.Table, hits: np.ndarray, units: np.ndarray | None = None) -> Verdicts:
        """Add up hits by document."""
        documents = np.searchsorted(self._places, _places(rows))
        sizes = self._tokens if units is None else _sums(documents, units, len(self))
        return Verdicts(strata=self._strata, tokens=sizes, hits=_sums(documents, hits, len(self)))

    def records(self, question: Question, version: str) -> list[Metric]:
        """Return the numbers of sampled documents without a verdict, and with a verdict on a part."""
        record = partial(
            count, question.metric, scope=Scope(), unit="documents", n=len(self) + self.failed, version=version
        )
        return [record("judge_failed", self.failed), record("judge_partly", self.partly)]

    def warnings(self, question: Question, sampled: Sampled, subject: str) -> list[str]:
        """Return the user's warnings about the sample."""
        warnings = []
        if self.failed:
            warnings.append(f"{subject}: the judge had no answer for {self.failed:,} of the sampled documents")
        if sampled.plan.wanted > question.most:
            warnings.append(
                f"{subject}: {sampled.plan.wanted:,} documents would have to be judged for intervals of"
                f" +-{question.half_width:g}; {subject}.most_judged allows {question.most:,}:"
                f" expect +-{sampled.plan.half_width:.2g}"
            )
        elif unseen := int((sampled.plan.counts == 0).sum()):
            warnings.append(
                f"{subject}: {subject}.most_judged allows {question.most:,} documents, too few for {unseen:,} of the"
                f" {len(sampled.plan.counts):,} strata: expect +-{sampled.plan.half_width:.2g}"
            )
        return warnings

    def _rows(self, name: str, schema: pa.Schema, places: np.ndarray) -> pa.Table:
        """Return the rows of some documents: a task answers for all copies of a part."""
        table = self._result.table(name, pa.schema([*schema, ("shard", pa.int32())]))
        return table.filter(pa.array(np.isin(_places(table), places)))


def _places(table: pa.Table) -> np.ndarray:
    return places_of(table["shard"].to_numpy(), table["row"].to_numpy())


def judged_findings(judge: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a judge's findings as rows of the manifest's table."""
    size = rows.num_rows
    columns = {name: rows[name] for name in ("class", "shard", "row", "start", "end", "score")}
    fixed = {
        "detector": [judge] * size,
        "tier": ["judged"] * size,
        "reserved": np.zeros(size, bool),
        "hmac": pa.nulls(size, pa.string()),
    }
    return pa.table(columns | fixed).select(schema.names).cast(schema)
