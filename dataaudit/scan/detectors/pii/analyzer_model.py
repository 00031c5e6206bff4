"""The analyzer of personal data: from a config's settings to a model that works, or to the reason why there is none.

presidio's engine has its recognizers and ours, over a spaCy model or a blank pipeline, without a network. Ours returns
the findings of the pattern screen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.yamlfile import nearest
from dataaudit.scan.detectors.judges import Absence, Unavailable, draw, not_installed, quiet
from dataaudit.scan.detectors.patterns.registry import Registry
from dataaudit.scan.detectors.patterns.screen import PatternScreen

_LEMMAS = "dataaudit_lower_as_lemmas"


@dataclass(frozen=True, slots=True)
class Engine:
    """presidio with a model, ready to analyze texts."""

    all: Any
    """``AnalyzerEngine`` with all recognizers."""
    peers: Any
    """``AnalyzerEngine`` with presidio's own recognizers alone."""
    nlp: Any
    """``spacy.Language`` behind both."""
    language: str

    def zone(self) -> AbstractContextManager[Any]:
        """Forget the words of a text after it: spaCy would keep those of all texts."""
        zone: AbstractContextManager[Any] = self.nlp.memory_zone()
        return zone

    @property
    def entities(self) -> tuple[str, ...]:
        """Entities of all recognizers, sorted."""
        names = {name for recognizer in self.all.registry.recognizers for name in recognizer.supported_entities}
        return tuple(sorted(names))


def load_nlp(model: str | None, language: str) -> Any:
    """Load a spaCy model, or a pipeline that only splits words."""
    import spacy
    from spacy.language import Language

    nlp = spacy.blank(language) if model is None else spacy.load(model)
    if not any("token.lemma" in nlp.get_pipe_meta(name).assigns for name in nlp.pipe_names):
        # presidio compares context words with lemmas; without them it would see no context at all.
        Language.component(_LEMMAS, assigns=["token.lemma"], func=_lower_as_lemmas)
        nlp.add_pipe(_LEMMAS)
    return nlp


def _lower_as_lemmas(document: Any) -> Any:
    for token in document:
        token.lemma_ = token.lower_
    return document


def build_engine(
    nlp: Any, language: str, *, recognizers: Iterable[str], registry: Registry, labels: dict[str, str]
) -> Engine:
    """Put recognizers and a pipeline together."""
    import tldextract
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.context_aware_enhancers import LemmaContextAwareEnhancer
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import SpacyRecognizer

    # Keeps the library of domain names, with which presidio checks addresses, from fetching its list anew.
    tldextract.tldextract.TLD_EXTRACTOR = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
    settings = NerModelConfiguration()
    settings.model_to_presidio_entity_mapping |= labels
    engine = SpacyNlpEngine(ner_model_configuration=settings)
    engine.nlp = {language: nlp}
    named = ner_entities(nlp, settings.model_to_presidio_entity_mapping)
    usual, local = {peer.name: peer for peer in _usual_peers(language)}, _local_peers()
    peers = [usual[name] if name in usual else local[name](supported_language=language) for name in recognizers]
    if named:
        peers.append(SpacyRecognizer(supported_language=language, supported_entities=list(named)))

    def analyzer(recognizers: list[Any]) -> Any:
        return AnalyzerEngine(
            registry=RecognizerRegistry(recognizers=recognizers, supported_languages=[language]),
            nlp_engine=engine,
            supported_languages=[language],
            context_aware_enhancer=LemmaContextAwareEnhancer(),
        )

    return Engine(analyzer([*peers, our_recognizer(registry, language)]), analyzer(peers), nlp, language)


def ner_entities(nlp: Any, meaning: dict[str, str]) -> tuple[str, ...]:
    """Return the entities that a pipeline can mark, in presidio's names, sorted."""
    labels: set[str] = set()
    for name, pipe in nlp.pipeline:
        if "doc.ents" in nlp.get_pipe_meta(name).assigns:
            labels |= set(getattr(pipe, "labels", ()) or meaning)
    return tuple(sorted({meaning[label] for label in labels if label in meaning}))


def chosen_peers(language: str, *, enable: Iterable[str], disable: Iterable[str]) -> tuple[str, ...]:
    """Return the class names of presidio's recognizers that take part, sorted."""
    usual = {peer.name for peer in _usual_peers(language)}
    known = usual | _local_peers().keys()
    for key, names in (("enable", enable), ("disable", disable)):
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"presidio.{key}: presidio has no recognizer {name} that works with patterns"
                    f"{nearest(name, sorted(known))}"
                )
    return tuple(sorted(usual - set(disable) | set(enable)))


