"""What looks like a secret and is none: nothing is found, or it is counted apart."""

import random
from pathlib import Path

import pytest
from made_assignments import value
from made_secrets import ALNUM, HEX, b64, pick, uuid
from secret_hits import all_hits, hits

TEXTS = (
    "password = kzalloc(maxpwsize, GFP_KERNEL);\nif (password != ETP_I2C_IAP_PASSWORD) {",
    'password: %d\\n", password);',
    'const char *password_file = "/etc/app/pass.d/main2";',
    "password_encryption = 'scram-sha-256'",
    '"PasswordLastUsed": "2016-09-08T21:47:36Z",',
    "FORCE_CHANGE_PASSWORD = get_password_2(config)",
    'label = "-----BEGIN RSA PRIVATE KEY-----"\nif a:\n    end = "-----END RSA PRIVATE KEY-----"\n',
    "sha256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'",
    "commit 3c2d6a1f9b8e7d6c5b4a39281706f5e4d3c2b1a0",
    "hvs.assigned_channels_of_this_display",
    "http://localhost:8080@proxy and http://host:443/path@2x.png",
    "#define HF_ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH 1\nhf_register_all_the_filters_of_the_device();",
    "token = request.headers.get('Authorization: Bearer ')",
    'const ApiKey: "83c788859d3c6ab6"',
    "client_secret = settings.get_client_secret_for_environment",
    'sshpass -p "$BUILD_PASS" ssh ann@build; sshpass -f file2 ssh ann@build',
    "curl -u 1000:1000 https://build.corp; curl -u $USER:$TOKEN_2 https://build.corp",
    "docker run -p 8080:80 -p 127.0.0.1:9090:90 app; docker login -u ann --password-stdin",
    "mysql -u root -p app < dump2.sql; mysql -P3306 -h db",
    "psql 'host=db user=app password=$PGPASS_2' and PGPASSWORD=$(cat /run/x2) psql",
    "bypass: 'k7Hd9vKx2LmP', compass = '273.48N16W2'",
    "smtp_pass = os.environ['SMTP_PASS_2']",
    "machine build.corp login ann password is asked for",
    "passport_no: 'C01X00T47'",
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
    "pass\n\n    def test_of_the_2nd_configuration_of_x(self):",
    "session.get_session_of_the_request_2(x), auth - see-the-2nd-chapter-of-the-handbook",
    "pat: the-patch-of-2024-05-01-of-linux-6.1, pw -> hashlib_sha256_hexdigest_v2x",
    "class _Ed25519PrivateKey(Ed25519PrivateKey): nid_key = lib.NID_pbe_WithSHA1And3_Key_TripleDES_CBC",
    "contraseña: cambiame_por_favor_2024, пароль: {{пароль}}, 密码：请输入密码",
    "The token - the value of it - is made for you; a session - one of many - ends.",
    "Session\n===================\nAuth\n-------------------\n",
    "sdk-initialization-of-the-second-client-12 api-gateway-authorization-token-of-2024",
    "sk_buff_of_the_first_fragment_in_the_queue secret_of_the_second_service_account_2024",
    "aio_read_completion_handler_of_the_device ptr_to_the_first_element_of_the_array_of_2",
    "ph_register_all_the_filters_of_the_device fig_caption_of_the_second_figure_in_the_text",
    "token ya29.the-access-token-of-the-second-user and 1000.abcdef.abcdef",
    "xai-grok-and-other-models-of-the-second-generation r8_versions_of_the_models_of_2024",
    "pk_2024_THE_PRIMARY_KEY_OF_THE_SECOND_TABLE da2-the-second-version-of-the-api",
)
"""Program text, settings, prose, headings, identifiers, paths, versions, behind names and prefixes of secrets too."""
UNFILLED = (
    "TOKEN=YOUR_API_KEY_HERE_1234567890", "token: ${TOKEN}", "token: {{ token }}",
    'api_key: "{{ .Values.auth.apiKey2OfTheService }}"', "export X_TOKEN=$(cat /run/secrets/token_2_of_the_service)",
    "token=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "secret: xxxxxxxx", "curl -H 'X-Api-Key: <token>'",
    "password: changeme", "--token=0000000000000000000000000000000000000000",
    "//registry.npmjs.org/:_authToken=${NPM_TOKEN}", "secret = 0123456789abcdef0123456789abcdef01234567",
)  # fmt: skip
"""What stands for a value behind a plain name."""
EXAMPLES = (
    'password = "changeme1!"',
    "api_key = 'your-api-key-goes-here'",
    'token: "gh' + "p_" + "x" * 36 + '"',
    "postgres://user:password@localhost/db",
    "postgres://postgres:postgres@localhost/db",
    "https://bob:kd93kf02k@example.com/",
    "DB=mysql://app:${DB_PASSWORD}@db/app",
    "aws_access_key_id = AKIA" + "IOSFODNN7EXAMPLE",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY",
    'stripe = "sk_' + "live_" + "abcdefgh" * 3 + '"',
    "https://hooks.slack" + ".com/services/T00000000/B00000000/" + "X" * 24,
    "Twilio AC" + "0123456789abcdef" * 2,
)
DIGESTS = (
    "commit {}", "token_hash: {}", "secret_sha256 = '{}'", "apiKeyChecksum: {}", '"integrity": "sha512-{}"',
    "ETag: {}", "digest: sha256:{}", "key fingerprint: {}", "key_fingerprint = {}", "passwordHash: '{}'",
    "using RSA key {}", "gpg --recv-key {}", "key: {}", "cache_key = '{}'", "public_key: {}", "nextPageToken: {}",
    "csrf_token: {}", "token: sha256-{}", "secretRef: {}", "tokenizer: {}", "<key>Commit</key><string>{}</string>",
)  # fmt: skip
LONGER_WORDS = (
    "path: {}", "patch - {}", "pattern = '{}'", "passport: {}", "passenger = '{}'", "compass -> {}",
    "session_id: {}", "obsession: {}", "auth_url = '{}'", "authority: {}", "author - {}", "sasl: {}",
    "jwt_format: {}", "password_hash -> {}", "token_count - {}", "changeToken: {}", "密码学：{}", "клавиша: {}",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS + UNFILLED)
