"""``pii_hit_rate``: personal data by entity and tier, per million tokens and per document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.annotators.findings import FINDINGS
from dataaudit.annotators.languages import LANGUAGES
from dataaudit.annotators.names import NAMES
from dataaudit.annotators.tokens import TOKENS
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.detectors.findings import FindingBatch, Tier
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.stages import findings
from dataaudit.stages.base import Context, StageDefaults
from dataaudit.stages.groups import Groups
from dataaudit.stages.partial import Partial, TableShape
from dataaudit.stages.strata import MEMBER_ROWS, MEMBERS, STRATA, count_strata, member_rows

METRIC = "pii_hit_rate"
NAMES_EDGES = (1, 3, 10)
"""Fewest capitalised words within sentences of the second, third and fourth class of documents."""
NAME_CLASSES = len(NAMES_EDGES) + 1


def levels_of(batch: DocBatch, findings: FindingBatch) -> np.ndarray:
    """Return int64[n]: four classes of documents by their surest finding, each in four by how many names they may hold.

    0 to 3: no finding; 4 to 7: the surest is ``pattern``; 8 to 11: ``contextual``; 12 to 15: ``validated``.
    """
    surest = np.full(len(batch), len(Tier), dtype=np.int64)
    real = ~findings.reserved
    np.minimum.at(surest, findings.documents[real], findings.tiers[real].astype(np.int64))
    classes = np.searchsorted(np.array(NAMES_EDGES), batch.get(NAMES), side="right")
    return (len(Tier) - surest) * NAME_CLASSES + classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pii(StageDefaults):
    """Counts what the patterns find in every document; reserved values (examples, tests) are counted apart."""

    name: ClassVar[str] = "pii"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS, LANGUAGES, NAMES, FINDINGS)
    detector: ClassVar[str] = "pii"
    emits: ClassVar[Mapping[str, pa.Schema]] = {findings.TABLE: findings.FINDING_ROWS, MEMBERS: MEMBER_ROWS}

    def shapes(self) -> Mapping[str, TableShape]:
        """Findings and totals by source, documents by stratum."""
        return {**findings.SHAPES, "strata": STRATA}

    def map(self, batch: DocBatch) -> Partial:
        """Count the findings of one batch."""
        own = findings.own_findings(batch, self.detector)
        return {**findings.count_findings(batch, own), "strata": count_strata(batch, levels_of(batch, own))}

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return the findings, and the stratum of every document."""
        own = findings.own_findings(batch, self.detector)
        return {
            findings.TABLE: findings.finding_rows(batch, own),
            MEMBERS: member_rows(batch, levels_of(batch, own)),
        }

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the rates of the scope and of each source, of every entity and tier that was found there."""
        totals = partial["totals"]
        groups = Groups.of(totals, context.scope, self.version)
        documents, tokens, truncated = (groups.sums(totals, name) for name in ("documents", "tokens", "truncated"))
        metrics = [groups.counts(METRIC, "truncated", truncated, documents, "documents")]
        for one in findings.by_tier(partial, groups):
            prefix = f"{one.tier}_" if one.tier else ""
            held = documents[one.places]
            metrics += [
                one.groups.per_million(METRIC, f"{prefix}hits", one.sums["hits"], tokens[one.places]),
                one.groups.ratios(METRIC, f"{prefix}documents", one.sums["documents"], held),
            ]
            if not one.tier:
                metrics.append(one.groups.counts(METRIC, "reserved", one.sums["reserved"], held, "hits"))
        return MetricRows.joined(metrics)

    def shard_columns(self, partial: Partial) -> dict[str, object]:
        """Fill pii_hits per million tokens, pii_documents, and pii: hits and documents by entity and tier."""
        counts, totals = findings.whole_counts(findings.counts_by_source(partial))
        whole = dict(findings.with_tiers(counts))[findings.ANY, findings.ANY]
        return {
            "pii_hits": whole["hits"] / totals["tokens"] * 1e6 if totals["tokens"] else None,
            "pii_documents": whole["documents"],
            "pii": findings.column_rows(partial),
        }
