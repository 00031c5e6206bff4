"""``data_toxicity_rate``: what the screen says of every document; the judge's sample is drawn by its levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.annotators.languages import LANGUAGES
from dataaudit.annotators.tokens import TOKENS
from dataaudit.annotators.toxicity import TOXICITY
from dataaudit.annotators.words import WORDS
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.detectors.toxicity.scores import ScreenBatch
from dataaudit.manifest.metric import SCREEN_ALONE
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.stages.base import Context, StageDefaults
from dataaudit.stages.groups import Groups
from dataaudit.stages.partial import Partial, TableShape, group
from dataaudit.stages.strata import MEMBER_ROWS, MEMBERS, STRATA, count_strata, member_rows

METRIC = "data_toxicity_rate"
EDGES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Lowest probabilities of levels 1, 2, ...; level 0 is what lies below."""
UNSCREENED = -1
"""Level of documents that the screen cannot judge."""
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
        """Look up the scores of one batch."""
        found = batch.get(TOXICITY)
        assert found is not None
        levels = levels_of(found)
        columns = {"source": batch.sources().cast(pa.string()), "level": levels, "documents": np.ones_like(levels)}
        millionths = np.where(found.screened, np.rint(found.probability * MILLION), 0)
        columns["probability"] = millionths.astype(np.int64)
        scores = group(_SHAPES["scores"], pa.table(columns).cast(_SHAPES["scores"].schema()))
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
