"""``pad_fraction``: how much of what a model is fed would be padding, for some context lengths and ways to batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric import Metric, Scope, ratio, rounded
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.padding.definition import METRIC
from dataaudit.scan.annotators import TOKENS, num_tokens
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.kernels.lengths import batched_positions, packed_bins
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

_SHAPES = {
    "pieces": TableShape(keys={"context": pa.int64(), "length": pa.int64()}, sums=("pieces",)),
    "totals": TableShape(keys={"source": pa.string(), "context": pa.int64()}, sums=("documents", "tokens", "pieces")),
}
_MAX_CONTEXT = 131_072
_MAX_CONTEXTS = 8
_MAX_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding(StageDefaults):
    """Counts the pieces that documents are cut into at each context length: whole ones and a rest.

    Four ways to fill sequences of a context length, none of which drops a token: ``padded``, ``padded_batch``,
    ``packed`` and ``concatenated``; see ``dataaudit explain pad_fraction``.
    """

    contexts: tuple[int, ...] = (2048, 4096, 8192)
    """Context lengths in tokens, ascending; at most 8, each from 16 to 131072."""
    batch: int = 8
    """Sequences of a batch that is padded to its longest."""
    separator: int = 1
    """Tokens put between documents where they are concatenated."""

    name: ClassVar[str] = "padding"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS,)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 1 <= len(self.contexts) <= _MAX_CONTEXTS or list(self.contexts) != sorted(set(self.contexts)):
            raise ValueError(f"contexts: expected 1 to {_MAX_CONTEXTS} ascending lengths, found {list(self.contexts)}")
        if not all(16 <= context <= _MAX_CONTEXT for context in self.contexts):
            raise ValueError(f"contexts: expected lengths from 16 to {_MAX_CONTEXT}, found {list(self.contexts)}")
        if not 1 <= self.batch <= _MAX_BATCH:
            raise ValueError(f"batch: expected 1 to {_MAX_BATCH}, found {self.batch}")
        if not 0 <= self.separator <= 16:
            raise ValueError(f"separator: expected 0 to 16, found {self.separator}")

    def shapes(self) -> Mapping[str, TableShape]:
        """Pieces by context and length over all sources, and totals by source and context."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Cut the documents of a batch at every context length."""
        tokens = num_tokens(batch)
        num_groups = len(batch.source_names)
        documents = np.bincount(batch.source_codes, minlength=num_groups)
        sums = _add(batch.source_codes, tokens, num_groups)
        pieces, totals = [], []
        for context in self.contexts:
            whole, rest = tokens // context, tokens % context
            lengths, counts = np.unique(rest[rest > 0], return_counts=True)
            full = int(whole.sum())
            if full:
                lengths, counts = np.append(lengths, context), np.append(counts, full)
            columns = [np.full(len(lengths), context), lengths, counts]
            pieces.append(pa.table(columns, schema=_SHAPES["pieces"].schema()))
            number = _add(batch.source_codes, whole + (rest > 0), num_groups)
            by_source = [list(batch.source_names), np.full(num_groups, context), documents, sums, number]
            totals.append(pa.table(by_source, schema=_SHAPES["totals"].schema()))
        tables = {"pieces": pa.concat_tables(pieces), "totals": pa.concat_tables(totals)}
        return {name: group(_SHAPES[name], table) for name, table in tables.items()}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the fractions of the scope, and of each source those that need no other documents."""
        totals = partial["totals"]
        groups = Groups.of(totals, context.scope, self.version)
        metrics: list[Sequence[Metric]] = []
        for length in self.contexts:
            table = totals.filter(pc.equal(totals["context"], length))
            documents, tokens, pieces = (groups.sums(table, name) for name in ("documents", "tokens", "pieces"))
            filled = np.where(tokens > 0, tokens + self.separator * documents, 0)
            joined = -(-filled // length) * length
            metrics += [
                groups.ratios(METRIC, f"padded_{length}", pieces * length - tokens, pieces * length),
                groups.ratios(METRIC, f"concatenated_{length}", joined - filled, joined),
                self._together(partial["pieces"], int(tokens[0]), int(pieces[0]), length, context.scope),
            ]
        return MetricRows.joined(metrics)

    def _together(self, pieces: pa.Table, tokens: int, number: int, length: int, scope: Scope) -> list[Metric]:
        """Return the fractions that depend on which pieces share a sequence or a batch."""
        chosen = pieces.filter(pc.equal(pieces["context"], length)).sort_by("length")
        lengths, counts = chosen["length"].to_numpy(), chosen["pieces"].to_numpy()
        bins = packed_bins(lengths, counts, length)
        packed = self._fraction(f"packed_{length}", bins * length - tokens, bins * length, scope)
        stat = f"padded_batch_{length}"
        if not number:
            return [packed, self._fraction(stat, 0, 0, scope)]
        positions = batched_positions(lengths, counts, self.batch)
        padded = Metric(
            metric=METRIC,
            stat=stat,
            scope=scope,
            unit="ratio",
            value=rounded(max(0.0, 1 - tokens / positions)),
            n=number,
            denominator=round(positions),
            version=self.version,
        )
        return [packed, padded]

    def _fraction(self, stat: str, padding: int, positions: int, scope: Scope) -> Metric:
        return ratio(METRIC, stat, padding, positions, scope=scope, unit="ratio", version=self.version)

    def shard_columns(self, partial: Partial) -> dict[str, float | int | None]:
        """Nothing: a shard is no training set."""
        del partial
        return {}


def _add(groups: np.ndarray, values: np.ndarray, num_groups: int) -> np.ndarray:
    """Return int64[num_groups] sums, in integers."""
    sums = np.zeros(num_groups, dtype=np.int64)
    np.add.at(sums, groups, values)
    return sums
