"""Checksums, structures and looks of secrets: what issuers make is taken; hostile bytes only give False."""

import math
import random

import made_secrets as made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.detectors.patterns.encodings import decode_base58_checked, decode_base64, read_bech32
from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence
from dataaudit.scan.detectors.secrets import issuers, pem
from dataaudit.scan.detectors.secrets.assigned import bits_per_letter, is_random, is_varied
from dataaudit.scan.detectors.secrets.issuers import is_json_web_token
from dataaudit.scan.detectors.secrets.pem import is_private_key, read_fields
from dataaudit.scan.detectors.secrets.rules import Allowed
from dataaudit.scan.detectors.secrets.validators import RESERVED, VALIDATORS, is_password, is_placeholder

CHECKS = {
    "github": (issuers.is_github_token, made.with_crc62("gh" + "o_", 30)),
    "fine-grained": (issuers.is_github_token, made.github_fine_grained),
    "gitlab": (issuers.is_gitlab_token, made.gitlab_routable),
    "grafana": (issuers.is_grafana_token, made.grafana),
    "aws": (issuers.is_aws_access_key, made.aws_id),
    "sas": (issuers.is_azure_signature, made.sas),
    "slack": (lambda text: issuers.STRUCTURES["slack_lengths"](text) is not None, made.KINDS["slack bot"][1]),
    "discord": (issuers.is_discord_token, made.discord),
    "pypi": (issuers.is_pypi_token, made.pypi),
    "age": (issuers.is_age_key, made.age),
    "wallet": (issuers.is_wallet_key, made.wallet),
    "jwt": (is_json_web_token, made.json_web_token),
    "basic": (issuers.is_basic_credential, made.basic),
    "pgp": (pem.is_private_block, made.pgp_key),
    "putty": (pem.is_private_block, made.putty_key),
    "encrypted": (pem.is_private_block, made.encrypted_rsa),
}
KEYS = (made.rsa_numbers, made.pkcs8, made.ed25519_pkcs8, made.ec_key)
ODD = (".", "a.b.c", "SG.", ":", "=" * 9, "\xe4" * 40, "-----BEGIN", "PuTTY-User-Key-File-2: x\n", "1" * 90)
ANY_TEXT = st.text(st.characters(max_codepoint=255), max_size=200) | st.sampled_from(ODD)


@pytest.mark.parametrize("name", CHECKS)
def test_what_an_issuer_makes_has_the_structure(name):
    check, maker = CHECKS[name]
    rng = random.Random(name)
    assert all(check(maker(rng)) for _ in range(30))


@pytest.mark.parametrize("maker", KEYS)
def test_a_private_key_in_der_is_told(maker):
    raw = maker(random.Random(3))
    assert is_private_key(raw)
    assert not is_private_key(raw[:-1])
    assert not is_private_key(raw + b"\0")


def test_an_rsa_key_whose_primes_do_not_fit_is_none():
    raw = bytearray(made.rsa_numbers(random.Random(4)))
    raw[40] ^= 1
    assert not is_private_key(bytes(raw))


def test_a_certificate_is_no_private_key():
    raw = made.der(
        0x30,
        made.der(0x30, made.der_int(2), made.der_int(77)),
        made.der(0x30, made.der(6, b"\x2a\x03\x04")),
        made.der(3, b"\0" + b"s" * 64),
    )
    assert not is_private_key(raw)


@settings(max_examples=examples(50), deadline=None)
@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(raw):
    fields = read_fields(raw)
    assert fields is None or sum(len(field.value) for field in fields) <= len(raw)
    assert is_private_key(raw) in {True, False}


@settings(max_examples=examples(50), deadline=None)
@given(ANY_TEXT)
def test_no_check_raises(text):
    for name, (check, _) in CHECKS.items():
        if name != "sas" or "sig=" not in text:
            assert check(text) in {True, False}
    assert isinstance(decode_base64(text), bytes | None)
    decode_base58_checked(text)
    read_bech32(text)


