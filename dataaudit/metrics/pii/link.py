"""The family of personal data: findings gathered; presidio looks at a sample, also for names, places, organisations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.detectors.findings import Tier
from dataaudit.detectors.judges import Unavailable
from dataaudit.link.answers import Answers, judged_findings
from dataaudit.link.findings import findings_table
from dataaudit.link.judging import Rates, not_evaluated
from dataaudit.link.sampling import Question, draw, wanted_rows
from dataaudit.link.second_pass import SecondPassRequest
from dataaudit.link.step import LinkContext, LinkResult, LinkStep
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.pii.second_pass import MARKS, OPINIONS, PiiTask
from dataaudit.metrics.pii.stage import METRIC, NAME_CLASSES, Pii

NO_ANALYZER = "no_analyzer"
JUDGE = "presidio"
DOCUMENTS, HITS, CONFIRMED = "analyzer_documents", "analyzer_hits", "confirmed"
"""Stats: documents that hold an entity, its hits per million tokens, candidates that were confirmed."""
_SALT = 2
_GUESSES = (0.1, 0.5, 0.8, 0.9)
"""Share of documents expected to hold something, by the class of how many names they may hold."""
_WITH_FINDING = 0.97
_UNITS = {DOCUMENTS: "ratio", HITS: "hits per million tokens", CONFIRMED: "ratio"}


def personal_data(context: LinkContext) -> LinkStep:
    """Gather the findings, draw the sample, have it analyzed, and estimate.

    Raises:
        ClusterError: A join cannot be done on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
    """
    analyzer, settings = context.content.analyzer, context.config.pii
    findings = findings_table(context)
    question = Question(
        metric=METRIC,
        half_width=settings.half_width,
        most=settings.most_judged,
        languages=() if analyzer is None or isinstance(analyzer, Unavailable) else (analyzer.language,),
        guesses=_guesses(),
        salt=_SALT,
    )
    if analyzer is None or isinstance(analyzer, Unavailable):
        reason = NO_ANALYZER if analyzer is None else str(analyzer.reason)
        return LinkResult(tables={"findings": findings}, metrics=not_evaluated(question, _UNITS, reason, Pii.version))
    sampled = draw(context, question)
    task = PiiTask(model=analyzer, tokenizer=context.tokenizer())
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


def _guesses() -> dict[int, float]:
    """Return the share of documents expected to hold an entity, by level."""
    guesses = dict(enumerate(_GUESSES))
    guesses |= dict.fromkeys(range(NAME_CLASSES, NAME_CLASSES * (len(Tier) + 1)), _WITH_FINDING)
    return guesses
