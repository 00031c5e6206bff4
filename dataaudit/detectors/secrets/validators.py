"""What rules of secrets may name: checks of candidates, and predicates for values that are no secret.

Tokens that carry a CRC-32 of themselves: a random string passes one time in four billion.

Values that stand for a secret and are none: placeholders, templates, documented examples, keyboards.

Whether a quoted value that is assigned to a password is one, or program text, a message or a path.

JSON Web Tokens (RFC 7519): what decodes to a header that names an algorithm, and to claims.

What issuers put into their tokens: account numbers, lengths, versions. One function an issuer.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from dataaudit.detectors.patterns.entity import Candidate, Evidence, Predicate, Validator
from dataaudit.detectors.secrets import pem
from dataaudit.detectors.secrets.assigned import assigned
from dataaudit.detectors.secrets.encodings import (
    bits_per_letter,
    decode_base58_checked,
    decode_base64,
    decode_bech32,
    is_random,
    is_varied,
)

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_BASE62_DIGITS = 6
_BASE36_DIGITS = 7
_GITLAB = re.compile(
    r"(?P<head>(?:gl[a-z]{2,6}-|GR1348941)?(?P<payload>[A-Za-z0-9_-]{20,})\.(?:[0-9a-z]{2}\.)?(?P<length>[0-9a-z]{2}))"
    r"(?P<crc>[0-9a-z]{7})"
)


def _digits(number: int, alphabet: str, width: int) -> str:
    found = ""
    while number:
        number, digit = divmod(number, len(alphabet))
        found = alphabet[digit] + found
    return found.rjust(width, alphabet[0])


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
    found = _GITLAB.fullmatch(token)
    if found is None or int(found["length"], 36) != len(found["payload"]):
        return False
    return _digits(zlib.crc32(found["head"].encode()), _BASE36, _BASE36_DIGITS) == found["crc"]


def is_grafana_token(token: str) -> bool:
    """Tell whether a Grafana token ends in the CRC-32 of what is before its last underscore, lowest byte first."""
    body, _, check = token.rpartition("_")
    return body.isascii() and zlib.crc32(body.encode()).to_bytes(4, "little").hex() == check.lower()


_LONG = 120
"""Letters, beyond which words are not looked for: chance writes them."""
_WORDS = re.compile(
    r"x{5}|\*{3}|\.{3}|example|sample|change[-_ ]?(?:me|this|it)|place[-_]?holder|redacted|removed|hidden|masked|"
    r"replace|dummy|insert|not[-_ ]?a[-_ ]?real|foo_?bar|secret[-_]?key|your[-_ ]|(?<![a-z])your(?=[A-Z])|"
    r"[-_ ]here(?![a-z])|my[-_](?:secret|token|key|pass|api)|(?:api|access|auth)[-_]?(?:key|token)(?![a-z0-9])|"
    r"s3cr3t|deadbeef|cafebabe|qwerty|letmein|hunter2|correct[-_ ]?horse|pass(?:word|wd|phrase)",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(
    r"\$\{|\{\{|\}\}|\$\(|#\{|<[A-Za-z%$]|(?<![A-Za-z0-9])%[sdv@](?![A-Za-z0-9])|%\(|"
    r"\[[A-Za-z_ -]+\]|\{[A-Za-z0-9_.]*\}|"
    r"^\$[A-Za-z_]|^%[A-Za-z_]+%?$|^@[A-Za-z_]+@$"
)
_RUN = re.compile(r"(.)\1{5,}|(..)\2{4,}|(...)\3{4,}|(....)\4{3,}")
_SEQUENCES = tuple(
    line[i : i + 8]
    for line in ("0123456789", "1234567890", "9876543210", "abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba")
    for i in range(len(line) - 7)
)
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        "none null nil true false undefined default password passwd pass secret token admin root test user guest key "
        "string str username login foo bar baz foobar abc 123 1234 12345 123456 pwd pw apikey api_key",
    )
)


def is_placeholder(value: str) -> bool:
    """Tell whether a value is meant to be replaced, or is known to be given to every reader.

    Rests on the value alone: a template's marks, a word such as ``example`` or ``changeme`` in it, one letter or a
    short group again and again, a row of the alphabet, at most three different letters.
    """
    if value.lower() in _EMPTY or len(set(value)) <= min(3, len(value) - 1):
        return True
    if len(value) > _LONG:
        return len(set(value)) < 12
    lower = value.lower()
    return bool(
        _TEMPLATE.search(value)
        or _WORDS.search(value)
        or _RUN.search(value)
        or any(sequence in lower for sequence in _SEQUENCES)
    )


_PASSWORD_COMMAND = re.compile(
    r"[(){}<>\[\]\\]|::|->|=>|\.\.|//|^[/.~-]|^--?[a-z]|[:=,;.]$|^[a-z]+(?:[._:/-][a-z]+\d?)+$|^[A-Z]+(?:[_-][A-Z0-9]+)+$|"
    r"^[A-Z]?[a-z]+(?:_[A-Z]?[a-z0-9]+)+$|^&|^\.?[\w-]+\.(?:c|h|py|js|ts|json|ya?ml|txt|conf|pem|key|crt|php|html?|com|org|net)$",
)
_MIN_BITS = 2.4


def is_password(value: str) -> bool:
    """Tell whether a value looks chosen or made to be secret: letters with digits or signs, not program text.

    A password that is a plain word is not told from a label, and is not found.
    """
    if _PASSWORD_COMMAND.search(value) or not value.isprintable():
        return False
    letters = sum(letter.isalpha() for letter in value)
    digits = sum(letter.isdigit() for letter in value)
    signs = sum(not letter.isalnum() and letter not in "_-. " for letter in value)
    return bool(letters and (digits or signs)) and letters + digits >= 4 and bits_per_letter(value) >= _MIN_BITS


def is_json_web_token(token: str) -> bool:
    """Tell whether a token is a signed one with claims (RFC 7515), or an encrypted one (RFC 7516)."""
    parts = token.split(".")
    header = _read(parts[0])
    if header is None or not isinstance(header.get("alg"), str):
        return False
    if len(parts) == 5:
        return isinstance(header.get("enc"), str) and all(decode_base64(part) is not None for part in parts[1:])
    if len(parts) != 3 or _read(parts[1]) is None:
        return False
    return header["alg"] == "none" if not parts[2] else decode_base64(parts[2]) is not None


def _read(part: str) -> dict[str, object] | None:
    raw = decode_base64(part)
    if raw is None:
        return None
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


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


VERSION: Final = "2"
"""Raised when a check, an entropy or a placeholder is decided otherwise than before."""
_NO_PASSWORD = re.compile(
    r"(?i)encr|hash|algo|method|type|format|file|path|dir|field|label|name|prompt|policy|len|min|max|re$|regex|pattern|"
    r"hint|reset|url|id$|salt|charset|chars|msg|message|error|title|class|input|help|desc|text$|command|cmd|plugin|auth|"
    r"last|used|date|time|expir|age$|count|since|version|status|state|enabled|required|changed"
)
"""What follows `password` in names of settings that hold no password."""
_PROGRAM = re.compile(r"[(){};,|]|%[a-z]|::|\\")
"""Marks of program text in what stands where a URL's password stands."""
_EXAMPLE_HOST = re.compile(
    r"@(?:[a-z0-9-]+\.)*(?:(?:example|invalid)(?:\.(?:com|net|org))?|my-?host|your-?host|host(?:name)?)(?![a-z0-9-])"
)
_SHORT_HEX = re.compile(r"[0-9a-fA-F-]{1,31}")
_ISSUED = re.compile(r"(?i)^[a-z]{2,8}[_.-]")


