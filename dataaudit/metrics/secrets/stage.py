"""``secret_hit_rate``: keys, tokens and passwords, counted by entity and tier; the link step collects the findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.secrets.definition import METRIC
from dataaudit.scan.annotators import FINDINGS, TOKENS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.cross_shard.findings import findings_table
from dataaudit.scan.cross_shard.step import LinkContext, LinkResult, LinkStep
from dataaudit.scan.stages import findings
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape


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
        """Count the findings of a batch."""
        return findings.count_findings(batch, findings.own_findings(batch, self.detector))

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return the findings."""
        return {findings.TABLE: findings.finding_rows(batch, findings.own_findings(batch, self.detector))}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the counts of the scope and of each source, of every entity and tier that was found there."""
        totals = partial["totals"]
        groups = Groups.of(totals, context.scope, self.version)
        documents = groups.sums(totals, "documents")
        metrics = [groups.counts(METRIC, "truncated", groups.sums(totals, "truncated"), documents, "documents")]
        for tiered in findings.by_tier(partial, groups):
            prefix = f"{tiered.tier}_" if tiered.tier else ""
            named = [(f"{prefix}hits", "hits", "hits"), (f"{prefix}documents", "documents", "documents")]
            named += [] if tiered.tier else [("reserved", "reserved", "hits")]
            metrics += [
                tiered.groups.counts(METRIC, stat, tiered.sums[name], documents[tiered.places], unit)
                for stat, name, unit in named
            ]
        return MetricRows.joined(metrics)

    def shard_columns(self, partial: Partial) -> dict[str, object]:
        """Fill secret_hits, secrets_validated, and secrets: hits and documents by entity and tier."""
        counts = dict(findings.with_tiers(findings.whole_counts(findings.counts_by_source(partial))[0]))
        return {
            "secret_hits": counts[findings.ANY, findings.ANY]["hits"],
            "secrets_validated": counts[findings.ANY, findings.TIERS[0]]["hits"],
            "secrets": findings.column_rows(partial),
        }


def secret_findings(context: LinkContext) -> LinkStep:
    """Collect the findings; nothing has to be read again."""
    table = findings_table(context)
    yield from ()
    return LinkResult(tables={"findings": table})
