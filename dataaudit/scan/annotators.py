"""What an annotator is, and how those that are needed are loaded and run in order.

An annotator has a model: a frozen, picklable dataclass that is found before a scan and sent to workers, where it is
loaded once. Adding one is a module with an :class:`~dataaudit.scan.corpus.batch.Annotation`, a model and what it loads.

Annotators: what documents are seen with. Each says one thing of every document of a batch, by name.

What the pattern detectors find in every document, all of them in one pass.

Names that a document may hold: how many words within its sentences begin with a capital letter.

Tokens of every document, with the tokenizer of the build.

Words of every document: what near-duplicates, leaks, repeats and the toxicity screen compare.

Language of every document, and what a second detector says of a sample.

What documents hold of everything that is protected: held-out documents and items of evaluation sets.

What the toxicity screen says of every document.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar

import numpy as np

from dataaudit.base.errors import ClusterError, DetectorError, Guarded
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


class Annotator(Protocol):
    """Says one thing of every document of a batch."""

    def annotate(self, batch: DocBatch) -> Any:
        """Return the annotation of a batch that has those it needs."""
        ...


class AnnotatorModel(Protocol):
    """What an annotator is made of; picklable, and the same on every worker."""

    annotation: ClassVar[Annotation[Any]]
    """What it says."""
    needs: ClassVar[tuple[Annotation[Any], ...]]
    """What it has to know of the documents before."""

    def decisive(self) -> Any:
        """Return what decides its answers, as plain JSON values; None when the program alone does."""
        ...

    def load(self) -> Annotator:
        """Return the annotator, loaded once in a thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotators:
    """Everything that the stages of a scan need to know of a batch, and nothing else."""

    chosen: tuple[tuple[Annotation[Any], Annotator], ...]
    """In an order in which each finds what it needs."""

    def annotate(self, batch: DocBatch) -> DocBatch:
        """Return a batch with its digests and all that is asked for."""
        return self.look(replace(batch, digests=text_digests(batch.texts)))

    def look(self, batch: DocBatch) -> DocBatch:
        """Return a batch with all that is asked for; it needs digests only where an annotator looks at them."""
        full = batch
        for annotation, annotator in self.chosen:
            full = full.annotated(annotation, annotator.annotate(full))
        return full


class LoadedLast(Generic[P, R]):
    """Keeps what a function loaded last, for each thread: detectors have state of their own while they look."""

    def __init__(self, load: Callable[P, R]) -> None:
        self._load = load
        self._held = threading.local()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Load, unless this thread's last call was for the same."""
        given = args, kwargs
        if getattr(self._held, "given", None) != given:
            self._held.given = None  # what was held is given back before the next is loaded
            self._held.loaded = None
            self._held.loaded = self._load(*args, **kwargs)
            self._held.given = given
        loaded: R = self._held.loaded
        return loaded


def load_annotators(needs: Iterable[Annotation[Any]], models: Sequence[AnnotatorModel]) -> Annotators:
    """Load what is needed, and what that needs."""
    ordered = in_order(needs, models)
    return Annotators(chosen=tuple((model.annotation, model.load()) for model in ordered))


def in_order(needs: Iterable[Annotation[Any]], models: Sequence[AnnotatorModel]) -> list[AnnotatorModel]:
    """Return the models of what is needed, and of what these need, in an order in which each finds what it needs."""
    known = {model.annotation: model for model in models}
    ordered: dict[Annotation[Any], AnnotatorModel] = {}

    def add(annotation: Annotation[Any]) -> None:
        if annotation in ordered:
            return
        assert annotation in known, f"what finds {annotation.name} is prepared when a stage needs it"
        for need in known[annotation].needs:
            add(need)
        ordered[annotation] = known[annotation]

    for annotation in sorted(set(needs), key=lambda need: need.name):
        add(annotation)
    return list(ordered.values())


