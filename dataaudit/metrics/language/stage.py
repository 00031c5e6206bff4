"""``language_share``: which languages there are, and how much of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as bind
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.base.statistics import wilson
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.scan.annotators import LANGUAGES, TOKENS, num_tokens
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.detectors.base import UND
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

_COUNTS = ("documents", "bytes", "tokens")
_SHAPES = {
    "languages": TableShape(
        keys={"source": pa.string(), "language": pa.string()}, sums=(*_COUNTS, "sampled", "agreeing")
    )
}
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Language(StageDefaults):
    """Counts documents, bytes and tokens per source and language, and how often two detectors agree.

    A document has one language: that of most of what was seen of it. ``und`` is one that no detector was sure
    enough of, of fewer than four words, or without a letter.
    """

    name: ClassVar[str] = "language"
    version: ClassVar[str] = "2"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS, LANGUAGES)

    def shapes(self) -> Mapping[str, TableShape]:
        """Counts by source and language."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count a batch."""
        detected = batch.get(LANGUAGES)
        assert detected is not None
        ones = np.ones(len(batch), dtype=np.int64)
        columns = (ones, batch.num_bytes(), num_tokens(batch), detected.sampled, detected.agreeing)
        numbers = {
            name: pa.array(column.astype(np.int64))
            for name, column in zip(_SHAPES["languages"].sums, columns, strict=True)
        }
        keys = {"source": batch.sources().cast(pa.string()), "language": detected.languages().cast(pa.string())}
        return {"languages": group(_SHAPES["languages"], pa.table({**keys, **numbers}))}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return counts and shares of each language in the scope, its shares in each source, and the agreement."""
        table = partial["languages"]
        whole = _by_language(table.to_pylist())
        metrics: list[Metric] = []
        for language, counts in whole.items():
            metrics += self._counts(counts, replace(context.scope, language=language))
        total = sum(counts["tokens"] for counts in whole.values())
        share = bind(ratio, "language_share", "share", unit="ratio", version=self.version)
        for language, counts in ({UND: dict.fromkeys(_COUNTS, 0)} | whole).items():
            metrics.append(share(counts["tokens"], total, scope=replace(context.scope, language=language)))
        groups = Groups.of(table, context.scope, self.version)
        tokens = groups.sums(table, "tokens")[groups.places(table)]
        sources, languages = (table[name].combine_chunks() for name in ("source", "language"))
        pairs = replace(groups, names=sources, others={"language": languages})
        shares = pairs.ratios("language_share", "share", table["tokens"].to_numpy(), tokens)
        sampled, agreeing = (int(groups.sums(table, name)[0]) for name in ("sampled", "agreeing"))
        return MetricRows.joined([metrics, shares, [self._agreement(agreeing, sampled, context.scope)]])

    def _counts(self, counts: Mapping[str, int], scope: Scope) -> list[Metric]:
        documents = counts["documents"]
        metrics = [
            count(name, "count", counts[name], scope=scope, unit=name, n=documents, version=self.version)
            for name in _COUNTS
        ]
        density = bind(ratio, "bytes_per_token", "ratio", unit="bytes/token", version=self.version)
        return [*metrics, density(counts["bytes"], counts["tokens"], scope=scope)]

    def _agreement(self, agreeing: int, sampled: int, scope: Scope) -> Metric:
        named = bind(Metric, metric="language_share", stat="detector_agreement", version=self.version)
        record = bind(named, scope=scope, unit="ratio", n=sampled, denominator=sampled, method="sampled")
        if sampled == 0:
            return record(value=None, status="not_evaluated", reason="empty_denominator")
        low, high = wilson(agreeing / sampled, sampled, _CONFIDENCE)
        return record(value=agreeing / sampled, low=low, high=high, confidence=_CONFIDENCE)

    def shard_columns(self, partial: Partial) -> dict[str, Any]:
        """Fill languages."""
        whole = _by_language(partial["languages"].to_pylist())
        return {"languages": [{"language": language, **counts} for language, counts in whole.items()]}


def _by_language(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the counts of each language over all sources, sorted by language."""
    totals: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: str(row["language"])):
        counts = totals.setdefault(row["language"], dict.fromkeys(_COUNTS, 0))
        for name in _COUNTS:
            counts[name] += row[name]
    return totals