def test_program_text_prose_and_placeholders_hold_no_secret(text):
    assert hits(text) == []


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_placeholder_or_documented_example_is_counted_apart(text):
    assert [hit.reserved for hit in all_hits(text)[0]] == [True]


@pytest.mark.parametrize("line", DIGESTS)
def test_a_digest_a_public_key_or_a_place_in_a_list_is_no_secret(line):
    rng = random.Random(line)
    assert [hits(line.format(pick(rng, HEX, 40))) for _ in range(5)] == [[]] * 5


@pytest.mark.parametrize("line", LONGER_WORDS)
def test_longer_words_and_other_things_that_begin_like_a_short_name_hold_no_secret(line):
    assert hits(line.format(value(random.Random(line), "base62"))) == []


@pytest.mark.parametrize("name", ["token", "secret", "X_TOKEN", "Key", "credential"])
def test_a_uuid_and_a_public_key_are_no_secret(name):
    rng = random.Random(name)
    made = uuid(rng)
    public = b64(b"\0\0\0\x0bssh-ed25519\0\0\0 " + rng.randbytes(32))
    for text in (made, made.upper(), public, "MIIB" + b64(rng.randbytes(60))):
        assert hits(f"{name}: {text}\n") + hits(f'{name} = "{text}"\n') == []


def test_random_base64_digests_and_identifiers_hold_no_secret():
    rng = random.Random(5)
    lines = [b64(rng.randbytes(57)) for _ in range(3000)]
    lines += [pick(rng, HEX, rng.choice([32, 40, 64])) for _ in range(3000)]
    lines += ["_".join(pick(rng, ALNUM, 6) for _ in range(5)) for _ in range(3000)]
    assert all_hits("\n".join(lines))[0] == []


def test_the_repository_itself_holds_no_secret():
    root = Path(__file__).parents[5]
    texts = [path.read_bytes() for folder in ("dataaudit", "docs") for path in (root / folder).rglob("*.[pm][yd]")]
    assert [hit for text in texts for hit in hits(text)] == []
