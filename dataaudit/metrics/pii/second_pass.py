"""What shows a sample of documents to presidio, and keeps what it says: findings, and opinions of the patterns' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.detectors.findings import Tier
from dataaudit.detectors.patterns.screen import PatternScreen
from dataaudit.detectors.pii.analyzer import PiiAnalyzer
from dataaudit.detectors.pii.analyzer_model import AnalyzerModel
from dataaudit.link.answers import JudgeTask, seen_table
from dataaudit.link.second_pass import Encode

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
MOST_ASKED = 100
"""Candidates of a document that are asked about, the first: each takes milliseconds, and a list may hold thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiTask(JudgeTask):
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
            "seen": seen_table(batch, tokens, found.whole, found.failures),
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
