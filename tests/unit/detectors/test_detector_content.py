"""What looks at the content of documents: what decides its answers."""

from __future__ import annotations

from dataaudit.detectors.content import ContentModels
from dataaudit.detectors.patterns.registry import Registry


def registry(digest):
    """Return an empty registry of a digest."""
    return Registry(entities=(), validators={}, reserved={}, versions={}, digest=digest)


def test_what_is_looked_for_beside_a_detector_decides_its_findings_too():
    """Both share what may be looked at of one document: where it is used up, each sees less."""
    own = {"pii": registry("p")}
    alone = ContentModels(patterns=registry("p"), registries=own).decisive(None)
    beside = ContentModels(patterns=registry("ps"), registries=own).decisive(None)
    assert alone["pii"] != beside["pii"]
    assert ContentModels(patterns=registry("p"), registries=own).decisive(b"key")["pii"] != alone["pii"]
