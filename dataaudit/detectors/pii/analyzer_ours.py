"""Our entities as a recognizer of presidio: what the patterns find is found by the analyzer too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dataaudit.detectors.patterns.registry import Registry
from dataaudit.detectors.patterns.screen import PatternScreen
from dataaudit.detectors.pii.analyzer_text import character_of


def our_recognizer(registry: Registry, language: str) -> Any:
    """Return a ``presidio_analyzer.EntityRecognizer`` of all entities of a registry: they are found in one pass.

    Context words are not given to presidio: the finding's tier, and with it its score, knows them already.
    """
    from presidio_analyzer import EntityRecognizer, RecognizerResult

    screen = PatternScreen(registry=registry)

    class OurRecognizer(EntityRecognizer):
        """Entities of the registry."""

        def load(self) -> None:
            """Need nothing: the database is compiled when it is first used."""

        def analyze(self, text: str, entities: Iterable[str], nlp_artifacts: Any = None) -> list[Any]:
            """Return what the patterns find of some entities."""
            del nlp_artifacts
            data = text.encode("utf-8", "surrogatepass")
            batch = screen.find(np.frombuffer(data, dtype=np.uint8), np.array([0, len(data)], dtype=np.int64))
            places = (character_of(text, batch.starts).tolist(), character_of(text, batch.ends).tolist())
            found = zip(batch.codes.tolist(), *places, batch.scores.tolist(), strict=True)
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
                for code, start, end, score in found
                if batch.entities[code] in entities
            ]

    names = [entity.name for entity in registry.entities]
    return OurRecognizer(supported_entities=names, name="dataaudit", supported_language=language)
