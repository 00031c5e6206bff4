"""Files of entities, registries and their digests, and regexes that run away."""

import json
import pickle
import re
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest
from patterns_made import MADE, NAMES, registry_of
from steps import steps_of

from dataaudit.base import yamlfile
from dataaudit.base.errors import ConfigError
from dataaudit.manifest.canonical import digest_json
from dataaudit.scan.detectors.content import shipped_patterns
from dataaudit.scan.detectors.patterns import written
from dataaudit.scan.detectors.patterns.context import compile_patterns
from dataaudit.scan.detectors.patterns.registry import (
    ENGINE_VERSION,
    alternatives,
    build_registry,
    compile_database,
    join_registries,
    scan,
)
from dataaudit.scan.detectors.patterns.written import (
    _MANY_WAYS,
    _ONE_WAY,
    full_regex,
    parse_layer,
    read_layer,
    runs_away,
)
from dataaudit.scan.detectors.pii import load_pii
from dataaudit.scan.detectors.secrets.rules import load_secrets


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


def test_rules_on_disk_follow_the_code_that_reads_them(tmp_path, monkeypatch):
    """The rules' own folder, that of patterns, and that of the reader of YAML."""
    folders = []
    monkeypatch.setattr(written, "sources_digest", lambda *read: folders.extend(read) or b"")
    monkeypatch.setattr("dataaudit.base.cache.kept_folder", lambda: None)
    (tmp_path / "made.yaml").write_text(MADE)
    assert written.shipped_layer(tmp_path, "made.yaml", layer_of) == layer_of(MADE)
    code = {path for folder in folders for path in folder.glob("*.py")}
    assert {Path(written.__file__), Path(yamlfile.__file__)} <= code
    assert tmp_path in folders


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


@pytest.mark.parametrize(
    "regex",
    [
        "(a+)+b", "(?:[a-z]+[.-]?)+@", "x(?:a*)*y", "(?:b|a+)+c", "((a{1,40}))*c", "(?=(a+)+b)a",
        "(?:a{0,99}){2,99}z", "(?:(?:a+)?b?)+c",
    ],
)  # fmt: skip
def test_a_repeat_of_a_repeat_runs_away(regex):
    assert runs_away(regex)


@pytest.mark.parametrize(
    "regex", ["a+b+", "(?:[a-z]+-)+x", "(?:a{1,3}){1,3}", "(?:a++)+b", "(?>(?:a+)+)b", "(?:[a-z]{1,20}[.]){1,8}com"]
)
def test_other_repeats_do_not_run_away(regex):
    assert not runs_away(regex)


@pytest.mark.parametrize("load", [load_pii, load_secrets])
def test_no_shipped_regex_runs_away(load):
    assert not [rule.name for _, rule in load().rules if runs_away(rule.regex)]


def test_blanks_between_a_name_and_a_value_are_shared_out_in_one_way():
    """What is searched for instead of a part of detect-secrets' regexes takes the same texts."""
    many, one = (re.compile(f"n{part}v") for part in (_MANY_WAYS, _ONE_WAY))
    for size in range(7):
        for letters in product(" =:>", repeat=size):
            text = f"n{''.join(letters)}v"
            assert bool(many.fullmatch(text)) == bool(one.fullmatch(text)), text


def test_no_rule_tries_ways_to_share_out_blanks():
    """A name, blanks and no value: steps follow the blanks, in every rule that has such a part."""
    rules = [rule for _, rule in load_secrets().rules if _MANY_WAYS in rule.regex]
    assert len(rules) >= 5
    for rule in rules:
        name = next(one for one in ("cloudant_key", "ibm_key", "cos_secret_key", "sl_key") if one[:2] in rule.regex)
        few, many = (steps_of(full_regex(rule), f"[{name}{' ' * size}!") for size in (200, 400))
        assert many <= 2.4 * few, rule.name


@pytest.mark.parametrize(
    ("pattern", "ways"),
    [
        ("ab|c[|)]d|e", ["ab", "c[|)]d", "e"]),
        ("(?i)x(?:a|b)|y", ["(?i)x(?:a|b)", "(?i)y"]),
        (r"x(?:a|\||(?:c|d)|e)[0-9]", [f"x(?:{way})[0-9]" for way in ("a", r"\|", "(?:c|d)", "e")]),
        ("(?:a|b|c|d)+x", ["(?:a|b|c|d)+x"]),
        ("(?:(?:a|b|c|d)|e)x", ["(?:(?:a|b|c|d)|e)x"]),
        ("(?=a|b)a|b", ["(?=a|b)a|b"]),
    ],
)
def test_a_pattern_is_cut_at_its_alternatives(pattern, ways):
    assert alternatives(pattern) == ways


def test_cut_patterns_hit_where_whole_ones_do():
    import hyperscan

    registry = shipped_patterns()
    prefilters = compile_database(registry)
    rules = [registry.rules[shared[0]][1] for shared in prefilters.rules]
    flags = [hyperscan.HS_FLAG_CASELESS if rule.anchored or rule.ignore_case else 0 for rule in rules]
    cut = [rule.prefilter for rule in rules if len(alternatives(rule.prefilter)) > 1]
    assert len(cut) > 40
    whole = [
        (rule.prefilter.encode(), flag | hyperscan.HS_FLAG_SOM_LEFTMOST)
        for rule, flag in zip(rules, flags, strict=True)
    ]
    words = [word for entity in registry.entities for word in entity.context]
    numbers = (
        "4111 1111 1111 1111, a.b@cc.de, 10.1.2.3, ::1:2:3, Via 5, 12 Main Street 90210, C/ Alcala 4, password = 'x1'"
    )
    text = f"{numbers}; {'; '.join(f'{word} 12-34-56 Nr. 7, 0612345678' for word in words)}".encode()
    hits = set[tuple[int, int, int]]()
    compile_patterns(whole).scan(text, match_event_handler=lambda *hit: hits.add(hit[:3]) or None)
    found, truncated = scan(prefilters, text)
    assert not truncated
    assert len(hits) > 1000
    assert {(number, end): start for number, start, end in sorted(found, reverse=True)} == {
        (number, end): start for number, start, end in sorted(hits, reverse=True)
    }