@settings(max_examples=examples(50), deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_no_validator_and_no_predicate_raises(text, body):
    candidate = Candidate(text=text, before=body, after=body, context=False, groups={"body": body, "user": body})
    assert all(isinstance(check(candidate), Evidence) for check in VALIDATORS.values())
    assert all(isinstance(check(candidate), bool) for check in RESERVED.values())


@settings(max_examples=examples(50), deadline=None)
@given(st.binary(max_size=100))
def test_base64_of_any_bytes_decodes_in_every_spelling(raw):
    assert decode_base64(made.b64(raw)) == raw
    assert decode_base64(made.b64url(raw)) == raw


@pytest.mark.parametrize("text", ["AAB=C", "A", "A===", "AB==C", "ab cd", "AAAB="])
def test_what_no_encoder_writes_is_no_base64(text):
    assert decode_base64(text) is None


def test_the_bech32_checksum_is_that_of_bip_173():
    prefix, groups, check = read_bech32("A12UEL5L")
    assert (prefix, len(groups), check) == ("a", 6, 1)
    assert read_bech32("A12UEL5M")[2] != 1


def test_the_base58_checksum_is_bitcoin_s():
    body = decode_base58_checked("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa")
    assert body is not None
    assert body[:1] == b"\0"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda key: key,
        lambda key: key.replace("\n", "\r\n"),
        lambda key: key.replace("\n", "\\n"),
        lambda key: "\n".join("    " + line for line in key.split("\n")).strip(),
        lambda key: "\n".join(f"# {line}" for line in key.split("\n"))[2:],
        lambda key: "\n".join(f'"{line}\\n" +' for line in key.split("\n"))[1:],
        lambda key: "\n".join(f"'{line}'," for line in key.split("\n"))[1:],
    ],
    ids=["plain", "crlf", "escaped", "indented", "commented", "joined", "listed"],
)
def test_a_private_key_is_read_however_it_is_written(wrap):
    key = made.armour("PRIVATE KEY", made.pkcs8(random.Random(6)))
    assert pem.is_private_block(wrap(key))
    assert pem.body_of(wrap(key)) == pem.body_of(key)


def test_an_openssh_key_that_ends_early_is_none():
    raw = made.openssh_key(random.Random(7))
    assert pem.is_private_block(made.armour("OPENSSH PRIVATE KEY", raw))
    assert not pem.is_private_block(made.armour("OPENSSH PRIVATE KEY", raw[:-20]))


def test_a_token_without_an_algorithm_or_claims_is_no_json_web_token():
    claims, unsigned = made.b64url(b'{"sub":"1"}'), made.b64url(b'{"alg":"none"}')
    assert not is_json_web_token(f"{made.b64url(b'{}')}.{claims}.AAAA")
    assert not is_json_web_token(f"{made.b64url(b'[' * 5000)}.{claims}.AAAA")
    assert is_json_web_token(f"{unsigned}.{claims}.")


def test_an_aws_key_without_a_digit_may_be_a_peptide():
    assert not issuers.is_aws_access_key("AKIA" + "QEGRLYWADTVEFGHK")


def test_entropy_is_shannon_s():
    assert bits_per_letter("aabb") == 1.0
    assert bits_per_letter("") == 0.0
    assert math.isclose(bits_per_letter("abcd" * 5), 2.0)


@pytest.mark.parametrize("alphabet", [made.ALNUM, made.HEX, made.LOWER_ALNUM, made.URL64])
@pytest.mark.parametrize("size", [20, 32, 64])
def test_99_of_100_random_strings_look_random(alphabet, size):
    rng = random.Random(f"{alphabet}{size}")
    texts = [made.pick(rng, alphabet, size) for _ in range(500)]
    assert sum(map(is_random, texts)) >= 495
    assert sum(map(is_varied, texts)) >= 495


@pytest.mark.parametrize(
    "text",
    [
        "get_password_for_user", "internationalization", "aaaaaaaabbbbbbbb1", "2016090821474612345", "CONFIG_CRYPTO",
        "lbm_base_align_mask_v4x2", "dlist-entry-of-channel-0", "short1",
    ],
)  # fmt: skip
def test_words_numbers_and_repeats_do_not(text):
    assert not is_random(text)


@pytest.mark.parametrize(
    "text",
    [
        "changeme", "<token>", "${TOKEN}", "{{ token }}", "xxxxxxxxxxxx", "AKIAIOSFODNN7" + "EXAMPLE", "your-key-here",
        "00000000000000000000", "abcdefghijkl", "%s", "$PASSWORD", "REDACTED-1", "secret",
        "aaaa1111aaaa1111aaaa1111aaaa1111",
    ],
)  # fmt: skip
def test_a_placeholder_is_told(text):
    assert is_placeholder(text)


def test_random_values_are_no_placeholders():
    rng = random.Random(8)
    assert not any(is_placeholder(made.pick(rng, made.ALNUM, 40)) for _ in range(2000))
    assert not any(is_placeholder(made.pick(rng, made.HEX, 32)) for _ in range(2000))


def test_passwords_are_told_from_program_text():
    rng = random.Random(9)
    assert sum(is_password(made.password(rng)) for _ in range(500)) >= 495
    words = "user_name /etc/pass.d/x1 get(1) config.password1 scram-sha-x --flag2 main.c monkey"
    assert not any(map(is_password, words.split()))


def test_nothing_that_holds_a_text_shows_it():
    canary = "canary" + "Kq7Zp2"
    candidate = Candidate(text=canary, before=canary, after=canary, context=False)
    allowed = Allowed(entity="X", placeholder=RESERVED["allowed_only"], fingerprints=frozenset())
    assert canary not in repr(candidate) + repr(allowed) + str(candidate)
