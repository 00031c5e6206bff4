"""The language of every document: one detector decides, another one looks at a sample of what it decided."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.base.errors import DetectorError
from dataaudit.base.extras import install_line
from dataaudit.config import LanguageConfig
from dataaudit.scan.corpus.tokens.encoder import sample_mask
from dataaudit.scan.detectors import language_detectors
from dataaudit.scan.detectors.base import DetectorModel, LanguageBatch, LanguageDetector

LEAST_WORDS = 4
"""Of fewer words no language is said: "data" and most names are words of many, and detectors are sure all the same."""
SAMPLE_ONE_IN = 64
"""About one document in so many is looked at by both detectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModels:
    """What decides the languages of a build."""

    chosen: DetectorModel
    """The detector whose answer counts."""
    second: DetectorModel
    """Another one, for a sample."""
    min_confidence: float
    """Below it a language is ``und``, for both."""

    @property
    def named(self) -> tuple[DetectorModel, ...]:
        """What the manifest names: both, and the parts of the chosen one that are neither."""
        return tuple(dict.fromkeys((self.chosen, self.second, *self.chosen.parts)))

    def key_value(self, *, seed: int) -> dict[str, Any]:
        """Return all of it that decides a number, as plain JSON values."""
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
    first = find_cld2()
    chosen = {
        language_detectors.CLD2: first,
        lid.name: lid,
        language_detectors.COMBINED: language_detectors.combine(first, lid),
    }[settings.detector]
    second = first if chosen is lid else lid
    return LanguageModels(chosen=chosen, second=second, min_confidence=settings.min_confidence)


def find_cld2() -> DetectorModel:
    """Return what names the installed CLD2."""
    try:
        return language_detectors.find_cld2()
    except ImportError as error:
        raise DetectorError(f"language: pycld2 cannot be loaded ({error})", f"Run `{install_line('build')}`.") from None


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
        self._places = {name: code for code, name in enumerate(chosen.model.languages)}

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
            same = np.array([self._places.get(name, -1) for name in self._second.model.languages], dtype=np.int32)
            agreeing[sampled] = same[others] == codes[sampled]
        return LanguageBatch(names=names, codes=codes, confidence=confidence, sampled=sampled, agreeing=agreeing)

    def _detect(
        self, detector: LanguageDetector, texts: pa.LargeStringArray, enough: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Return codes, 0 (``und``) where the detector is not sure enough or has too few words, and its confidence."""
        codes, confidence = detector.detect(texts)
        sure = enough & (confidence >= np.float32(self._min_confidence))
        return np.where(sure, codes, 0).astype(np.int32), confidence


def load_detector(model: DetectorModel) -> LanguageDetector:
    """Load one detector."""
    if model.name == language_detectors.LID176:
        return language_detectors.FastTextDetector(model)
    named, found = (model.parts[0] if model.parts else model), find_cld2()
    if found != named:
        raise DetectorError(
            f"expected pycld2 {named.version} with the digest {named.sha256[:12]}, found {found.version} with"
            f" {found.sha256[:12]}",
            "Install the same version on every worker.",
        )
    if not model.parts:
        return language_detectors.Cld2Detector(model)
    detector, made = language_detectors.CombinedDetector(model), language_detectors.combine(*model.parts)
    if made != model:
        raise DetectorError(
            f"expected {model.name} {model.version} with the digest {model.sha256[:12]}, found {made.version} with"
            f" {made.sha256[:12]}",
            "Install the same version on every worker.",
        )
    return detector


def load_languages(models: LanguageModels, *, seed: int) -> LanguageIdentifier:
    """Load both detectors."""
    chosen = load_detector(models.chosen)
    loaded = chosen.second if isinstance(chosen, language_detectors.CombinedDetector) else None
    second = loaded if loaded and loaded.model == models.second else load_detector(models.second)
    return LanguageIdentifier(
        chosen, second, min_confidence=models.min_confidence, sample_one_in=SAMPLE_ONE_IN, seed=seed
    )
