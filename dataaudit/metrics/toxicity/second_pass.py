"""What shows a sample of documents to Detoxify, and keeps what it says: scores of each document and class."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.detectors.toxicity.judge import ToxicityJudge
from dataaudit.detectors.toxicity.judge_model import JudgeModel
from dataaudit.link.answers import JudgeTask, seen_table
from dataaudit.link.second_pass import Encode

SCORES = pa.schema([("row", pa.int64()), ("bytes", pa.int64()), ("class", pa.string()), ("score", pa.float64())])
"""A row a document and class: its probability, and the document's size. Documents without a verdict have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxicityTask(JudgeTask):
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
        return {"seen": seen_table(batch, tokens, judged.whole, judged.failures), "scores": scores}
