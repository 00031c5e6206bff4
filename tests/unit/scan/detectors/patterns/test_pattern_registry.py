import json
import pickle
from dataclasses import asdict

import pytest
from patterns_made import MADE, NAMES, registry_of

from dataaudit.base.errors import ConfigError
from dataaudit.manifest.canonical import digest_json
from dataaudit.scan.detectors.content import shipped_patterns
from dataaudit.scan.detectors.patterns.registry import ENGINE_VERSION, build_registry, compile_database, join_registries
from dataaudit.scan.detectors.patterns.written import parse_layer, read_layer


def layer_of(text, detector="pii"):
    return parse_layer(text, where="mine.yaml", detector=detector, names=NAMES)


def one_rule(rule, **entity):
    return f"entities: {{MINE: {{rules: [{rule}]" + "".join(f", {k}: {v}" for k, v in entity.items()) + "}}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1", "expected a mapping with a key `entities`, found a list"),
        ("entities: {mine: {rules: [{regex: abc}]}}", "entities: the name `mine`"),
        ("entities: {MINE: {}}", "entities.MINE.rules: expected at least one entry; or `enabled: false`"),
        ("entities: {MINE: {rule: []}}", "entities.MINE.rule: unknown key (did you mean `rules`?)"),
        (one_rule("{regex: '('}"), "entities.MINE.rules.0.regex: `(` is not a regular expression"),
        (one_rule("{regex: '[[a]'}"), "is not a regular expression: Possible nested set"),
        (one_rule("{regex: 'a*'}"), "`a*` matches empty text"),
        (one_rule("{regex: '[\u00e9]x'}"), "holds more than ASCII"),
        (one_rule('{regex: "\\bx"}'), "holds a control character"),
        (one_rule("{regex: abc, validators: evn}"), "`evn` is not known (did you mean `even`?)"),
        (one_rule("{regex: abc}", reserved="zeroes"), "`zeroes` is not known (did you mean `zeros`?)"),
        (one_rule("{regex: abc, reach: [1, 20000]}"), "expected two numbers from 0 to 16384, found [1, 20000]"),
        (one_rule("{regex: abc}, {regex: abd, name: '1'}"), "two rules have one name"),
        (one_rule("{regex: abc, tiers: {weak: sure}}"), "entities.MINE.rules.0.tiers.weak"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(text, said):
    with pytest.raises(ConfigError) as caught:
        layer_of(text)
    assert "mine.yaml" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("regex", ["a(?=b)", "(?:abc){2,900}", "a++b"])
def test_a_pattern_that_cannot_be_searched_for_is_named_with_its_entity(regex):
    registry = build_registry([layer_of(one_rule(f"{{regex: '{regex}'}}"))], names=NAMES, versions={})
    with pytest.raises(ConfigError) as caught:
        compile_database(registry)
    assert f"entity MINE, rule 1: the pattern `{regex}`" in str(caught.value)


def test_a_prefilter_stands_in_for_what_cannot_be_searched_for():
    registry = build_registry([layer_of(one_rule("{regex: 'a(?=b)', prefilter: ab}"))], names=NAMES, versions={})
    assert compile_database(registry) is compile_database(registry)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.yaml: No such file"):
        read_layer(tmp_path / "absent.yaml", detector="pii", names=NAMES)
    (tmp_path / "latin.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        read_layer(tmp_path / "latin.yaml", detector="pii", names=NAMES)


def test_a_later_layer_replaces_entities_and_switches_them_off():
    shipped = layer_of(MADE)
    mine = layer_of("entities: {MAIL: {enabled: false}, CODE: {rules: [{regex: 'zzz'}]}}")
    registry = build_registry([shipped, mine], names=NAMES, versions={})
    assert [entity.name for entity in registry.entities] == ["CODE", "STRONG", "TICKET"]
    assert registry.entities[0].rules[0].regex == "zzz"


def test_switching_off_what_is_not_there_is_an_error():
    with pytest.raises(ConfigError, match=r"entities\.MAILS is switched off but not known \(did you mean `MAIL`"):
        build_registry([layer_of(MADE), layer_of("entities: {MAILS: {enabled: false}}")], names=NAMES, versions={})


def test_two_detectors_cannot_share_an_entity():
    with pytest.raises(ConfigError, match="the entity CODE is defined by two detectors"):
        join_registries(registry_of(), registry_of(detector="secrets"))
    with pytest.raises(ConfigError, match="already an entity of pii"):
        build_registry([layer_of(MADE), layer_of(MADE, detector="secrets")], names=NAMES, versions={})


def test_the_digest_changes_with_rules_and_versions_and_nothing_else():
    same = registry_of()
    assert same.digest == registry_of().digest
    assert same.digest.startswith("sha256:")
    assert registry_of(MADE.replace("{1,20}@", "{1,21}@")).digest != same.digest
    assert build_registry([layer_of(MADE)], names=NAMES, versions={"phonenumbers": "9"}).digest != same.digest


def test_the_digest_is_that_of_the_json_of_all_rules_and_versions():
    for registry in (registry_of(), shipped_patterns(), build_registry([], names=NAMES, versions={})):
        entities = json.loads(json.dumps([asdict(entity) for entity in registry.entities]))
        whole = {"engine": ENGINE_VERSION, "entities": entities, "versions": dict(registry.versions)}
        assert registry.digest == digest_json(whole)


def test_a_joined_registry_holds_all_and_survives_pickling():
    other = build_registry([layer_of(one_rule("{regex: abc}"), "secrets")], names=NAMES, versions={"a": "1"})
    joined = join_registries(other, registry_of())
    assert [entity.detector for entity in joined.entities] == ["pii"] * 4 + ["secrets"]
    assert pickle.loads(pickle.dumps(joined)) == joined
