"""Plain names that are given a value: found in every syntax when the value is random, and never otherwise."""

import random

import pytest
from made_assignments import ALPHABETS, NAMES, SYNTAXES, assignments, camel, snake, upper, value
from made_secrets import HEX, b64, pick

from dataaudit.scan.detectors.patterns.entity import Tier
from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.secrets.rules import load_secrets

ROUNDS = 4


@pytest.fixture(scope="module")
def registry():
    return load_secrets()


def found_in(registry, text):
    found, _ = find_in(registry, memoryview(text.encode()))
    return [hit for hit in found if not hit.reserved]


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_of_100_values_of_plain_names_95_are_found_where_they_stand(registry, syntax, alphabet):
    made = assignments(syntax, alphabet, ROUNDS * len(SYNTAXES[syntax]))
    missed = [
        text
        for text, start, end in made
        if [(hit.start, hit.end, Tier(hit.tier)) for hit in found_in(registry, text)] != [(start, end, Tier.CONTEXTUAL)]
    ]
    assert len(missed) <= max(1, len(made) // 20)


PROSE = (
    "the token is required, and a secret stays a secret until the password is printed",
    "Each token expires after 3600 seconds; see token-based-authentication-for-services in the handbook.",
    "token = getTokenFromRequest2(context)",
    "const accessToken = await this.tokenService.getAccessTokenSilently2();",
    "secret_key = settings.DJANGO_SECRET_KEY_V2_FOR_PRODUCTION",
    "api_key = os.environ.get('ACME_API_KEY_2024_PRODUCTION')",
    "token = tokenizer.convert_ids_to_tokens_v2(ids)",
    "access_token: AccessTokenResponseV2SchemaOut",
    "key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey",
    'KEYS = ["TR31_K0_KEY_ENCRYPTION_KEY", "TR31_P0_PIN_ENCRYPTION_KEY", "TR31_V1_IBM3624_PIN_VERIFICATION_KEY"]',
    '__all__ = [\n    "MLKEM768X25519PrivateKey",\n    "MLKEM1024P384PublicKeyOfThe2nd",\n]',
    "#define SECRET_TOKEN_OFFSET_V2 offsetof(struct secret_token_v2, offset_2)",
    "token: /usr/lib/x86_64-linux-gnu/security/pam_token2.so",
    "secret: projects/my-project-1/secrets/my-secret-2/versions/latest",
    "TOKEN_FILE=/var/run/secrets/kubernetes.io/serviceaccount/token2",
    "--token-file=/home/user1/.config/app-2/token_v2.txt",
    "password: correct-horse-battery-staple-of-2024",
    "token: docker.io/library/token-service:1.2.3-alpine3.19",
    "credential: arn:aws:iam::123456789012:role/service-role/app-2",
    "secret: v1.24.0-rc.1-20240501101112-linux-amd64",
    "key: 2024-05-01T10:11:12.123456789+00:00",
)
PLACEHOLDERS = (
    "TOKEN=YOUR_API_KEY_HERE_1234567890", "token: ${TOKEN}", "token: {{ token }}",
    'api_key: "{{ .Values.auth.apiKey2OfTheService }}"', "export X_TOKEN=$(cat /run/secrets/token_2_of_the_service)",
    "token=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "secret: xxxxxxxx", "curl -H 'X-Api-Key: <token>'",
    "password: changeme", "--token=0000000000000000000000000000000000000000",
    "//registry.npmjs.org/:_authToken=${NPM_TOKEN}", "secret = 0123456789abcdef0123456789abcdef01234567",
)  # fmt: skip
DIGESTS = (
    "commit {}", "token_hash: {}", "secret_sha256 = '{}'", "apiKeyChecksum: {}", '"integrity": "sha512-{}"',
    "ETag: {}", "digest: sha256:{}", "key fingerprint: {}", "key_fingerprint = {}", "passwordHash: '{}'",
    "using RSA key {}", "gpg --recv-key {}", "key: {}", "cache_key = '{}'", "public_key: {}", "nextPageToken: {}",
    "csrf_token: {}", "token: sha256-{}", "secretRef: {}", "tokenizer: {}", "<key>Commit</key><string>{}</string>",
)  # fmt: skip


@pytest.mark.parametrize("text", PROSE)
def test_words_identifiers_paths_and_versions_behind_a_plain_name_are_no_secret(registry, text):
    assert found_in(registry, text) == []


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_behind_a_plain_name_is_no_secret(registry, text):
    assert found_in(registry, text) == []


@pytest.mark.parametrize("line", DIGESTS)
def test_a_digest_a_public_key_or_a_place_in_a_list_is_no_secret(registry, line):
    rng = random.Random(line)
    assert [found_in(registry, line.format(pick(rng, HEX, 40))) for _ in range(5)] == [[]] * 5


@pytest.mark.parametrize("name", ["token", "secret", "X_TOKEN", "Key", "credential"])
def test_a_uuid_and_a_public_key_are_no_secret(registry, name):
    rng = random.Random(name)
    uuid = "-".join(pick(rng, HEX, size) for size in (8, 4, 4, 4, 12))
    public = b64(b"\0\0\0\x0bssh-ed25519\0\0\0 " + rng.randbytes(32))
    certificate = "MIIB" + b64(rng.randbytes(60))
    for text in (uuid, uuid.upper(), public, certificate):
        assert found_in(registry, f"{name}: {text}\n") == []
        assert found_in(registry, f'{name} = "{text}"\n') == []


@pytest.mark.parametrize("name", [("user",), ("id",), ("page",), ("version",), ("path",), ("state",)])
def test_the_same_values_behind_other_names_are_no_secret(registry, name):
    rng = random.Random(str(name))
    for spell in (snake, camel, upper):
        assert found_in(registry, f'{spell(name)} = "{value(rng, "base62")}"\n') == []


@pytest.mark.parametrize("length", [24, 32, 64, 128])
def test_shorter_and_longer_values_are_found_too(registry, length):
    made = [row for alphabet in ("base62", "base64url") for row in assignments("YAML", alphabet, 40, length=length)]
    found = sum(
        any(hit.start == start and hit.end == end for hit in found_in(registry, text)) for text, start, end in made
    )
    assert found >= 0.9 * len(made)


def test_a_name_without_a_value_of_its_own_takes_none_from_the_next_line(registry):
    rng = random.Random(3)
    for words in NAMES:
        assert found_in(registry, f"{snake(words)}:\nid: {value(rng, 'base62')}\n") == []
        assert found_in(registry, f"{upper(words)}=\n{value(rng, 'base62')}\n") == []


@pytest.mark.parametrize(
    "name",
    [
        "NEXTAUTH_SECRET", "hashicorp_token", "HOMEPAGE_TOKEN_2", "algolia_api_key", "syncthing_token",
        "verification_token",
    ],
)  # fmt: skip
def test_names_that_only_look_like_those_of_digests_and_pages_hold_secrets(registry, name):
    rng = random.Random(name)
    assert len(found_in(registry, f"{name}={value(rng, 'base62')}\n")) == 1


def test_a_sentence_that_tells_a_value_is_found_and_one_that_names_an_object_is_not(registry):
    """Hexadecimal digits behind a word are mostly a commit or a digest."""
    rng = random.Random(5)
    for words in ("my new token is {}, keep it safe", "The API key is: {}", "the secret is {}."):
        made = value(rng, "base62")
        assert [text for text in [words.format(made)] if found_in(registry, text)] == [words.format(made)]
        assert found_in(registry, words.format(value(rng, "hexadecimal"))) == []
