"""Language of every document, and what a second detector says of a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dataaudit.annotators.base import LoadedLast
from dataaudit.annotators.words import WORDS
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.detectors import LanguageIdentifier, LanguageModels, load_languages
from dataaudit.detectors.languages import LanguageBatch
from dataaudit.errors import ClusterError, DetectorError

LANGUAGES: Annotation[LanguageBatch] = Annotation("languages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """The language detectors."""

    annotation: ClassVar[Annotation[Any]] = LANGUAGES
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    models: LanguageModels
    seed: int

    def decisive(self) -> dict[str, Any]:
        """Return what decides languages, as plain JSON values."""
        return self.models.key_value(seed=self.seed)

    def load(self) -> LanguageAnnotator:
        """Return the detectors, loaded once in a thread.

        Raises:
            ClusterError: They cannot be loaded, which is no shard's fault.
        """
        try:
            return LanguageAnnotator(_load_once(self.models, self.seed))
        except DetectorError as error:
            raise ClusterError(f"a worker cannot load a language detector: {error.message}", error.hint) from None


@dataclass(frozen=True, slots=True)
class LanguageAnnotator:
    """Identifies languages."""

    identifier: LanguageIdentifier

    def annotate(self, batch: DocBatch) -> LanguageBatch:
        """Return the language of every document."""
        words = batch.get(WORDS)
        assert words is not None
        return self.identifier.identify(batch.texts, batch.identities(), words.num_words())


@LoadedLast
def _load_once(models: LanguageModels, seed: int) -> LanguageIdentifier:
    return load_languages(models, seed=seed)
