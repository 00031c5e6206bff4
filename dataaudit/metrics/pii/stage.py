"""``pii_hit_rate``: personal data by entity and tier, per million tokens and per document.

Patterns search every document. presidio analyzes a sample, also for names, places and organisations, and gives its
opinion of findings that the patterns are not sure of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.pii.cells import METRIC
from dataaudit.scan.annotators import FINDINGS, LANGUAGES, NAMES, TOKENS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.cross_shard.findings import findings_table
from dataaudit.scan.cross_shard.judge_rates import Answers, JudgeTask, Rates, judged_findings, not_evaluated, seen_table
from dataaudit.scan.cross_shard.sampling import Question, draw, wanted_rows
from dataaudit.scan.cross_shard.step import Encode, LinkContext, LinkResult, LinkStep, SecondPassRequest
from dataaudit.scan.detectors.judges import Unavailable
from dataaudit.scan.detectors.patterns.entity import FindingBatch, Tier
from dataaudit.scan.detectors.patterns.screen import PatternScreen
from dataaudit.scan.detectors.pii.analyzer import PiiAnalyzer
from dataaudit.scan.detectors.pii.analyzer_model import AnalyzerModel
from dataaudit.scan.stages import findings
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import MEMBER_ROWS, MEMBERS, STRATA, Groups, count_strata, member_rows
from dataaudit.scan.stages.partial import Partial, TableShape, group

NAMES_EDGES = (1, 3, 10)
"""Fewest capitalised words within sentences, for the second, third and fourth class of documents."""
NAME_CLASSES = len(NAMES_EDGES) + 1


def levels_of(batch: DocBatch, findings: FindingBatch) -> np.ndarray:
    """Return int64[n]: four classes of documents by their surest finding, each in four by possible names.

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
        """Count the findings of a batch."""
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
        for tiered in findings.by_tier(partial, groups):
            prefix = f"{tiered.tier}_" if tiered.tier else ""
            among = documents[tiered.places]
            metrics += [
                tiered.groups.per_million(METRIC, f"{prefix}hits", tiered.sums["hits"], tokens[tiered.places]),
                tiered.groups.ratios(METRIC, f"{prefix}documents", tiered.sums["documents"], among),
            ]
            if not tiered.tier:
                metrics.append(tiered.groups.counts(METRIC, "reserved", tiered.sums["reserved"], among, "hits"))
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


_SPAN = [("start", pa.int64()), ("end", pa.int64())]
MARKS = pa.schema([("row", pa.int64()), ("class", pa.string()), *_SPAN, ("score", pa.float64())])
"""Findings of presidio: entity, bytes, score."""
_OPINIONS = TableShape(keys={"row": pa.int64(), "class": pa.string()}, sums=("candidates", "confirmed"))
OPINIONS = _OPINIONS.schema()
"""Candidates of a document and entity that the patterns are not sure of, and how many of them presidio confirms."""
_DECISIVE = ("version", "sha256", "language", "min_score", "seed", "stretch", "overlap", "max_stretches", "window")
CONFIRMED_SCORE = 0.5
"""Score from which on a candidate counts as confirmed."""
MOST_ASKED = 100
"""Most candidates of a document that presidio checks: each takes milliseconds, and a list may hold thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiTask(JudgeTask):
    """SecondPassTask: asks presidio for its findings, and for its opinion of candidates."""

    name: ClassVar[str] = "pii_judge"
    version: ClassVar[str] = "1"
    model: AnalyzerModel

    def decisive(self) -> dict[str, Any]:
        """Return the settings that decide its findings; the digest covers the spaCy model and the registry."""
        return {**{name: getattr(self.model, name) for name in _DECISIVE}, "tokenizer": self.tokenizer}

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``seen``, ``marks`` and ``opinions`` of the documents."""
        del wanted
        analyzer = PiiAnalyzer(self.model)
        hits = analyzer.analyze(batch.texts)
        tokens = np.diff(encode(batch.texts).offsets) * hits.analyzed // np.maximum(batch.num_bytes(), 1)
        names = pa.array(hits.entities, pa.string()).take(pa.array(hits.codes))
        marks = [batch.rows[hits.documents], names, hits.starts, hits.ends, hits.scores.astype(np.float64).round(4)]
        return {
            "seen": seen_table(batch, tokens, hits.whole, hits.failures),
            "marks": pa.table(marks, schema=MARKS),
            "opinions": self._opinions(batch, analyzer),
        }

    def _opinions(self, batch: DocBatch, analyzer: PiiAnalyzer) -> pa.Table:
        """Ask presidio's own recognizers about the candidates; kinds that it has no recognizer for are left out."""
        screened = PatternScreen(registry=self.model.registry).find(batch.byte_values(), batch.byte_offsets())
        unsure = np.flatnonzero((screened.tiers != Tier.VALIDATED) & ~screened.reserved)
        own = screened.documents[unsure]
        asked = unsure[np.arange(len(unsure)) - np.searchsorted(own, own) < MOST_ASKED]
        entities, documents = [screened.entities[code] for code in screened.codes[asked]], screened.documents[asked]
        bounds = (screened.starts[asked], screened.ends[asked])
        scores = analyzer.confirm(batch.texts, documents, *bounds, entities).peers
        known = np.flatnonzero(~np.isnan(scores))
        columns = [
            batch.rows[documents[known]],
            pa.array(entities, pa.string()).take(pa.array(known)),
            np.ones(len(known), np.int64),
            (scores[known] >= CONFIRMED_SCORE).astype(np.int64),
        ]
        return group(_OPINIONS, pa.table(columns, schema=OPINIONS))


