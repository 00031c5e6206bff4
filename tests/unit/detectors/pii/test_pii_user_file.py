import numpy as np
import pytest

from dataaudit.detectors.patterns.screen import PatternScreen
from dataaudit.detectors.pii import load_pii
from dataaudit.errors import ConfigError

MINE = r"""
entities:
  STREET_ADDRESS: {enabled: false}
  CUSTOMER_NUMBER:
    context: ["customer*", "Kunde*"]
    rules:
      - regex: 'K-[0-9]{8}'
        validators: luhn
        tiers: {weak_bare: pattern}
"""


def entities_in(registry, text):
    encoded = text.encode()
    batch = PatternScreen(registry=registry).find(
        np.frombuffer(encoded, dtype=np.uint8), np.array([0, len(encoded)], dtype=np.int64)
    )
    return [(batch.entities[code], int(tier)) for code, tier in zip(batch.codes, batch.tiers, strict=True)]


def test_a_user_adds_an_entity_with_a_built_in_validator(tmp_path):
    (tmp_path / "mine.yaml").write_text(MINE)
    registry = load_pii([tmp_path / "mine.yaml"])
    assert entities_in(registry, "Kundennummer K-12345674") == [("CUSTOMER_NUMBER", 1)]
    assert entities_in(registry, "K-12345674") == [("CUSTOMER_NUMBER", 2)]
    assert entities_in(registry, "customer K-12345675") == []


def test_a_user_switches_a_shipped_entity_off(tmp_path):
    (tmp_path / "mine.yaml").write_text(MINE)
    assert entities_in(load_pii([]), "P.O. Box 513") == [("STREET_ADDRESS", 2)]
    assert entities_in(load_pii([tmp_path / "mine.yaml"]), "P.O. Box 513") == []


def test_the_digest_of_the_registry_shows_the_user_s_file(tmp_path):
    (tmp_path / "mine.yaml").write_text(MINE)
    assert load_pii([]).digest == load_pii([]).digest != load_pii([tmp_path / "mine.yaml"]).digest


def test_a_validator_that_is_not_known_is_an_error_with_its_place(tmp_path):
    (tmp_path / "mine.yaml").write_text("entities: {MINE: {rules: [{regex: 'abc', validators: lunh}]}}")
    with pytest.raises(
        ConfigError, match=r"mine\.yaml: 1 problem\(s\)\n  - entities\.MINE\.rules\.0\.validators: `lunh`"
    ):
        load_pii([tmp_path / "mine.yaml"])
