"""The family of toxicity: a judge looks at a sample of every stratum, and the rates are estimated from its verdicts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.detectors.judges import Unavailable
from dataaudit.link.answers import Answers, judged_findings
from dataaudit.link.judging import Rates, Verdicts, not_evaluated
from dataaudit.link.sampling import Question, draw, wanted_rows
from dataaudit.link.second_pass import SecondPassRequest
from dataaudit.link.step import LinkContext, LinkResult, LinkStep
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.toxicity.second_pass import SCORES, ToxicityTask
from dataaudit.metrics.toxicity.stage import EDGES, METRIC, MILLION, UNSCREENED, Toxicity

NO_JUDGE = "no_judge"
POSITIVE = 0.5
"""Probability from which on a document is of a class."""
THRESHOLDS = (0.1, 0.25, 0.75, 0.9)
"""Further probabilities that the share of documents above is estimated for: how the judge's scores are distributed."""
_DIGITS = 2
"""Decimals of a score in the table of findings: the fourth may differ between processors, these hardly ever do."""
_SALT = 1
_UNSCREENED_GUESS = 0.02
"""Share of toxic documents expected where the screen cannot look."""


def toxic_documents(context: LinkContext) -> LinkStep:
    """Draw the sample, have it judged, and estimate.

    Raises:
        ClusterError: The join cannot be done on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
    """
    judge, version = context.content.judge, Toxicity.version
    settings = context.config.toxicity
    question = Question(
        metric=METRIC,
        half_width=settings.half_width,
        most=settings.most_judged,
        languages=() if judge is None or isinstance(judge, Unavailable) else judge.languages,
        guesses=_guesses(context),
        salt=_SALT,
    )
    if judge is None or isinstance(judge, Unavailable):
        reason = NO_JUDGE if judge is None else str(judge.reason)
        return LinkResult(metrics=not_evaluated(question, {"rate": "ratio"}, reason, version))
    sampled = draw(context, question)
    task = ToxicityTask(model=judge, tokenizer=context.tokenizer())
    (result,) = yield [SecondPassRequest(task=task, wanted=wanted_rows(sampled.places))]
    answers = Answers(result, sampled)
    scores = answers.table("scores", SCORES)
    rates = Rates(question, sampled, version)
    found = LinkResult(
        metrics=[*rates.coverage(len(answers)), *answers.records(question, version)],
        warnings=answers.warnings(question, sampled, "toxicity"),
    )

    def above(name: str, threshold: float) -> Verdicts:
        own = scores.filter(pc.equal(scores["class"], name))
        return answers.verdicts(own, (own["score"].to_numpy() >= threshold).astype(np.int64))

    main = judge.classes[judge.main_class]
    tables = []
    for name in judge.classes:
        verdicts = above(name, POSITIVE)
        found.metrics += rates.shares("rate", name, verdicts)
        if name == main:
            found.metrics += rates.shares("rate", None, verdicts)
        tables.append(rates.table(name, verdicts))
    for threshold in THRESHOLDS:
        found.metrics += rates.shares(f"rate_at_{threshold:g}", None, above(main, threshold))
    positive = scores.filter(pc.greater_equal(scores["score"], POSITIVE))
    whole = positive.append_column("start", pa.array(np.zeros(positive.num_rows, dtype=np.int64)))
    whole = whole.append_column("end", whole["bytes"])
    shown = pc.round(whole["score"], _DIGITS)  # rates have used the exact one
    whole = whole.set_column(whole.schema.get_field_index("score"), "score", shown)
    found.tables = {
        "judged": pa.concat_tables(tables),
        "findings": judged_findings(judge.title, whole, TABLES["findings"].schema),
    }
    return found


def _guesses(context: LinkContext) -> dict[int, float]:
    """Return the share of toxic documents that is expected of each level: the mean probability of its documents."""
    bounds = (0.0, *EDGES, 1.0)
    guesses = {level: (low + high) / 2 for level, (low, high) in enumerate(pairwise(bounds))}
    sums: dict[int, list[int]] = {}
    for row in context.survey.by_split[context.stage.name, "scores"].to_pylist():
        own = sums.setdefault(row["level"], [0, 0])
        own[0] += row["documents"]
        own[1] += row["probability"]
    means = {level: total / MILLION / documents for level, (documents, total) in sums.items()}
    return {**guesses, **means, UNSCREENED: _UNSCREENED_GUESS}
