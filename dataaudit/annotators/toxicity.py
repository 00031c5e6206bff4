"""What the toxicity screen says of every document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dataaudit.annotators.base import LoadedLast
from dataaudit.annotators.languages import LANGUAGES
from dataaudit.annotators.words import WORDS
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.detectors import DetectorModel, ToxicityScreen
from dataaudit.detectors.toxicity.scores import ScreenBatch

TOXICITY: Annotation[ScreenBatch] = Annotation("toxicity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxicity:
    """The screen."""

    annotation: ClassVar[Annotation[Any]] = TOXICITY
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS, LANGUAGES)
    model: DetectorModel

    def decisive(self) -> list[str]:
        """Return what decides its scores."""
        return [self.model.name, self.model.version, self.model.sha256]

    def load(self) -> ToxicityAnnotator:
        """Return the screen, loaded once in a thread.

        Raises:
            DetectorError: It is not the one that was found before the scan.
        """
        return ToxicityAnnotator(_load_once(self.model))


@dataclass(frozen=True, slots=True)
class ToxicityAnnotator:
    """Scores documents of the languages that the screen knows."""

    screen: ToxicityScreen

    def annotate(self, batch: DocBatch) -> ScreenBatch:
        """Return the scores of every document."""
        values, offsets = batch.byte_values(), batch.byte_offsets()
        return self.screen.score(values, offsets, batch.get(WORDS), batch.get(LANGUAGES))


@LoadedLast
def _load_once(model: DetectorModel) -> ToxicityScreen:
    return ToxicityScreen(model)
