"""Detectors: models behind small protocols, loaded when they are needed, each with the digest of its model.

``resolve_languages`` finds the models that a config names and says what decides their answers;
``load_languages`` gives a worker the pair that identifies the language of every document. ``resolve_content`` does the
same for what looks at the content: the toxicity screen, the patterns of personal data and secrets, and the judges.
"""

from __future__ import annotations

from dataaudit.scan.detectors.base import DetectorModel
from dataaudit.scan.detectors.content import ContentModels, key_id, resolve_content, shipped_patterns
from dataaudit.scan.detectors.language import LanguageIdentifier, LanguageModels, load_languages, resolve_languages
from dataaudit.scan.detectors.patterns.registry import Registry
from dataaudit.scan.detectors.patterns.screen import PatternScreen, find_in
from dataaudit.scan.detectors.toxicity import ToxicityScreen

__all__ = [
    "ContentModels",
    "DetectorModel",
    "LanguageIdentifier",
    "LanguageModels",
    "PatternScreen",
    "Registry",
    "ToxicityScreen",
    "find_in",
    "key_id",
    "load_languages",
    "resolve_content",
    "resolve_languages",
    "shipped_patterns",
]
