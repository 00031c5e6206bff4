"""Entities that ship and those of a user's file."""

from pathlib import Path

import pytest
from buffers import buffers
from pii_cases import FOUND, MISSED

from dataaudit.base.errors import ConfigError
from dataaudit.scan.detectors.patterns.screen import PatternScreen
from dataaudit.scan.detectors.patterns.written import WrittenEntity, WrittenRule
from dataaudit.scan.detectors.pii import load_pii, pii_names

PAGE = Path(__file__).parents[5] / "docs/reference/detectors.md"
OWN = PAGE.read_text(encoding="utf-8").partition("\n## Your own entities\n")[2]
MINE = OWN.partition("```yaml\n")[2].partition("```")[0]
"""The example of the documentation."""


def entities_in(registry, text):
    batch = PatternScreen(registry=registry).find(*buffers([text]))
    return [(batch.entities[code], int(tier)) for code, tier in zip(batch.codes, batch.tiers, strict=True)]


def test_a_user_adds_an_entity_with_a_built_in_validator(tmp_path):
    (tmp_path / "mine.yaml").write_text(MINE)
    registry = load_pii([tmp_path / "mine.yaml"])
    assert entities_in(registry, "Kundennummer K-12345674") == [("CUSTOMER_NUMBER", 1)]
    assert entities_in(registry, "K-12345674") == [("CUSTOMER_NUMBER", 2)]
    assert entities_in(registry, "K-12345675") == []


def test_a_user_switches_a_shipped_entity_off(tmp_path):
    (tmp_path / "mine.yaml").write_text(MINE)
    assert entities_in(load_pii([]), "P.O. Box 513") == [("STREET_ADDRESS", 2)]
    assert entities_in(load_pii([tmp_path / "mine.yaml"]), "P.O. Box 513") == []


def test_the_digest_of_the_registry_shows_the_user_s_file(tmp_path):
    (tmp_path / "mine.yaml").write_text(MINE)
    assert load_pii([]).digest == load_pii([]).digest != load_pii([tmp_path / "mine.yaml"]).digest


def test_a_validator_that_is_not_known_is_an_error_with_its_place(tmp_path):
    (tmp_path / "mine.yaml").write_text("entities: {MINE: {rules: [{regex: 'abc', validators: lunh}]}}")
    with pytest.raises(ConfigError, match=r"1 problem\(s\)\n  - entities\.MINE\.rules\.0\.validators: `lunh`"):
        load_pii([tmp_path / "mine.yaml"])


def test_the_page_names_every_entity_and_every_key():
    page = PAGE.read_text(encoding="utf-8")
    registry = load_pii()
    assert [entity.name for entity in registry.entities if entity.name not in page] == []
    assert [key for key in (*WrittenEntity.model_fields, *WrittenRule.model_fields) if f"`{key}" not in page] == [
        "name"
    ]


def test_a_check_that_a_rule_gives_other_text_rejects_it(tmp_path):
    names = sorted(set(pii_names().validators) - {"phone_international", "phone_national", "phone_trunk"})
    rules = "\n".join(f"      - {{regex: '[A-Z0-9x]{{1,30}}', validators: [{name}]}}" for name in names)
    path = tmp_path / "mine.yaml"
    path.write_text(f"entities:\n  THING:\n    reserved: mac\n    rules:\n{rules}\n", encoding="utf-8")
    screen = PatternScreen(registry=load_pii([path]))
    text = b"A 9 9x9 1234567890123456 AB12CDEFGH12 GB" + b"9" * 26
    screen.find(*buffers([text]))


@pytest.mark.parametrize(
    ("entity", "problem"),
    [
        ("{rules: [{regex: '(a+)+b'}]}", "repeats a repeat"),
        ("{rules: [{regex: 'K\u00e4?[0-9]{6}'}]}", "rules.0: a repeat stands behind a letter"),
        ("{rules: [{regex: '[0-9]{6}', after_not: ['\u53f7*']}]}", "rules.0: a repeat stands behind a letter"),
        ("{context: ['*'], rules: [{regex: 'ab'}]}", "context.0: expected a word"),
        ("{context: [' '], rules: [{regex: 'ab'}]}", "context.0: expected a word"),
    ],
)
def test_what_would_stop_a_build_is_told_before_it(tmp_path, entity, problem):
    path = tmp_path / "mine.yaml"
    path.write_text(f"entities:\n  THING: {entity}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        load_pii([path])


SCREEN = PatternScreen(registry=load_pii())


def find(text):
    encoded = text.encode()
    batch = SCREEN.find(*buffers([text]))
    return [
        (batch.entities[code], int(tier), bool(reserved), encoded[start:end].decode())
        for code, tier, reserved, start, end in zip(
            batch.codes, batch.tiers, batch.reserved, batch.starts, batch.ends, strict=True
        )
    ]


@pytest.mark.judges
@pytest.mark.parametrize(("entity", "tier", "reserved", "before", "value", "after"), FOUND)
def test_an_entity_is_found_with_its_tier_and_its_place(entity, tier, reserved, before, value, after):
    assert (entity, tier, reserved, value) in find(before + value + after)


@pytest.mark.parametrize(("entity", "text"), MISSED)
def test_what_only_looks_like_an_entity_is_not_found_as_it(entity, text):
    assert entity not in [one[0] for one in find(text)]


def test_every_entity_has_a_case_and_a_near_miss():
    names = {entity.name for entity in SCREEN.registry.entities}
    assert names == {case[0] for case in FOUND} == {case[0] for case in MISSED}
