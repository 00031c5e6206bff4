"""Names that are given a value: found in every syntax and language when the value is random."""

import random

import pytest
from made_assignments import (
    ALPHABETS,
    FOREIGN_NAMES,
    NAMES,
    SHORT_NAMES,
    SYNTAXES,
    assignments,
    camel,
    snake,
    upper,
    value,
)  # fmt: skip
from made_secrets import ALNUM, LOWER_ALNUM, pick, uuid
from secret_hits import all_hits, hits

from dataaudit.scan.detectors.patterns.entity import Tier

GIVEN = "q7Hd9vKx2LmP"


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_of_100_values_of_plain_names_95_are_found_where_they_stand(syntax, alphabet):
    made = assignments(syntax, alphabet, 4 * len(SYNTAXES[syntax]))
    missed = [text for text, *place in made if [hit[1:4] for hit in hits(text)] != [(*place, Tier.CONTEXTUAL)]]
    assert len(missed) <= max(1, len(made) // 20)


@pytest.mark.parametrize("names", [SHORT_NAMES, FOREIGN_NAMES], ids=["short", "foreign"])
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_of_100_values_of_short_and_foreign_names_90_are_found_where_they_stand(syntax, names):
    made = assignments(syntax, "base62", 4 * len(SYNTAXES[syntax]), names=names)
    missed = [text for text, *place in made if [hit[1:3] for hit in hits(text)] != [tuple(place)]]
    assert len(missed) <= max(1, len(made) // 10)


@pytest.mark.parametrize("length", [24, 32, 64, 128])
def test_shorter_and_longer_values_are_found_too(length):
    made = [row for alphabet in ("base62", "base64url") for row in assignments("YAML", alphabet, 40, length=length)]
    found = sum(any(hit[1:3] == tuple(place) for hit in hits(text)) for text, *place in made)
    assert found >= 0.9 * len(made)


def test_a_name_without_a_value_of_its_own_takes_none_from_the_next_line():
    rng = random.Random(3)
    for words in NAMES:
        assert hits(f"{snake(words)}:\nid: {value(rng, 'base62')}\n") == []
        assert hits(f"{upper(words)}=\n{value(rng, 'base62')}\n") == []


@pytest.mark.parametrize("name", [("user",), ("id",), ("page",), ("version",), ("path",), ("state",)])
def test_the_same_values_behind_other_names_are_no_secret(name):
    rng = random.Random(str(name))
    for spell in (snake, camel, upper):
        assert hits(f'{spell(name)} = "{value(rng, "base62")}"\n') == []


def test_a_sentence_that_tells_a_value_is_found_and_one_that_names_an_object_is_not():
    """Hexadecimal digits behind a word are mostly a commit or a digest."""
    rng = random.Random(5)
    for words in ("my new token is {}, keep it safe", "The API key is: {}", "the secret is {}."):
        assert hits(words.format(value(rng, "base62"))) != []
        assert hits(words.format(value(rng, "hexadecimal"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "NEXTAUTH_SECRET={}\n", "hashicorp_token={}\n", "HOMEPAGE_TOKEN_2={}\n", "algolia_api_key={}\n",
        "syncthing_token={}\n", "verification_token={}\n",
        "token -> {}", "token --> {}", "token → {}", "token - '{}'", "token – {}", "api key - {}", "API key → `{}`",
        "password -> '{}'", "secret->{}", "| token | {} |", "* token - `{}`", "- **Token** - `{}`",
        "el token es: {}", "das Passwort lautet: {}", "le mot de passe est {}", "密码是 {}", "密码：{}",
        "mot de passe : {}", "Пароль: {}", "CONTRASEÑA={}", "-pw {}", "java -Dpat={} -jar app.jar",
        "Cookie: theme=1; session={}; lang=en",
    ],
)  # fmt: skip
def test_a_value_behind_a_name_an_arrow_a_dash_or_a_wide_colon_is_found(line):
    """Names that only look like those of digests and pages among them."""
    rng = random.Random(line)
    assert [bool(hits(line.format(value(rng, "base62", 32)))) for _ in range(5)] == [True] * 5


@pytest.mark.parametrize(
    "line",
    [
        "passwort: {}", 'Kennwort = "{}"', "contraseña: {}", "mot_de_passe: {}", "senha = '{}'", "пароль: {}",
        'ПАРОЛЬ = "{}"', "密码：{}", "パスワード = '{}'", "비밀번호: {}", "pw = '{}'", "dbPw: '{}'", "pass: '{}'",
        "db_pw: {}", "password -> '{}'", "password - '{}'",
    ],
)  # fmt: skip
def test_a_password_behind_a_name_of_eight_languages_is_found(line):
    text = line.format(GIVEN) + "\n"
    start = len(text[: text.index(GIVEN)].encode())
    assert [hit[:3] for hit in hits(text)] == [("PASSWORD_ASSIGNMENT", start, start + len(GIVEN))]


@pytest.mark.parametrize(
    "line",
    [
        "SNYK_TOKEN={}\n", "api_key: {}\n", "githubPat = '{}'", '"client_secret": "{}"', "-H 'X-Acme-Api-Key: {}'",
    ],
)  # fmt: skip
def test_a_name_that_says_whose_secret_it_is_takes_a_uuid_and_16_letters(line):
    rng = random.Random(line)
    made = uuid(rng)
    assert len(hits(line.format(made))) == 1
    assert len(hits(line.format("sk-lf-" + made))) == 1
    short = [line.format(pick(rng, alphabet, 16)) for alphabet in (ALNUM, LOWER_ALNUM) for _ in range(20)]
    assert sum(len(hits(text)) == 1 for text in short) >= 30


@pytest.mark.parametrize("name", ["token", "secret", "key", "cache_key", "id", "change_token", "next_token"])
def test_a_name_that_says_less_takes_neither(name):
    rng = random.Random(name)
    for made in (uuid(rng), pick(rng, LOWER_ALNUM, 16)):
        assert hits(f"{name}: {made}\n") + hits(f'{name} = "{made}"\n') == []


@pytest.mark.parametrize(("alphabet", "size"), [("_-", 32), ("=_-", 45), ("=_-/+", 86)])
def test_a_value_in_one_case_may_have_separators_and_the_sign_of_padding_inside(alphabet, size):
    rng = random.Random(alphabet)
    made = [f"acme_token: {pick(rng, LOWER_ALNUM + alphabet, size)}\n" for _ in range(100)]
    assert sum([hit.end - hit.start for hit in hits(text)] == [size] for text in made) >= 85


def test_a_long_value_with_an_example_in_it_is_counted_apart():
    parts = pick(random.Random(1), ALNUM, 100), pick(random.Random(2), ALNUM, 99)
    found, _ = all_hits(f'"SessionToken": "AQoD{"EXAMPLE".join(parts)}"')
    assert [hit.reserved for hit in found] == [True]


def test_a_default_of_a_password_is_found_in_its_braces():
    made = value(random.Random(3), "base62")
    text = f'DB_PASSWORD="${{DB_PASSWORD:-{made}}}"\n'
    assert [hit[:3] for hit in hits(text)] == [("SECRET_ASSIGNMENT", 28, 28 + len(made))]
