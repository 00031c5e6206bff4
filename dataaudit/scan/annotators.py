"""Annotators: each gives an annotation of every document of a batch, such as its words, tokens, language or findings.

An annotator has a model: a frozen, picklable dataclass that is resolved before a scan and sent to workers, where it is
loaded once. To add an annotator, write an :class:`~dataaudit.scan.corpus.batch.Annotation`, and a model that loads a
function of batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar

import numpy as np

from dataaudit.base.errors import ClusterError, DetectorError
from dataaudit.base.files import DamagedFileError
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.protected.index_file import IndexFile, open_index
from dataaudit.scan.corpus.protected.matching import Matcher
from dataaudit.scan.corpus.protected.ngram_index import MatchBatch
from dataaudit.scan.corpus.texts import text_digests
from dataaudit.scan.corpus.tokens import Encoder, Risks, TokenBatch, TokenizerFile, load_encoder
from dataaudit.scan.detectors import (
    DetectorModel,
    LanguageIdentifier,
    LanguageModels,
    PatternScreen,
    Registry,
    ToxicityScreen,
    key_id,
    load_languages,
)
from dataaudit.scan.detectors.base import LanguageBatch
from dataaudit.scan.detectors.patterns.entity import FindingBatch
from dataaudit.scan.detectors.toxicity.screen import ScreenBatch
from dataaudit.scan.kernels.characters import count_names
from dataaudit.scan.kernels.words import WordBatch, split_words

P = ParamSpec("P")
R = TypeVar("R")
Annotate = Callable[[DocBatch], Any]
"""Returns the annotation of a batch that has those it needs."""


class AnnotatorModel(Protocol):
    """The model of an annotator; picklable, and the same on every worker."""

    annotation: ClassVar[Annotation[Any]]
    needs: ClassVar[tuple[Annotation[Any], ...]]
    """Annotations that come first."""

    def decisive(self) -> Any:
        """Return all that decides its answers, as plain JSON values; None when the program alone does."""
        ...

    def load(self) -> Annotate:
        """Return the annotator, loaded once in a thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotators:
    """The annotators that the stages of a scan need."""

    chosen: tuple[tuple[Annotation[Any], Annotate], ...]
    """Each behind those that it needs."""

    def annotate(self, batch: DocBatch) -> DocBatch:
        """Return a batch with its digests and all annotations."""
        return self.look(replace(batch, digests=text_digests(batch.texts)))

    def look(self, batch: DocBatch) -> DocBatch:
        """Return a batch with all annotations; it needs digests only where an annotator reads them."""
        for annotation, annotate in self.chosen:
            batch = batch.annotated(annotation, annotate(batch))
        return batch


class LoadedLast(Generic[P, R]):
    """Keeps the last result of a function, for each thread: detectors have state of their own while they work."""

    def __init__(self, load: Callable[P, R]) -> None:
        self._load = load
        self._last = threading.local()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Load, unless this thread's last call had the same arguments."""
        given = args, kwargs
        if getattr(self._last, "given", None) != given:
            self._last.given = self._last.loaded = None  # the last result is freed before the next is loaded
            self._last.loaded = self._load(*args, **kwargs)
            self._last.given = given
        loaded: R = self._last.loaded
        return loaded


def load_annotators(needs: Iterable[Annotation[Any]], models: Sequence[AnnotatorModel]) -> Annotators:
    """Load the annotators of annotations, and of those that they need."""
    return Annotators(chosen=tuple((model.annotation, model.load()) for model in in_order(needs, models)))


def in_order(needs: Iterable[Annotation[Any]], models: Sequence[AnnotatorModel]) -> list[AnnotatorModel]:
    """Return the models of annotations, and of those that they need, each behind those that it needs."""
    known = {model.annotation: model for model in models}
    ordered: dict[Annotation[Any], AnnotatorModel] = {}

    def add(annotation: Annotation[Any]) -> None:
        if annotation in ordered:
            return
        assert annotation in known, f"{annotation.name} is prepared when a stage needs it"
        for need in known[annotation].needs:
            add(need)
        ordered[annotation] = known[annotation]

    for annotation in sorted(set(needs), key=lambda need: need.name):
        add(annotation)
    return list(ordered.values())


FINDINGS: Annotation[FindingBatch] = Annotation("findings")
"""Of all pattern detectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The pattern screen."""

    annotation: ClassVar[Annotation[Any]] = FINDINGS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    patterns: Registry
    """Of all detectors together."""
    digests: Mapping[str, str]
    """Digest of each detector's registry, by the detector's name."""
    key: bytes | None = field(default=None, repr=False)
    """The user's key for digests of findings."""

    def decisive(self) -> dict[str, Any]:
        """Return all that decides the findings of each detector, by its name; the key by its id alone.

        The entities of a detector decide how soon a document full of candidates is given up for both.
        """
        return {name: [digest, self.patterns.digest, key_id(self.key)] for name, digest in self.digests.items()}

    def load(self) -> Annotate:
        """Return the screen."""
        screen = PatternScreen(registry=self.patterns)
        return lambda batch: screen.find(batch.byte_values(), batch.byte_offsets(), key=self.key)


NAMES: Annotation[np.ndarray] = Annotation("names")
"""int64[n] capitalised words within the sentences of every document."""