def _usual_peers(language: str) -> list[Any]:
    """Return the recognizers that presidio uses by itself, as it sets them up, without that of the language model."""
    from presidio_analyzer import RecognizerRegistry

    registry = RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language])
    return [recognizer for recognizer in registry.recognizers if type(recognizer).__name__ != "SpacyRecognizer"]


def _local_peers() -> dict[str, Any]:
    """Return presidio's recognizers that work with patterns, by class name: they need no network and no weights."""
    from presidio_analyzer import PatternRecognizer, predefined_recognizers

    members = {name: getattr(predefined_recognizers, name) for name in predefined_recognizers.__all__}
    return {
        name: member
        for name, member in members.items()
        if isinstance(member, type) and issubclass(member, PatternRecognizer)
    }


Offsets = npt.NDArray[np.int64]
_REACH = 64


def byte_of(text: str, characters: Offsets) -> Offsets:
    """Return the byte that each character begins at; the index after the last character gives the size in bytes."""
    if text.isascii() or characters.size == 0:
        return characters
    # Few offsets of a text that may be long: the text between them is encoded, and no array of all characters is made.
    ordered = np.unique(characters)
    bounds = [0, *ordered.tolist()]
    sizes = [len(text[begin:end].encode("utf-8", "surrogatepass")) for begin, end in pairwise(bounds)]
    return np.asarray(np.cumsum(sizes, dtype=np.int64)[np.searchsorted(ordered, characters)])


def character_of(text: str, offsets: Offsets) -> Offsets:
    """Return the character that each byte belongs to; the offset after the last byte gives the number of characters."""
    if text.isascii():
        return offsets
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    begins = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return np.asarray(np.searchsorted(begins, offsets, side="right") - 1)


def segments(text: str, *, size: int, at_most: int, seed: int) -> tuple[list[tuple[int, int]], bool]:
    """Cut a text at white space into segments, of which at most so many are drawn; tell whether these are all."""
    cut = list(_cut(text, size))
    if len(cut) <= at_most:
        return cut, True
    return [cut[index] for index in draw(text, len(cut), at_most, seed)], False


def _cut(text: str, size: int) -> Iterator[tuple[int, int]]:
    begin = 0
    while len(text) - begin > size:
        near = range(begin + size, max(begin, begin + size - _REACH), -1)
        # The last white space near the end of the segment; without it the cut goes through a word.
        end = next((end for end in near if text[end - 1].isspace()), begin + size)
        yield begin, end
        begin = end
    if begin < len(text):
        yield begin, len(text)


def our_recognizer(registry: Registry, language: str) -> Any:
    """Return a ``presidio_analyzer.EntityRecognizer`` of all entities of a registry, found in one pass.

    presidio gets no context words: the finding's tier, and with it its score, depends on them already.
    """
    from presidio_analyzer import EntityRecognizer, RecognizerResult

    screen = PatternScreen(registry=registry)

    class OurRecognizer(EntityRecognizer):
        """Entities of the registry."""

        def load(self) -> None:
            """Need nothing: the database is compiled when it is first used."""

        def analyze(self, text: str, entities: Iterable[str], nlp_artifacts: Any = None) -> list[Any]:
            """Return the findings of some entities."""
            del nlp_artifacts
            data = text.encode("utf-8", "surrogatepass")
            batch = screen.find(np.frombuffer(data, dtype=np.uint8), np.array([0, len(data)], dtype=np.int64))
            spans = (character_of(text, batch.starts).tolist(), character_of(text, batch.ends).tolist())
            findings = zip(batch.codes.tolist(), *spans, batch.scores.tolist(), strict=True)
            return [
                RecognizerResult(
                    entity_type=batch.entities[code],
                    start=start,
                    end=end,
                    score=score,
                    recognition_metadata={
                        RecognizerResult.RECOGNIZER_NAME_KEY: self.name,
                        RecognizerResult.RECOGNIZER_IDENTIFIER_KEY: self.id,
                    },
                )
                for code, start, end, score in findings
                if batch.entities[code] in entities
            ]

    names = [entity.name for entity in registry.entities]
    return OurRecognizer(supported_entities=names, name="dataaudit", supported_language=language)


