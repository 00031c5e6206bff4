"""Secrets made at run time: of every kind that is looked for, random, with the checksums that issuers give them."""

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


def slack_bot(rng: random.Random) -> str:
    return "-".join(["xox" + "b", pick(rng, string.digits, 12), pick(rng, string.digits, 13), pick(rng, ALNUM, 24)])


def slack_user(rng: random.Random) -> str:
    numbers = [pick(rng, string.digits, 12) for _ in range(3)]
    return "-".join(["xox" + "p", *numbers, pick(rng, HEX, 32)])


def basic(rng: random.Random) -> str:
    return b64(f"{account(rng)}:{password(rng)}".encode())


def anthropic(rng: random.Random) -> str:
    return "sk-" + "ant-api03-" + pick(rng, URL64, 93) + "AA"


def openai_project(rng: random.Random) -> str:
    return "sk-" + "proj-" + pick(rng, URL64, 74) + "T3Blbk" + "FJ" + pick(rng, URL64, 74)


def openai_legacy(rng: random.Random) -> str:
    return "sk-" + pick(rng, ALNUM, 20) + "T3Blbk" + "FJ" + pick(rng, ALNUM, 20)


def telegram(rng: random.Random) -> str:
    return pick(rng, "123456789", 1) + pick(rng, string.digits, 9) + ":AA" + pick(rng, URL64, 33)


def teams(rng: random.Random) -> str:
    def guid() -> str:
        return "-".join(pick(rng, HEX, size) for size in (8, 4, 4, 4, 12))

    place = f"https://{account(rng)}.webhook.office.com/webhookb2/{guid()}@{guid()}"
    return f"{place}/IncomingWebhook/{pick(rng, HEX, 32)}/{guid()}"


def azure_client(rng: random.Random) -> str:
    return pick(rng, ALNUM, 3) + "8Q~" + pick(rng, ALNUM + "_~.-", 34)


def vault_signed(rng: random.Random) -> str:
    token = b"hv" + b"s." + pick(rng, ALNUM, 24).encode()
    raw = b"\x08\x01\x12\x20" + rng.randbytes(32) + b"\x1a" + bytes([len(token)]) + token
    return "hv" + "s." + b64url(raw)
