"""What issuers put into their tokens: account numbers, lengths, versions. One function an issuer."""

from __future__ import annotations

import re
from urllib.parse import unquote

from dataaudit.detectors.secrets.encodings import decode_base58_checked, decode_base64, decode_bech32

_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_AWS = re.compile(r"A(?:KIA|SIA)[A-HK-Z2-7][A-Z2-7]{15}")
_SLACK = re.compile(
    r"xox[bpas]-(?:2-)?\d{10,14}-\d{10,14}(?:-\d{10,14})?-(?:[A-Za-z0-9]{24}|[a-f0-9]{32})|"
    r"xapp-\d-A[A-Z0-9]{8,12}-\d{10,14}-[a-f0-9]{64}|"
    r"xoxe(?:\.xox[bp])?-\d-[A-Za-z0-9]{146,166}"
)
_SIGNED = re.compile(r"[?&;](?:amp;)?(?:sv=20\d\d-\d\d-\d\d|se=20\d\d-\d\d-\d\d)")
_SIGNATURE = re.compile(r"[?&;]sig=([^&\s\"'<>]+)")
_ANTHROPIC = re.compile(r"sk-ant-(?:api|admin)\d\d-[\w-]{93}AA")
_ATLASSIAN = re.compile(r"ATATT3[\w=-]{186}")
_VAULT = re.compile(r"hv[sbr]\.(?:[A-Za-z0-9]{24}|[\w-]{90,})")
_DISCORD_EPOCH_BITS = range(46, 64)
"""Bits of an account number: milliseconds since 2015 above 22 others."""


def is_aws_access_key(token: str) -> bool:
    """Tell whether an AWS access key id holds an account number of twelve digits.

    Keys hold it in bits 1 to 40 of the base 32 of what follows the first four letters; older ones, which do not, go on
    with I or J and cannot be told from chance. Nor can those without a digit, 1 in 30: peptides are written so.
    """
    if not _AWS.fullmatch(token) or token.isalpha():
        return False
    number = 0
    for letter in token[4:]:
        number = number << 5 | _BASE32.index(letter)
    # 80 bits: the first 48 hold one bit that is set, the account's 40, and 7 of the key.
    return (number >> 39) & (1 << 40) - 1 < 10**12


def is_azure_storage_key(text: str) -> bool:
    """Tell whether the base64 at the end of the text decodes to the 64 bytes of a storage account's key."""
    return len(decode_base64(text.rpartition("AccountKey=")[2]) or b"") == 64


def is_azure_signature(url: str) -> bool:
    """Tell whether a query is a shared access signature: version or expiry, and 32 bytes of HMAC-SHA256."""
    found = _SIGNATURE.search("?" + url)
    return found is not None and bool(_SIGNED.search("?" + url)) and len(decode_base64(unquote(found[1])) or b"") == 32


def is_slack_token(token: str) -> bool:
    """Tell whether team, user and secret of a Slack token have the lengths that Slack gives them."""
    return _SLACK.fullmatch(token) is not None


def is_discord_token(token: str) -> bool:
    """Tell whether a Discord bot token begins with an account number in base64."""
    raw = decode_base64(token.partition(".")[0])
    return raw is not None and raw.isdigit() and int(raw).bit_length() in _DISCORD_EPOCH_BITS


def is_telegram_token(token: str) -> bool:
    """Tell whether a Telegram bot token's secret begins with the two letters that all of them begin with."""
    return token.partition(":")[2].startswith("AA")


def is_sendgrid_key(token: str) -> bool:
    """Tell whether a SendGrid key is made of 16 and of 32 bytes in base64."""
    name, _, secret = token.removeprefix("SG.").partition(".")
    return len(decode_base64(name) or b"") == 16 and len(decode_base64(secret) or b"") == 32


def is_shared_access_key(text: str) -> bool:
    """Tell whether a service bus's key decodes to 32 bytes."""
    return len(decode_base64(text) or b"") == 32


def is_anthropic_key(token: str) -> bool:
    """Tell whether an Anthropic key has its length and the two letters that all of them end with."""
    return _ANTHROPIC.fullmatch(token) is not None


def is_stripe_key(token: str) -> bool:
    """Tell whether a Stripe key has 24 letters behind its prefix, or the 99 and more of later ones."""
    return len(token) == 32 or len(token) >= 107


def is_square_token(token: str) -> bool:
    """Tell whether a Square token has the prefix that names its kind."""
    return token.startswith("sq0")


def is_vault_token(token: str) -> bool:
    """Tell whether a Vault token has 24 letters behind its prefix, or the 90 and more of signed ones."""
    return _VAULT.fullmatch(token) is not None


def is_atlassian_token(token: str) -> bool:
    """Tell whether an Atlassian token is one of those with a checksum at the end, by its length."""
    return _ATLASSIAN.fullmatch(token) is not None


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
    """Tell whether an age identity's Bech32 checksum holds, over 32 bytes."""
    found = decode_bech32(token)
    return found is not None and found[0] == "age-secret-key-" and len(found[1]) == 52


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
