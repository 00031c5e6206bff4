"""AnalyzerSettings and AnalyzerModel: which judge of personal data a config asks for, and the one that was found.

resolve_analyzer: from what a config asks for to an analyzer that is known to work, or to why there is none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dataaudit.detectors.judges import Absence, Unavailable, not_installed, quiet
from dataaudit.detectors.patterns.registry import Registry
from dataaudit.detectors.pii.analyzer_engine import build_engine, chosen_peers, load_nlp, model_folder
from dataaudit.guarded import Guarded

ANALYZER_VERSION = "1"
"""Changes when the same document may be shown to the analyzer in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerSettings:
    """The judge that a config asks for."""

    model: str | None = None
    """spaCy model: name of an installed package, or path of a folder; none: no names, places, organisations."""
    language: str = "en"
    """Language of the words around a finding when there is no model; a model knows its own."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the model and the entities that they mean, beyond those that presidio knows (``PER``, ``GPE``, ...)."""
    min_score: float = 0.3
    """Hits below this score are left out; presidio gives some to any number of nine digits."""
    seed: int = 0
    """Of the choice of stretches in long documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerModel:
    """A judge, named so that every worker sets up the same; small enough to be sent."""

    version: str
    """Versions of the libraries and of the way documents are looked at."""
    sha256: str
    """Of the model's files, the registry and all that decides an answer."""
    model: str | None
    """Name or absolute path of the spaCy model."""
    language: str
    """Language that it looks for, as spaCy and presidio spell it."""
    labels: tuple[tuple[str, str], ...]
    """Labels of the model and what they mean, sorted."""
    entities: tuple[str, ...]
    """What can be found, sorted; names, places and organizations among them where the model can find them."""
    recognizers: tuple[str, ...]
    """presidio's recognizers that take part, by class name, sorted."""
    registry: Registry
    """Entities of our own that take part."""
    min_score: float = 0.3
    """Hits below this score are left out."""
    seed: int = 0
    """Of the choice of stretches in long documents."""
    stretch: int = 2048
    """Characters that are looked at at once."""
    overlap: int = 256
    """Characters beyond a stretch that are seen with it, so that what begins in it ends in it."""
    max_stretches: int = 32
    """Stretches of a document that are looked at, at most; drawn by hash in longer ones. presidio's patterns take up to
    a millisecond for each character of hostile text, so that a document costs about a minute at most."""
    window: int = 256
    """Bytes on either side of a candidate that are shown when it is to be confirmed."""


_PACKAGES = ("presidio-analyzer", "spacy", "phonenumbers", "tldextract")
_PROBE = "Write to Anna Berg, 12 High Street, or to anna.berg@example.org."


def resolve_analyzer(settings: AnalyzerSettings, registry: Registry, base_dir: Path) -> AnalyzerModel | Unavailable:
    """Find the analyzer that a config asks for, load it once and let it answer.

    Args:
        settings: What the config says.
        registry: Entities of our own, the user's among them, that become recognizers too; and which of presidio's own
            recognizers the user's file switches.
        base_dir: Folder that relative paths start from.

    Returns:
        The analyzer, or why what depends on it is not evaluated.

    Raises:
        ConfigError: A recognizer is switched on or off that presidio does not have.
    """
    absent = not_installed("the judge of personal data", "pii")
    if absent is not None:
        return absent
    with quiet():
        model = _model_of(settings.model, base_dir)
        if isinstance(model, Unavailable):
            return model
        nlp, language = None, settings.language
        with Guarded() as call:
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
        with Guarded() as call:
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
    """Return the versions of the libraries and of the way documents are looked at."""
    return ", ".join(f"{name} {version(name)}" for name in _PACKAGES) + f"+analyzer.{ANALYZER_VERSION}"


def analyzer_sha256(
    nlp: Any, registry: Registry, recognizers: tuple[str, ...], labels: tuple[tuple[str, str], ...]
) -> str:
    """Hash all that decides an answer: files of the model, entities, recognizers, versions."""
    decides = [_files_sha256(model_folder(nlp)), nlp.lang, registry.digest, recognizers, labels, analyzer_version()]
    return sha256(json.dumps(decides, ensure_ascii=True).encode()).hexdigest()


def _files_sha256(folder: Path | None) -> str:
    if folder is None:
        return "blank"
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
