"""Secrets of every kind and issuer, made at run time, in code, config and logs: they are found, as what they are."""

import random
import re
import string
from pathlib import Path

import pytest
from issuer_forms import ASSIGNED, NAMED, NOT_LOOKED_FOR, OWN_LINES, PREFIXED, samples
from made_secrets import KINDS, armour, der, der_int, documents, pick
from secret_hits import all_hits, hits, hits_at, shipped

from dataaudit.scan.detectors.patterns.entity import Tier

GIVEN = "q7Hd9vKx2LmP"
CHECKED = (
    "aws access key id", "azure storage key", "azure service bus key", "azure sas", "github classic",
    "github server", "github refresh", "github fine-grained", "gitlab routable", "npm token", "pypi token",
    "grafana token", "sendgrid key", "discord token", "age identity", "bitcoin key", "jwt", "rsa key", "pkcs8 key",
    "service account", "ed25519 key", "ec key", "ec key in code", "encrypted rsa key", "openssh key", "pgp key",
    "putty key", "slack bot", "slack user", "stripe key", "anthropic key", "openai project",
)  # fmt: skip
SEALED = ("github classic", "github fine-grained", "npm token", "gitlab routable", "grafana token", "age identity")


def named_at(text, start, end):
    """Return the entities of hits that cover a place, also of those that are counted apart."""
    return [hit.entity for hit in all_hits(text)[0] if hit.start <= start < end <= hit.end]


def entities_of(line, secret):
    """Return the entities of hits in a line where it holds a secret."""
    start = line.index("{}")
    return [hit.entity for hit in hits_at(line.replace("{}", secret), start, start + len(secret))]


@pytest.mark.judges
@pytest.mark.parametrize("kind", KINDS)
def test_at_least_99_of_100_secrets_of_a_kind_are_found(kind):
    assert sum(not hits_at(*made) for made in documents(kind, 100)) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_is_found_as_what_it_is(kind):
    assert {hit.entity for made in documents(kind, 20, seed=1) for hit in hits_at(*made)} <= {KINDS[kind][0]}


@pytest.mark.parametrize("kind", CHECKED)
def test_what_has_a_checksum_or_a_structure_is_validated(kind):
    for made in documents(kind, 10, seed=2):
        assert [hit.tier for hit in hits_at(*made)] == [Tier.VALIDATED]


@pytest.mark.parametrize("kind", SEALED)
def test_one_wrong_letter_breaks_a_checksum(kind):
    for text, start, end in documents(kind, 10, seed=3):
        place = end - 12
        other = "Q" if text[place].isupper() and text[place] != "Q" else "q" if text[place] != "q" else "p"
        broken = text[:place] + other + text[place + 1 :]
        assert Tier.VALIDATED not in [hit.tier for hit in hits_at(broken, start, end)]


@pytest.mark.parametrize("rule", NAMED)
def test_a_token_with_a_form_is_found_as_what_it_is(rule):
    entity, maker = NAMED[rule]
    made = samples(rule, rule.partition("-")[0], maker, rounds=20 if rule in OWN_LINES else 3)
    assert sum(named_at(*one) == [entity] for one in made) >= 0.9 * len(made)


@pytest.mark.parametrize("rule", ASSIGNED)
def test_a_value_behind_the_name_of_a_service_is_found(rule):
    made = samples(rule, *ASSIGNED[rule], rounds=3)
    assert sum(bool(named_at(*one)) for one in made) >= 0.9 * len(made)


@pytest.mark.parametrize("issuer", PREFIXED)
def test_a_token_that_its_prefix_names_is_found_behind_any_name_and_alone(issuer):
    made = samples(issuer, "settings", PREFIXED[issuer], rounds=2)
    made += [("see the note\n" + text[start:end] + "\n", 13, 13 + end - start) for text, start, end in made]
    assert sum(named_at(*one) == ["ISSUED_TOKEN"] for one in made) >= 0.9 * len(made)


