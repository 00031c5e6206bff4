"""Rules of detect-secrets, searched for by their leading part; a user's own rules; the list of allowed values."""

import hashlib
import pickle
import re

import hyperscan
import pytest
from made_secrets import KINDS, documents

from dataaudit.base.errors import ConfigError
from dataaudit.scan.detectors.patterns import screen
from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.patterns.written import Names
from dataaudit.scan.detectors.secrets import rules
from dataaudit.scan.detectors.secrets.validators import RESERVED, VALIDATORS


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch):
    """The rules are those of the library as it is now, not of an earlier process or test."""
    monkeypatch.setattr("dataaudit.base.cache.kept_folder", lambda: None)
    monkeypatch.setattr(rules, "_shipped", rules._shipped.__wrapped__)


NAMES = Names(validators=VALIDATORS, reserved=RESERVED)


def searched(prefilter, text, ignore_case):
    """Places at which hyperscan finds a pattern."""
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = hyperscan.HS_FLAG_SOM_LEFTMOST | (hyperscan.HS_FLAG_CASELESS if ignore_case else 0)
    database.compile(expressions=[prefilter.encode()], ids=[0], elements=1, flags=[flags])
    places = []
    database.scan(text.encode(), match_event_handler=lambda _id, start, _end, _flags, _context: places.append(start))
    return places


@pytest.mark.parametrize(
    ("regex", "leading", "before"),
    [
        (r"(?<!a)abc(?!d)", "abc", 0),
        (r"key_[a-z]{4}", r"key\x5f(?:[a-z]){4,4}", 0),
        (r"key[a-z]{50,1024}end", "key(?:[a-z]){24}", 0),
        (r"(?:x|)y+z*", "(?:y)+(?:z)*", 1),
        (r"a(?:b{100}|c)d", "a(?:(?:b){24}|c)", 0),
        (r"[^\s'](\d+)", r"[^\s\x27](?:(?:[\d])+)", 0),
    ],
)
def test_the_leading_part_of_a_regex_is_what_hyperscan_takes(regex, leading, before):
    assert rules.leading_part(re.compile(regex)) == (leading, before)


def test_a_back_reference_is_refused():
    with pytest.raises(ValueError, match="cannot be searched for"):
        rules.leading_part(re.compile(r"(a|b)\1"))


def test_every_match_of_the_library_s_regexes_is_found_by_its_leading_part():
    texts = [text for kind in KINDS for text, _, _ in documents(kind, 4, seed=11)]
    num_matches = 0
    for _, regexes in rules._plugins():
        for regex in regexes:
            prefilter, before = rules.leading_part(regex)
            for text in texts:
                for match in regex.finditer(text):
                    num_matches += 1
                    places = searched(prefilter, text, bool(regex.flags & re.IGNORECASE))
                    assert any(match.start() <= place <= match.start() + before for place in places)
    assert num_matches > 100


def test_the_library_s_rules_are_read_from_the_library(monkeypatch):
    newer = [("GitHubTokenDetector", [re.compile(r"ghx_[A-Za-z0-9]{40}(?!\w)")])]
    monkeypatch.setattr(rules, "_plugins", lambda: newer)
    registry = rules.load_secrets()
    token = "ghx_" + "aB3dE5fG7h" * 3 + "Zq9Yw8Xv7U"
    (found,) = find_in(registry, memoryview(f"x = '{token}'".encode()))[0]
    assert registry.entities[found.code].name == "GITHUB_TOKEN"


def test_a_plugin_that_is_new_has_an_entity_of_its_own(monkeypatch):
    monkeypatch.setattr(rules, "_plugins", lambda: [("AcmeTokenDetector", [re.compile(r"acme-[a-z0-9]{32}")])])
    registry = rules.load_secrets()
    (found,) = find_in(registry, memoryview(b"acme-" + b"k3j2h4g5f6d7s8a9" * 2))[0]
    assert registry.entities[found.code].name == "OTHER_ACME_TOKEN"


def test_the_library_s_version_is_part_of_the_digest(monkeypatch):
    before = rules.load_secrets().digest
    monkeypatch.setattr(rules, "version", lambda name: "99.0")
    assert rules.load_secrets().digest != before


def test_every_plugin_of_the_installed_version_is_used_or_skipped_with_a_reason():
    uses = rules._read_uses()
    named = {plugin for plugin, _ in rules._plugins()}
    assert named == set(uses)
    assert all(use.skip or use.entity for use in uses.values())


