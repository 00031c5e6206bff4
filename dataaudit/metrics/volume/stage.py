"""``documents``, ``bytes``, ``tokens``, ``source_mix_share``: how much there is, and of what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial as bind
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.manifest.metric import Metric, ratio
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.scan.annotators import TOKENS, num_tokens
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.tokens import TokenBatch
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

_COUNTS = ("documents", "bytes", "tokens", "empty", "with_nul")
_SHARE = "source_mix_share"
_ENCODED = ("documents", "bytes", "sampled", "differing")
_SHAPES = {
    "volume": TableShape(keys={"source": pa.string()}, sums=_COUNTS),
    "encoding": TableShape(keys={"encoder": pa.string()}, sums=_ENCODED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume(StageDefaults):
    """Counts documents, UTF-8 bytes and tokens (without special tokens) per source.

    Also kept: documents without any text, those that hold a NUL character, and which encoder counted how many
    documents and bytes.
    """

    name: ClassVar[str] = "volume"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS,)

    def shapes(self) -> Mapping[str, TableShape]:
        """Counts by source, and counts by encoder."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count a batch."""
        num_bytes = batch.num_bytes()
        ones, with_nul = np.ones(len(batch), dtype=np.int64), _with_nul(batch)
        columns = (ones, num_bytes, num_tokens(batch), num_bytes == 0, with_nul)
        numbers = {name: pa.array(column.astype(np.int64)) for name, column in zip(_COUNTS, columns, strict=True)}
        table = pa.table({"source": batch.sources().cast(pa.string()), **numbers})
        return {
            "volume": group(_SHAPES["volume"], table),
            "encoding": group(_SHAPES["encoding"], _encoding(batch.get(TOKENS), num_bytes)),
        }

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return counts of the scope and its sources, and each source's share of the tokens."""
        table = partial["volume"]
        groups = Groups.of(table, context.scope, self.version)
        sums = {name: groups.sums(table, name) for name in _COUNTS}
        documents, tokens = sums["documents"], sums["tokens"]
        whole = np.full(len(groups) - 1, tokens[0])
        return MetricRows.joined(
            [
                groups.counts("documents", "count", documents, documents, "documents"),
                groups.counts("documents", "empty", sums["empty"], documents, "documents"),
                groups.counts("documents", "with_nul", sums["with_nul"], documents, "documents"),
                groups.counts("bytes", "count", sums["bytes"], documents, "bytes"),
                groups.counts("tokens", "count", tokens, documents, "tokens"),
                groups.sources.ratios(_SHARE, "share", tokens[1:], whole),
                self._declared(set(groups.sources.names.to_pylist()), int(tokens[0]), context),
            ]
        )

    def _declared(self, present: set[str], total: int, context: Context) -> list[Metric]:
        """Return the declared share of each source of a training split, and a share of 0 for absent sources."""
        whole, metrics = sum(context.mixture.values()), []
        declared = bind(Metric, metric=_SHARE, stat="declared", unit="ratio", version=self.version)
        absent = bind(ratio, _SHARE, "share", 0, total, unit="ratio", version=self.version)
        for source, weight in sorted(context.mixture.items()) if whole else ():
            scope = replace(context.scope, source=source)
            metrics.append(declared(scope=scope, value=weight / whole))
            if source not in present:
                metrics.append(absent(scope=scope))
        return metrics

    def shard_columns(self, partial: Partial) -> dict[str, float | int | None]:
        """Fill documents, bytes and tokens."""
        table = partial["volume"]
        return {name: sum(table[name].to_pylist()) for name in ("documents", "bytes", "tokens")}


def _with_nul(batch: DocBatch) -> np.ndarray:
    """Return bool[n]: documents that hold U+0000, which many programs take for the end of a text."""
    with_nul = np.zeros(len(batch), dtype=bool)
    offsets = np.flatnonzero(batch.byte_values() == 0)
    with_nul[np.searchsorted(batch.byte_offsets(), offsets, side="right") - 1] = True
    return with_nul


def _encoding(tokens: TokenBatch, num_bytes: np.ndarray) -> pa.Table:
    """Return the documents and bytes of each encoder in a batch; the sample belongs to the fast encoder."""
    slow = tokens.by_reference
    both = (("gigatoken", ~slow, tokens.sampled, tokens.differing), ("reference", slow, 0, 0))
    rows = [
        {"encoder": name, "documents": int(mask.sum()), "bytes": int(num_bytes[mask].sum())}
        | {"sampled": sampled, "differing": differing}
        for name, mask, sampled, differing in both
        if mask.any()
    ]
    return pa.Table.from_pylist(rows, schema=_SHAPES["encoding"].schema())
