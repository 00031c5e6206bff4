"""``question_rate``: documents with a question mark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from dataaudit.metrics.questions.definition import METRIC

from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
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

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the rate of the scope and of each source."""
        table = partial["questions"]
        groups = Groups.of(table, context.scope, self.version)
        return groups.ratios(METRIC, "rate", groups.sums(table, "questions"), groups.sums(table, "documents"))

    def shard_columns(self, partial: Partial) -> Mapping[str, Any]:
        """Fill none: a column is part of the manifest's format."""
        del partial
        return {}
