"""Structures that issuers put into their tokens: checksums, account numbers, lengths, versions.

:data:`STRUCTURES` has a row for each check that a rule may name. A token with a letter more or less than its issuer
gives it fails; with a checksum, so does a token that changed. A random string passes a CRC-32 one time in four billion.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import unquote

from dataaudit.scan.detectors.patterns.encodings import decode_base58_checked, decode_base64, read_bech32

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_BASE62_DIGITS = 6
_BASE36_DIGITS = 7
_GITLAB = re.compile(
    r"(?P<head>(?:gl[a-z]{2,6}-|GR1348941)?(?P<payload>[A-Za-z0-9_-]{20,})\.(?:[0-9a-z]{2}\.)?(?P<length>[0-9a-z]{2}))"
    r"(?P<crc>[0-9a-z]{7})"
)


def _digits(number: int, alphabet: str, width: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, len(alphabet))
        digits = alphabet[digit] + digits
    return digits.rjust(width, alphabet[0])


def is_github_token(token: str) -> bool:
    """Tell whether the last six letters are the CRC-32, in base 62, of those after the last underscore before them.

    The scheme of GitHub's and npm's tokens ("Behind GitHub's new authentication token formats", GitHub, 2021).
    """
    body = token.rpartition("_")[2]
    random = body[:-_BASE62_DIGITS]
    if not random or not body.isascii():
        return False
    return _digits(zlib.crc32(random.encode()), _BASE62, _BASE62_DIGITS) == body[-_BASE62_DIGITS:]


def is_gitlab_token(token: str) -> bool:
    """Tell whether a routable GitLab token ends in its payload's length and the CRC-32 of all before, in base 36."""
    match = _GITLAB.fullmatch(token)
    if match is None or int(match["length"], 36) != len(match["payload"]):
        return False
    return _digits(zlib.crc32(match["head"].encode()), _BASE36, _BASE36_DIGITS) == match["crc"]


def is_grafana_token(token: str) -> bool:
    """Tell whether a Grafana token ends in the CRC-32 of the text before its last underscore, lowest byte first."""
    body, _, check = token.rpartition("_")
    return body.isascii() and zlib.crc32(body.encode()).to_bytes(4, "little").hex() == check.lower()


def is_json_web_token(token: str) -> bool:
    """Tell whether a token is a signed token with claims (RFC 7515, RFC 7519), or an encrypted one (RFC 7516)."""
    parts = token.split(".")
    header = _read(parts[0])
    if header is None or not isinstance(header.get("alg"), str):
        return False
    if len(parts) == 5:
        return isinstance(header.get("enc"), str) and all(decode_base64(part) is not None for part in parts[1:])
    if len(parts) != 3 or _read(parts[1]) is None:
        return False
    return header["alg"] == "none" if not parts[2] else decode_base64(parts[2]) is not None


_SIGNATURE_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64, "ES256": 64, "ES384": 96, "ES512": 132, "EdDSA": 64}
"""By algorithm (RFC 7518, RFC 8037); RSA's are as long as its key."""
_MIN_RSA_BYTES = 128


def is_whole_web_token(token: str) -> bool:
    """Tell whether a web token's signature has the length that its algorithm gives; encrypted tokens have none."""
    parts = token.split(".")
    header = _read(parts[0])
    if header is None or len(parts) != 3 or header.get("alg") == "none":
        return header is not None
    size, algorithm = len(decode_base64(parts[2]) or b""), str(header.get("alg"))
    if algorithm[:2] in {"RS", "PS"}:
        return size >= _MIN_RSA_BYTES and size % 8 == 0
    return size == _SIGNATURE_BYTES.get(algorithm, size)