FINDINGS: Annotation[FindingBatch] = Annotation("findings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the detectors look for."""

    annotation: ClassVar[Annotation[Any]] = FINDINGS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    patterns: Registry
    """Of all detectors together."""
    digests: Mapping[str, str]
    """Digest of what each detector looks for, by the detector's name."""
    key: bytes | None = field(default=None, repr=False)
    """The user's key for digests of findings."""

    def decisive(self) -> dict[str, Any]:
        """Return what decides the findings of each detector, by its name; the key is named by its id alone.

        What one detector looks for decides how soon a document full of candidates is given up for both.
        """
        return {name: [digest, self.patterns.digest, key_id(self.key)] for name, digest in self.digests.items()}

    def load(self) -> FindingAnnotator:
        """Return the screen."""
        return FindingAnnotator(PatternScreen(registry=self.patterns), self.key)


@dataclass(frozen=True, slots=True)
class FindingAnnotator:
    """Finds patterns."""

    screen: PatternScreen
    key: bytes | None = field(repr=False)

    def annotate(self, batch: DocBatch) -> FindingBatch:
        """Return the findings of every document."""
        return self.screen.find(batch.byte_values(), batch.byte_offsets(), key=self.key)


NAMES: Annotation[np.ndarray] = Annotation("names")
"""int64[n]."""


@dataclass(frozen=True, slots=True)
class Names:
    """Counts them; nothing decides them but the program and the version of Unicode."""

    annotation: ClassVar[Annotation[Any]] = NAMES
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()

    def decisive(self) -> None:
        """Return nothing: the program alone decides."""

    def load(self) -> Names:
        """Return itself."""
        return self

    def annotate(self, batch: DocBatch) -> np.ndarray:
        """Return the capitalised words within the sentences of every document."""
        return count_names(batch.byte_values(), batch.byte_offsets())


TOKENS: Annotation[TokenBatch] = Annotation("tokens")
SAMPLE_ONE_IN = 1024
"""About one document in so many is encoded by both encoders."""


def num_tokens(batch: DocBatch) -> np.ndarray:
    """Return int64[n] tokens of each document."""
    return np.diff(batch.get(TOKENS).offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokenizer, and what its fast encoder is not to be trusted with."""

    annotation: ClassVar[Annotation[Any]] = TOKENS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    tokenizer: TokenizerFile
    risks: Risks
    force_reference: bool
    """Whether the reference encoder counts everything."""
    seed: int

    def decisive(self) -> dict[str, Any]:
        """Return what decides token ids and which encoder counts them."""
        return {
            "format": self.tokenizer.format,
            "sha256": self.tokenizer.sha256,
            "risks": self.risks.digest,
            "force_reference": self.force_reference,
            "sample_one_in": SAMPLE_ONE_IN,
            "seed": self.seed,
        }

    def load(self) -> TokenAnnotator:
        """Return the encoders, loaded once in a thread."""
        with Guarded(MemoryError) as call:
            return TokenAnnotator(load_once(self.tokenizer, self.risks, self.force_reference, self.seed))
        raise ClusterError(
            f"a worker cannot load the tokenizer {self.tokenizer.name} ({call.origin})",
            "Check that every worker can read the state folder, then run again.",
        )


@dataclass(frozen=True, slots=True)
class TokenAnnotator:
    """Encodes documents, and parts of them."""

    encoder: Encoder

    def annotate(self, batch: DocBatch) -> TokenBatch:
        """Return the token ids of every document."""
        return self.encoder.encode(batch.texts, batch.identities())


@LoadedLast
def load_once(tokenizer: TokenizerFile, risks: Risks, force_reference: bool, seed: int) -> Encoder:
    """Load the encoders once a thread."""
    return load_encoder(tokenizer, risks, force_reference=force_reference, sample_one_in=SAMPLE_ONE_IN, seed=seed)


WORDS: Annotation[WordBatch] = Annotation("words")


@dataclass(frozen=True, slots=True)
class Words:
    """Splits documents into words; nothing decides them but the program and the version of Unicode."""

    annotation: ClassVar[Annotation[Any]] = WORDS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()

    def decisive(self) -> None:
        """Return nothing: the program alone decides."""

    def load(self) -> Words:
        """Return itself."""
        return self

    def annotate(self, batch: DocBatch) -> WordBatch:
        """Return the words of every document."""
        return split_words(batch.byte_values(), batch.byte_offsets())


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
        """Return the detectors, loaded once in a thread."""
        try:
            return LanguageAnnotator(_load_languages(self.models, self.seed))
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
def _load_languages(models: LanguageModels, seed: int) -> LanguageIdentifier:
    return load_languages(models, seed=seed)


MATCHES: Annotation[MatchBatch] = Annotation("matches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The index of what is protected."""

    annotation: ClassVar[Annotation[Any]] = MATCHES
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    index: IndexFile

    def decisive(self) -> str:
        """Return the digest of the index."""
        return self.index.sha256

    def load(self) -> MatchAnnotator:
        """Map the index, once in a process."""
        try:
            return MatchAnnotator(_open_once(self.index))
        except DamagedFileError as error:
            raise ClusterError(
                f"a worker cannot read the index of protected sets {error.paths[0]}",
                "Every worker has to see the state folder; run the same command again and the index is built anew.",
            ) from None


@dataclass(frozen=True, slots=True)
class MatchAnnotator:
    """Looks documents up in the index."""

    matcher: Matcher

    def annotate(self, batch: DocBatch) -> MatchBatch:
        """Return what the documents hold."""
        return self.matcher.match(batch.get(WORDS), batch.byte_values(), batch.byte_offsets())


@LoadedLast
def _open_once(file: IndexFile) -> Matcher:
    index, sha256 = open_index(file.path)
    if sha256 != file.sha256:
        raise DamagedFileError(str(file.path))
    return Matcher(index)


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
        """Return the screen, loaded once in a thread."""
        return ToxicityAnnotator(_load_screen(self.model))


@dataclass(frozen=True, slots=True)
class ToxicityAnnotator:
    """Scores documents of the languages that the screen knows."""

    screen: ToxicityScreen

    def annotate(self, batch: DocBatch) -> ScreenBatch:
        """Return the scores of every document."""
        values, offsets = batch.byte_values(), batch.byte_offsets()
        return self.screen.score(values, offsets, batch.get(WORDS), batch.get(LANGUAGES))


@LoadedLast
def _load_screen(model: DetectorModel) -> ToxicityScreen:
    return ToxicityScreen(model)
