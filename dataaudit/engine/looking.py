"""What a worker looks at documents with: encoder, detectors, screens and indexes, each loaded once in a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.protected.index import DamagedIndexError, IndexFile, open_index
from dataaudit.corpus.protected.matching import Matcher
from dataaudit.corpus.texts import text_digests
from dataaudit.corpus.tokens import Encoder, Risks, TokenBatch, TokenizerFile, load_encoder
from dataaudit.detectors import (
    DetectorModel,
    LanguageIdentifier,
    LanguageModels,
    PatternScreen,
    ToxicityScreen,
    load_languages,
)
from dataaudit.engine.keys import SAMPLE_ONE_IN
from dataaudit.engine.running_task import with_words
from dataaudit.engine.store import StateFolderError
from dataaudit.engine.units import ScanSettings
from dataaudit.errors import DetectorError
from dataaudit.guarded import Guarded
from dataaudit.stages.base import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """Everything that the stages of a scan need to know of a batch, and nothing else."""

    encoder: Encoder | None
    identifier: LanguageIdentifier | None
    matcher: Matcher | None
    screen: ToxicityScreen | None
    patterns: PatternScreen | None
    key: bytes | None = field(repr=False)
    """The user's key for digests of findings."""
    words: bool
    """Whether words are asked for."""

    def complete(self, batch: DocBatch) -> DocBatch:
        """Return a batch with all that is asked for."""
        digests = text_digests(batch.texts)
        identity = np.ascontiguousarray(digests[:, :8]).view("<u8").reshape(-1)
        full = with_words(batch) if self.words or self.matcher is not None else batch
        full = replace(
            full,
            digests=digests,
            tokens=None if self.encoder is None else self.encoder.encode(batch.texts, identity),
            languages=None if self.identifier is None else self.identifier.identify(batch.texts, identity),
        )
        values, offsets = batch.byte_values(), batch.byte_offsets()
        if self.matcher is not None:
            assert full.words is not None
            full = replace(full, matches=self.matcher.match(full.words, values, offsets))
        if self.screen is not None:
            assert full.words is not None
            assert full.languages is not None
            full = replace(full, screened=self.screen.score(values, offsets, full.words, full.languages))
        if self.patterns is not None:
            full = replace(full, findings=self.patterns.find(values, offsets, key=self.key))
        return full


def look_for(stages: Sequence[Stage], settings: ScanSettings) -> Looking:
    """Load what some stages need.

    Raises:
        StateFolderError: Something cannot be loaded, which is no shard's fault.
        DetectorError: A detector is not what was found before the scan.
    """
    wanted = {stage.detector for stage in stages if stage.detector}
    assert not wanted or settings.patterns is not None, "the patterns are prepared when a stage looks for findings"
    return Looking(
        encoder=_encoder(settings) if any(stage.needs_tokens for stage in stages) else None,
        identifier=_identifier(settings) if any(stage.needs_languages for stage in stages) else None,
        matcher=_matcher(settings) if any(stage.needs_matches for stage in stages) else None,
        screen=_screen(settings) if any(stage.needs_screen for stage in stages) else None,
        patterns=PatternScreen(registry=settings.patterns) if wanted and settings.patterns is not None else None,
        key=settings.hmac_key,
        words=any(stage.needs_words for stage in stages),
    )


def encode(texts: pa.LargeStringArray, settings: ScanSettings) -> TokenBatch:
    """Encode texts that are parts of documents; their encoder was checked in the scan."""
    return _encoder(settings).encode(texts, np.zeros(len(texts), dtype=np.uint64))


def _encoder(settings: ScanSettings) -> Encoder:
    """Load the encoders.

    Raises:
        StateFolderError: They cannot be loaded, which is no shard's fault.
    """
    with Guarded(MemoryError) as call:
        return load_once(settings.tokenizer, settings.risks, settings.force_reference, settings.seed)
    raise StateFolderError(
        f"a worker cannot load the tokenizer {settings.tokenizer.name} ({call.origin})",
        f"Expected it in {settings.state}; check that every worker can read that folder, then run again.",
    )


def _identifier(settings: ScanSettings) -> LanguageIdentifier:
    """Load the language detectors.

    Raises:
        StateFolderError: They cannot be loaded, which is no shard's fault.
    """
    assert settings.languages is not None, "the detectors are prepared when a stage needs languages"
    try:
        return _load_languages_once(settings.languages, settings.seed)
    except DetectorError as error:
        raise StateFolderError(f"a worker cannot load a language detector: {error.message}", error.hint) from None


def _screen(settings: ScanSettings) -> ToxicityScreen:
    """Load the toxicity screen.

    Raises:
        DetectorError: It is not the one that the driver found.
    """
    assert settings.screen is not None, "the screen is found when a stage needs it"
    return _screen_once(settings.screen)


def _matcher(settings: ScanSettings) -> Matcher:
    """Map the index of what is protected.

    Raises:
        StateFolderError: It is not there or not whole, which is no shard's fault.
    """
    assert settings.protected is not None, "the index is built when a stage needs matches"
    try:
        return _open_once(settings.protected)
    except DamagedIndexError as error:
        raise StateFolderError(
            f"a worker cannot read the index of protected sets {error.path}",
            f"Every worker has to see {settings.state}; run the same command again and the index is built anew.",
        ) from None


@lru_cache(maxsize=1)
def _open_once(file: IndexFile) -> Matcher:
    index, sha256 = open_index(file.path)
    if sha256 != file.sha256:
        raise DamagedIndexError(str(file.path))
    return Matcher(index)


@lru_cache(maxsize=1)
def _screen_once(model: DetectorModel) -> ToxicityScreen:
    return ToxicityScreen(model)


@lru_cache(maxsize=1)
def _load_languages_once(models: LanguageModels, seed: int) -> LanguageIdentifier:
    return load_languages(models, seed=seed)


@lru_cache(maxsize=1)
def load_once(tokenizer: TokenizerFile, risks: Risks, force_reference: bool, seed: int) -> Encoder:
    """Load the encoders once a process."""
    return load_encoder(tokenizer, risks, force_reference=force_reference, sample_one_in=SAMPLE_ONE_IN, seed=seed)
