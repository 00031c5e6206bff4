"""Fingerprints: what is listed is counted apart, and a list never shows a value."""

import hashlib

import pytest
from secret_kinds import documents

from dataaudit.base.errors import ConfigError
from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.secrets.rules import (
    documented_values,
    fingerprint,
    load_secrets,
    parse_allow_list,
    read_allow_list,
)


def test_a_fingerprint_is_the_sha256_of_entity_zero_byte_and_value():
    assert fingerprint("NPM_TOKEN", "abc") == hashlib.sha256(b"NPM_TOKEN\0abc").hexdigest()


def test_a_listed_value_is_reserved_and_others_are_not(tmp_path):
    (text, start, end), (other, _, _) = documents("npm token", 2)
    listed = tmp_path / "allowed"
    listed.write_text(f"# fixtures of the tests\n{fingerprint('NPM_TOKEN', text[start:end])}  # rotated 2024\n\n")
    registry = load_secrets(allow=listed)
    assert [hit.reserved for hit in find_in(registry, memoryview(text.encode()))[0]] == [True]
    assert [hit.reserved for hit in find_in(registry, memoryview(other.encode()))[0]] == [False]


def test_a_listed_private_key_is_known_however_it_is_wrapped(tmp_path):
    text, start, end = documents("pkcs8 key", 1)[0]
    key = text[start:end]
    listed = tmp_path / "allowed"
    listed.write_text(fingerprint("PRIVATE_KEY", key) + "\n")
    wrapped = '{"private_key": "' + key.replace("\n", "\\n") + '\\n"}'
    found, _ = find_in(load_secrets(allow=listed), memoryview(wrapped.encode()))
    assert [hit.reserved for hit in found] == [True]


def test_an_allow_list_changes_the_digest_of_the_rules(tmp_path):
    listed = tmp_path / "allowed"
    listed.write_text("0" * 64 + "\n")
    assert load_secrets(allow=listed).digest != load_secrets().digest


def test_a_line_that_is_no_fingerprint_is_an_error_that_does_not_show_it(tmp_path):
    listed = tmp_path / "allowed"
    listed.write_text("# list\nthe-secret-itself\n")
    with pytest.raises(ConfigError, match="line 2 is no fingerprint") as raised:
        read_allow_list(listed)
    assert "the-secret" not in str(raised.value) + repr(raised.value)


def test_a_list_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the allow-list"):
        read_allow_list(tmp_path / "none")


def test_the_package_lists_documented_values():
    assert len(documented_values()) >= 7
    assert parse_allow_list("", where="x") == frozenset()
