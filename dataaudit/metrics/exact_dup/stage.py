"""``exact_dup_rate``: documents whose normalised text was seen before in the manifest's order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.texts import DIGEST_BYTES, normal_digests
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.stages.base import Context, StageDefaults
from dataaudit.stages.groups import Groups
from dataaudit.stages.partial import Partial, TableShape, group

KEYS = "keys"
"""Name of the keyed table."""
_SHAPES = {
    "exact_dup": TableShape(keys={"source": pa.string()}, sums=("documents", "duplicates", "duplicates_in_split"))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDup(StageDefaults):
    """Emits a 128-bit digest of every document's normal form; the link step finds those that recur.

    The order is the manifest's: by (split, uri), then by row. ``rate`` counts a document when an earlier one
    anywhere in the dataset has the same normal form, ``within_split_rate`` when an earlier one of its own
    split has.
    """

    name: ClassVar[str] = "exact_dup"
    version: ClassVar[str] = "1"
    emits: ClassVar[Mapping[str, pa.Schema]] = {
        KEYS: pa.schema([("key", pa.binary(DIGEST_BYTES)), ("row", pa.int64()), ("source", pa.string())])
    }

    def shapes(self) -> Mapping[str, TableShape]:
        """Counts by source; ``map`` counts documents, the link step adds the duplicates."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count the documents."""
        ones = np.ones(len(batch), dtype=np.int64)
        zeros = np.zeros(len(batch), dtype=np.int64)
        table = pa.table(
            {
                "source": batch.sources().cast(pa.string()),
                "documents": ones,
                "duplicates": zeros,
                "duplicates_in_split": zeros,
            }
        )
        return {"exact_dup": group(_SHAPES["exact_dup"], table)}

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return the digest of every document's normal form, with its row and source."""
        digests = normal_digests(batch.texts)
        keys = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(DIGEST_BYTES), len(batch), [None, pa.py_buffer(np.ascontiguousarray(digests))]
        )
        rows = {"key": keys, "row": pa.array(batch.rows), "source": batch.sources().cast(pa.string())}
        return {KEYS: pa.table(rows)}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the rates of the scope and of each source."""
        table = partial["exact_dup"]
        groups = Groups.of(table, context.scope, self.version)
        documents, duplicates, in_split = (groups.sums(table, name) for name in _SHAPES["exact_dup"].sums)
        metrics = [
            groups.ratios("exact_dup_rate", "rate", duplicates, documents),
            groups.counts("exact_dup_rate", "documents", duplicates, documents, "documents"),
        ]
        if context.scope.split is not None:
            metrics.append(groups.ratios("exact_dup_rate", "within_split_rate", in_split, documents))
        return MetricRows.joined(metrics)

    def shard_columns(self, partial: Partial) -> dict[str, float | int | None]:
        """Fill exact_dup_rate."""
        table = partial["exact_dup"]
        documents, duplicates = (sum(table[name].to_pylist()) for name in ("documents", "duplicates"))
        return {"exact_dup_rate": duplicates / documents if documents else None}
