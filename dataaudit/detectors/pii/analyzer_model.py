"""AnalyzerSettings and AnalyzerModel: which judge of personal data a config asks for, and the one that was found."""

from __future__ import annotations

from dataclasses import dataclass

from dataaudit.detectors.patterns.registry import Registry

ANALYZER_VERSION = "1"
"""Changes when the same document may be shown to the analyzer in another way."""
NER_ENTITIES = ("LOCATION", "NRP", "ORGANIZATION", "PERSON")
"""What only a model of language can find."""


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
    """What can be found, sorted; those of :data:`NER_ENTITIES` among them that the model can find."""
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