@dataclass(frozen=True, slots=True)
class Names:
    """Counts names; the program and the version of Unicode alone decide them."""

    annotation: ClassVar[Annotation[Any]] = NAMES
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()

    def decisive(self) -> None:
        """Return nothing: the program alone decides."""

    def load(self) -> Annotate:
        """Return the kernel."""
        return lambda batch: count_names(batch.byte_values(), batch.byte_offsets())


WORDS: Annotation[WordBatch] = Annotation("words")
"""For near-duplicates, leaks, repeats and the toxicity screen."""


@dataclass(frozen=True, slots=True)
class Words:
    """Splits documents into words; the program and the version of Unicode alone decide them."""

    annotation: ClassVar[Annotation[Any]] = WORDS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()

    def decisive(self) -> None:
        """Return nothing: the program alone decides."""

    def load(self) -> Annotate:
        """Return the kernel."""
        return lambda batch: split_words(batch.byte_values(), batch.byte_offsets())


TOKENS: Annotation[TokenBatch] = Annotation("tokens")
SAMPLE_ONE_IN = 1024
"""Both encoders encode about 1 document in so many."""


def num_tokens(batch: DocBatch) -> np.ndarray:
    """Return int64[n] tokens of each document."""
    return np.diff(batch.get(TOKENS).offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokenizer of the build, and texts that its fast encoder is not trusted with."""

    annotation: ClassVar[Annotation[Any]] = TOKENS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    tokenizer: TokenizerFile
    risks: Risks
    force_reference: bool
    """Whether the reference encoder counts everything."""
    seed: int

    def decisive(self) -> dict[str, Any]:
        """Return all that decides token ids and which encoder counts them."""
        return {
            "format": self.tokenizer.format,
            "sha256": self.tokenizer.sha256,
            "risks": self.risks.digest,
            "force_reference": self.force_reference,
            "sample_one_in": SAMPLE_ONE_IN,
            "seed": self.seed,
        }

    def encoder(self) -> Encoder:
        """Return the encoders, loaded once in a thread."""
        encoder = load_once(self.tokenizer, self.risks, self.force_reference, self.seed)
        encoder.file = self.tokenizer
        return encoder

    def load(self) -> Annotate:
        """Return the encoders."""
        encoder = self.encoder()
        return lambda batch: encoder.encode(batch.texts, batch.identities())


@LoadedLast
def load_once(tokenizer: TokenizerFile, risks: Risks, force_reference: bool, seed: int) -> Encoder:
    """Load the encoders once a thread."""
    return load_encoder(tokenizer, risks, force_reference=force_reference, sample_one_in=SAMPLE_ONE_IN, seed=seed)


LANGUAGES: Annotation[LanguageBatch] = Annotation("languages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """The language detectors; the second of them sees a sample."""

    annotation: ClassVar[Annotation[Any]] = LANGUAGES
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    models: LanguageModels
    seed: int

    def decisive(self) -> dict[str, Any]:
        """Return all that decides languages."""
        return self.models.key_value(seed=self.seed)

    def load(self) -> Annotate:
        """Return the detectors."""
        try:
            identifier = _load_languages(self.models, self.seed)
        except DetectorError as error:
            raise ClusterError(f"a worker cannot load a language detector: {error.message}", error.hint) from None
        return lambda batch: identifier.identify(batch.texts, batch.identities(), batch.get(WORDS).num_words())


@LoadedLast
def _load_languages(models: LanguageModels, seed: int) -> LanguageIdentifier:
    return load_languages(models, seed=seed)


MATCHES: Annotation[MatchBatch] = Annotation("matches")
"""Protected text in every document: of held-out documents and items of evaluation sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The index of protected text."""

    annotation: ClassVar[Annotation[Any]] = MATCHES
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    index: IndexFile

    def decisive(self) -> str:
        """Return the digest of the index."""
        return self.index.sha256

    def load(self) -> Annotate:
        """Map the index, once in a process."""
        try:
            matcher = _open_once(self.index)
        except DamagedFileError as error:
            raise ClusterError(
                f"a worker cannot read the index of protected sets {error.paths[0]}",
                "Every worker has to see the state folder; run the same command again and the index is built anew.",
            ) from None
        return lambda batch: matcher.match(batch.get(WORDS), batch.byte_values(), batch.byte_offsets())


@LoadedLast
def _open_once(file: IndexFile) -> Matcher:
    index, sha256 = open_index(file.path)
    if sha256 != file.sha256:
        raise DamagedFileError(str(file.path))
    return Matcher(index)


TOXICITY: Annotation[ScreenBatch] = Annotation("toxicity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxicity:
    """The toxicity screen, for documents of the languages that it knows."""

    annotation: ClassVar[Annotation[Any]] = TOXICITY
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS, LANGUAGES)
    model: DetectorModel

    def decisive(self) -> list[str]:
        """Return all that decides its scores."""
        return [self.model.name, self.model.version, self.model.sha256]

    def load(self) -> Annotate:
        """Return the screen."""
        screen = _load_screen(self.model)
        return lambda batch: screen.score(
            batch.byte_values(), batch.byte_offsets(), batch.get(WORDS), batch.get(LANGUAGES)
        )


_load_screen = LoadedLast(ToxicityScreen)