def test_a_registry_can_be_sent_to_a_worker(tmp_path):
    registry = rules.load_secrets()
    sent = pickle.loads(pickle.dumps(registry))
    text, _, _ = documents("npm token", 1)[0]
    assert sent.digest == registry.digest
    assert find_in(sent, memoryview(text.encode())) == find_in(registry, memoryview(text.encode()))


def test_a_user_adds_an_entity_changes_one_and_switches_one_off(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(
        "entities:\n"
        "  ACME_KEY:\n    reserved: placeholder\n    rules: [{regex: 'acme_[a-z0-9]{20}', validators: [random]}]\n"
        "  NPM_TOKEN: {enabled: false}\n"
        "  VAULT_TOKEN:\n    rules: [{regex: 'vault:[a-z0-9]{20}'}]\n"
    )
    registry = rules.load_secrets([own])
    names = {entity.name: entity for entity in registry.entities}
    assert "NPM_TOKEN" not in names
    assert [rule.regex for rule in names["VAULT_TOKEN"].rules] == ["vault:[a-z0-9]{20}"]
    found, _ = find_in(registry, memoryview(b"acme_k3j2h4g5f6d7s8a9q1w2 acme_xxxxxxxxxxxxxxxxxxxx"))
    assert [(registry.entities[hit.code].name, hit.reserved) for hit in found] == [
        ("ACME_KEY", False),
        ("ACME_KEY", True),
    ]


def test_at_least_thirty_rules_come_from_the_library():
    entities = rules.add_upstream((), NAMES)
    assert sum(rule.name.startswith("detect-secrets ") for entity in entities for rule in entity.rules) >= 30


def test_our_own_rules_have_no_unbounded_repeat_which_would_cost_places():
    ready = screen._prepare(rules.load_secrets())
    assert [
        each.rule.regex for each in ready if each.unbounded and not each.rule.name.startswith("detect-secrets ")
    ] == []


def test_a_fingerprint_is_the_sha256_of_entity_zero_byte_and_value():
    assert rules.fingerprint("NPM_TOKEN", "abc") == hashlib.sha256(b"NPM_TOKEN\0abc").hexdigest()


def test_a_listed_value_is_reserved_and_others_are_not(tmp_path):
    (text, start, end), (other, _, _) = documents("npm token", 2)
    listed = tmp_path / "allowed"
    listed.write_text(f"# fixtures of the tests\n{rules.fingerprint('NPM_TOKEN', text[start:end])}  # rotated 2024\n\n")
    registry = rules.load_secrets(allow=listed)
    assert [hit.reserved for hit in find_in(registry, memoryview(text.encode()))[0]] == [True]
    assert [hit.reserved for hit in find_in(registry, memoryview(other.encode()))[0]] == [False]


def test_a_listed_private_key_is_known_however_it_is_wrapped(tmp_path):
    text, start, end = documents("pkcs8 key", 1)[0]
    key = text[start:end]
    listed = tmp_path / "allowed"
    listed.write_text(rules.fingerprint("PRIVATE_KEY", key) + "\n")
    wrapped = '{"private_key": "' + key.replace("\n", "\\n") + '\\n"}'
    found, _ = find_in(rules.load_secrets(allow=listed), memoryview(wrapped.encode()))
    assert [hit.reserved for hit in found] == [True]


def test_an_allow_list_changes_the_digest_of_the_rules(tmp_path):
    listed = tmp_path / "allowed"
    listed.write_text("0" * 64 + "\n")
    assert rules.load_secrets(allow=listed).digest != rules.load_secrets().digest


def test_a_line_that_is_no_fingerprint_is_an_error_that_does_not_show_it(tmp_path):
    listed = tmp_path / "allowed"
    listed.write_text("# list\nthe-secret-itself\n")
    with pytest.raises(ConfigError, match="line 2 is no fingerprint") as raised:
        rules.read_allow_list(listed)
    assert "the-secret" not in str(raised.value) + repr(raised.value)


def test_a_list_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the allow-list"):
        rules.read_allow_list(tmp_path / "none")


def test_the_package_lists_documented_values():
    assert len(rules.documented_values()) >= 7
    assert rules.parse_allow_list("", where="x") == frozenset()