def _body(candidate: Candidate) -> str:
    """Return the part that an issuer made at random, where the rule marks it; else all of the value."""
    return candidate.groups.get("body", candidate.text)


def _placeholder(candidate: Candidate) -> bool:
    return is_placeholder(_body(candidate))


def _url_placeholder(candidate: Candidate) -> bool:
    """Tell whether the password is the user's name or an example, or the host one: those of RFC 2606 and such."""
    if candidate.text == candidate.groups.get("user"):
        return True
    return is_placeholder(candidate.text) or _EXAMPLE_HOST.match(candidate.after) is not None


def _never(_candidate: Candidate) -> bool:
    return False


def _random(candidate: Candidate) -> Evidence:
    """Reject what no generator of random letters wrote, but for placeholders: those are counted apart."""
    body = _body(candidate)
    prefix = _ISSUED.match(body)
    random = is_random(body[prefix.end() :] if prefix else body) or is_random(body)
    return Evidence.FORM if random or is_placeholder(body) else Evidence.REJECTED


def _varied(candidate: Candidate) -> Evidence:
    """Reject what repeats few letters, but for placeholders."""
    body = _body(candidate)
    return Evidence.FORM if is_varied(body) or is_placeholder(body) else Evidence.REJECTED


def _mixed(candidate: Candidate) -> Evidence:
    """Reject what lacks a digit, a capital or a small letter: digests in hexadecimal, words, paths."""
    kinds = (str.isdigit, str.isupper, str.islower)
    return Evidence.FORM if all(any(map(kind, candidate.text)) for kind in kinds) else Evidence.REJECTED


