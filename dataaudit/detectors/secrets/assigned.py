"""Values that a plain name is given (`token: ...`): which names hold secrets, and which values a generator made.

The name says little, so the value has to say the rest: random over its whole length, as no word, path, version or
identifier is. Names that say more (`api_key`, `client_secret`) ask less of a value in quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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
    r"(?:(?<!home)page|cursor|continuation|next|prev|previous|sync|change|client_?request|cancel(?:l?ation)?|resume)[_.-]?token|"
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
_UUID = re.compile(r"(?i)(?:[a-z][a-z0-9]{0,11}[_-]){0,3}[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHOWN = re.compile(r"(?i)sha\d{1,3}[-_:=]|md5[-_:=]|AAAA[BCE][23]|MII[A-K]|ssh-|pk[._]|0x")
"""How digests, public keys and certificates begin."""
_ASSIGNS = frozenset({"=", "==", "===", ":", "：", ":=", "=>", "->", "→"})
_SIGN = re.compile(r"[=:>→：]")
"""What stands between a name and its value, beside spaces and words."""
_QUOTES = frozenset({'"', "'", "`"})
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_SEPARATOR = re.compile(r"[_./+~=-]")
_POINT = re.compile(r"[.&]")
_WORDS = re.compile(r"[A-Z]?[a-z]{4,}")
_MIN_HEX = 32
"""Digits of a hexadecimal secret: 128 bits."""
_MAX_WORDS = 0.45
"""Share of letters in words of a value of both cases; random ones have 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What a value must show; turns are neighbours of different kinds: small, capital, digit."""

    letters: int
    """Letters of the longest part between points, least: `module.Class` and names of hosts have short ones."""
    one_case: int
    """The same in one case and digits; shorter ones are names with numbers."""
    separators: float
    """Largest share of separators, of which one (in one case) or three are free; in base64 2 of 64 letters are one."""
    turns_short: float
    """Least share of turns in both cases below 32 letters."""
    turns_parts: float
    """The same in one case with two separators and more."""


_PLAIN = _Limits(letters=20, one_case=24, separators=0.13, turns_short=0.4, turns_parts=0.25)
_EXPLICIT = _Limits(letters=16, one_case=16, separators=0.2, turns_short=0.3, turns_parts=0.2)
"""Where name and sign say that the value is a secret."""
_TURNS = {"both cases": 0.3, "one case": 0.15, "hexadecimal": 0.22}
"""Least share of turns elsewhere. Random values have 0.62, 0.4 and 0.47."""


def is_secret_name(name: str) -> bool:
    """Tell whether what a name holds may be secret: not a digest, a public key, a place in a list, a file."""
    return _PUBLIC.search(name.lower()) is None


def is_generated(value: str, *, explicit: bool = False) -> bool:
    """Tell whether a value is random over its whole length, as keys are and identifiers, paths, versions are not.

    Args:
        value: The value.
        explicit: Whether its name and sign say that it is a secret, so that less is asked of it.
    """
    least = _EXPLICIT if explicit else _PLAIN
    body = max(_POINT.split((unquote(value) if "%" in value else value).rstrip("=")), key=len)
    if len(body) < least.letters or not is_random(body):
        return False
    letters = _SEPARATOR.sub("", body)
    one_case = letters in {letters.lower(), letters.upper()}
    separators = len(body) - len(letters)
    if separators > max(1 if one_case else 3, least.separators * len(body)):
        return False
    turns = sum(map(_differ, letters, letters[1:])) / len(letters)
    if _HEX.fullmatch(body):
        return len(body) >= _MIN_HEX and turns >= _TURNS["hexadecimal"]
    if one_case:
        return len(body) >= least.one_case and turns >= (_TURNS["one case"] if separators < 2 else least.turns_parts)
    digits = any(map(str.isdigit, body)) or len(body) >= _MIN_HEX
    words = sum(map(len, _WORDS.findall(body)))
    return (
        digits
        and turns >= (_TURNS["both cases"] if len(body) >= _MIN_HEX else least.turns_short)
        and words <= _MAX_WORDS * len(body)
    )


def _differ(one: str, other: str) -> bool:
    return (one.isdigit(), one.isupper()) != (other.isdigit(), other.isupper())


def assigned(candidate: Candidate) -> Evidence:
    """Reject names that hold no secret, and values that are no generator's: UUIDs, digests, public keys, words."""
    value, name = candidate.text, _name(candidate)
    if not name or not is_secret_name(name) or _SHOWN.match(value):
        return Evidence.REJECTED
    if _HEX.fullmatch(value.removesuffix(".")) and (_is_prose(candidate) or _OF_KEYS.fullmatch(name)):
        return Evidence.REJECTED
    speaking, gap = _SPEAKING.search(name) is not None, _group(candidate, "gap").strip()
    quoted = candidate.before[-1:] in _QUOTES
    if speaking and quoted and gap in _ASSIGNS and len(value) >= _PLAIN.letters:
        return Evidence.FORM
    if gap == "," and not quoted:
        return Evidence.REJECTED
    if gap == "(" and "key" in name and not speaking and not _NO_KEY.search(name):  # `key_split("...")`
        return Evidence.REJECTED
    explicit = (speaking or _OF_SERVICE.search(name) is not None) and (
        quoted or (_SIGN.search(gap) is not None and "." not in value)
    )
    holds = explicit if _UUID.fullmatch(value) else is_generated(value, explicit=explicit)
    return Evidence.FORM if holds else Evidence.REJECTED


def _name(candidate: Candidate) -> str:
    """Return the whole name in lower case, of which the regex has the end; empty where it is none."""
    head, tail = _around(candidate)
    found = _HEAD.search(head)
    return "" if found is None or head.endswith("</") else found[0].lstrip("-") + tail


def _is_prose(candidate: Candidate) -> bool:
    """Tell whether name and value are words in a row, with a verb between or not, and no command or flag says more."""
    head, _ = _around(candidate)
    found = _HEAD.search(head)
    flag = found is not None and found[0].startswith("-")
    return (
        candidate.before[-1:].isspace()
        and re.fullmatch(r"(?: (?:is|es|ist|est|lautet):?|是)?\s+", _group(candidate, "gap")) is not None
        and not flag
        and not _SETTING.search(head)
    )


def _around(candidate: Candidate) -> tuple[str, str]:
    """Return what stands before the part of the name that the regex has, and that part, in lower case."""
    before, tail = candidate.before, _group(candidate, "name")
    place = before.rfind(tail, 0, max(0, len(before) - len(_group(candidate, "gap"))))
    return before[: max(0, place)], tail


def _group(candidate: Candidate, name: str) -> str:
    """Return a group of the regex as ``before`` is written: letters of UTF-8, in lower case."""
    return candidate.groups.get(name, "").encode("latin-1").decode("utf-8", "ignore").lower()