def test_what_is_not_looked_for_has_a_reason():
    assert all(NOT_LOOKED_FOR.values())
    assert not set(NOT_LOOKED_FOR) & (set(NAMED) | set(ASSIGNED))


def test_the_table_of_kinds_is_that_of_the_rules():
    page = (Path(__file__).parents[5] / "docs/reference/detectors.md").read_text()
    named = re.findall(r"^\| `([A-Z0-9_]+)` \|", page.partition("## Kinds of secrets")[2], re.MULTILINE)
    assert named == [entity.name for entity in shipped().entities]


@pytest.mark.parametrize("head", ["", "\u043a\u043b\u044e\u0447 \u5bc6\u94a5 "])
def test_the_place_of_a_token_is_its_own_in_bytes(head):
    text, start, end = documents("npm token", 1)[0]
    size = len(head.encode())
    assert [hit[1:3] for hit in hits(head + text)] == [(start + size, end + size)]


@pytest.mark.parametrize(
    "line", ["api_key = '{}'", "Authorization: Bearer {}", "CLIENT_SECRET={}", '"auth_token": "{}"']
)
@pytest.mark.parametrize("kind", ["google api key", "gitlab token", "hugging face token", "azure client secret"])
def test_a_name_before_a_value_with_a_form_of_its_own_does_not_rename_it(kind, line):
    entity, maker, _ = KINDS[kind]
    assert entities_of(line, maker(random.Random(kind))) == [entity]


@pytest.mark.parametrize("kind", ["putty key", "pgp key", "rsa key", "bearer header"])
def test_many_secrets_of_a_kind_in_one_document_are_all_found(kind):
    texts = [text for text, _, _ in documents(kind, 40)]
    found, truncated = all_hits("\n".join(texts))
    assert not truncated
    assert len([hit for hit in found if not hit.reserved]) == len(texts)


def test_a_private_key_of_16384_bits_is_found():
    rng = random.Random(1)
    p, q = (rng.getrandbits(8192) | 1 << 8191 | 1 for _ in range(2))
    raw = der(0x30, *map(der_int, (0, p * q, 65537, p * q - 2, p, q, p - 2, q - 2, p - 4)))
    text = "key:\n" + armour("RSA PRIVATE KEY", raw) + "\n"
    (found,), truncated = all_hits(text)
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
)
def test_a_setting_is_found_however_long_and_whatever_ends_its_line(entity, text):
    assert entity in [hit.entity for hit in all_hits(text)[0]]


@pytest.mark.parametrize(
    "line",
    [
        "smtp_pass = '{}'", 'mailPass: "{}",', "become-pass: {}\n", '  psk="{}"\n', "sshpass -p '{}' ssh ann@build",
        "sshpass -p{} scp x build:", "curl -s -u ann:{} https://build.corp/job",
        'curl --user "ann:{}" https://build.corp/job', "docker login -u ann -p {} hub.corp",
        "mysqldump -h db -u app -p{} app > x.sql",
        "kubectl create secret generic db --from-literal=app_password={}", "PGPASSWORD={} psql -h db app",
        "requirepass {}\n", "machine build.corp\n  login ann\n  password {}\n",
        "url: jdbc:postgresql://db/app?user=app&password={}&ssl=true",
        'connect("host=db port=5432 user=app password={} dbname=app")',
    ],
)  # fmt: skip
def test_a_password_on_a_command_line_or_in_a_data_source_is_found(line):
    assert entities_of(line, GIVEN) == ["PASSWORD_ASSIGNMENT"]


def test_the_key_that_django_makes_is_found_with_its_signs():
    key = "django-insecure-" + pick(random.Random(9), string.ascii_lowercase + string.digits + "!@#$%^&*(-_=+)", 50)
    assert entities_of("SECRET_KEY = '{}'\n", key) == ["SECRET_ASSIGNMENT"]
