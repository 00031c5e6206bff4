"""Detectors: models behind small protocols, loaded when they are needed, each with the digest of its model.

``resolve_languages`` finds the models that a config names and says what decides their answers;
``load_languages`` gives a worker the pair that identifies the language of every document.
"""

from __future__ import annotations

from dataaudit.detectors.language import LanguageIdentifier, LanguageModels, load_languages, resolve_languages

__all__ = ["LanguageIdentifier", "LanguageModels", "load_languages", "resolve_languages"]
