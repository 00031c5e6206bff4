"""Functions that rules of secrets may name: checks of candidates, and predicates for values that are no secret.

Such values are placeholders, templates, documented examples, rows of a keyboard; for passwords also program text,
messages and paths.
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
from dataaudit.scan.detectors.secrets.issuers import REQUIRED, STRUCTURES, is_json_web_token, is_whole_web_token

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
    """Tell whether a value is meant to be replaced, or is printed for every reader.

    Decided by the value alone: a template's marks, a word such as ``example`` or ``changeme`` in it, a letter or a
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

    A password that is a plain word looks like a label, so it is none.
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
"""Behind `password` in names of settings that hold no password."""
_PROGRAM = re.compile(r"[(){};,|]|%[a-z]|::|\\")
"""Marks of program text in place of a URL's password."""
_EXAMPLE_HOST = re.compile(
    r"@(?:[a-z0-9-]+\.)*(?:(?:example|invalid)(?:\.(?:com|net|org))?|my-?host|your-?host|host(?:name)?)(?![a-z0-9-])"
)
_SHORT_HEX = re.compile(r"[0-9a-fA-F-]{1,31}")
_ISSUED = re.compile(r"(?i)^[a-z]{2,8}[_.-]")


def _body(candidate: Candidate) -> str:
    """Return the random part, where the rule marks it; else all of the value."""
    return candidate.groups.get("body", candidate.text)


def _placeholder(candidate: Candidate) -> bool:
    return is_placeholder(_body(candidate))


def _url_placeholder(candidate: Candidate) -> bool:
    """Tell whether the password is the user's name or an example, or the host is an example (RFC 2606 and such)."""
    is_user = candidate.text == candidate.groups.get("user")
    return is_user or is_placeholder(candidate.text) or _EXAMPLE_HOST.match(candidate.after) is not None


def _never(_candidate: Candidate) -> bool:
    return False


def _form_if(passes: object) -> Evidence:
    return Evidence.FORM if passes else Evidence.REJECTED


def _random(candidate: Candidate) -> Evidence:
    """Reject values that no generator of random letters wrote; placeholders pass and are counted apart."""
    body = _body(candidate)
    prefix = _ISSUED.match(body)
    random = is_random(body[prefix.end() :] if prefix else body) or is_random(body)
    return _form_if(random or is_placeholder(body))


def _varied(candidate: Candidate) -> Evidence:
    """Reject values that repeat few letters, but for placeholders."""
    body = _body(candidate)
    return _form_if(is_varied(body) or is_placeholder(body))


def _mixed(candidate: Candidate) -> Evidence:
    """Reject values without a digit, a capital or a small letter: digests in hexadecimal, words, paths."""
    return _form_if(all(any(map(kind, candidate.text)) for kind in (str.isdigit, str.isupper, str.islower)))


def _long_number(candidate: Candidate) -> Evidence:
    """Reject hexadecimal numbers of less than 128 bits: names of versions, of builds, of objects."""
    return _form_if(not _SHORT_HEX.fullmatch(candidate.text))


def _armour(candidate: Candidate) -> Evidence:
    if not pem.has_body(candidate.text):
        return Evidence.REJECTED
    return Evidence.STRONG if pem.is_private_block(candidate.text) else Evidence.FORM


def _armour_placeholder(candidate: Candidate) -> bool:
    return bits_per_letter(pem.body_of(candidate.text)) < 4


def _password(candidate: Candidate) -> Evidence:
    if _NO_PASSWORD.search(candidate.groups.get("suffix", "")):
        return Evidence.REJECTED
    return _form_if(is_placeholder(candidate.text) or is_password(candidate.text))


def _url_password(candidate: Candidate) -> Evidence:
    """Reject ports that look like a password, and program text; a placeholder passes and is reserved."""
    text = candidate.text
    return _form_if(is_placeholder(text) or (not (text.isdigit() and len(text) < 6) and not _PROGRAM.search(text)))


def _web_token(candidate: Candidate) -> Evidence:
    """Reject other texts than web tokens; a token whose signature was cut has the form alone."""
    if not is_json_web_token(candidate.text):
        return Evidence.REJECTED
    return Evidence.STRONG if is_whole_web_token(candidate.text) else Evidence.FORM


@dataclass(frozen=True, slots=True, repr=False)
class _StrongIf:
    """Strong evidence where a check of the text passes; a class, so that registries can be sent to workers."""

    passes: Callable[[str], object]
    otherwise: Evidence

    def __call__(self, candidate: Candidate) -> Evidence:
        return Evidence.STRONG if self.passes(candidate.text) else self.otherwise


def _issued(_candidate: Candidate) -> Evidence:
    """Fixed letters of an issuer, five and more, exact lengths and alphabets: chance has none of these."""
    return Evidence.STRONG


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
        **{name: _StrongIf(passes, Evidence.FORM) for name, passes in STRUCTURES.items()},
        **{name: _StrongIf(passes, Evidence.REJECTED) for name, passes in REQUIRED.items()},
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
"""Predicates by name; that of each entity also knows the allow-list."""
