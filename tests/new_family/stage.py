"""``question_rate``: documents with a question mark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from dataaudit.metrics.questions.definition import METRIC

from dataaudit.manifest.metric import Metric, ratio
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.partial import Partial, TableShape, group

SHAPE = TableShape(keys={"source": pa.string()}, sums=("documents", "questions"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions(StageDefaults):
    """Counts documents that hold a mark."""

    mark: str = "?"
    """What is looked for."""

    name: ClassVar[str] = "questions"
    version: ClassVar[str] = "1"

    def shapes(self) -> Mapping[str, TableShape]:
        """Counts by source."""
        return {"questions": SHAPE}

    def map(self, batch: DocBatch) -> Partial:
        """Count the documents."""
        table = {
            "source": batch.sources().cast(pa.string()),
            "documents": np.ones(len(batch), dtype=np.int64),
            "questions": pc.match_substring(batch.texts, self.mark).cast(pa.int64()),
        }
        return {"questions": group(SHAPE, pa.table(table))}

    def finalize(self, partial: Partial, context: Context) -> list[Metric]:
        """Return the rate of the scope and of each source."""
        rows = partial["questions"].to_pylist()
        whole = {name: sum(row[name] for row in rows) for name in SHAPE.sums}
        scopes = [(context.scope, whole), *((replace(context.scope, source=row["source"]), row) for row in rows)]
        return [
            ratio(METRIC, "rate", row["questions"], row["documents"], scope=scope, unit="ratio", version=self.version)
            for scope, row in scopes
        ]

    def shard_columns(self, partial: Partial) -> Mapping[str, Any]:
        """Fill none: the columns of version 1 are frozen, so a new family has none."""
        del partial
        return {}
