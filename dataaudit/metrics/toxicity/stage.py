"""``data_toxicity_rate``: a screen scores every document, a judge (Detoxify) a sample of every stratum.

The sample is drawn by the screen's levels, and the rates are estimated from the judge's scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric import SCREEN_ALONE
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.toxicity.definition import METRIC
from dataaudit.scan.annotators import LANGUAGES, TOKENS, TOXICITY, WORDS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.cross_shard.judge_rates import (
    Answers,
    JudgeTask,
    Rates,
    Verdicts,
    judged_findings,
    not_evaluated,
    seen_table,
)
from dataaudit.scan.cross_shard.sampling import Question, draw, wanted_rows
from dataaudit.scan.cross_shard.step import Encode, LinkContext, LinkResult, LinkStep, SecondPassRequest
from dataaudit.scan.detectors.judges import Unavailable
from dataaudit.scan.detectors.toxicity.judge import ToxicityJudge
from dataaudit.scan.detectors.toxicity.judge_model import JudgeModel
from dataaudit.scan.detectors.toxicity.screen import ScreenBatch
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import MEMBER_ROWS, MEMBERS, STRATA, Groups, count_strata, member_rows
from dataaudit.scan.stages.partial import Partial, TableShape, group

EDGES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Lowest probabilities of levels 1, 2, ...; level 0 is below them."""
UNSCREENED = -1
"""Level of documents that the screen cannot score."""
POSITIVE = EDGES.index(0.5) + 1
"""First level of documents that the screen classifies as toxic."""
MILLION = 1_000_000
_SUMS = ("documents", "probability")
_SHAPES = {"strata": STRATA, "scores": TableShape(keys={"source": pa.string(), "level": pa.int64()}, sums=_SUMS)}


def levels_of(screened: ScreenBatch) -> np.ndarray:
    """Return int64[n] level of each document."""
    levels = np.searchsorted(np.array(EDGES), screened.probability, side="right").astype(np.int64)
    return np.where(screened.screened, levels, UNSCREENED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxicity(StageDefaults):
    """Adds up the screen's calibrated probabilities, in millionths, and counts documents by source, language and level.

    The estimate of the screen is the mean of its probabilities. It is as right as its calibration holds for the
    corpus, which nothing in the corpus tells: so it has no interval. What a judge finds in a sample, in ``rate``, does
    not rest on that, and has one.
    """

    name: ClassVar[str] = "toxicity"
    version: ClassVar[str] = "2"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS, LANGUAGES, WORDS, TOXICITY)
    emits: ClassVar[Mapping[str, pa.Schema]] = {MEMBERS: MEMBER_ROWS}

    def shapes(self) -> Mapping[str, TableShape]:
        """Documents by stratum, and sums of probabilities by source and level."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Look up the scores of a batch."""
        screened = batch.get(TOXICITY)
        assert screened is not None
        levels, shape = levels_of(screened), _SHAPES["scores"]
        millionths = np.where(screened.screened, np.rint(screened.probability * MILLION), 0).astype(np.int64)
        columns = [batch.sources().cast(pa.string()), levels, np.ones_like(levels), millionths]
        scores = group(shape, pa.table(columns, schema=shape.schema()))
        return {"strata": count_strata(batch, levels), "scores": scores}

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return the stratum of every document."""
        return {MEMBERS: member_rows(batch, levels_of(batch.get(TOXICITY)))}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the screen's rates of the scope and of each source."""
        scores = partial["scores"]
        groups = Groups.of(scores, context.scope, self.version)
        screened = scores.filter(pc.not_equal(scores["level"], UNSCREENED))
        positive = groups.sums(screened.filter(pc.greater_equal(screened["level"], POSITIVE)), "documents")
        documents, total = (groups.sums(screened, name) for name in _SUMS)
        value = total / MILLION / np.maximum(documents, 1)
        return MetricRows.joined(
            [
                groups.ratios(METRIC, "screened_share", documents, groups.sums(scores, "documents")),
                groups.ratios(METRIC, "screen_positive", positive, documents),
                groups.unbounded(METRIC, "screen", "ratio", value, documents, reason=SCREEN_ALONE),
            ]
        )

    def shard_columns(self, partial: Partial) -> dict[str, object]:
        """Fill toxicity_screen, the mean calibrated probability, and toxicity_screened, the documents behind it."""
        rows = [row for row in partial["scores"].to_pylist() if row["level"] != UNSCREENED]
        documents = sum(row["documents"] for row in rows)
        total = sum(row["probability"] for row in rows)
        return {
            "toxicity_screen": total / MILLION / documents if documents else None,
            "toxicity_screened": documents,
        }


