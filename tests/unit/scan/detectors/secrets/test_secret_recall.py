"""Secrets of every kind, made at run time, in code, config and logs: they are found, as what they are."""

import random
import string

import pytest
from made_secrets import armour, der, der_int, pick
from secret_kinds import KINDS, documents

from dataaudit.scan.detectors.patterns.entity import Tier
from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.secrets.rules import load_secrets

NUM_DOCUMENTS = 100
CHECKED = (
    "aws access key id", "azure storage key", "azure service bus key", "azure sas", "github classic",
    "github server", "github refresh", "github fine-grained", "gitlab routable", "npm token", "pypi token",
    "grafana token", "sendgrid key", "discord token", "age identity", "bitcoin key", "jwt", "rsa key", "pkcs8 key",
    "service account", "ed25519 key", "ec key", "ec key in code", "encrypted rsa key", "openssh key", "pgp key",
    "putty key", "slack bot", "slack user", "stripe key", "anthropic key", "openai project",
)  # fmt: skip
SEALED = ("github classic", "github fine-grained", "npm token", "gitlab routable", "grafana token", "age identity")


@pytest.fixture(scope="module")
def registry():
    return load_secrets()


def found_at(registry, text, start, end):
    """Findings that overlap a place and are not reserved."""
    found, _ = find_in(registry, memoryview(text.encode()))
    return [hit for hit in found if hit.start < end and hit.end > start and not hit.reserved]


@pytest.mark.judges
@pytest.mark.parametrize("kind", KINDS)
def test_at_least_99_of_100_secrets_of_a_kind_are_found(registry, kind):
    missed = sum(not found_at(registry, *made) for made in documents(kind, NUM_DOCUMENTS))
    assert missed <= NUM_DOCUMENTS // 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_is_found_as_what_it_is(registry, kind):
    named = [
        registry.entities[hit.code].name for made in documents(kind, 20, seed=1) for hit in found_at(registry, *made)
    ]
    assert set(named) <= {KINDS[kind][0]}


@pytest.mark.parametrize("kind", CHECKED)
def test_what_has_a_checksum_or_a_structure_is_validated(registry, kind):
    for made in documents(kind, 10, seed=2):
        assert [Tier(hit.tier) for hit in found_at(registry, *made)] == [Tier.VALIDATED]


@pytest.mark.parametrize("kind", SEALED)
def test_one_wrong_letter_breaks_a_checksum(registry, kind):
    for text, start, end in documents(kind, 10, seed=3):
        place = end - 12
        other = "Q" if text[place].isupper() and text[place] != "Q" else "q" if text[place] != "q" else "p"
        broken = text[:place] + other + text[place + 1 :]
        assert Tier.VALIDATED not in [hit.tier for hit in found_at(registry, broken, start, end)]


def test_the_place_of_a_token_is_its_own(registry):
    text, start, end = documents("github classic", 1)[0]
    (hit,) = found_at(registry, text, start, end)
    assert (hit.start, hit.end) == (start, end)


def test_a_secret_behind_letters_of_other_scripts_is_found(registry):
    text, start, end = documents("npm token", 1)[0]
    head = "\u043a\u043b\u044e\u0447 \u5bc6\u94a5 "
    found, _ = find_in(registry, memoryview((head + text).encode()))
    assert [hit.start for hit in found] == [start + len(head.encode())]
    assert found[0].end == end + len(head.encode())


@pytest.mark.parametrize(
    "line", ["api_key = '{}'", "Authorization: Bearer {}", "CLIENT_SECRET={}", '"auth_token": "{}"']
)
@pytest.mark.parametrize("kind", ["google api key", "gitlab token", "hugging face token", "azure client secret"])
def test_a_name_before_a_value_with_a_form_of_its_own_does_not_rename_it(registry, kind, line):
    entity, maker, _ = KINDS[kind]
    secret = maker(random.Random(kind))
    start = line.index("{}")
    found = found_at(registry, line.replace("{}", secret), start, start + len(secret))
    assert [registry.entities[hit.code].name for hit in found] == [entity]


