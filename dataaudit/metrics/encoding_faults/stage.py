"""``encoding_faults``: mojibake, characters that no text has, escapes, markup and encoded data left in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.encoding_faults.definition import FAULTS, METRIC
from dataaudit.scan.annotators import WORDS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.kernels.faults import BASE64, KINDS, LINES, MARKUP_LINES, count_faults
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

_COLUMNS = (
    "text_lines",
    "markup_lines",
    "markup_documents",
    "encoded_documents",
    "wordless_documents",
    *(f"{kind}_documents" for kind in KINDS),
    *(f"{kind}_bytes" for kind in KINDS),
)
_MANY = 4
"""A document is markup, or encoded, when at least a quarter of its lines, or bytes, are."""
_SHAPES = {"faults": TableShape(keys={"source": pa.string()}, sums=("documents", "bytes", *_COLUMNS))}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingFaults(StageDefaults):
    """Counts, per source, what a wrong decoder or a careless extractor left in texts.

    For each kind it counts the documents that hold some, and its bytes. A document is markup when a quarter of its
    lines, blank lines aside, begin or end with a tag, and encoded when a quarter of its bytes are base64. Where no
    document has a character that is seen, nothing could be found: there are documents without words, and no shares.
    """

    name: ClassVar[str] = "encoding_faults"
    version: ClassVar[str] = "3"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)

    def shapes(self) -> Mapping[str, TableShape]:
        """Documents, bytes and lines by source."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count a batch."""
        offsets, data = text_buffers(batch.texts)
        counts = count_faults(data, offsets)
        kinds = counts[:, : len(KINDS)]
        sizes, lines, markup = batch.num_bytes(), counts[:, LINES], counts[:, MARKUP_LINES]
        is_markup = (markup > 0) & (_MANY * markup >= lines)
        is_encoded = (counts[:, BASE64] > 0) & (_MANY * counts[:, BASE64] >= sizes)
        ones, is_wordless = np.ones(len(batch), dtype=np.int64), batch.get(WORDS).num_words() == 0
        columns = np.column_stack([ones, sizes, lines, markup, is_markup, is_encoded, is_wordless, kinds > 0, kinds])
        sums = np.zeros((len(batch.source_names), columns.shape[1]), dtype=np.int64)
        np.add.at(sums, batch.source_codes, columns.astype(np.int64))
        shape = _SHAPES["faults"]
        table = {"source": list(batch.source_names), **dict(zip(shape.sums, sums.T, strict=True))}
        return {"faults": group(shape, pa.table(table, schema=shape.schema()))}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return shares of documents and of bytes for each kind, and the share of lines that are markup."""
        table = partial["faults"]
        groups = Groups.of(table, context.scope, self.version)
        wholes = {name: groups.sums(table, name) for name in ("documents", "bytes", "text_lines")}
        seen = wholes["text_lines"] > 0

        def whole(name: str, of: str) -> np.ndarray:
            return wholes[of] if name == "wordless_documents" else np.where(seen, wholes[of], 0)

        return MetricRows.joined(
            [groups.ratios(METRIC, name, groups.sums(table, name), whole(name, of)) for name, of in FAULTS.items()]
        )

    def shard_columns(self, partial: Partial) -> dict[str, int | None]:
        """Fill the counts; where no line has a visible character, the counts of faults are null."""
        sums: dict[str, int | None] = {name: sum(partial["faults"][name].to_pylist()) for name in _COLUMNS}
        known = _COLUMNS if sums["text_lines"] else ("text_lines", "wordless_documents")
        return {name: value if name in known else None for name, value in sums.items()}
