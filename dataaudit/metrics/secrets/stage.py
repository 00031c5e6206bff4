"""``secret_hit_rate``: keys, tokens and passwords, counted by entity and tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from dataaudit.annotators.findings import FINDINGS
from dataaudit.annotators.tokens import TOKENS
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.manifest.metric import Metric, Scope, count
from dataaudit.stages import findings
from dataaudit.stages.base import Context, StageDefaults
from dataaudit.stages.partial import Partial, TableShape

METRIC = "secret_hit_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets(StageDefaults):
    """Counts what the rules for secrets find in every document; placeholders and allowed ones are counted apart."""

    name: ClassVar[str] = "secrets"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS, FINDINGS)
    detector: ClassVar[str] = "secrets"
    emits: ClassVar[Mapping[str, pa.Schema]] = {findings.TABLE: findings.FINDING_ROWS}

    def shapes(self) -> Mapping[str, TableShape]:
        """Findings and totals by source."""
        return findings.SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count the findings of one batch."""
        return findings.count_findings(batch, findings.own_findings(batch, self.detector))

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return the findings."""
        return {findings.TABLE: findings.finding_rows(batch, findings.own_findings(batch, self.detector))}

    def finalize(self, partial: Partial, context: Context) -> list[Metric]:
        """Return the counts of the scope and of each source, of every entity and tier that was found there."""
        return findings.records(partial, context.scope, self._records)

    def _records(self, counts: findings.Counts, totals: Mapping[str, int], scope: Scope) -> list[Metric]:
        metrics = []
        for (entity, tier), own in findings.with_tiers(counts):
            named = replace(scope, entity=entity or None)
            prefix = f"{tier}_" if tier else ""
            values = [(f"{prefix}hits", own["hits"], "hits"), (f"{prefix}documents", own["documents"], "documents")]
            values += [] if tier else [("reserved", own["reserved"], "hits")]
            metrics += [self._count(stat, value, named, unit, totals["documents"]) for stat, value, unit in values]
        return [*metrics, self._count("truncated", totals["truncated"], scope, "documents", totals["documents"])]

    def _count(self, stat: str, value: int, scope: Scope, unit: str, documents: int) -> Metric:
        return count(METRIC, stat, value, scope=scope, unit=unit, n=documents, version=self.version)

    def shard_columns(self, partial: Partial) -> dict[str, object]:
        """Fill secret_hits, secrets_validated, and secrets: hits and documents by entity and tier."""
        counts = dict(findings.with_tiers(findings.whole_counts(findings.counts_by_source(partial))[0]))
        return {
            "secret_hits": counts[findings.ANY, findings.ANY]["hits"],
            "secrets_validated": counts[findings.ANY, findings.TIERS[0]]["hits"],
            "secrets": findings.column_rows(partial),
        }
