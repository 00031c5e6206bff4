"""What looks like a secret and is none: nothing is found, or it is counted apart."""

import random
from pathlib import Path

import pytest
from made_secrets import ALNUM, HEX, b64, pick

from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.secrets.rules import load_secrets

CODE = (
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
)
PLACEHOLDERS = (
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


@pytest.fixture(scope="module")
def registry():
    return load_secrets()


@pytest.mark.parametrize("text", CODE)
def test_program_text_and_settings_hold_no_secret(registry, text):
    found, _ = find_in(registry, memoryview(text.encode()))
    assert [hit for hit in found if not hit.reserved] == []


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_or_documented_example_is_counted_apart(registry, text):
    found, _ = find_in(registry, memoryview(text.encode()))
    assert [hit.reserved for hit in found] == [True]


def test_random_base64_digests_and_identifiers_hold_no_secret(registry):
    rng = random.Random(5)
    lines = [b64(rng.randbytes(57)) for _ in range(3000)]
    lines += [pick(rng, HEX, rng.choice([32, 40, 64])) for _ in range(3000)]
    lines += ["_".join(pick(rng, ALNUM, 6) for _ in range(5)) for _ in range(3000)]
    found, _ = find_in(registry, memoryview("\n".join(lines).encode()))
    assert found == []


def test_the_repository_itself_holds_no_secret(registry):
    root = Path(__file__).parents[5]
    texts = [path.read_bytes() for folder in ("dataaudit", "docs") for path in (root / folder).rglob("*.[pm][yd]")]
    found = [hit for text in texts for hit in find_in(registry, memoryview(text))[0] if not hit.reserved]
    assert found == []
