"""Values behind a plain name (`token: ...`): which names hold secrets, and which values a generator made.

Such a name proves little. So the value must be random over its whole length, as no word, path, version or identifier
is. A value in quotes behind a name that proves more (`api_key`, `client_secret`) needs less.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from urllib.parse import unquote

from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence

_WORDS = re.compile(r"[A-Z]?[a-z]{4,}")
_SEPARATOR_OF_PARTS = re.compile(r"[_.-]")
_JOINED = re.compile(r"(?<![A-Za-z])[A-Za-z]{3,}[_.-]?")
"""Words of an identifier in one case: ``base_of_the_4th_table``."""
_RUN = re.compile(r"(.)\1{2,}")
_CLASSES = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[0-9]"))
_HEX_DIGITS = re.compile(r"[0-9a-fA-F]+")
_MIN_SHARE = 0.75
"""Of the median entropy of a random string of this length and alphabet."""
_MIN_VARIED = 0.7
"""The same, of a random string of hexadecimal digits."""
_MOST_WORDS = 0.7
"""Share of letters in words, beyond which a string is made of words."""
_MAX_JOINED = 0.8
"""The same of words of an identifier: random letters in one case have 0.6, three and more in a row."""


def bits_per_letter(text: str) -> float:
    """Measure Shannon's entropy of the letters of ``text``, in bits a letter; 0 for an empty text."""
    if not text:
        return 0.0
    total = len(text)
    return math.log2(total) - sum(count * math.log2(count) for count in Counter(text).values()) / total


def _expected_bits(length: int, alphabet: int) -> float:
    """Bits a letter that random text shows: the alphabet's less Miller's bias, at most that of distinct letters."""
    distinct = alphabet * (1 - (1 - 1 / alphabet) ** length)
    return min(math.log2(length), math.log2(alphabet) - (distinct - 1) / (2 * length * math.log(2)))


def is_varied(text: str) -> bool:
    """Tell whether the letters of a string vary as those of a key do; for forms that no word and number has."""
    return len(text) > 1 and bits_per_letter(text) >= _MIN_VARIED * _expected_bits(len(text), 16)


def is_random(text: str) -> bool:
    """Tell whether a string may come from a generator of random letters rather than from a person.

    It must show three quarters of the entropy that a random string of its length and alphabet shows, must not be made
    of words for more than 70 or 80 %, and, if it is no hexadecimal number, must mix letters and digits or both cases.
    """
    body = text.rstrip("=")
    if len(body) < 8:
        return False
    digits = body.replace("-", "")
    if _HEX_DIGITS.fullmatch(digits):
        if digits.isdigit():
            return False
        body, alphabet = digits, 16
    else:
        kinds = [bool(kind.search(body)) for kind in _CLASSES]
        if sum(kinds) < 2:
            return False
        alphabet = 26 * kinds[0] + 26 * kinds[1] + 10 * kinds[2]
        both = kinds[0] and kinds[1]
        words = _WORDS if both else _JOINED if _SEPARATOR_OF_PARTS.search(body) else None
        if words and sum(map(len, words.findall(body))) > (_MOST_WORDS if both else _MAX_JOINED) * len(body):
            return False
    if _RUN.search(body) and len(_RUN.sub("", body)) < 0.6 * len(body):
        return False
    return bits_per_letter(body) >= _MIN_SHARE * _expected_bits(len(body), alphabet)


_PUBLIC = re.compile(
    # Derived from a secret or from anything else, without revealing it.
    r"hash(?!i)|sha\d|md5|digest|checksum|crc|finger_?print|thumb_?print|integrity|(?<![a-z])etag|commit|revision|"
    # Keys that are shown to everyone, and keys of tables.
    r"public(?!a)|publishable|(?:pub|host|recv|site|websocket|primary|foreign|cache|sort|partition|row|object|s3|bucket|"
    r"map|lookup|unique|idempotency|translation|i18n|locale)[_.-]?key|"
    r"key[_.-]?(?:id|ring|name|frame|word|board|map|code|server|path|file|grip|type|size|length|usage)|"
    # Tokens that mark a position in a list, a form or a text.
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
"""Names, in lower case, of secrets."""
_OF_SERVICE = re.compile(r"[a-z0-9]{2}[_.-]?(?:token|secret|pat|jwt|sas)$")
"""Names, in lower case, of a service and its secret, the service in two letters at least: `snyk_token`."""
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
_MIN_HEX = 32
"""Digits of a hexadecimal secret: 128 bits."""
_MAX_WORDS = 0.45
"""Share of letters in words of a value of both cases; random ones have 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """Requirements of a value; turns are neighbours of different kinds: small, capital, digit."""

    letters: int
    """Least letters of the longest part between points: `module.Class` and names of hosts have short parts."""
    one_case: int
    """The same in one case and digits; shorter parts are names with numbers."""
    separators: float
    """Largest share of separators, beside one (in one case) or three; 2 of 64 letters of base64 are separators."""
    turns_short: float
    """Least share of turns in both cases below 32 letters."""
    turns_parts: float
    """The same in one case with two separators and more."""


_PLAIN = _Limits(letters=20, one_case=24, separators=0.13, turns_short=0.4, turns_parts=0.25)
_EXPLICIT = _Limits(letters=16, one_case=16, separators=0.2, turns_short=0.3, turns_parts=0.2)
"""For a value that name and sign declare a secret."""
_TURNS = {"both cases": 0.3, "one case": 0.15, "hexadecimal": 0.22}
"""Least share of turns elsewhere. Random values have 0.62, 0.4 and 0.47."""


def is_generated(value: str, *, explicit: bool) -> bool:
    """Tell whether a value is random over its whole length, as keys are and identifiers, paths, versions are not."""
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


def _differ(name: str, other: str) -> bool:
    return (name.isdigit(), name.isupper()) != (other.isdigit(), other.isupper())


def assigned(candidate: Candidate) -> Evidence:
    """Reject names that hold no secret, and values that are no generator's: UUIDs, digests, public keys, words."""
    value, name = candidate.text, _name(candidate)
    if not name or _PUBLIC.search(name) or _SHOWN.match(value):
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
    passes = explicit if _UUID.fullmatch(value) else is_generated(value, explicit=explicit)
    return Evidence.FORM if passes else Evidence.REJECTED


def _name(candidate: Candidate) -> str:
    """Return the whole name in lower case, of which the regex has the end; empty where it is no name."""
    head, tail = _around(candidate)
    match = _HEAD.search(head)
    return "" if match is None or head.endswith("</") else match[0].lstrip("-") + tail


def _is_prose(candidate: Candidate) -> bool:
    """Tell whether name and value are words in a row, with a verb between or not, and belong to no command or flag."""
    head, _ = _around(candidate)
    match = _HEAD.search(head)
    flag = match is not None and match[0].startswith("-")
    return (
        candidate.before[-1:].isspace()
        and re.fullmatch(r"(?: (?:is|es|ist|est|lautet):?|是)?\s+", _group(candidate, "gap")) is not None
        and not flag
        and not _SETTING.search(head)
    )


def _around(candidate: Candidate) -> tuple[str, str]:
    """Return the text before the part of the name that the regex has, and that part, in lower case."""
    before, tail = candidate.before, _group(candidate, "name")
    at = before.rfind(tail, 0, max(0, len(before) - len(_group(candidate, "gap"))))
    return before[: max(0, at)], tail


def _group(candidate: Candidate, name: str) -> str:
    """Return a group of the regex as ``before`` is written: letters of UTF-8, in lower case."""
    return candidate.groups.get(name, "").encode("latin-1").decode("utf-8", "ignore").lower()
