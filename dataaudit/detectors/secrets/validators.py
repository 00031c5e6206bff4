"""What rules of secrets may name: checks of candidates, and predicates for values that are no secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dataaudit.detectors.patterns.entity import Candidate, Evidence, Predicate, Validator
from dataaudit.detectors.secrets import checksums, issuers, pem
from dataaudit.detectors.secrets.entropy import bits_per_letter, is_random, is_varied
from dataaudit.detectors.secrets.jwt import is_json_web_token
from dataaudit.detectors.secrets.passwords import is_password
from dataaudit.detectors.secrets.placeholders import is_placeholder

VERSION: Final = "1"
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
    "aws_account": issuers.is_aws_access_key,
    "azure_storage_key": issuers.is_azure_storage_key,
    "azure_signature": issuers.is_azure_signature,
    "thirty_two_bytes": issuers.is_shared_access_key,
    "github_checksum": checksums.is_github_token,
    "gitlab_checksum": checksums.is_gitlab_token,
    "grafana_checksum": checksums.is_grafana_token,
    "pypi_macaroon": issuers.is_pypi_token,
    "anthropic_end": issuers.is_anthropic_key,
    "slack_lengths": issuers.is_slack_token,
    "discord_account": issuers.is_discord_token,
    "sendgrid_lengths": issuers.is_sendgrid_key,
    "stripe_length": issuers.is_stripe_key,
    "square_prefix": issuers.is_square_token,
    "vault_length": issuers.is_vault_token,
    "atlassian_length": issuers.is_atlassian_token,
    "age_checksum": issuers.is_age_key,
}
_OR_NOTHING: Mapping[str, Callable[[str], bool]] = {
    "wallet_checksum": issuers.is_wallet_key,
    "web_token": is_json_web_token,
    "basic_credential": issuers.is_basic_credential,
}
VALIDATORS: Final[Mapping[str, Validator]] = MappingProxyType(
    {
        "random": _random,
        "varied": _varied,
        "mixed": _mixed,
        "long_number": _long_number,
        "armour": _armour,
        "password": _password,
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
