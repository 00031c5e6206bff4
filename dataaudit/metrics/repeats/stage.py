"""``doc_repeat_hotspots``: spans of 50 words and more that many training documents hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.repeats.definition import METRIC
from dataaudit.scan.annotators import TOKENS, WORDS, num_tokens
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.kernels.winnow import winnow
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

FINGERPRINTS = "fingerprints"
"""Name of the keyed table."""
KEY_BYTES = 8
FINGERPRINT_ROWS = pa.schema(
    [
        ("key", pa.binary(KEY_BYTES)),
        ("row", pa.int64()),
        ("position", pa.uint32()),
        ("windows", pa.uint8()),
        ("offset", pa.uint8()),
    ]
)
"""Keyed rows of fingerprints: ``windows`` windows, from word ``position`` on, selected it; it begins ``offset`` words
after the first of them."""
_SHAPES = {
    "repeats": TableShape(
        keys={"source": pa.string()}, sums=("documents", "tokens", "repeated_documents", "repeated_tokens")
    ),
    "hotspots": TableShape(keys={"source": pa.string(), "hotspot": pa.int64()}, sums=("documents", "occurrences")),
}


def hash_keys(values: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return uint64[n] as keys, low byte first: only the low bytes of selected fingerprints are evenly spread."""
    data = np.ascontiguousarray(values, dtype="<u8")
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), len(values), [None, pa.py_buffer(data)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats(StageDefaults):
    """Emits the winnowed fingerprints of every training document; the link step finds the spans that recur."""

    min_documents: int = 20
    """Least number of documents that hold a span; 2 or more."""
    max_memory_bytes: int = 2_147_483_648
    """Memory for telling hotspots apart, on the driver. When it would take more, ``min_documents`` rises until it does
    not, and ``floor`` says so."""
    index: bool = False
    """Whether all fingerprints are kept beside the manifest, so that text can be looked up later."""

    name: ClassVar[str] = "repeats"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS, WORDS)
    training_only: ClassVar[bool] = True
    emits: ClassVar[Mapping[str, pa.Schema]] = {FINGERPRINTS: FINGERPRINT_ROWS}

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.min_documents < 2:
            raise ValueError(f"min_documents: expected 2 or more, found {self.min_documents}")
        if self.max_memory_bytes < 1000:
            raise ValueError(f"max_memory_bytes: expected 1000 or more, found {self.max_memory_bytes}")

    def shapes(self) -> Mapping[str, TableShape]:
        """Totals by source, which the link step adds to, and the share of each hotspot in a source."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count documents and tokens."""
        zeros = np.zeros(len(batch), dtype=np.int64)
        table = pa.table(
            {
                "source": batch.sources().cast(pa.string()),
                "documents": zeros + 1,
                "tokens": num_tokens(batch),
                "repeated_documents": zeros,
                "repeated_tokens": zeros,
            }
        )
        return {"repeats": group(_SHAPES["repeats"], table), "hotspots": _SHAPES["hotspots"].schema().empty_table()}

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return the fingerprints of every document."""
        prints = winnow(batch.get(WORDS).hashes, batch.get(WORDS).offsets)
        rows = np.repeat(batch.rows, np.diff(prints.bounds))
        columns = [hash_keys(prints.values), rows, prints.positions, prints.windows, prints.offsets]
        return {FINGERPRINTS: pa.table(columns, schema=FINGERPRINT_ROWS)}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the counts and the shares of the scope and of each source."""
        repeats, spots = partial["repeats"], partial["hotspots"]
        groups = Groups.of(repeats, context.scope, self.version)
        names = ("documents", "tokens", "repeated_documents", "repeated_tokens")
        documents, tokens, repeated, repeated_tokens = (groups.sums(repeats, name) for name in names)
        whole = spots.group_by("hotspot", use_threads=False).aggregate([("documents", "sum")])["documents_sum"]
        sources = groups.places(spots)
        number, largest = np.bincount(sources, minlength=len(groups)), np.zeros(len(groups), dtype=np.int64)
        np.maximum.at(largest, sources, spots["documents"].to_numpy())
        number[0], largest[0] = len(whole), pc.max(whole).as_py() or 0
        return MetricRows.joined(
            [
                groups.counts(METRIC, "hotspots", number, documents, "hotspots"),
                groups.counts(METRIC, "documents", repeated, documents, "documents"),
                groups.counts(METRIC, "occurrences", groups.sums(spots, "occurrences"), documents, "occurrences"),
                groups.counts(METRIC, "tokens", repeated_tokens, tokens, "tokens"),
                groups.counts(METRIC, "largest", largest, documents, "documents"),
                groups.ratios(METRIC, "token_share", repeated_tokens, tokens),
                groups.ratios(METRIC, "largest_share", largest, documents),
            ]
        )

    def shard_columns(self, partial: Partial) -> dict[str, float | int | None]:
        """Fill repeat_token_share."""
        tokens, repeated = (sum(partial["repeats"][name].to_pylist()) for name in ("tokens", "repeated_tokens"))
        return {"repeat_token_share": repeated / tokens if tokens else None}