def _read(part: str) -> dict[str, object] | None:
    raw = decode_base64(part)
    if raw is None:
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_AWS = re.compile(r"A(?:KIA|SIA)[A-HK-Z2-7][A-Z2-7]{15}")
_SLACK = re.compile(
    r"xox[bpas]-(?:2-)?\d{10,14}-\d{10,14}(?:-\d{10,14})?-(?:[A-Za-z0-9]{24}|[a-f0-9]{32})|"
    r"xapp-\d-A[A-Z0-9]{8,12}-\d{10,14}-[a-f0-9]{64}|"
    r"xoxe-\d-[A-Za-z0-9]{146}|xoxe\.xox[bp]-\d-[A-Za-z0-9]{163,166}"
)
_SIGNED = re.compile(r"[?&;](?:amp;)?(?:sv=20\d\d-\d\d-\d\d|se=20\d\d-\d\d-\d\d)")
_SIGNATURE = re.compile(r"[?&;]sig=([^&\s\"'<>]+)")
_ANTHROPIC = re.compile(r"sk-ant-(?:api|admin)\d\d-[\w-]{93}AA")
_ATLASSIAN = re.compile(r"ATATT3[\w-]{177}=[0-9A-F]{8}")
_OPENAI = re.compile(
    r"sk-(?:(?:proj|svcacct|admin)-(?:[\w-]{74}T3BlbkFJ[\w-]{74}|[\w-]{58}T3BlbkFJ[\w-]{58})|"
    r"[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})"
)
_VAULT = re.compile(r"hv[sbr]\.[A-Za-z0-9]{24}")
_SLACK_HOOK = re.compile(r"[TE][A-Z0-9]{8,11}/B[A-Z0-9]{8,11}/[A-Za-z0-9]{24}")
_DISCORD_HOOK = re.compile(r"(\d{17,20})/[\w-]{68}")
_GUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TEAMS_HOOK = re.compile(rf"{_GUID}@{_GUID}/IncomingWebhook/[0-9a-f]{{32}}/{_GUID}(?:/[\w-]+)?")
_SENTRY = re.compile(r"sntryu_[0-9a-f]{64}|sntrys_(?P<claims>[\w+/-]+={0,2})_(?P<secret>[A-Za-z0-9+/]{43})=?")
_DISCORD_EPOCH_BITS = range(46, 64)
"""Bits of an account number: milliseconds since 2015 above 22 others."""


def is_aws_access_key(token: str) -> bool:
    """Tell whether an AWS access key id holds an account number of twelve digits.

    Keys hold it in bits 1 to 40 of the base 32 of the letters behind the first four. Older keys, which do not, go on
    with I or J and cannot be told from chance. Nor can those without a digit, 1 in 30: peptides are written so.
    """
    if not _AWS.fullmatch(token) or token.isalpha():
        return False
    number = 0
    for letter in token[4:]:
        number = number << 5 | _BASE32.index(letter)
    # 80 bits: the first 48 hold a bit that is set, the account's 40, and 7 of the key.
    return (number >> 39) & (1 << 40) - 1 < 10**12


def is_azure_signature(url: str) -> bool:
    """Tell whether a query is a shared access signature: version or expiry, and 32 bytes of HMAC-SHA256."""
    match = _SIGNATURE.search("?" + url)
    return match is not None and bool(_SIGNED.search("?" + url)) and _is_base64_of(32, unquote(match[1]))


def is_discord_token(token: str) -> bool:
    """Tell whether a Discord bot token begins with an account number in base64, and has the lengths of its parts."""
    account, _, rest = token.partition(".")
    raw = decode_base64(account)
    if raw is None or not raw.isdigit() or int(raw).bit_length() not in _DISCORD_EPOCH_BITS:
        return False
    time, _, secret = rest.partition(".")
    return len(time) == 6 and len(secret) in {27, 38}


def is_discord_webhook(path: str) -> bool:
    """Tell whether a Discord webhook holds the number of an account or a channel, and 68 letters."""
    match = _DISCORD_HOOK.fullmatch(path)
    return match is not None and int(match[1]).bit_length() in _DISCORD_EPOCH_BITS


def is_sentry_token(token: str) -> bool:
    """Tell whether a Sentry token has 64 hexadecimal digits, or claims in JSON with a time and 43 letters of base64."""
    match = _SENTRY.fullmatch(token)
    if match is None or match["claims"] is None:
        return match is not None
    claims = _read(match["claims"])
    return claims is not None and "iat" in claims and bool({"url", "region_url", "org"} & claims.keys())


def is_vault_token(token: str) -> bool:
    """Tell whether a Vault token has 24 letters behind its prefix, or is signed: version 1, HMAC, token."""
    if _VAULT.fullmatch(token):
        return True
    raw = decode_base64(token[4:]) or b""
    # Protocol buffers: field 1 is 1, field 2 the 32 bytes of the HMAC, field 3 the rest.
    return raw[:4] == b"\x08\x01\x12\x20" and raw[36:37] == b"\x1a" and len(raw) > 38 and raw[37] == len(raw) - 38


