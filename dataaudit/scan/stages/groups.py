"""Groups of documents for ``finalize``: a scope and each source in it, with their metrics in columns.

Strata are the groups that a judge's sample is drawn from; keyed rows name their members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric import Scope
from dataaudit.manifest.metric_rows import MetricRows, count_rows, metric_rows, ratio_rows
from dataaudit.scan.annotators import LANGUAGES, num_tokens
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.stages.partial import TableShape, group


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of documents; :meth:`of` makes the whole scope the first."""

    scope: Scope
    """Of all groups."""
    names: pa.Array
    """string[g] source of each group, null for the whole scope."""
    version: str
    """Of the definition of the metrics."""
    others: Mapping[str, pa.Array] = field(default_factory=dict)
    """Other fields of the scope that groups differ in: string[g] by name."""

    @classmethod
    def of(cls, table: pa.Table, scope: Scope, version: str) -> Groups:
        """Return the whole scope and the sources of a table, in its order."""
        return cls(scope, pa.concat_arrays([pa.nulls(1, pa.string()), table["source"].unique()]), version)

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.names)

    @property
    def sources(self) -> Groups:
        """The groups but for the whole."""
        return replace(self, names=self.names.slice(1))

    def among(self, **names: Any) -> Groups:
        """Return the same groups in a narrower scope: of a rule, say."""
        return replace(self, scope=replace(self.scope, **names))

    def places(self, table: pa.Table) -> np.ndarray:
        """Return int64[n], the group of each row of a table: that of its source."""
        indices = pc.index_in(table["source"].combine_chunks(), self.names)
        return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64)

    def sums(self, table: pa.Table, column: str) -> np.ndarray:
        """Return int64[g], the sums of a column of a table by group, that of the whole first."""
        values = table[column].to_numpy()
        sums = np.zeros(len(self), dtype=np.int64)
        np.add.at(sums, self.places(table), values)
        sums[0] = values.sum()
        return sums

    def ratios(
        self, metric: str, stat: str, numerators: np.ndarray, denominators: np.ndarray, unit: str = "ratio"
    ) -> MetricRows:
        """Return a ratio of each group; a denominator of 0 is ``not_evaluated``."""
        return ratio_rows(metric, stat, numerators, denominators, unit=unit, **self._named())

    def per_million(self, metric: str, stat: str, hits: np.ndarray, tokens: np.ndarray) -> MetricRows:
        """Return hits per million tokens of each group; of no tokens they are ``not_evaluated``."""
        known = tokens > 0
        return metric_rows(
            metric,
            stat,
            unit="hits per million tokens",
            value=hits / np.where(known, tokens, 1) * 1e6,
            known=known,
            n=np.where(known, hits, 0),
            denominator=tokens,
            **self._named(),
        )

    def counts(self, metric: str, stat: str, values: np.ndarray, n: np.ndarray, unit: str) -> MetricRows:
        """Return a count of each group, among ``n``."""
        return count_rows(metric, stat, values, n, unit=unit, **self._named())

    def estimates(
        self,
        metric: str,
        stat: str,
        unit: str,
        bounds: tuple[np.ndarray, np.ndarray, np.ndarray],
        n: np.ndarray,
        *,
        confidence: float,
        exact: np.ndarray | None = None,
    ) -> MetricRows:
        """Return an estimate of each group; without observations it is ``not_evaluated``."""
        known, value = n > 0, bounds[0]
        sure = np.zeros(len(n), dtype=bool) if exact is None else exact
        low, high, confident = (
            np.where(known & ~sure, bound, np.nan) for bound in (*bounds[1:], np.full(len(n), confidence))
        )
        return metric_rows(
            metric,
            stat,
            unit=unit,
            value=value,
            known=known,
            n=n,
            denominator=n,
            low=low,
            high=high,
            confidence=confident,
            method=pc.if_else(pa.array(sure), "exact", "estimated"),
            **self._named(),
        )

    def unbounded(
        self,
        metric: str,
        stat: str,
        unit: str,
        value: np.ndarray,
        n: np.ndarray,
        *,
        reason: str,
        exact: np.ndarray | None = None,
    ) -> MetricRows:
        """Return each group's estimate without interval, for a reason of ``NO_INTERVAL``; where exact, the value."""
        sure = pa.array(np.zeros(len(n), dtype=bool) if exact is None else exact)
        return metric_rows(
            metric,
            stat,
            unit=unit,
            value=value,
            known=n > 0,
            n=n,
            denominator=n,
            method=pc.if_else(sure, "exact", "estimated"),
            reason=pc.if_else(sure, "", reason),
            **self._named(),
        )

    def _named(self) -> dict[str, Any]:
        return {"scope": self.scope, "within": {"source": self.names, **self.others}, "version": self.version}


MEMBERS = "members"
"""Name of the keyed table."""
KEY_BYTES = 8
MEMBER_ROWS = pa.schema(
    [
        ("key", pa.binary(KEY_BYTES)),
        ("row", pa.int64()),
        ("source", pa.string()),
        ("language", pa.string()),
        ("level", pa.int64()),
    ]
)
"""Keyed rows, one for each document: the head of its text's digest, and its stratum."""
STRATA = TableShape(
    keys={"source": pa.string(), "language": pa.string(), "level": pa.int64()}, sums=("documents", "bytes", "tokens")
)
"""Documents by stratum: source, language, and a level that a screen gave."""


def count_strata(batch: DocBatch, levels: np.ndarray) -> pa.Table:
    """Return how many documents, bytes and tokens there are of each stratum."""
    ones = np.ones(len(batch), dtype=np.int64)
    columns = {**_names(batch), "level": levels, "documents": ones, "bytes": batch.num_bytes()}
    return group(STRATA, pa.table({**columns, "tokens": num_tokens(batch)}).cast(STRATA.schema()))


def member_rows(batch: DocBatch, levels: np.ndarray) -> pa.Table:
    """Return the keyed rows of the documents of a batch, of schema :data:`MEMBER_ROWS`."""
    assert batch.digests is not None
    columns = {"key": digest_keys(batch.digests), "row": batch.rows, **_names(batch), "level": levels}
    return pa.table(columns).cast(MEMBER_ROWS)


def digest_keys(digests: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return the first bytes of uint8[n, 16] digests as keys."""
    data = np.ascontiguousarray(digests[:, :KEY_BYTES])
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), len(digests), [None, pa.py_buffer(data)])


def _names(batch: DocBatch) -> dict[str, pa.Array]:
    return {"source": batch.sources().cast(pa.string()), "language": batch.get(LANGUAGES).languages().cast(pa.string())}
