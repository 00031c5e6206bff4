"""Building presidio's engine: its recognizers and ours, over a spaCy model or a blank pipeline, without a network."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataaudit.detectors.patterns.registry import Registry
from dataaudit.detectors.pii.analyzer_ours import our_recognizer
from dataaudit.errors import ConfigError
from dataaudit.yamlfile import nearest

_LEMMAS = "dataaudit_lower_as_lemmas"


@dataclass(frozen=True, slots=True)
class Engine:
    """presidio with one model, ready to look at texts."""

    all: Any
    """``AnalyzerEngine`` with all recognizers."""
    peers: Any
    """``AnalyzerEngine`` with presidio's own recognizers alone."""
    nlp: Any
    """``spacy.Language`` behind both."""
    language: str
    """What presidio is told."""

    def zone(self) -> AbstractContextManager[Any]:
        """Forget the words of a text after it: spaCy would keep those of all texts."""
        zone: AbstractContextManager[Any] = self.nlp.memory_zone()
        return zone

    @property
    def entities(self) -> tuple[str, ...]:
        """What can be found, sorted."""
        return tuple(sorted({name for one in self.all.registry.recognizers for name in one.supported_entities}))


def load_nlp(model: str | None, language: str) -> Any:
    """Load a spaCy model, or a pipeline that only splits words.

    Raises:
        OSError, ValueError, ImportError and others: whatever spaCy raises when a model is none of its own.
    """
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
    """Put recognizers and a pipeline together.

    Args:
        nlp: ``spacy.Language``.
        language: What presidio is told.
        recognizers: presidio's, by class name.
        registry: Ours.
        labels: What labels of the model mean, beyond those that presidio knows.
    """
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.context_aware_enhancers import LemmaContextAwareEnhancer
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import SpacyRecognizer

    _forget_networks()
    settings = NerModelConfiguration()
    settings.model_to_presidio_entity_mapping |= labels
    engine = SpacyNlpEngine(ner_model_configuration=settings)
    engine.nlp = {language: nlp}
    found = ner_entities(nlp, settings.model_to_presidio_entity_mapping)
    peers = _peers(recognizers, language)
    if found:
        peers.append(SpacyRecognizer(supported_language=language, supported_entities=list(found)))

    def analyzer(recognizers: list[Any]) -> Any:
        return AnalyzerEngine(
            registry=RecognizerRegistry(recognizers=recognizers, supported_languages=[language]),
            nlp_engine=engine,
            supported_languages=[language],
            context_aware_enhancer=LemmaContextAwareEnhancer(),
        )

    return Engine(analyzer([*peers, our_recognizer(registry, language)]), analyzer(peers), nlp, language)


def ner_entities(nlp: Any, meaning: dict[str, str]) -> tuple[str, ...]:
    """Return what the parts of a pipeline that mark entities can mark, in presidio's names, sorted."""
    labels: set[str] = set()
    for name, pipe in nlp.pipeline:
        if "doc.ents" in nlp.get_pipe_meta(name).assigns:
            labels |= set(getattr(pipe, "labels", ()) or meaning)
    return tuple(sorted({meaning[label] for label in labels if label in meaning}))


def chosen_peers(language: str, *, enable: Iterable[str], disable: Iterable[str]) -> tuple[str, ...]:
    """Return the class names of presidio's recognizers that take part, sorted.

    Raises:
        ConfigError: A name is none of presidio's, or one that asks a network.
    """
    usual = {one.name for one in _usual_peers(language)}
    known = usual | _local_peers().keys()
    for key, names in (("enable", enable), ("disable", disable)):
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"presidio.{key}: presidio has no recognizer {name} that works with patterns"
                    f"{nearest(name, sorted(known))}"
                )
    return tuple(sorted(usual - set(disable) | set(enable)))


def _peers(names: Iterable[str], language: str) -> list[Any]:
    """Make presidio's recognizers by their names; those that are on by themselves as presidio sets them up."""
    usual, local = {one.name: one for one in _usual_peers(language)}, _local_peers()
    return [usual[name] if name in usual else local[name](supported_language=language) for name in names]


def _usual_peers(language: str) -> list[Any]:
    """Return the recognizers that presidio uses by itself, without that of the language model."""
    from presidio_analyzer import RecognizerRegistry

    registry = RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language])
    return [one for one in registry.recognizers if type(one).__name__ != "SpacyRecognizer"]


def _local_peers() -> dict[str, Any]:
    """Return presidio's recognizers that work with patterns, by class name: they need no network and no weights."""
    from presidio_analyzer import PatternRecognizer, predefined_recognizers

    members = {name: getattr(predefined_recognizers, name) for name in predefined_recognizers.__all__}
    return {name: one for name, one in members.items() if isinstance(one, type) and issubclass(one, PatternRecognizer)}


def _forget_networks() -> None:
    """Keep the library of domain names, which presidio asks about addresses, from fetching its list anew."""
    import tldextract

    tldextract.tldextract.TLD_EXTRACTOR = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)


def model_folder(nlp: Any) -> Path | None:
    """Return where the files of a loaded model lie; None of a blank pipeline."""
    return None if nlp.path is None else Path(nlp.path)