def is_pypi_token(token: str) -> bool:
    """Tell whether a PyPI token decodes to a macaroon (version 2) of an index, with an identifier and a signature."""
    raw = decode_base64(token.removeprefix("pypi-").rstrip("="))
    if raw is None or raw[:1] != b"\x02":
        return False
    at, kinds = 1, []
    while at < len(raw):
        kind = raw[at]
        at += 1
        kinds.append(kind)
        if kind == 0:
            continue
        size, shift = 0, 0
        while at < len(raw) and shift < 21:
            size |= (raw[at] & 0x7F) << shift
            shift += 7
            at += 1
            if raw[at - 1] < 0x80:
                break
        at += size
    # Location, identifier, then caveats between zeros, then the signature of 32 bytes, and nothing behind.
    return at == len(raw) and kinds[:2] == [1, 2] and kinds[-1] == 6 and raw[-33:-32] == b"\x20"


def is_age_key(token: str) -> bool:
    """Tell whether an age identity's Bech32 checksum is right, over 32 bytes."""
    parts = read_bech32(token)
    return parts is not None and (parts[0], len(parts[1]), parts[2]) == ("age-secret-key-", 58, 1)


def is_wallet_key(token: str) -> bool:
    """Tell whether a Bitcoin private key (WIF) has its version, its length and its checksum."""
    raw = decode_base58_checked(token)
    return raw is not None and raw[:1] in {b"\x80", b"\xef"} and len(raw) in {33, 34}


def is_basic_credential(text: str) -> bool:
    """Tell whether the base64 behind ``Basic`` decodes to a name, a colon and a password, in printable letters."""
    raw = decode_base64(text.rpartition(" ")[2])
    if raw is None or not raw.isascii():
        return False
    name, colon, password = raw.decode("ascii").partition(":")
    return bool(colon) and len(password) >= 4 and (name + password).isprintable()


def _is_base64_of(size: int, text: str) -> bool:
    return len(decode_base64(text) or b"") == size


def _is_azure_storage_key(text: str) -> bool:
    return _is_base64_of(64, text.rpartition("AccountKey=")[2])


def _is_sendgrid_key(token: str) -> bool:
    name, _, secret = token.removeprefix("SG.").partition(".")
    return _is_base64_of(16, name) and _is_base64_of(32, secret)


def _is_stripe_key(token: str) -> bool:
    return len(token) in {32, 107}


def _is_square_token(token: str) -> bool:
    return len(token) == {"sq0csp-": 50, "sq0atp-": 29, "sq0idp-": 29}.get(token[:7])


def _is_planetscale_token(token: str) -> bool:
    secret = token.split("_", 2)[-1]
    return len(secret) == 43 and _is_base64_of(32, secret)


def _is_terraform_token(token: str) -> bool:
    return len(token.rpartition(".")[2]) == 67


STRUCTURES: Final[Mapping[str, Callable[[str], object]]] = {
    "aws_account": is_aws_access_key,
    "azure_storage_key": _is_azure_storage_key,
    "azure_signature": is_azure_signature,
    "thirty_two_bytes": partial(_is_base64_of, 32),
    "github_checksum": is_github_token,
    "gitlab_checksum": is_gitlab_token,
    "grafana_checksum": is_grafana_token,
    "pypi_macaroon": is_pypi_token,
    "anthropic_end": _ANTHROPIC.fullmatch,
    "slack_lengths": _SLACK.fullmatch,
    "discord_account": is_discord_token,
    "sendgrid_lengths": _is_sendgrid_key,
    "stripe_length": _is_stripe_key,
    "square_length": _is_square_token,
    "openai_lengths": _OPENAI.fullmatch,
    "sentry_structure": is_sentry_token,
    "slack_hook": _SLACK_HOOK.fullmatch,
    "discord_hook": is_discord_webhook,
    "teams_hook": _TEAMS_HOOK.fullmatch,
    "terraform_length": _is_terraform_token,
    "planetscale_length": _is_planetscale_token,
    "vault_length": is_vault_token,
    "atlassian_length": _ATLASSIAN.fullmatch,
    "age_checksum": is_age_key,
}
"""Checks by the names that rules give them: strong evidence where the result is true, else the form."""
REQUIRED: Final[Mapping[str, Callable[[str], object]]] = {
    "wallet_checksum": is_wallet_key,
    "basic_credential": is_basic_credential,
}
"""The same; where the result is false the candidate is rejected."""
