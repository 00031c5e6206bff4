"""Building presidio's engine: its recognizers and ours, over a spaCy model or a blank pipeline, without a network."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataaudit.detectors.patterns.registry import Registry
from dataaudit.detectors.pii.analyzer_model import AnalyzerModel
from dataaudit.detectors.pii.analyzer_ours import our_recognizers
from dataaudit.errors import ConfigError
from dataaudit.yamlfile import nearest


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

    return spacy.blank(language) if model is None else spacy.load(model)


def build_engine(model: AnalyzerModel, nlp: Any) -> Engine:
    """Set up presidio for a model that was found."""
    peers = [
        one
        for one in _peers(model.recognizers, model.language)
        if one.name in model.recognizers
    ]
    return assemble(nlp, model.language, peers, model.registry, dict(model.labels))


def assemble(
    nlp: Any, language: str, peers: list[Any], registry: Registry, labels: dict[str, str]
) -> Engine:
    """Put recognizers and a pipeline together."""
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
    own = [SpacyRecognizer(supported_language=language, supported_entities=list(found))] if found else []

    def analyzer(recognizers: list[Any]) -> Any:
        return AnalyzerEngine(
            registry=RecognizerRegistry(recognizers=recognizers, supported_languages=[language]),
            nlp_engine=engine,
            supported_languages=[language],
            context_aware_enhancer=LemmaContextAwareEnhancer(),
        )

    ours = our_recognizers(registry, language)
    return Engine(analyzer([*peers, *own, *ours]), analyzer([*peers, *own]), nlp, language)


def ner_entities(nlp: Any, meaning: dict[str, str]) -> tuple[str, ...]:
    """Return what the parts of a pipeline that mark entities can mark, in presidio's names, sorted."""
    labels: set[str] = set()
    for name, pipe in nlp.pipeline:
        if "doc.ents" in nlp.get_pipe_meta(name).assigns:
            labels |= set(getattr(pipe, "labels", ()) or meaning)
    return tuple(sorted({meaning[label] for label in labels if label in meaning}))


def default_peers(language: str, *, enable: Iterable[str], disable: Iterable[str]) -> list[Any]:
    """Return presidio's own recognizers for a language, by the names that the config switches.

    Raises:
        ConfigError: A name is none of presidio's, or one that asks a network.
    """
    from presidio_analyzer import RecognizerRegistry

    registry = RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language])
    default = [one for one in registry.recognizers if type(one).__name__ != "SpacyRecognizer"]
    known = {one.name for one in default}
    for name in disable:
        if name not in known:
            raise ConfigError(
                f"pii.disable: presidio has no recognizer {name} that is on by itself{nearest(name, sorted(known))}"
            )
    kept = [one for one in default if one.name not in set(disable)]
    return kept + _peers([name for name in enable if name not in known], language, default=False)


def _peers(names: Iterable[str], language: str, *, default: bool = True) -> list[Any]:
    """Make presidio's recognizers by their class names; those that are on by itself as presidio sets them up."""
    from presidio_analyzer import PatternRecognizer, predefined_recognizers

    made = default_peers(language, enable=(), disable=()) if default else []
    there = {one.name for one in made}
    local = sorted(
        name
        for name in predefined_recognizers.__all__
        if issubclass(getattr(predefined_recognizers, name), PatternRecognizer)
    )
    for name in names:
        if name in there:
            continue
        if name not in local:
            raise ConfigError(
                f"pii.enable: presidio has no recognizer {name} that works with patterns{nearest(name, local)}"
            )
        made.append(getattr(predefined_recognizers, name)(supported_language=language))
    return made


def _forget_networks() -> None:
    """Keep the library of domain names, which presidio asks about addresses, from fetching its list anew."""
    import tldextract

    tldextract.tldextract.TLD_EXTRACTOR = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)


def model_folder(nlp: Any) -> Path | None:
    """Return where the files of a loaded model lie; None of a blank pipeline."""
    return None if nlp.path is None else Path(nlp.path)
