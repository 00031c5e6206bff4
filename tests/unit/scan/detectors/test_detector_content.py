"""What looks at the content of documents: what decides its answers."""

from dataaudit.scan.annotators import Findings
from dataaudit.scan.detectors.patterns.registry import Registry


def registry(digest):
    """Return an empty registry of a digest."""
    return Registry(entities=(), validators={}, reserved={}, versions={}, digest=digest)


def test_what_is_looked_for_beside_a_detector_decides_its_findings_too():
    """Both share what may be looked at of one document: where it is used up, each sees less."""
    own = {"pii": "p"}
    alone = Findings(patterns=registry("p"), digests=own).decisive()
    beside = Findings(patterns=registry("ps"), digests=own).decisive()
    assert alone["pii"] != beside["pii"]
    assert Findings(patterns=registry("p"), digests=own, key=b"key").decisive()["pii"] != alone["pii"]