def _long_number(candidate: Candidate) -> Evidence:
    """Reject hexadecimal numbers of less than 128 bits: names of versions, of builds, of objects."""
    return Evidence.REJECTED if _SHORT_HEX.fullmatch(candidate.text) else Evidence.FORM


def _armour(candidate: Candidate) -> Evidence:
    if not pem.has_body(candidate.text):
        return Evidence.REJECTED
    return Evidence.STRONG if pem.is_private_block(candidate.text) else Evidence.FORM


def _armour_placeholder(candidate: Candidate) -> bool:
    return bits_per_letter(pem.body_of(candidate.text)) < 4


def _password(candidate: Candidate) -> Evidence:
    if _NO_PASSWORD.search(candidate.groups.get("suffix", "")):
        return Evidence.REJECTED
    found = is_placeholder(candidate.text) or is_password(candidate.text)
    return Evidence.FORM if found else Evidence.REJECTED


def _url_password(candidate: Candidate) -> Evidence:
    """Reject a port that is taken for a password, and program text; a placeholder is one for `reserved`."""
    text = candidate.text
    form = is_placeholder(text) or (not (text.isdigit() and len(text) < 6) and not _PROGRAM.search(text))
    return Evidence.FORM if form else Evidence.REJECTED


@dataclass(frozen=True, slots=True, repr=False)
class _StrongIf:
    """Strong evidence where a check of the text holds; a class, so that registries can be sent to workers."""

    holds: Callable[[str], bool]
    otherwise: Evidence = Evidence.FORM

    def __call__(self, candidate: Candidate) -> Evidence:
        return Evidence.STRONG if self.holds(candidate.text) else self.otherwise


def _issued(_candidate: Candidate) -> Evidence:
    """Fixed letters of an issuer, five and more, exact lengths and alphabets: chance does not meet these."""
    return Evidence.STRONG


_BY_TEXT: Mapping[str, Callable[[str], bool]] = {
    "aws_account": is_aws_access_key,
    "azure_storage_key": is_azure_storage_key,
    "azure_signature": is_azure_signature,
    "thirty_two_bytes": is_shared_access_key,
    "github_checksum": is_github_token,
    "gitlab_checksum": is_gitlab_token,
    "grafana_checksum": is_grafana_token,
    "pypi_macaroon": is_pypi_token,
    "anthropic_end": is_anthropic_key,
    "slack_lengths": is_slack_token,
    "discord_account": is_discord_token,
    "sendgrid_lengths": is_sendgrid_key,
    "stripe_length": is_stripe_key,
    "square_prefix": is_square_token,
    "vault_length": is_vault_token,
    "atlassian_length": is_atlassian_token,
    "age_checksum": is_age_key,
}
_OR_NOTHING: Mapping[str, Callable[[str], bool]] = {
    "wallet_checksum": is_wallet_key,
    "web_token": is_json_web_token,
    "basic_credential": is_basic_credential,
}
VALIDATORS: Final[Mapping[str, Validator]] = MappingProxyType(
    {
        "random": _random,
        "varied": _varied,
        "mixed": _mixed,
        "long_number": _long_number,
        "armour": _armour,
        "password": _password,
        "assigned": assigned,
        "url_password": _url_password,
        "issued_form": _issued,
        **{name: _StrongIf(holds) for name, holds in _BY_TEXT.items()},
        **{name: _StrongIf(holds, Evidence.REJECTED) for name, holds in _OR_NOTHING.items()},
    }
)
"""Checks by the names that rules give them."""
RESERVED: Final[Mapping[str, Predicate]] = MappingProxyType(
    {
        "placeholder": _placeholder,
        "url_placeholder": _url_placeholder,
        "armour_placeholder": _armour_placeholder,
        "allowed_only": _never,
    }
)
"""Predicates by name; each entity's own also knows the allow-list."""
