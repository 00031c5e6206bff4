"""What asks a judge, and what it said of the documents of its sample, each with the stratum it was drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.link.judging import Verdicts
from dataaudit.link.sampling import Question, Sampled
from dataaudit.link.second_pass import SecondPassResult
from dataaudit.manifest.metric import Metric, Scope, count
from dataaudit.manifest.places import places_of

SEEN = pa.schema([("row", pa.int64()), ("tokens", pa.int64()), ("whole", pa.bool_()), ("failure", pa.string())])
"""A row a document: its tokens (of personal data, where hits are counted by them: of what the judge saw, by its
bytes), whether the judge saw all of it, and why it has no verdict; empty when it has one."""
SECONDS = 20.0
"""Time for a document on the mean: of up to eight windows, for a large model on a busy core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """What tasks that ask judges share: they take long, see texts alone, and say which documents have a verdict."""

    seconds: ClassVar[float] = SECONDS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    emits: ClassVar[Mapping[str, pa.Schema]] = MappingProxyType({})
    tokenizer: str
    """Digest of what decides the tokens of ``seen``."""


def seen_table(batch: DocBatch, tokens: np.ndarray, whole: np.ndarray, failures: Sequence[str | None]) -> pa.Table:
    """Return the table :data:`SEEN` of a batch."""
    return pa.table([batch.rows, tokens, whole, [str(failure or "") for failure in failures]], schema=SEEN)


class Answers:
    """The documents that have a verdict, in the manifest's order, and how many have none.

    Args:
        result: What the task found.
        sampled: What it was to look at.
    """

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
        """Return the rows of a table of the task's that are of documents with a verdict, with their shards."""
        return self._rows(name, schema, self._places)

    def verdicts(self, rows: pa.Table, hits: np.ndarray, units: np.ndarray | None = None) -> Verdicts:
        """Add up hits by document.

        Args:
            rows: shard, row, of :meth:`table`.
            hits: int64[n] of each row.
            units: int64[n] what the hits of each row are counted in; the documents' tokens when left out.
        """
        places = np.searchsorted(self._places, _places(rows))
        totals = np.zeros(len(self), dtype=np.int64)
        np.add.at(totals, places, hits)
        sizes = self._tokens
        if units is not None:
            sizes = np.zeros(len(self), dtype=np.int64)
            np.add.at(sizes, places, units)
        return Verdicts(strata=self._strata, tokens=sizes, hits=totals)

    def records(self, question: Question, version: str) -> list[Metric]:
        """Return how many of the sample have no verdict, and of how many only a part was looked at."""
        numbers = (("judge_failed", self.failed), ("judge_partly", self.partly))
        return [
            count(
                question.metric,
                stat,
                number,
                scope=Scope(),
                unit="documents",
                n=len(self) + self.failed,
                version=version,
            )
            for stat, number in numbers
        ]

    def warnings(self, question: Question, sampled: Sampled, subject: str) -> list[str]:
        """Return what the user should be told of the sample."""
        told = []
        if self.failed:
            told.append(f"{subject}: the judge had no answer for {self.failed:,} of the sampled documents")
        if sampled.plan.wanted > question.most:
            told.append(
                f"{subject}: {sampled.plan.wanted:,} documents would have to be judged for intervals of"
                f" +-{question.half_width:g}; {subject}.most_judged allows {question.most:,}:"
                f" expect +-{sampled.plan.half_width:.2g}"
            )
        elif unseen := int((sampled.plan.counts == 0).sum()):
            told.append(
                f"{subject}: {subject}.most_judged allows {question.most:,} documents, too few for {unseen:,} of the"
                f" {len(sampled.plan.counts):,} strata: expect +-{sampled.plan.half_width:.2g}"
            )
        return told

    def _rows(self, name: str, schema: pa.Schema, places: np.ndarray) -> pa.Table:
        """Return the rows of some documents: a task's answer is for all copies of a part, the sample for some."""
        table = self._result.table(name, pa.schema([*schema, ("shard", pa.int32())]))
        return table.filter(pa.array(np.isin(_places(table), places)))


def _places(table: pa.Table) -> np.ndarray:
    return places_of(table["shard"].to_numpy(), table["row"].to_numpy())


def judged_findings(judge: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return what a judge found as rows of the manifest's findings.

    Args:
        judge: Its name.
        rows: class, shard, row, start, end, score.
        schema: Of the manifest's table.
    """
    size = rows.num_rows
    columns = {name: rows[name] for name in ("class", "shard", "row", "start", "end", "score")}
    fixed = {
        "detector": [judge] * size,
        "tier": ["judged"] * size,
        "reserved": np.zeros(size, bool),
        "hmac": pa.nulls(size, pa.string()),
    }
    return pa.table(columns | fixed).select(schema.names).cast(schema)
