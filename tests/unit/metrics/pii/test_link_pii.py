"""The family of personal data: which documents the analyzer is shown."""

from types import SimpleNamespace

import pytest
from made_build import config

from dataaudit.metrics.pii import stage as personal
from dataaudit.scan.detectors.patterns.registry import Registry
from dataaudit.scan.detectors.pii.analyzer_model import AnalyzerModel


def test_a_model_of_a_language_is_shown_documents_of_its_own_language(monkeypatch):
    """`pii.language` says English unless it is set; a German model reads German all the same."""
    analyzer = AnalyzerModel(
        version="1",
        sha256="a",
        model="de_small",
        language="de",
        labels=(),
        entities=("PERSON",),
        recognizers=(),
        registry=Registry(entities=(), validators={}, reserved={}, versions={}),
    )
    asked = []

    def draw(linking, question):
        asked.append(question.languages)
        raise StopAsyncIteration

    monkeypatch.setattr(personal, "draw", draw)
    monkeypatch.setattr(personal, "findings_table", lambda linking: None)
    linking = SimpleNamespace(config=config(), content=SimpleNamespace(analyzer=analyzer))
    with pytest.raises(StopAsyncIteration):
        next(personal.personal_data(linking))
    assert asked == [("de",)]