@pytest.mark.parametrize("kind", ["putty key", "pgp key", "rsa key", "bearer header"])
def test_many_secrets_of_a_kind_in_one_document_are_all_found(registry, kind):
    texts = [text for text, _, _ in documents(kind, 40)]
    found, truncated = find_in(registry, memoryview("\n".join(texts).encode()))
    assert not truncated
    assert len([hit for hit in found if not hit.reserved]) == len(texts)


def test_a_private_key_of_16384_bits_is_found(registry):
    rng = random.Random(1)
    p, q = (rng.getrandbits(8192) | 1 << 8191 | 1 for _ in range(2))
    raw = der(0x30, *map(der_int, (0, p * q, 65537, p * q - 2, p, q, p - 2, q - 2, p - 4)))
    text = "key:\n" + armour("RSA PRIVATE KEY", raw) + "\n"
    (found,), truncated = find_in(registry, memoryview(text.encode()))
    assert (found.start, found.end, found.tier, truncated) == (5, len(text) - 1, Tier.VALIDATED, False)


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        ("PASSWORD_ASSIGNMENT", "DB_PASSWORD=q7Hd9vKx2LmP\r\nDEBUG=1\r\n"),
        ("URL_PASSWORD", "postgres://u1:p" + "9f86d081884c7d659a2feaa0c55ad015" * 2 + "@db.mailhaus.de/x"),
        ("URL_PASSWORD", "https://" + "n" * 60 + ":q7Hd9vKx2LmP@mailhaus.de"),
        ("PASSWORD_ASSIGNMENT", "db:\n  password: q7Hd9vKx2LmP\n"),
        ("PASSWORD_ASSIGNMENT", "spring.datasource.password=q7Hd!vKxzLmP\r\n"),
        ("PASSWORD_ASSIGNMENT", "[db]\npasswd = q7Hd9vKx2LmP"),
        ("SECRET_ASSIGNMENT", "  - api_key: 76dfZTPtLLKjAyS96HBqcbCtx3GIobuiF9Pl\n"),
    ],
    ids=[
        "windows line ends", "password of 65 letters", "user of 60 letters", "YAML", "properties", "INI", "key in YAML",
    ],
)  # fmt: skip
def test_a_setting_is_found_however_long_and_whatever_ends_its_line(entity, text):
    registry = load_secrets()
    found, _ = find_in(registry, memoryview(text.encode()))
    assert entity in [registry.entities[hit.code].name for hit in found]


GIVEN = "q7Hd9vKx2LmP"


@pytest.mark.parametrize(
    "line",
    [
        "smtp_pass = '{}'",
        'mailPass: "{}",',
        "become-pass: {}\n",
        '  psk="{}"\n',
        "sshpass -p '{}' ssh ann@build",
        "sshpass -p{} scp x build:",
        "curl -s -u ann:{} https://build.corp/job",
        'curl --user "ann:{}" https://build.corp/job',
        "docker login -u ann -p {} hub.corp",
        "mysqldump -h db -u app -p{} app > x.sql",
        "kubectl create secret generic db --from-literal=app_password={}",
        "PGPASSWORD={} psql -h db app",
        "requirepass {}\n",
        "machine build.corp\n  login ann\n  password {}\n",
        "url: jdbc:postgresql://db/app?user=app&password={}&ssl=true",
        'connect("host=db port=5432 user=app password={} dbname=app")',
    ],
)
def test_a_password_on_a_command_line_or_in_a_data_source_is_found(registry, line):
    start = line.index("{}")
    found = found_at(registry, line.replace("{}", GIVEN), start, start + len(GIVEN))
    assert [registry.entities[hit.code].name for hit in found] == ["PASSWORD_ASSIGNMENT"]


def test_the_key_that_django_makes_is_found_with_its_signs(registry):
    key = "django-insecure-" + pick(random.Random(9), string.ascii_lowercase + string.digits + "!@#$%^&*(-_=+)", 50)
    text = f"SECRET_KEY = '{key}'\n"
    found = found_at(registry, text, 14, 14 + len(key))
    assert [registry.entities[hit.code].name for hit in found] == ["SECRET_ASSIGNMENT"]
