"""``seq_len_p50_p95`` and ``bytes_per_token``: how long documents are, in tokens, and how dense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial as bind
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.annotators.tokens import TOKENS, num_tokens
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.kernels.lengths import EXACT_BELOW, bucket_bounds, quantile_bounds
from dataaudit.manifest.metric import Metric, Scope, ratio
from dataaudit.stages.base import Context, StageDefaults
from dataaudit.stages.partial import Partial, TableShape, group

LENGTH_STATS = {f"p{percent}": Fraction(percent, 100) for percent in (1, 5, 25, 50, 75, 95, 99)}
DENSITY_STATS = {f"p{percent}": Fraction(percent, 100) for percent in (1, 50, 99)}
_SCALE_BITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(StageDefaults):
    """Keeps the distribution of tokens per document and of bytes per token, per source.

    Lengths are exact value-to-count maps until a source has more than ``max_distinct`` distinct ones, then
    fixed logarithmic buckets (relative error of a reported value at most 0.4 %). Bytes per token of a document
    is bucketed from the start, as the integer ``bytes * 2^20 // tokens``; documents without tokens have none.
    """

    max_distinct: int = 100_000
    """Distinct lengths of a source up to which its percentiles are exact."""

    name: ClassVar[str] = "lengths"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS,)

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            ValueError: ``max_distinct`` is below the values that buckets keep apart anyway.
        """
        if self.max_distinct < EXACT_BELOW:
            raise ValueError(f"max_distinct: expected at least {EXACT_BELOW}, found {self.max_distinct}")

    def shapes(self) -> Mapping[str, TableShape]:
        """Lengths, densities, and totals by source."""
        bounds = {"source": pa.string(), "low": pa.int64(), "high": pa.int64()}
        settle = bind(settle_lengths, max_distinct=self.max_distinct)
        return {
            "lengths": TableShape(keys=bounds, sums=("documents",), settle=settle),
            "densities": TableShape(keys=bounds, sums=("documents",)),
            "totals": TableShape(keys={"source": pa.string()}, sums=("bytes", "tokens"), maxima=("longest",)),
        }

    def map(self, batch: DocBatch) -> Partial:
        """Count the lengths and densities of one batch."""
        shapes = self.shapes()
        sources = batch.sources().cast(pa.string())
        tokens, num_bytes = num_tokens(batch), batch.num_bytes()
        ones = np.ones(len(batch), dtype=np.int64)
        filled = tokens > 0
        low, high = bucket_bounds((num_bytes[filled] << _SCALE_BITS) // tokens[filled])
        tables = {
            "lengths": {"source": sources, "low": tokens, "high": tokens, "documents": ones},
            "densities": {
                "source": sources.filter(pa.array(filled)),
                "low": low,
                "high": high,
                "documents": ones[filled],
            },
            "totals": {"source": sources, "bytes": num_bytes, "tokens": tokens, "longest": tokens},
        }
        return {name: group(shapes[name], pa.table(columns)) for name, columns in tables.items()}

    def finalize(self, partial: Partial, context: Context) -> list[Metric]:
        """Return percentiles and bytes per token of the scope and of each source."""
        metrics = self._metrics(partial, context.scope)
        for source in partial["totals"]["source"].to_pylist():
            metrics += self._metrics(_of_source(partial, source), replace(context.scope, source=source))
        return metrics

    def _metrics(self, partial: Partial, scope: Scope) -> list[Metric]:
        longest = max(partial["totals"]["longest"].to_pylist(), default=None)
        metrics = self._quantiles("seq_len_p50_p95", "tokens", partial["lengths"], LENGTH_STATS, 0, scope)
        documents = sum(partial["lengths"]["documents"].to_pylist())
        metrics.append(self._record("seq_len_p50_p95", "max", "tokens", longest, documents, scope))
        total_bytes, tokens = (sum(partial["totals"][name].to_pylist()) for name in ("bytes", "tokens"))
        metrics.append(
            ratio(
                "bytes_per_token",
                "ratio",
                total_bytes,
                tokens,
                scope=scope,
                unit="bytes/token",
                version=self.version,
            )
        )
        densities = partial["densities"]
        return metrics + self._quantiles("bytes_per_token", "bytes/token", densities, DENSITY_STATS, _SCALE_BITS, scope)

    def _quantiles(
        self,
        metric: str,
        unit: str,
        table: pa.Table,
        stats: Mapping[str, Fraction],
        scale_bits: int,
        scope: Scope,
    ) -> list[Metric]:
        low, high, counts = _ordered(table)
        documents = int(counts.sum())
        if documents == 0:
            return [self._record(metric, stat, unit, None, 0, scope) for stat in stats]
        records = []
        found = quantile_bounds(low, high, counts, list(stats.values()))
        for stat, (first, last) in zip(stats, found, strict=True):
            if first == last and not scale_bits:
                records.append(self._record(metric, stat, unit, first, documents, scope))
                continue
            bounds = (first / 2**scale_bits, (last + bool(scale_bits)) / 2**scale_bits)
            records.append(
                Metric(
                    metric=metric,
                    stat=stat,
                    scope=scope,
                    unit=unit,
                    value=sum(bounds) / 2,
                    low=bounds[0],
                    high=bounds[1],
                    confidence=1.0,
                    n=documents,
                    denominator=documents,
                    method="estimated",
                    version=self.version,
                )
            )
        return records

    def _record(self, metric: str, stat: str, unit: str, value: float | None, n: int, scope: Scope) -> Metric:
        present = value is not None and n > 0
        return Metric(
            metric=metric,
            stat=stat,
            scope=scope,
            unit=unit,
            value=value if present else None,
            n=n,
            denominator=n,
            status="ok" if present else "not_evaluated",
            reason="" if present else "empty_denominator",
            version=self.version,
        )

    def shard_columns(self, partial: Partial) -> dict[str, float | int | None]:
        """Fill bytes_per_token, its median, and the length percentiles."""
        wanted = {
            ("bytes_per_token", "ratio"): "bytes_per_token",
            ("bytes_per_token", "p50"): "bytes_per_token_p50",
            ("seq_len_p50_p95", "p50"): "seq_len_p50",
            ("seq_len_p50_p95", "p95"): "seq_len_p95",
            ("seq_len_p50_p95", "max"): "seq_len_max",
        }
        records = {(record.metric, record.stat): record.value for record in self._metrics(partial, Scope())}
        columns: dict[str, float | int | None] = {name: records[key] for key, name in wanted.items()}
        if columns["seq_len_max"] is not None:
            columns["seq_len_max"] = int(columns["seq_len_max"])
        return columns


def _of_source(partial: Partial, source: str) -> Partial:
    return {name: table.filter(pc.equal(table["source"], source)) for name, table in partial.items()}


def _ordered(table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (low, high, counts) over all sources, ascending.

    One source may be bucketed and another exact: then everything is bucketed, so that bounds never overlap.
    """
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    if bool((high > low).any()):
        low, high = bucket_bounds(low)
    starts, where = np.unique(low, return_inverse=True)
    counts = np.bincount(where, weights=None, minlength=len(starts)) * 0
    np.add.at(counts, where, table["documents"].to_numpy())
    stops = np.zeros(len(starts), dtype=np.int64)
    np.maximum.at(stops, where, high)
    return starts, stops, counts


def settle_lengths(table: pa.Table, max_distinct: int) -> pa.Table:
    """Bucket every source that has over ``max_distinct`` distinct values, or that was bucketed before.

    Columns: source, low, high and counts. Commutes with merging: distinct values never become fewer, and a
    bucketed source is known by a bucket that is wider than one value.
    """
    wide = pc.greater(table["high"], table["low"])
    per_source = pa.table({"source": table["source"], "wide": wide}).group_by("source", use_threads=False)
    sizes = per_source.aggregate([("wide", "count"), ("wide", "any")])
    crowded = pc.or_(pc.greater(sizes["wide_count"], max_distinct), sizes["wide_any"])
    chosen = sizes.filter(crowded)["source"]
    if len(chosen) == 0:
        return table
    mask = pc.is_in(table["source"], chosen.combine_chunks())
    coarse, rest = table.filter(mask), table.filter(pc.invert(mask))
    low, high = bucket_bounds(coarse["low"].to_numpy())
    coarse = coarse.set_column(1, "low", pa.array(low)).set_column(2, "high", pa.array(high))
    return pa.concat_tables([rest, coarse])
