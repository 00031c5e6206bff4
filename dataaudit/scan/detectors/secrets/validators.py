"""What rules of secrets may name: checks of candidates, and predicates for values that are no secret.

Values that stand for a secret and are none: placeholders, templates, documented examples, keyboards.

Whether a quoted value that is assigned to a password is one, or program text, a message or a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence, Predicate, Validator
from dataaudit.scan.detectors.secrets import pem
from dataaudit.scan.detectors.secrets.assigned import assigned, bits_per_letter, is_random, is_varied
from dataaudit.scan.detectors.secrets.issuers import (
    is_age_key,
    is_anthropic_key,
    is_atlassian_token,
    is_aws_access_key,
    is_azure_signature,
    is_azure_storage_key,
    is_basic_credential,
    is_discord_token,
    is_discord_webhook,
    is_github_token,
    is_gitlab_token,
    is_grafana_token,
    is_json_web_token,
    is_openai_key,
    is_pypi_token,
    is_sendgrid_key,
    is_sentry_token,
    is_shared_access_key,
    is_slack_token,
    is_slack_webhook,
    is_square_token,
    is_stripe_key,
    is_teams_webhook,
    is_terraform_token,
    is_thirty_two_bytes_behind,
    is_vault_token,
    is_wallet_key,
    is_whole_web_token,
)

_LONG = 120
"""Letters, beyond which words are not looked for: chance writes them."""
_LONG_WORDS = re.compile(r"EXAMPLE|X{8}")
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
        return len(set(value)) < 12 or _LONG_WORDS.search(value) is not None
    lower = value.lower()
    return bool(
        _TEMPLATE.search(value)
        or _WORDS.search(value)
        or _RUN.search(value)
        or any(sequence in lower for sequence in _SEQUENCES)
    )


_PASSWORD_COMMAND = re.compile(
    r"[(){}<>\[\]\\]|::|->|=>|\.\.|//|^[/.~-]|^--?[a-z]|[:=,;.]$|^[a-z]+(?:[._:/-][a-z]+\d?)+$|^[A-Z]+(?:[_-][A-Z0-9]+)+$|"
    r"^[A-Z]?[a-z]+(?:_[A-Z]?[a-z0-9]+)+$|^&|^\.?[\w-]+\.(?:c|h|py|js|ts|json|ya?ml|txt|conf|pem|key|crt|php|html?|com|org|net)$"
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


VERSION: Final = "5"
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


def _web_token(candidate: Candidate) -> Evidence:
    """Reject what is no web token; one whose signature was cut is one by its form alone."""
    if not is_json_web_token(candidate.text):
        return Evidence.REJECTED
    return Evidence.STRONG if is_whole_web_token(candidate.text) else Evidence.FORM


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
    "square_length": is_square_token,
    "openai_lengths": is_openai_key,
    "sentry_structure": is_sentry_token,
    "slack_hook": is_slack_webhook,
    "discord_hook": is_discord_webhook,
    "teams_hook": is_teams_webhook,
    "terraform_length": is_terraform_token,
    "planetscale_length": is_thirty_two_bytes_behind,
    "vault_length": is_vault_token,
    "atlassian_length": is_atlassian_token,
    "age_checksum": is_age_key,
}
_OR_NOTHING: Mapping[str, Callable[[str], bool]] = {
    "wallet_checksum": is_wallet_key,
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
        "web_token": _web_token,
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
