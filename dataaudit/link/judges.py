"""Second-pass tasks that show a sample of documents to the judges, and keep what these say: classes, scores, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.detectors.findings import Tier
from dataaudit.detectors.patterns.screen import PatternScreen
from dataaudit.detectors.pii.analyzer import PiiAnalyzer
from dataaudit.detectors.pii.analyzer_model import AnalyzerModel
from dataaudit.detectors.toxicity.judge import ToxicityJudge
from dataaudit.detectors.toxicity.judge_model import JudgeModel
from dataaudit.link.second_pass import Encode

SEEN = pa.schema([("row", pa.int64()), ("tokens", pa.int64()), ("whole", pa.bool_()), ("failure", pa.string())])
"""A row a document: its tokens (of personal data, where hits are counted by them: of what the judge saw, by its
bytes), whether the judge saw all of it, and why it has no verdict; empty when it has one."""
SCORES = pa.schema([("row", pa.int64()), ("bytes", pa.int64()), ("class", pa.string()), ("score", pa.float64())])
"""A row a document and class: its probability, and the document's size. Documents without a verdict have none."""

MARKS = pa.schema(
    [
        ("row", pa.int64()),
        ("class", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("score", pa.float64()),
    ]
)
"""A row a finding: its entity, where it is, how sure."""
OPINIONS = pa.schema(
    [("row", pa.int64()), ("class", pa.string()), ("candidates", pa.int64()), ("confirmed", pa.int64())]
)
"""A row a document and entity: candidates that the patterns alone are not sure of, and those that are confirmed."""
_DECISIVE = ("version", "sha256", "language", "min_score", "seed", "stretch", "overlap", "max_stretches", "window")
CONFIRMED = 0.5
"""Score from which on a candidate counts as confirmed."""
SECONDS = 20.0
"""Time for a document on the mean: of up to eight windows, for a large model on a busy core."""
MOST_ASKED = 100
"""Candidates of a document that are asked about, the first: each takes milliseconds, and a list may hold thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """What the tasks share: they take long, see texts alone, and say of each document whether it has a verdict."""

    seconds: ClassVar[float] = SECONDS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    emits: ClassVar[Mapping[str, pa.Schema]] = MappingProxyType({})
    tokenizer: str
    """Digest of what decides the tokens of ``seen``."""


def _seen(batch: DocBatch, tokens: np.ndarray, whole: np.ndarray, failures: Sequence[str | None]) -> pa.Table:
    """Return the table :data:`SEEN` of a batch."""
    return pa.table([batch.rows, tokens, whole, [str(failure or "") for failure in failures]], schema=SEEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxicityTask(_Asking):
    """SecondPassTask: asks Detoxify."""

    name: ClassVar[str] = "toxicity_judge"
    version: ClassVar[str] = "1"
    model: JudgeModel

    def decisive(self) -> dict[str, Any]:
        """Return what decides its verdicts: all of the model but what it reads, where it lies and what it runs on."""
        values = asdict(self.model)
        for name in ("languages", "path", "config_path", "device"):
            del values[name]
        return {**values, "tokenizer": self.tokenizer}

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``seen`` and ``scores`` of the documents."""
        del wanted
        judged = ToxicityJudge(self.model).judge(batch.texts)
        tokens = np.diff(encode(batch.texts).offsets)
        good = np.flatnonzero([failure is None for failure in judged.failures])
        classes = self.model.classes
        scores = pa.table(
            [
                np.repeat(batch.rows[good], len(classes)),
                np.repeat(batch.num_bytes()[good], len(classes)),
                list(classes) * len(good),
                judged.probabilities[good].astype(np.float64).round(4).reshape(-1),
            ],
            schema=SCORES,
        )
        return {"seen": _seen(batch, tokens, judged.whole, judged.failures), "scores": scores}


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiTask(_Asking):
    """SecondPassTask: asks presidio for all that it finds, and for its opinion of what the patterns are not sure of."""

    name: ClassVar[str] = "pii_judge"
    version: ClassVar[str] = "1"
    model: AnalyzerModel

    def decisive(self) -> dict[str, Any]:
        """Return what decides its findings; the digest stands for the spaCy model and the registry."""
        return {**{name: getattr(self.model, name) for name in _DECISIVE}, "tokenizer": self.tokenizer}

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``seen``, ``marks`` and ``opinions`` of the documents."""
        del wanted
        analyzer = PiiAnalyzer(self.model)
        found = analyzer.analyze(batch.texts)
        tokens = np.diff(encode(batch.texts).offsets) * found.analyzed // np.maximum(batch.num_bytes(), 1)
        names = pa.array(found.entities, pa.string()).take(pa.array(found.codes))
        marks = [batch.rows[found.documents], names, found.starts, found.ends, found.scores.astype(np.float64).round(4)]
        return {
            "seen": _seen(batch, tokens, found.whole, found.failures),
            "marks": pa.table(marks, schema=MARKS),
            "opinions": self._opinions(batch, analyzer),
        }

    def _opinions(self, batch: DocBatch, analyzer: PiiAnalyzer) -> pa.Table:
        """Ask presidio's own recognizers about the candidates; kinds that it has no recognizer for are left out."""
        held = PatternScreen(registry=self.model.registry).find(batch.byte_values(), batch.byte_offsets())
        unsure = np.flatnonzero((held.tiers != Tier.VALIDATED) & ~held.reserved)
        own = held.documents[unsure]
        asked = unsure[np.arange(len(unsure)) - np.searchsorted(own, own) < MOST_ASKED]
        entities = [held.entities[code] for code in held.codes[asked]]
        places = (held.documents[asked], held.starts[asked], held.ends[asked])
        scores = analyzer.confirm(batch.texts, *places, entities).peers
        known = np.flatnonzero(~np.isnan(scores))
        table = pa.table(
            {
                "row": batch.rows[places[0][known]],
                "class": pa.array(entities, pa.string()).take(pa.array(known)),
                "candidates": np.ones(len(known), np.int64),
                "confirmed": (scores[known] >= CONFIRMED).astype(np.int64),
            }
        )
        grouped = table.group_by(["row", "class"], use_threads=False).aggregate(
            [("candidates", "sum"), ("confirmed", "sum")]
        )
        return grouped.rename_columns(OPINIONS.names).cast(OPINIONS)
