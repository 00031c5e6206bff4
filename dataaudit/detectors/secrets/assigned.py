"""Values that a plain name is given (`token: ...`): which names hold secrets, and which values a generator made.

The name says little, so the value has to say the rest: random over its whole length, as no word, path, version or
identifier is. Names that say more (`api_key`, `client_secret`) ask less of a value in quotes.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from dataaudit.detectors.patterns.entity import Candidate, Evidence
from dataaudit.detectors.secrets.encodings import is_random

_PUBLIC = re.compile(
    # What is derived from a secret or from anything else, and tells nothing of it.
    r"hash(?!i)|sha\d|md5|digest|checksum|crc|finger_?print|thumb_?print|integrity|(?<![a-z])etag|commit|revision|"
    # Keys that are shown to everyone, and keys of tables.
    r"public(?!a)|publishable|(?:pub|host|recv|site|websocket|primary|foreign|cache|sort|partition|row|object|s3|bucket|"
    r"map|lookup|unique|idempotency|translation|i18n|locale)[_.-]?key|"
    r"key[_.-]?(?:id|ring|name|frame|word|board|map|code|server|path|file|grip|type|size|length|usage)|"
    # Tokens that mark a place in a list, a form or a text.
    r"csrf|xsrf|anti[_-]?forgery|nonce|tokeni[sz]|"
    r"(?:(?<!home)page|cursor|continuation|next|prev|previous|sync|cancel(?:l?ation)?|resume)[_.-]?token|"
    r"(?:name|id|ref|uri|url|path|file|dir|type|class|size|len|length|count|expir\w*|ttl|arn|version|alg(?:orithm)?|"
    r"format|pattern|regex|details|params|info|store|manager|provider)$"
)
"""Parts of names, in lower case, whose values are no secrets."""
_SPEAKING = re.compile(
    r"(?:api|auth|access|client|app|secret|private|service|account|encryption|signing|master|bearer|session)"
    r"[_.-]?(?:key|token|secret|id_secret)"
)
"""Names, in lower case, that say that a secret is meant."""
_OF_SERVICE = re.compile(r"[a-z0-9]{2}[_.-]?(?:token|secret|pat|jwt|sas)$")
"""Names, in lower case, that say whose secret it is, in words of two letters at least: `snyk_token`."""
_OF_KEYS = re.compile(r"(?:.*(?:gpg|pgp|rsa|dsa|ssh|ecdsa|ed25519)[_.-]?)?keys?")
"""Names whose hexadecimal values are fingerprints and numbers of keys as often as keys."""
_NO_KEY = re.compile(r"token|secret|pass|pwd|cred|bearer|set")
_HEAD = re.compile(r"[\w.$-]*$", re.ASCII)
_SETTING = re.compile(r"(?:^|\s)(?:set|env|arg|setenv|setx|define)[ \t]+[^\s\"'=]*$")
"""Commands, in lower case, that a name and a value follow, with spaces between."""
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHOWN = re.compile(r"(?i)sha\d{1,3}[-_:=]|md5[-_:=]|AAAA[BCE][23]|MII[A-K]|ssh-|pk[._]|0x")
"""How digests, public keys and certificates begin."""
_ASSIGNS = frozenset({"=", "==", "===", ":", ":=", "=>", "->"})
_QUOTES = frozenset({'"', "'", "`"})
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_SEPARATOR = re.compile(r"[_./+~=-]")
_WORDS = re.compile(r"[A-Z]?[a-z]{4,}")
_MIN_TOLD = 16
"""Letters of a secret whose name says that it is one."""
_MIN_LETTERS = 20
"""Of the longest part between points: `module.Class` and names of hosts have short ones."""
_MIN_HEX = 32
"""Digits of a hexadecimal secret: 128 bits."""
_MIN_ONE_CASE = 24
"""Letters of a secret in one case and digits; shorter ones are names with numbers."""
_MAX_SEPARATORS = 0.13
"""Share of a value of both cases, three at least; in base64 2 of 64 letters are one."""
_MAX_WORDS = 0.45
"""Share of letters in words of a value of both cases; random ones have 0.1."""
_TURNS = {"both cases": 0.3, "both cases, short": 0.4, "one case": 0.15, "one case, parts": 0.25, "hexadecimal": 0.22}
"""Least share of neighbours of different kinds: small, capital, digit. Random ones have 0.62, 0.4 or 0.3, and 0.47."""


def is_secret_name(name: str) -> bool:
    """Tell whether what a name holds may be secret: not a digest, a public key, a place in a list, a file."""
    return _PUBLIC.search(name.lower()) is None


def is_generated(value: str, *, told: bool = False) -> bool:
    """Tell whether a value is random over its whole length, as keys are and identifiers, paths, versions are not.

    Args:
        value: The value.
        told: Whether its name and sign say that it is a secret, so that shorter ones count.
    """
    body = max((unquote(value) if "%" in value else value).rstrip("=").split("."), key=len)
    if len(body) < (_MIN_TOLD if told else _MIN_LETTERS) or not is_random(body):
        return False
    letters = _SEPARATOR.sub("", body)
    one_case = letters in {letters.lower(), letters.upper()}
    separators = len(body) - len(letters)
    if separators > max(1 if one_case else 3, _MAX_SEPARATORS * len(body)):
        return False
    turns = sum(map(_differ, letters, letters[1:]))
    if _HEX.fullmatch(body):
        return len(body) >= _MIN_HEX and turns >= _TURNS["hexadecimal"] * len(body)
    if one_case:
        least = _TURNS["one case" if separators < 2 else "one case, parts"]
        return len(body) >= (_MIN_TOLD if told else _MIN_ONE_CASE) and turns >= least * len(letters)
    digits = any(map(str.isdigit, body)) or len(body) >= _MIN_HEX
    words = sum(map(len, _WORDS.findall(body)))
    least = _TURNS["both cases" if len(body) >= _MIN_HEX else "both cases, short"]
    return digits and turns >= least * len(body) and words <= _MAX_WORDS * len(body)


def _differ(one: str, other: str) -> bool:
    return (one.isdigit(), one.isupper()) != (other.isdigit(), other.isupper())


def assigned(candidate: Candidate) -> Evidence:
    """Reject names that hold no secret, and values that are no generator's: UUIDs, digests, public keys, words."""
    value, name = candidate.text, _name(candidate)
    if not name or not is_secret_name(name) or _SHOWN.match(value):
        return Evidence.REJECTED
    if _HEX.fullmatch(value.removesuffix(".")) and (_is_prose(candidate) or _OF_KEYS.fullmatch(name)):
        return Evidence.REJECTED
    speaking, gap = _SPEAKING.search(name) is not None, candidate.groups.get("gap", "").strip()
    if speaking and gap in _ASSIGNS and candidate.before[-1:] in _QUOTES:
        return Evidence.FORM
    if gap == "," and candidate.before[-1:] not in _QUOTES:
        return Evidence.REJECTED
    if gap == "(" and not speaking and not _NO_KEY.search(name):  # `key_split("...")`
        return Evidence.REJECTED
    told = (speaking or _OF_SERVICE.search(name) is not None) and gap in _ASSIGNS
    holds = told if _UUID.fullmatch(value) else is_generated(value, told=told)
    return Evidence.FORM if holds else Evidence.REJECTED


def _name(candidate: Candidate) -> str:
    """Return the whole name in lower case, of which the regex has the end; empty where it is none."""
    head, tail = _around(candidate)
    found = _HEAD.search(head)
    return "" if found is None or head.endswith("</") else found[0].lstrip("-") + tail


def _is_prose(candidate: Candidate) -> bool:
    """Tell whether name and value are words in a row, with ``is`` or not, and no command or flag says more."""
    head, _ = _around(candidate)
    found = _HEAD.search(head)
    flag = found is not None and found[0].startswith("-")
    return (
        candidate.before[-1:].isspace()
        and re.fullmatch(r"(?: is:?)?\s+", candidate.groups.get("gap", "").lower()) is not None
        and not flag
        and not _SETTING.search(head)
    )


def _around(candidate: Candidate) -> tuple[str, str]:
    """Return what stands before the part of the name that the regex has, and that part, in lower case."""
    tail = candidate.groups.get("name", "").lower()
    place = candidate.before.rfind(tail, 0, max(0, len(candidate.before) - len(candidate.groups.get("gap", ""))))
    return candidate.before[: max(0, place)], tail
