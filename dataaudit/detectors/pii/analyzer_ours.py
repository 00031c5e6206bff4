"""Our entities as recognizers of presidio: what the patterns find is found by the analyzer too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dataaudit.detectors.patterns.registry import Registry
from dataaudit.detectors.patterns.screen import PatternScreen
from dataaudit.detectors.pii.analyzer_text import character_of

PREFIX = "dataaudit."
"""Begins the names of our recognizers."""


def our_recognizers(registry: Registry, language: str) -> list[Any]:
    """Return a ``presidio_analyzer.EntityRecognizer`` for each entity of a registry.

    Context words are not given to presidio: the entity's tier, and with it its score, knows them already.
    """
    from presidio_analyzer import EntityRecognizer, RecognizerResult

    looked = _Looked(registry)

    class OurRecognizer(EntityRecognizer):  # type: ignore[misc]
        """One entity of the registry."""

        def load(self) -> None:
            """Need nothing: the database is compiled when it is first used."""

        def analyze(self, text: str, entities: Iterable[str], nlp_artifacts: Any = None) -> list[Any]:
            """Return what the patterns find of this entity."""
            del nlp_artifacts
            (name,) = self.supported_entities
            if name not in entities:
                return []
            return [
                RecognizerResult(
                    entity_type=name,
                    start=start,
                    end=end,
                    score=score,
                    recognition_metadata={
                        RecognizerResult.RECOGNIZER_NAME_KEY: self.name,
                        RecognizerResult.RECOGNIZER_IDENTIFIER_KEY: self.id,
                    },
                )
                for start, end, score in looked.at(text).get(name, [])
            ]

    return [
        OurRecognizer(supported_entities=[entity.name], name=PREFIX + entity.name, supported_language=language)
        for entity in registry.entities
    ]


class _Looked:
    """The findings in one text, for all entities at once; presidio asks its recognizers one after another."""

    def __init__(self, registry: Registry) -> None:
        self._screen = PatternScreen(registry=registry)
        self._text: str | None = None
        self._found: dict[str, list[tuple[int, int, float]]] = {}

    def at(self, text: str) -> dict[str, list[tuple[int, int, float]]]:
        """Return (first character, character after the last, score) by entity."""
        if text is not self._text:
            data = text.encode("utf-8", "surrogatepass")
            offsets = np.array([0, len(data)], dtype=np.int64)
            batch = self._screen.find(np.frombuffer(data, dtype=np.uint8), offsets)
            starts, ends = character_of(text, batch.starts), character_of(text, batch.ends)
            found: dict[str, list[tuple[int, int, float]]] = {}
            for code, *place in zip(
                batch.codes.tolist(), starts.tolist(), ends.tolist(), batch.scores.tolist(), strict=True
            ):
                found.setdefault(batch.entities[code], []).append((place[0], place[1], place[2]))
            self._text, self._found = text, found
        return self._found
