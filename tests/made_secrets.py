"""Secrets of every kind, made at run time with the checksums that issuers give them, and the lines they stand in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import string
import zlib
from collections.abc import Callable

LETTERS = string.ascii_letters
ALNUM = string.ascii_letters + string.digits
LOWER_ALNUM = string.ascii_lowercase + string.digits
UPPER_ALNUM = string.ascii_uppercase + string.digits
URL64 = ALNUM + "-_"
DIGITS = string.digits
HEX = "0123456789abcdef"
BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
BASE36 = string.digits + string.ascii_lowercase
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
Maker = Callable[[random.Random], str]


def pick(rng: random.Random, alphabet: str, size: int) -> str:
    return "".join(rng.choices(alphabet, k=size))


def in_base(number: int, alphabet: str, width: int) -> str:
    digits = []
    for _ in range(width):
        digits.append(alphabet[number % len(alphabet)])
        number //= len(alphabet)
    return "".join(reversed(digits))


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def b64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def form(prefix: str, alphabet: str, size: int, suffix: str = "") -> Maker:
    """A token that is a prefix and letters of an alphabet."""
    return lambda rng: prefix + pick(rng, alphabet, size) + suffix


def some(alphabet: str, size: int) -> Maker:
    return form("", alphabet, size)


def parts(*made: Maker | str) -> Maker:
    """A token of texts and what makers make, one behind the other."""
    return lambda rng: "".join(one if isinstance(one, str) else one(rng) for one in made)


def uuid(rng: random.Random) -> str:
    return "-".join(pick(rng, HEX, size) for size in (8, 4, 4, 4, 12))


def with_crc62(prefix: str, size: int) -> Maker:
    def make(rng: random.Random) -> str:
        body = pick(rng, BASE62, size)
        return prefix + body + in_base(zlib.crc32(body.encode()), BASE62, 6)

    return make


def github_fine_grained(rng: random.Random) -> str:
    return "github_pat_" + pick(rng, BASE62, 22) + with_crc62("_", 53)(rng)


def gitlab_routable(rng: random.Random) -> str:
    payload = b64url(rng.randbytes(16) + b"o:1\nu:" + pick(rng, BASE36, 4).encode() + b"\x0a")
    head = f"glpat-{payload}.01.{in_base(len(payload), BASE36, 2)}"
    return head + in_base(zlib.crc32(head.encode()), BASE36, 7)


def grafana(rng: random.Random) -> str:
    head = "glsa_" + pick(rng, ALNUM, 32)
    return f"{head}_{zlib.crc32(head.encode()).to_bytes(4, 'little').hex()}"


def aws_id(rng: random.Random) -> str:
    made = ""
    while not any(letter.isdigit() for letter in made):  # 1 in 30 has none, and looks like a word
        number = (1 << 79) | (rng.randrange(10**12) << 39) | rng.getrandbits(39)
        made = in_base(number, string.ascii_uppercase + "234567", 16)
    return rng.choice(["AKIA", "ASIA"]) + made


def pypi(rng: random.Random) -> str:
    def packet(kind: int, data: bytes) -> bytes:
        size = len(data)
        return bytes([kind]) + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + data

    identifier = json.dumps(["made", pick(rng, HEX, 36)]).encode()
    caveat = packet(2, json.dumps([3, pick(rng, HEX, 36)]).encode())
    raw = (
        b"\x02"
        + packet(1, b"pypi.org")
        + packet(2, identifier)
        + b"\0"
        + caveat
        + b"\0\0"
        + packet(6, rng.randbytes(32))
    )
    return "pypi-" + b64url(raw)


def discord(rng: random.Random) -> str:
    account = str(rng.randrange(10**17, 13 * 10**17)).encode()
    token = b64url(account)
    return f"{token}.{pick(rng, URL64, 6)}.{pick(rng, URL64, 38 if len(account) == 19 else 27)}"


def json_web_token(rng: random.Random) -> str:
    header = b64url(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    claims = b64url(
        json.dumps(
            {"sub": pick(rng, string.digits, 10), "name": pick(rng, LETTERS, 9), "iat": rng.randrange(2**31)}
        ).encode()
    )
    sign = hmac.new(rng.randbytes(32), f"{header}.{claims}".encode(), hashlib.sha256).digest()
    return f"{header}.{claims}.{b64url(sign)}"


def age(rng: random.Random) -> str:
    bits = int.from_bytes(rng.randbytes(32), "big") << 4
    groups = [bits >> 5 * i & 31 for i in reversed(range(52))]
    prefix = "age-secret-key-"

    def polymod(values: list[int]) -> int:
        check = 1
        for value in values:
            top = check >> 25
            check = (check & 0x1FFFFFF) << 5 ^ value
            for i, step in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
                check ^= step if top >> i & 1 else 0
        return check

    spread = [ord(c) >> 5 for c in prefix] + [0] + [ord(c) & 31 for c in prefix]
    check = polymod(spread + groups + [0] * 6) ^ 1
    groups += [check >> 5 * (5 - i) & 31 for i in range(6)]
    return (prefix + "1" + "".join(BECH32[g] for g in groups)).upper()


def wallet(rng: random.Random) -> str:
    raw = b"\x80" + rng.randbytes(32) + rng.choice([b"", b"\x01"])
    raw += hashlib.sha256(hashlib.sha256(raw).digest()).digest()[:4]
    return in_base(int.from_bytes(raw, "big"), BASE58, 52 if len(raw) == 38 else 51)


def der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([0x81, size]) if size < 256 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + body


def der_int(number: int) -> bytes:
    return der(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def armour(label: str, raw: bytes, newline: str = "\n") -> str:
    text = b64(raw)
    lines = [text[i : i + 64] for i in range(0, len(text), 64)]
    return newline.join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])


def rsa_numbers(rng: random.Random) -> bytes:
    p, q = rng.getrandbits(1024) | 1 << 1023 | 1, rng.getrandbits(1024) | 1 << 1023 | 1
    others = [rng.getrandbits(size) | 1 << (size - 1) for size in (2048, 1024, 1024, 1024)]
    return der(0x30, *map(der_int, (0, p * q, 65537, others[0], p, q, *others[1:])))


def pkcs8(rng: random.Random) -> bytes:
    algorithm = der(0x30, der(6, bytes.fromhex("2a864886f70d010101")), der(5))
    return der(0x30, der_int(0), algorithm, der(4, rsa_numbers(rng)))


def ed25519_pkcs8(rng: random.Random) -> bytes:
    return der(0x30, der_int(0), der(0x30, der(6, bytes.fromhex("2b6570"))), der(4, der(4, rng.randbytes(32))))


def ec_key(rng: random.Random) -> bytes:
    curve = der(0xA0, der(6, bytes.fromhex("2a8648ce3d030107")))
    return der(0x30, der_int(1), der(4, rng.randbytes(32)), curve, der(0xA1, der(3, b"\0\x04" + rng.randbytes(64))))


def openssh_key(rng: random.Random) -> bytes:
    def text(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    public = text(text(b"ssh-ed25519") + text(rng.randbytes(32)))
    return (
        b"openssh-key-v1\0"
        + text(b"none")
        + text(b"none")
        + text(b"")
        + b"\0\0\0\1"
        + public
        + text(rng.randbytes(136))
    )


def pgp_key(rng: random.Random) -> str:
    raw = b"\x95\x01\xd8\x04" + rng.randbytes(472)
    crc = 0xB704CE
    for byte in raw:
        crc ^= byte << 16
        for _ in range(8):
            crc <<= 1
            crc ^= 0x1864CFB if crc & 0x1000000 else 0
    lines = armour("PGP PRIVATE KEY BLOCK", raw).split("\n")
    return "\n".join([lines[0], "", *lines[1:-1], "=" + b64(crc.to_bytes(3, "big")), lines[-1]])


def putty_key(rng: random.Random) -> str:
    public, private = b64(rng.randbytes(96)), b64(rng.randbytes(144))
    cut = [[text[i : i + 64] for i in range(0, len(text), 64)] for text in (public, private)]
    return "\n".join(
        [
            "PuTTY-User-Key-File-" + "3: ssh-ed25519",
            "Encryption: none",
            "Comment: eddsa-key-20240101",
            f"Public-Lines: {len(cut[0])}",
            *cut[0],
            f"Private-Lines: {len(cut[1])}",
            *cut[1],
            f"Private-MAC: {pick(rng, HEX, 64)}",
        ]
    )


def encrypted_rsa(rng: random.Random) -> str:
    lines = armour("RSA PRIVATE KEY", rng.randbytes(1192)).split("\n")
    return "\n".join(
        [lines[0], "Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-128-CBC,{pick(rng, HEX.upper(), 32)}", "", *lines[1:]]
    )


def password(rng: random.Random) -> str:
    signs = "!#%*+-.^_~"
    body = pick(rng, ALNUM + signs, rng.randrange(8, 20))
    return rng.choice(LETTERS) + body + rng.choice(string.digits) + pick(rng, LETTERS + string.digits, 3)


def url_password(rng: random.Random) -> str:
    return password(rng).replace("#", "*").replace("%", "!")


def account(rng: random.Random) -> str:
    return rng.choice(LETTERS) + pick(rng, LOWER_ALNUM, 7)


def sas(rng: random.Random) -> str:
    sign = b64(rng.randbytes(32)).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    return f"sv=2022-11-02&ss=b&srt=co&sp=rl&se=2026-05-01T10:00:00Z&st=2024-01-01T10:00:00Z&spr=https&sig={sign}"


def basic(rng: random.Random) -> str:
    return b64(f"{account(rng)}:{password(rng)}".encode())


def vault_signed(rng: random.Random) -> str:
    token = b"hv" + b"s." + pick(rng, ALNUM, 24).encode()
    raw = b"\x08\x01\x12\x20" + rng.randbytes(32) + b"\x1a" + bytes([len(token)]) + token
    return "hv" + "s." + b64url(raw)


CODE = (
    'token = "{}"', "curl -H 'X-Token: {}' https://api.internal.corp/v1/items", "2024-05-01 10:11:12 DEBUG got {} back",
    "  key: {}",
)  # fmt: skip
Kind = tuple[str, Maker, tuple[str, ...]]


def kind(entity: str, maker: Maker, *lines: str) -> Kind:
    return entity, maker, lines or CODE


def of_bytes(size: int) -> Maker:
    return lambda rng: b64(rng.randbytes(size))


def pem(label: str, make: Callable[[random.Random], bytes], newline: str = "\n") -> Maker:
    return lambda rng: armour(label, make(rng), newline)


ITEM = "https://hooks." + "slack.com/services/{}"
KINDS: dict[str, Kind] = {
    "aws access key id": kind("AWS_ACCESS_KEY_ID", aws_id),
    "aws secret key": kind(
        "AWS_SECRET_ACCESS_KEY", some(ALNUM + "+/", 40),
        "aws_secret_access_key = {}", 'AWS_SECRET_ACCESS_KEY="{}"', "'aws' => ['secretKey' => '{}'],",
        'secret_key: "{}"  # amazon s3',
    ),
    "azure storage key": kind(
        "AZURE_STORAGE_KEY", of_bytes(64),
        "DefaultEndpointsProtocol=https;AccountName=store1;AccountKey={};EndpointSuffix=core.windows.net",
        'storage_key = "{}"',
    ),
    "azure service bus key": kind(
        "AZURE_SERVICE_BUS_KEY", of_bytes(32),
        "Endpoint=sb://bus1.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={}",
    ),
    "azure sas": kind("AZURE_SAS_TOKEN", sas, "https://store1.blob.core.windows.net/box/file?{}", 'sas = "{}"'),
    "azure client secret": kind(
        "AZURE_CLIENT_SECRET", parts(some(ALNUM, 3), "8Q~", some(ALNUM + "_~.-", 34)),
        'client_secret: "{}"', "AZURE_CLIENT_SECRET={}",
    ),
    "google api key": kind("GCP_API_KEY", form("AI" + "zaSy", URL64, 33)),
    "google oauth secret": kind("GCP_OAUTH_SECRET", form("GOC" + "SPX-", URL64, 28)),
    "google refresh token": kind("GCP_REFRESH_TOKEN", form("1//" + "0g", URL64, 80)),
    "digitalocean token": kind("DIGITALOCEAN_TOKEN", form("dop_" + "v1_", HEX, 64)),
    "alibaba key id": kind("ALIBABA_ACCESS_KEY", form("LT" + "AI5t", ALNUM, 18)),
    "heroku key": kind("HEROKU_API_KEY", form("HRKU-" + "AA", URL64, 58)),
    "cloudflare origin key": kind("CLOUDFLARE_ORIGIN_KEY", parts("v1" + ".0-", some(HEX, 24), "-", some(HEX, 146))),
    "github classic": kind("GITHUB_TOKEN", with_crc62("gh" + "p_", 30)),
    "github server": kind("GITHUB_TOKEN", with_crc62("gh" + "s_", 30)),
    "github refresh": kind("GITHUB_TOKEN", with_crc62("gh" + "r_", 70)),
    "github fine-grained": kind("GITHUB_TOKEN", github_fine_grained),
    "gitlab token": kind("GITLAB_TOKEN", form("gl" + "pat-", URL64, 20)),
    "gitlab routable": kind("GITLAB_TOKEN", gitlab_routable),
    "gitlab runner": kind("GITLAB_TOKEN", form("gl" + "rt-", URL64, 20)),
    "npm token": kind("NPM_TOKEN", with_crc62("np" + "m_", 30), *CODE, "//registry.npmjs.org/:_authToken={}"),
    "pypi token": kind("PYPI_TOKEN", pypi, *CODE, "[pypi]\nusername = __token__\npassword = {}"),
    "docker token": kind("DOCKER_TOKEN", form("dckr_" + "pat_", URL64, 27)),
    "rubygems token": kind("RUBYGEMS_TOKEN", form("ruby" + "gems_", HEX, 48)),
    "atlassian token": kind("ATLASSIAN_TOKEN", form("ATA" + "TT3", URL64, 177, "=7A1B2C3D")),
    "artifactory key": kind("ARTIFACTORY_TOKEN", form("AK" + "Cp", ALNUM, 69)),
    "openai project": kind(
        "OPENAI_API_KEY", parts("sk-" + "proj-", some(URL64, 74), "T3Blbk" + "FJ", some(URL64, 74))
    ),
    "openai legacy": kind("OPENAI_API_KEY", parts("sk-", some(ALNUM, 20), "T3Blbk" + "FJ", some(ALNUM, 20))),
    "anthropic key": kind("ANTHROPIC_API_KEY", form("sk-" + "ant-api03-", URL64, 93, "AA")),
    "hugging face token": kind("HUGGINGFACE_TOKEN", form("hf" + "_", LETTERS, 34)),
    "slack bot": kind(
        "SLACK_TOKEN", parts("xox" + "b-", some(DIGITS, 12), "-", some(DIGITS, 13), "-", some(ALNUM, 24))
    ),
    "slack user": kind("SLACK_TOKEN", parts("xox" + "p", *["-", some(DIGITS, 12)] * 3, "-", some(HEX, 32))),
    "slack app": kind(
        "SLACK_TOKEN", parts("xapp" + "-1-A", some(UPPER_ALNUM, 10), "-", some(DIGITS, 13), "-", some(HEX, 64))
    ),
    "slack webhook": kind(
        "SLACK_WEBHOOK", parts("T", some(UPPER_ALNUM, 10), "/B", some(UPPER_ALNUM, 10), "/", some(ALNUM, 24)),
        f"curl -X POST {ITEM}", f'WEBHOOK = "{ITEM}"',
    ),
    "discord token": kind("DISCORD_TOKEN", discord, "bot.run('{}')  # discord", "DISCORD_TOKEN={}"),
    "discord webhook": kind(
        "DISCORD_WEBHOOK", parts(some("123456789", 19), "/", some(URL64, 68)),
        "https://discord" + ".com/api/webhooks/{}", "url = 'https://discordapp" + ".com/api/webhooks/{}'",
    ),
    "teams webhook": kind(
        "TEAMS_WEBHOOK",
        parts(
            "https://", account, ".webhook.office.com/webhookb2/", uuid, "@", uuid, "/IncomingWebhook/",
            some(HEX, 32), "/", uuid,
        ),
        "hook: {}", 'url = "{}"',
    ),
    "telegram bot": kind(
        "TELEGRAM_BOT_TOKEN", parts(some("123456789", 1), some(DIGITS, 9), ":AA", some(URL64, 33)),
        *CODE, "https://api.telegram.org/bot{}/getMe",
    ),
    "twilio key": kind("TWILIO_KEY", form("S" + "K", HEX, 32), "twilio_key = '{}'", "TWILIO_API_KEY_SID={}"),
    "sendgrid key": kind(
        "SENDGRID_API_KEY", lambda rng: "S" + f"G.{b64url(rng.randbytes(16))}.{b64url(rng.randbytes(32))}"
    ),
    "mailgun key": kind(
        "MAILGUN_API_KEY", form("ke" + "y-", HEX, 32),
        "mailgun_api_key = '{}'", "curl -s --user 'api:{}' https://api.mailgun.net/v3/",
    ),
    "mailchimp key": kind("MAILCHIMP_API_KEY", form("", HEX, 32, "-us" + "12")),
    "stripe key": kind("STRIPE_SECRET_KEY", form("sk_" + "live_", ALNUM, 24)),
    "stripe long key": kind("STRIPE_SECRET_KEY", form("rk_" + "live_", ALNUM, 99)),
    "stripe webhook": kind("STRIPE_WEBHOOK_SECRET", form("whs" + "ec_", ALNUM, 32)),
    "square secret": kind("SQUARE_TOKEN", form("sq0" + "csp-", URL64, 43)),
    "square token": kind("SQUARE_TOKEN", form("EA" + "AA", URL64, 60)),
    "shopify token": kind("SHOPIFY_TOKEN", form("shp" + "at_", HEX, 32)),
    "braintree token": kind(
        "PAYPAL_BRAINTREE_TOKEN", parts("access_token$" + "production$", some(LOWER_ALNUM, 16), "$", some(HEX, 32))
    ),
    "databricks token": kind("DATABRICKS_TOKEN", form("da" + "pi", HEX, 32)),
    "vault token": kind("VAULT_TOKEN", form("hv" + "s.", ALNUM, 24)),
    "vault long token": kind("VAULT_TOKEN", form("hv" + "s.CAES", URL64, 90)),
    "terraform token": kind("TERRAFORM_TOKEN", parts(some(ALNUM, 14), ".atlas" + "v1.", some(ALNUM, 67))),
    "grafana token": kind("GRAFANA_TOKEN", grafana),
    "new relic key": kind("NEW_RELIC_KEY", form("NR" + "AK-", UPPER_ALNUM, 27)),
    "pulumi token": kind("PULUMI_TOKEN", form("pu" + "l-", HEX, 40)),
    "postman key": kind("POSTMAN_API_KEY", parts("PM" + "AK-", some(HEX, 24), "-", some(HEX, 34))),
    "linear key": kind("LINEAR_API_KEY", form("lin_" + "api_", ALNUM, 40)),
    "notion token": kind("NOTION_TOKEN", parts("nt" + "n_", some(DIGITS, 11), some(ALNUM, 35))),
    "doppler token": kind("DOPPLER_TOKEN", form("dp." + "pt.", ALNUM, 43)),
    "sentry token": kind("SENTRY_TOKEN", form("sntr" + "yu_", HEX, 64)),
    "dynatrace token": kind(
        "DYNATRACE_TOKEN", parts("dt0" + "c01.", some(UPPER_ALNUM, 24), ".", some(UPPER_ALNUM, 64))
    ),
    "airtable token": kind("AIRTABLE_TOKEN", parts("pa" + "t", some(ALNUM, 14), ".", some(HEX, 64))),
    "planetscale token": kind("PLANETSCALE_TOKEN", form("psca" + "le_tkn_", URL64, 43)),
    "rsa key": kind("PRIVATE_KEY", pem("RSA PRIVATE KEY", rsa_numbers), "{}", "ssl_key: |\n{}", '"""\n{}\n"""'),
    "pkcs8 key": kind("PRIVATE_KEY", pem("PRIVATE KEY", pkcs8), "{}", "key = '''{}'''"),
    "service account": kind(
        "PRIVATE_KEY", pem("PRIVATE KEY", pkcs8, "\\n"),
        '{{"type": "service_account", "private_key": "{}\\n", "client_email": "a@b.iam.gserviceaccount.com"}}',
    ),
    "ed25519 key": kind("PRIVATE_KEY", pem("PRIVATE KEY", ed25519_pkcs8), "{}", '  cert: "{}"'),
    "ec key": kind("PRIVATE_KEY", pem("EC PRIVATE KEY", ec_key), "{}"),
    "ec key in code": kind(
        "PRIVATE_KEY", pem("EC PRIVATE KEY", ec_key, '\\n"\n    "'), 'const char *key =\n    "{}\\n";'
    ),
    "encrypted rsa key": kind("PRIVATE_KEY", encrypted_rsa, "{}"),
    "openssh key": kind("PRIVATE_KEY", pem("OPENSSH PRIVATE KEY", openssh_key), "{}", "cat > id <<EOF\n{}\nEOF"),
    "pgp key": kind("PRIVATE_KEY", pgp_key, "{}"),
    "putty key": kind("PRIVATE_KEY", putty_key, "{}"),
    "age identity": kind("AGE_SECRET_KEY", age, "# created: 2024-01-01\n{}", "SOPS_AGE_KEY={}"),
    "bitcoin key": kind("WALLET_PRIVATE_KEY", wallet),
    "jwt": kind("JSON_WEB_TOKEN", json_web_token, *CODE, "Authorization: Bearer {}"),
    "url with password": kind(
        "URL_PASSWORD", url_password, "DATABASE_URL=postgres://app:{}@db.internal:5432/prod",
        "git clone https://ci-bot:{}@git.corp.net/x.git", '"amqp://svc:{}@mq1/"',
    ),
    "connection string": kind(
        "CONNECTION_STRING_PASSWORD", password,
        "Server=db1;Database=app;User Id=app;Password={};Encrypt=true", '"Host=db1;Username=app;Password={}"',
    ),
    "basic header": kind("AUTHORIZATION_HEADER", basic, "Authorization: Basic {}", '"Authorization": "Basic {}"'),
    "bearer header": kind(
        "AUTHORIZATION_HEADER", some(ALNUM, 40), "Authorization: Bearer {}", "-H 'Authorization: token {}'"
    ),
    "password in code": kind(
        "PASSWORD_ASSIGNMENT", password,
        'password = "{}"', "db_password: '{}'", '"password": "{}",', "$passwd = '{}';",
    ),
    "password in environment": kind(
        "PASSWORD_ASSIGNMENT", some(ALNUM, 16), "DB_PASSWORD={}", "export MYSQL_ROOT_PASSWORD={}"
    ),
    "api key in code": kind(
        "SECRET_ASSIGNMENT", some(ALNUM, 32), 'api_key = "{}"', "'client_secret': '{}'", 'secretKey: "{}"'
    ),
    "hexadecimal api key in code": kind("SECRET_ASSIGNMENT", some(HEX, 32), 'api_key = "{}"', "'client_secret': '{}'"),
    "api key in environment": kind(
        "SECRET_ASSIGNMENT", some(ALNUM, 40), "WEATHER_API_KEY={}", "export SESSION_SECRET={}"
    ),
}  # fmt: skip
"""Entity, maker and the lines that a secret of each kind stands in."""
FILLER = (
    "def load(path: str) -> dict:\n    return json.loads(Path(path).read_text())\n",
    "The service reads its settings from the environment when it starts, and logs what it found.\n",
    "for (int i = 0; i < count; i++) {\n    sum += values[i];\n}\n",
)


def documents(kind: str, count: int, seed: int = 7) -> list[tuple[str, int, int]]:
    """Return texts that hold one secret of a kind each, and where it begins and ends."""
    rng = random.Random(f"{kind} {seed}")
    _, maker, lines = KINDS[kind]
    made = []
    for number in range(count):
        secret = maker(rng)
        before, after = lines[number % len(lines)].replace("{{", "{").replace("}}", "}").split("{}")
        head = rng.choice(FILLER) + before
        made.append((head + secret + after + "\n" + rng.choice(FILLER), len(head), len(head) + len(secret)))
    return made