NO_ANALYZER = "no_analyzer"
JUDGE = "presidio"
DOCUMENTS, HITS, CONFIRMED = "analyzer_documents", "analyzer_hits", "confirmed"
"""Stats: documents that hold an entity, its hits per million tokens, confirmed candidates."""
_SALT = 2
_GUESSES = (0.1, 0.5, 0.8, 0.9)
"""Expected share of documents with personal data, by class of possible names."""
_WITH_FINDING = 0.97
_UNITS = {DOCUMENTS: "ratio", HITS: "hits per million tokens", CONFIRMED: "ratio"}


def personal_data(context: LinkContext) -> LinkStep:
    """Collect the findings, draw the sample, have it analyzed, and estimate."""
    analyzer, settings = context.content.analyzer, context.config.pii
    findings = findings_table(context)
    question = Question(
        metric=METRIC,
        half_width=settings.half_width,
        most=settings.most_judged,
        languages=() if analyzer is None or isinstance(analyzer, Unavailable) else (analyzer.language,),
        guesses=dict(enumerate(_GUESSES))
        | dict.fromkeys(range(NAME_CLASSES, NAME_CLASSES * (len(Tier) + 1)), _WITH_FINDING),
        salt=_SALT,
    )
    if analyzer is None or isinstance(analyzer, Unavailable):
        reason = NO_ANALYZER if analyzer is None else str(analyzer.reason)
        return LinkResult(tables={"findings": findings}, metrics=not_evaluated(question, _UNITS, reason, Pii.version))
    sampled = draw(context, question)
    task = PiiTask(model=analyzer, tokenizer=context.tokenizer)
    (result,) = yield [SecondPassRequest(task=task, wanted=wanted_rows(sampled.places))]
    answers = Answers(result, sampled)
    rates = Rates(question, sampled, Pii.version)
    found = LinkResult(
        metrics=[*rates.coverage(len(answers)), *answers.records(question, Pii.version)],
        warnings=answers.warnings(question, sampled, "pii"),
    )
    marks, opinions = answers.table("marks", MARKS), answers.table("opinions", OPINIONS)
    tables = []
    for name in (None, *analyzer.entities):
        own = marks if name is None else marks.filter(pc.equal(marks["class"], name))
        verdicts = answers.verdicts(own, np.ones(own.num_rows, dtype=np.int64))
        found.metrics += rates.shares(DOCUMENTS, name, verdicts)
        found.metrics += rates.per_million(HITS, name, verdicts)
        if name is not None:
            tables.append(rates.table(name, verdicts))
    for name in sorted(set(opinions["class"].to_pylist())):
        own = opinions.filter(pc.equal(opinions["class"], name))
        verdicts = answers.verdicts(own, own["confirmed"].to_numpy(), own["candidates"].to_numpy())
        found.metrics += rates.parts(CONFIRMED, name, verdicts)
    judged = judged_findings(JUDGE, marks, TABLES["findings"].schema)
    found.tables = {"findings": pa.concat_tables([findings, judged]), "judged": pa.concat_tables(tables)}
    return found
