"""The language of every document: a detector decides, and a second detector checks a sample."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.base.errors import DetectorError
from dataaudit.config import LanguageConfig
from dataaudit.scan.corpus.tokens.encoder import sample_mask
from dataaudit.scan.detectors import language_detectors
from dataaudit.scan.detectors.base import Codes, Confidence, DetectorModel, LanguageBatch, LanguageDetector

LEAST_WORDS = 4
"""A shorter text is ``und``: "data" and most names are words of many languages, and detectors are sure all the same."""
SAMPLE_ONE_IN = 64
"""Both detectors see about 1 document in so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModels:
    """The detectors of a build."""

    chosen: DetectorModel
    """Its answer counts."""
    second: DetectorModel
    """For a sample."""
    min_confidence: float
    """Below it a language is ``und``, for both."""

    @property
    def named(self) -> tuple[DetectorModel, ...]:
        """Detectors that the manifest names: both, and the parts of the chosen detector that are neither."""
        return tuple(dict.fromkeys((self.chosen, self.second, *self.chosen.parts)))

    def key_value(self, *, seed: int) -> dict[str, Any]:
        """Return all that decides languages, as plain JSON values."""
        models = {"chosen": self.chosen.identity(), "second": self.second.identity()}
        limits = {"min_confidence": self.min_confidence, "least_words": LEAST_WORDS}
        return {**models, **limits, "sample_one_in": SAMPLE_ONE_IN, "seed": seed}


def resolve_languages(settings: LanguageConfig, *, base_dir: Path, cache_dir: Path) -> LanguageModels:
    """Find both detectors and check that they work here."""
    loader = language_detectors.FTLANGDETECT if settings.model == language_detectors.FTLANGDETECT else ""
    path = None if loader or settings.model is None else base_dir / Path(settings.model).expanduser()
    try:
        lid = language_detectors.find_lid176(path, cache_dir=cache_dir, loader=loader)
    except OSError as error:
        raise DetectorError(
            f"a language model cannot be copied to {cache_dir} ({error.strerror})",
            "Name another one: --state DIR, in Python state=DIR.",
        ) from None
    first = language_detectors.find_cld2()
    chosen = {
        language_detectors.CLD2: first,
        lid.name: lid,
        language_detectors.COMBINED: language_detectors.combine(first, lid),
    }[settings.detector]
    second = first if chosen is lid else lid
    return LanguageModels(chosen=chosen, second=second, min_confidence=settings.min_confidence)


class LanguageIdentifier:
    """Both detectors, ready on the calling thread."""

    def __init__(
        self,
        chosen: LanguageDetector,
        second: LanguageDetector,
        *,
        min_confidence: float,
        sample_one_in: int,
        seed: int,
    ) -> None:
        self._chosen = chosen
        self._second = second
        self._min_confidence = min_confidence
        self._sample_one_in = sample_one_in
        self._seed = seed
        codes = {name: code for code, name in enumerate(chosen.model.languages)}
        self._same = np.array([codes.get(name, -1) for name in second.model.languages], dtype=np.int32)
        """Code of the chosen detector for each of the second's."""

    def identify(
        self, texts: pa.LargeStringArray, keys: npt.NDArray[np.uint64], num_words: npt.NDArray[np.int64]
    ) -> LanguageBatch:
        """Identify the language of each document by itself."""
        names = self._chosen.model.languages
        enough = num_words >= LEAST_WORDS
        codes, confidence = self._detect(self._chosen, texts, enough)
        sampled = sample_mask(keys, one_in=self._sample_one_in, seed=self._seed)
        agreeing = np.zeros(len(texts), dtype=np.bool_)
        if sampled.any():
            others, _ = self._detect(self._second, texts.filter(pa.array(sampled)), enough[sampled])
            agreeing[sampled] = self._same[others] == codes[sampled]
        return LanguageBatch(names=names, codes=codes, confidence=confidence, sampled=sampled, agreeing=agreeing)

    def _detect(
        self, detector: LanguageDetector, texts: pa.LargeStringArray, enough: npt.NDArray[np.bool_]
    ) -> tuple[Codes, Confidence]:
        """Return codes, 0 (``und``) where the detector is not sure enough or has too few words, and its confidence."""
        codes, confidence = detector.detect(texts)
        sure = enough & (confidence >= np.float32(self._min_confidence))
        return np.where(sure, codes, 0).astype(np.int32), confidence


def load_detector(model: DetectorModel) -> LanguageDetector:
    """Load a detector."""
    if model.name == language_detectors.LID176:
        return language_detectors.FastTextDetector(model)
    _expect(model.parts[0] if model.parts else model, language_detectors.find_cld2())
    if not model.parts:
        return language_detectors.Cld2Detector(model)
    detector = language_detectors.CombinedDetector(model)
    _expect(model, language_detectors.combine(*model.parts))
    return detector


def _expect(named: DetectorModel, installed: DetectorModel) -> None:
    if installed != named:
        raise DetectorError(
            f"expected {named.name} {named.version} with the digest {named.sha256[:12]}, found {installed.version} with"
            f" {installed.sha256[:12]}",
            "Install the same version on every worker.",
        )


def load_languages(models: LanguageModels, *, seed: int) -> LanguageIdentifier:
    """Load both detectors."""
    chosen = load_detector(models.chosen)
    loaded = chosen.second if isinstance(chosen, language_detectors.CombinedDetector) else None
    second = loaded if loaded and loaded.model == models.second else load_detector(models.second)
    return LanguageIdentifier(
        chosen, second, min_confidence=models.min_confidence, sample_one_in=SAMPLE_ONE_IN, seed=seed
    )