SCORES = pa.schema([("row", pa.int64()), ("bytes", pa.int64()), ("class", pa.string()), ("score", pa.float64())])
"""Probability of each class, by document, with the document's size; documents without a verdict have no rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxicityTask(JudgeTask):
    """SecondPassTask: asks Detoxify."""

    name: ClassVar[str] = "toxicity_judge"
    version: ClassVar[str] = "1"
    model: JudgeModel

    def decisive(self) -> dict[str, Any]:
        """Return the settings that decide its verdicts: all but languages, paths and device."""
        values = asdict(self.model)
        for name in ("languages", "path", "config_path", "device"):
            del values[name]
        return {**values, "tokenizer": self.tokenizer}

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``seen`` and ``scores`` of the documents."""
        del wanted
        judged = ToxicityJudge(self.model).judge(batch.texts)
        tokens = np.diff(encode(batch.texts).offsets)
        good = np.flatnonzero([failure is None for failure in judged.failures])
        classes = self.model.classes
        scores = pa.table(
            [
                np.repeat(batch.rows[good], len(classes)),
                np.repeat(batch.num_bytes()[good], len(classes)),
                list(classes) * len(good),
                judged.probabilities[good].astype(np.float64).round(4).reshape(-1),
            ],
            schema=SCORES,
        )
        return {"seen": seen_table(batch, tokens, judged.whole, judged.failures), "scores": scores}


NO_JUDGE = "no_judge"
POSITIVE_SCORE = 0.5
"""Probability from which on a document is of a class."""
THRESHOLDS = (0.1, 0.25, 0.75, 0.9)
"""Further probabilities above which the share of documents is estimated: the distribution of the judge's scores."""
_DIGITS = 2
"""Decimals of a score in the table of findings: the fourth may differ between processors, these hardly ever do."""
_SALT = 1
_UNSCREENED_GUESS = 0.02
"""Expected share of toxic documents among those that are not screened."""


def toxic_documents(context: LinkContext) -> LinkStep:
    """Draw the sample, have it judged, and estimate."""
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
    task = ToxicityTask(model=judge, tokenizer=context.tokenizer)
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
        verdicts = above(name, POSITIVE_SCORE)
        found.metrics += rates.shares("rate", name, verdicts)
        if name == main:
            found.metrics += rates.shares("rate", None, verdicts)
        tables.append(rates.table(name, verdicts))
    for threshold in THRESHOLDS:
        found.metrics += rates.shares(f"rate_at_{threshold:g}", None, above(main, threshold))
    positive = scores.filter(pc.greater_equal(scores["score"], POSITIVE_SCORE))
    whole = positive.append_column("start", pa.array(np.zeros(positive.num_rows, dtype=np.int64)))
    whole = whole.append_column("end", whole["bytes"])
    score = pc.round(whole["score"], _DIGITS)  # rates use the exact score
    whole = whole.set_column(whole.schema.get_field_index("score"), "score", score)
    found.tables = {
        "judged": pa.concat_tables(tables),
        "findings": judged_findings(judge.title, whole, TABLES["findings"].schema),
    }
    return found


def _guesses(context: LinkContext) -> dict[int, float]:
    """Return the expected share of toxic documents of each level: the mean probability of its documents."""
    guesses = {level: (low + high) / 2 for level, (low, high) in enumerate(pairwise((0.0, *EDGES, 1.0)))}
    documents, totals = Counter[int](), Counter[int]()
    for row in context.survey.by_split[context.stage.name, "scores"].to_pylist():
        documents[row["level"]] += row["documents"]
        totals[row["level"]] += row["probability"]
    means = {level: totals[level] / MILLION / number for level, number in documents.items()}
    return {**guesses, **means, UNSCREENED: _UNSCREENED_GUESS}