ANALYZER_VERSION = "1"
"""Changes when the same document may be cut in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerSettings:
    """The judge that a config requests."""

    model: str | None = None
    """spaCy model: name of an installed package, or path of a folder; none: no names, places, organisations."""
    language: str = "en"
    """Language of the words around a finding when there is no model; a model has its own."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the model and their entities, beyond those that presidio knows (``PER``, ``GPE``, ...)."""
    min_score: float = 0.3
    """Hits below this score are dropped; presidio gives some to any number of nine digits."""
    seed: int = 0
    """Of the draw of segments in long documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerModel:
    """A judge, named so that every worker sets up the same; small enough to be sent."""

    version: str
    """Versions of the libraries and of the way documents are cut."""
    sha256: str
    """Of the model's files, the registry and all that decides an answer."""
    model: str | None
    """Name or absolute path of the spaCy model."""
    language: str
    """As spaCy and presidio spell it."""
    labels: tuple[tuple[str, str], ...]
    """Labels of the model and their entities, sorted."""
    entities: tuple[str, ...]
    """Entities of all recognizers, sorted; names, places and organizations where the model can mark them."""
    recognizers: tuple[str, ...]
    """presidio's recognizers that take part, by class name, sorted."""
    registry: Registry
    """Entities of our own that take part."""
    min_score: float = 0.3
    seed: int = 0
    stretch: int = 2048
    """Characters of a segment, which is analyzed at once."""
    overlap: int = 256
    """Characters beyond a segment that are shown with it, so that what begins in it ends in it."""
    max_stretches: int = 32
    """Segments of a document at most; drawn by hash in longer documents. presidio's patterns take up to a millisecond
    for each character of hostile text, so that a document costs about a minute at most."""
    window: int = 256
    """Bytes on either side of a candidate that are shown to confirm it."""


_PACKAGES = ("presidio-analyzer", "spacy", "phonenumbers", "tldextract")
_PROBE = "Write to Anna Berg, 12 High Street, or to anna.berg@example.org."


def resolve_analyzer(settings: AnalyzerSettings, registry: Registry, base_dir: Path) -> AnalyzerModel | Unavailable:
    """Find the analyzer that a config requests, load it once and let it answer."""
    absent = not_installed("the judge of personal data", "pii")
    if absent is not None:
        return absent
    with quiet():
        model = _model_of(settings.model, base_dir)
        if isinstance(model, Unavailable):
            return model
        nlp, language = None, settings.language
        with CatchErrors() as call:
            nlp = load_nlp(model, settings.language)
            language = settings.language if model is None or nlp.lang == "xx" else nlp.lang
        if call.error is not None:
            what = "a spaCy model" if model else f"the language {settings.language}"
            return Unavailable(
                reason=Absence.BROKEN_CHECKPOINT,
                message=f"pii.model: {what} cannot be loaded ({call.kind})",
                hint="Give the name or the folder of a model that `spacy.load` loads, made for this version of spaCy.",
            )
        recognizers = chosen_peers(language, enable=registry.enable, disable=registry.disable)
        labels = tuple(sorted(settings.labels))
        engine = build_engine(nlp, language, recognizers=recognizers, registry=registry, labels=dict(labels))
        with CatchErrors() as call:
            engine.all.analyze(_PROBE, language)
        if call.error is not None:
            return Unavailable(
                reason=Absence.BROKEN_CHECKPOINT,
                message=f"pii.model: the analyzer does not answer ({call.kind})",
                hint="Give another model, or none.",
            )
    return AnalyzerModel(
        version=analyzer_version(),
        sha256=analyzer_sha256(nlp, registry, recognizers, labels),
        model=model,
        language=language,
        labels=labels,
        entities=engine.entities,
        recognizers=recognizers,
        registry=registry,
        min_score=settings.min_score,
        seed=settings.seed,
    )


def analyzer_version() -> str:
    """Return the versions of the libraries and of the way documents are cut."""
    return ", ".join(f"{name} {version(name)}" for name in _PACKAGES) + f"+analyzer.{ANALYZER_VERSION}"


def analyzer_sha256(
    nlp: Any, registry: Registry, recognizers: tuple[str, ...], labels: tuple[tuple[str, str], ...]
) -> str:
    """Hash all that decides an answer: files of the model, entities, recognizers, versions."""
    files = "blank" if nlp.path is None else _files_sha256(Path(nlp.path))
    decides = [files, nlp.lang, registry.digest, recognizers, labels, analyzer_version()]
    return sha256(json.dumps(decides, ensure_ascii=True).encode()).hexdigest()


def _files_sha256(folder: Path) -> str:
    digest = sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(folder).as_posix()
            digest.update(f"{name}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _model_of(model: str | None, base_dir: Path) -> str | Unavailable | None:
    """Return a model's name, or its absolute path; nothing is fetched."""
    import spacy

    if model is None:
        return None
    folder = base_dir / model
    if (folder / "config.cfg").is_file():
        return str(folder.resolve())
    if spacy.util.is_package(model):
        return model
    return Unavailable(
        reason=Absence.WEIGHTS_ABSENT,
        message=f"pii.model: expected an installed spaCy model or a folder with one, found none at {folder}",
        hint="Install the model or correct the path; without the key, names, places and organisations are not judged.",
    )
