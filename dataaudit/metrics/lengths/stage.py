"""``seq_len_p50_p95`` and ``bytes_per_token``: how long documents are, in tokens, and how dense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial as bind
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import is_new
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.scan.annotators import TOKENS, num_tokens
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.kernels.lengths import EXACT_BELOW, bucket_bounds, quantile_bounds, quantile_places
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

LENGTH_STATS = {f"p{percent}": Fraction(percent, 100) for percent in (1, 5, 25, 50, 75, 95, 99)}
DENSITY_STATS = {f"p{percent}": Fraction(percent, 100) for percent in (1, 50, 99)}
_SCALE_BITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(StageDefaults):
    """Keeps the distribution of tokens per document and of bytes per token, per source.

    Lengths are exact value-to-count maps until a source has more than ``max_distinct`` distinct lengths, then
    fixed logarithmic buckets (relative error of a reported value at most 0.4 %). Bytes per token of a document
    is bucketed from the start, as the integer ``bytes * 2^20 // tokens``; documents without tokens have none.
    """

    max_distinct: int = 100_000
    """Distinct lengths of a source up to which its percentiles are exact."""

    name: ClassVar[str] = "lengths"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS,)

    def __post_init__(self) -> None:
        """Check the parameters."""
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
        """Count the lengths and densities of a batch."""
        shapes = self.shapes()
        sources = batch.sources().cast(pa.string())
        tokens, num_bytes = num_tokens(batch), batch.num_bytes()
        ones = np.ones(len(batch), dtype=np.int64)
        filled = tokens > 0
        dense = sources.filter(pa.array(filled))
        low, high = bucket_bounds((num_bytes[filled] << _SCALE_BITS) // tokens[filled])
        tables = {
            "lengths": {"source": sources, "low": tokens, "high": tokens, "documents": ones},
            "densities": {"source": dense, "low": low, "high": high, "documents": ones[filled]},
            "totals": {"source": sources, "bytes": num_bytes, "tokens": tokens, "longest": tokens},
        }
        return {name: group(shapes[name], pa.table(columns)) for name, columns in tables.items()}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return percentiles and bytes per token of the scope and of each source."""
        totals = partial["totals"]
        groups = Groups.of(totals, context.scope, self.version)
        longest = np.full(len(groups), -1)
        np.maximum.at(longest, groups.places(totals), totals["longest"].to_numpy())
        longest[0] = longest.max()
        documents = groups.sums(partial["lengths"], "documents")
        bounds, exact = (longest,) * 3, documents >= 0
        num_bytes, tokens = (groups.sums(totals, name) for name in ("bytes", "tokens"))
        lengths, density, unit = "seq_len_p50_p95", "bytes_per_token", "bytes/token"
        return MetricRows.joined(
            [
                *self._quantiles(lengths, "tokens", partial["lengths"], LENGTH_STATS, 0, groups),
                groups.estimates(lengths, "max", "tokens", bounds, documents, confidence=1.0, exact=exact),
                groups.ratios(density, "ratio", num_bytes, tokens, unit),
                *self._quantiles(density, unit, partial["densities"], DENSITY_STATS, _SCALE_BITS, groups),
            ]
        )

    def _quantiles(
        self, metric: str, unit: str, table: pa.Table, stats: Mapping[str, Fraction], scale_bits: int, groups: Groups
    ) -> list[MetricRows]:
        """Return the quantiles of each group; the buckets of all sources are sorted once, and cut by source."""
        starts, stops, counts = _ordered(table)
        low, high, sources = table["low"].to_numpy(), table["high"].to_numpy(), groups.places(table)
        order = np.lexsort((low, sources))
        starts, stops = np.append(starts, low[order]), np.append(stops, high[order])
        sizes = np.bincount(sources, minlength=len(groups))
        sizes[0] = len(counts)
        counts = np.append(counts, table["documents"].to_numpy()[order])
        if len(counts) == 0:
            starts, stops = np.zeros((2, 1), dtype=np.int64)  # shown of no group
        documents = groups.sums(table, "documents")
        quantiles = quantile_places(counts, np.append(0, np.cumsum(sizes)), list(stats.values()))
        records = []
        for stat, rows in zip(stats, quantiles, strict=True):
            exact = (starts[rows] == stops[rows]) & (scale_bits == 0)
            shown = _bounds(starts[rows], stops[rows], scale_bits)
            records.append(groups.estimates(metric, stat, unit, shown, documents, confidence=1.0, exact=exact))
        return records

    def shard_columns(self, partial: Partial) -> dict[str, float | int | None]:
        """Fill bytes_per_token, its median, and the length percentiles."""
        totals = partial["totals"]
        num_bytes, tokens = (int(pc.sum(totals[name]).as_py() or 0) for name in ("bytes", "tokens"))
        lengths = _middles(partial["lengths"], [LENGTH_STATS["p50"], LENGTH_STATS["p95"]], 0)
        return {
            "bytes_per_token": num_bytes / tokens if tokens else None,
            "bytes_per_token_p50": _middles(partial["densities"], [DENSITY_STATS["p50"]], _SCALE_BITS)[0],
            "seq_len_p50": lengths[0],
            "seq_len_p95": lengths[1],
            "seq_len_max": pc.max(totals["longest"]).as_py(),
        }


def _middles(table: pa.Table, quantiles: Sequence[Fraction], scale_bits: int) -> list[float | None]:
    """Return quantiles over all sources; None each when there is no document."""
    if table.num_rows == 0:
        return [None] * len(quantiles)
    low, high = np.array(quantile_bounds(*_ordered(table), quantiles)).T
    middles: list[float | None] = _bounds(low, high, scale_bits)[0].tolist()
    return middles


def _bounds(first: np.ndarray, last: np.ndarray, scale_bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return middles, lower and upper bounds of buckets in their unit."""
    low, high = first / 2**scale_bits, (last + bool(scale_bits)) / 2**scale_bits
    return (low + high) / 2, low, high


def _ordered(table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (low, high, counts) over all sources, ascending.

    One source may be bucketed and another exact: then everything is bucketed, so that bounds never overlap.
    """
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    if bool((high > low).any()):
        low, high = bucket_bounds(low)
    order = np.argsort(low, kind="stable")
    low = low[order]
    firsts = np.flatnonzero(is_new(low))
    counts = np.add.reduceat(table["documents"].to_numpy()[order], firsts)
    return low[firsts], np.maximum.reduceat(high[order], firsts), counts


def settle_lengths(table: pa.Table, max_distinct: int) -> pa.Table:
    """Bucket every source that has over ``max_distinct`` distinct values, or that was bucketed before.

    It commutes with merging: distinct values never become fewer, and a bucketed source has a bucket of several values.
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
