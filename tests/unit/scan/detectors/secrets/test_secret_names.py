"""Names that say little, are part of other words or are of other languages, and signs that stand in sentences."""

import random

import pytest
from made_assignments import FOREIGN_NAMES, SHORT_NAMES, SYNTAXES, assignments, value
from made_secrets import ALNUM, HEX, LOWER_ALNUM, pick

from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.secrets.rules import load_secrets

GIVEN = "q7Hd9vKx2LmP"


@pytest.fixture(scope="module")
def registry():
    return load_secrets()


def found_in(registry, text):
    found, _ = find_in(registry, memoryview(text.encode()))
    return [(registry.entities[hit.code].name, hit.start, hit.end) for hit in found if not hit.reserved]


@pytest.mark.parametrize("names", [SHORT_NAMES, FOREIGN_NAMES], ids=["short", "foreign"])
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_of_100_values_of_short_and_foreign_names_90_are_found_where_they_stand(registry, syntax, names):
    made = assignments(syntax, "base62", 4 * len(SYNTAXES[syntax]), names=names)
    missed = [text for text, *place in made if [hit[1:] for hit in found_in(registry, text)] != [tuple(place)]]
    assert len(missed) <= max(1, len(made) // 10)


@pytest.mark.parametrize(
    "line",
    [
        "token -> {}", "token --> {}", "token → {}", "token - '{}'", "token – {}", "api key - {}", "API key → `{}`",
        "password -> '{}'", "secret->{}", "| token | {} |", "* token - `{}`", "- **Token** - `{}`",
        "el token es: {}", "das Passwort lautet: {}", "le mot de passe est {}", "密码是 {}", "密码：{}",
        "mot de passe : {}", "Пароль: {}", "CONTRASEÑA={}", "-pw {}", "java -Dpat={} -jar app.jar",
        "Cookie: theme=1; session={}; lang=en",
    ],
)  # fmt: skip
def test_a_value_behind_an_arrow_a_dash_or_a_wide_colon_is_found(registry, line):
    rng = random.Random(line)
    made = [line.format(value(rng, "base62", 32)) for _ in range(5)]
    assert [bool(found_in(registry, text)) for text in made] == [True] * 5


@pytest.mark.parametrize(
    "line",
    [
        "passwort: {}", 'Kennwort = "{}"', "contraseña: {}", "mot_de_passe: {}", "senha = '{}'", "пароль: {}",
        'ПАРОЛЬ = "{}"', "密码：{}", "パスワード = '{}'", "비밀번호: {}", "pw = '{}'", "dbPw: '{}'", "pass: '{}'",
        "db_pw: {}", "password -> '{}'", "password - '{}'",
    ],
)  # fmt: skip
def test_a_password_behind_a_name_of_eight_languages_is_found(registry, line):
    text = line.format(GIVEN) + "\n"
    start = len(text[: text.index(GIVEN)].encode())
    assert found_in(registry, text) == [("PASSWORD_ASSIGNMENT", start, start + len(GIVEN))]


@pytest.mark.parametrize(
    "line",
    [
        "path: {}", "patch - {}", "pattern = '{}'", "passport: {}", "passenger = '{}'", "compass -> {}",
        "session_id: {}", "obsession: {}", "auth_url = '{}'", "authority: {}", "author - {}", "sasl: {}",
        "jwt_format: {}", "password_hash -> {}", "token_count - {}", "changeToken: {}", "密码学：{}", "клавиша: {}",
    ],
)  # fmt: skip
def test_longer_words_and_other_things_that_begin_like_a_short_name_hold_no_secret(registry, line):
    assert found_in(registry, line.format(value(random.Random(line), "base62"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "pass\n\n    def test_of_the_2nd_configuration_of_x(self):",
        "session.get_session_of_the_request_2(x), auth - see-the-2nd-chapter-of-the-handbook",
        "pat: the-patch-of-2024-05-01-of-linux-6.1, pw -> hashlib_sha256_hexdigest_v2x",
        "class _Ed25519PrivateKey(Ed25519PrivateKey): nid_key = lib.NID_pbe_WithSHA1And3_Key_TripleDES_CBC",
        "contraseña: cambiame_por_favor_2024, пароль: {{пароль}}, 密码：请输入密码",
        "The token - the value of it - is made for you; a session - one of many - ends.",
        "Session\n===================\nAuth\n-------------------\n",
    ],
)
def test_program_text_prose_and_headings_behind_a_short_name_hold_no_secret(registry, text):
    assert found_in(registry, text) == []


EXPLICIT = ("SNYK_TOKEN={}\n", "api_key: {}\n", "githubPat = '{}'", '"client_secret": "{}"', "-H 'X-Acme-Api-Key: {}'")
"""Names that say that a secret is meant, and a sign that gives them a value."""


@pytest.mark.parametrize("line", EXPLICIT)
def test_a_name_that_says_whose_secret_it_is_takes_a_uuid_and_16_letters(registry, line):
    rng = random.Random(line)
    uuid = "-".join(pick(rng, HEX, size) for size in (8, 4, 4, 4, 12))
    assert len(found_in(registry, line.format(uuid))) == 1
    assert len(found_in(registry, line.format("sk-lf-" + uuid))) == 1
    short = [line.format(pick(rng, alphabet, 16)) for alphabet in (ALNUM, LOWER_ALNUM) for _ in range(20)]
    assert sum(len(found_in(registry, text)) == 1 for text in short) >= 30


@pytest.mark.parametrize("name", ["token", "secret", "key", "cache_key", "id", "change_token", "next_token"])
def test_a_name_that_says_less_takes_neither(registry, name):
    rng = random.Random(name)
    uuid = "-".join(pick(rng, HEX, size) for size in (8, 4, 4, 4, 12))
    for made in (uuid, pick(rng, LOWER_ALNUM, 16)):
        assert found_in(registry, f"{name}: {made}\n") + found_in(registry, f'{name} = "{made}"\n') == []


@pytest.mark.parametrize(("alphabet", "size"), [("_-", 32), ("=_-", 45), ("=_-/+", 86)])
def test_a_value_in_one_case_may_have_separators_and_the_sign_of_padding_inside(registry, alphabet, size):
    rng = random.Random(alphabet)
    made = [f"acme_token: {pick(rng, LOWER_ALNUM + alphabet, size)}\n" for _ in range(100)]
    found = [[end - start for _, start, end in found_in(registry, text)] for text in made]
    assert sum(hit == [size] for hit in found) >= 85


def test_a_long_value_with_an_example_in_it_is_counted_apart(registry):
    text = (
        '"SessionToken": "AQoD'
        + pick(random.Random(1), ALNUM, 100)
        + "EXAMPLE"
        + pick(random.Random(2), ALNUM, 99)
        + '"'
    )
    found, _ = find_in(registry, memoryview(text.encode()))
    assert [hit.reserved for hit in found] == [True]


def test_a_default_of_a_password_is_found_in_its_braces(registry):
    made = value(random.Random(3), "base62")
    text = f'DB_PASSWORD="${{DB_PASSWORD:-{made}}}"\n'
    assert found_in(registry, text) == [("SECRET_ASSIGNMENT", 28, 28 + len(made))]
