"""Reference implementation of the screen: Python's ``re`` over every rule and every document, without a first pass."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PlainFinding:
    """One hit."""

    start: int
    end: int
    detector: str
    entity: str
    tier: int
    reserved: bool


def find_plainly(
    written: bytes,
    entities: Sequence[Any],
    validators: dict[str, Callable[[Any], int]],
    reserved: dict[str, Callable[[Any], bool]],
    labels: dict[str, Callable[[Any], bool]] | None = None,
) -> list[PlainFinding]:
    """Return what the entities' rules find in a document, sorted by place.

    Args:
        written: UTF-8 of the document.
        entities: Records with the fields of :class:`dataaudit.scan.detectors.patterns.entity.Entity`.
        validators: Checks by name; 0 is rejected, 1 the form, 2 weak, 3 strong.
        reserved: Predicates by name.
        labels: Predicates of labels by name: a context word counts only where that of its entity holds.
    """
    document, places = _with_plain_spaces(written)
    found: list[tuple[tuple[float, ...], PlainFinding]] = []
    number = 0
    for code, entity in enumerate(entities):
        for rule in entity.rules:
            pattern = f"(?:{rule.regex})"
            pattern = f"(?<![{rule.left}])" + pattern if rule.left else pattern
            pattern = pattern + f"(?![{rule.right}])" if rule.right else pattern
            for behind in rule.before_not:
                pattern = f"(?<!{behind}){pattern}"
            for ahead in rule.after_not:
                pattern = f"{pattern}(?!{ahead})"
            for match in re.finditer(pattern.encode(), document, re.IGNORECASE if rule.ignore_case else 0):
                hit = _one(document, match, entity, rule, (validators, reserved, labels or {}))
                if hit is not None:
                    order = (hit.tier, hit.start - hit.end, hit.start, -entity.scores[hit.tier], code, number)
                    found.append((order, hit))
            number += 1
    kept: list[PlainFinding] = []
    for _, hit in sorted(found, key=lambda pair: pair[0]):
        taken = any(
            other.detector == hit.detector and other.start < hit.end and hit.start < other.end for other in kept
        )
        if not taken:
            kept.append(hit)
    names = [entity.name for entity in entities]
    there = [replace(hit, start=places[hit.start], end=places[hit.end]) for hit in kept]
    return sorted(there, key=lambda hit: (hit.start, hit.end, names.index(hit.entity)))


def _with_plain_spaces(written: bytes) -> tuple[bytes, list[int]]:
    """Return a text with plain digits, spaces and hyphens for those of other scripts, and where each byte stood."""
    plain, places = _instead(written, _plain_digit)
    again, more = _instead(plain, _plain_sign)
    for escape, sign in _ESCAPES.items():  # of as many bytes
        again = again.replace(escape.encode(), sign.rjust(len(escape)).encode())
    return again, [places[index] for index in more]


def _instead(written: bytes, look: Any) -> tuple[bytes, list[int]]:
    plain, places, place = bytearray(), [], 0
    while place < len(written):
        size, letter = look(written, place)
        plain += letter
        places.append(place)
        place += size
    return bytes(plain), [*places, place]


_ESCAPES = {"\\n": "\n", "\\r": " ", "\\t": " "} | {
    form: chr(int(digits, 16))
    for lead, listed in (("\\u00", "22 26 27 2b 2B 3c 3C 3d 3D 3e 3E"), ("%", "20 22 09 0a 0A 0d 0D 3c 3C 3e 3E"))
    for digits in listed.split()
    for form in (lead + digits,)
}
_SCRIPTS = (0xFF10, 0x0660, 0x06F0, 0x0966, 0x09E6, 0x0E50)


def _plain_digit(written: bytes, place: int) -> tuple[int, bytes]:
    for zero in _SCRIPTS:
        for digit in range(10):
            raw = chr(zero + digit).encode()
            if written.startswith(raw, place):
                return len(raw), b"%d" % digit
    return 1, written[place : place + 1]


_ALWAYS = {"\u00a0": b" ", "\u202f": b" ", "\u2011": b"-"}
_SPACES = "\u2007 \u2008 \u2009 \u200a \u3000 &nbsp; &thinsp; &#160; &#xa0; &#xA0; &#Xa0; &#XA0; &#8239; %20"
_HYPHENS = (
    "\u2010 \u2012 \u2013 \u2212 \uff0d \u30fc &#8209; &hyphen; &ndash; &mdash; &minus; &#45; &#x2d; &#x2D; "
    "&#X2d; &#X2D; &#8211; &#8212; %2d %2D"
)


def _plain_sign(written: bytes, place: int) -> tuple[int, bytes]:
    last = written[place - 1 : place].decode("latin-1") if place else ""
    between = dict.fromkeys(_SPACES.split(" "), b" ") | dict.fromkeys(_HYPHENS.split(" "), b"-")
    lone = {"%2b": b"+", "%2B": b"+", "\uff0b": b"+", "\uff08": b"(", "\uff09": b")", "\uff20": b"@"}
    for sign, instead in {**_ALWAYS, **between, **lone}.items():
        raw = sign.encode()
        if not written.startswith(raw, place):
            continue
        following = written[place + len(raw) : place + len(raw) + 1].decode("latin-1")
        starts = following in set("0123456789")
        allowed = {
            "%2b": last in set("=:/ \"'>") and starts,
            "\uff0b": starts,
            "\uff08": starts,
            "\uff09": last in set("0123456789"),
            "\uff20": re.fullmatch(r"[\w.-][A-Za-z0-9]", last + following, re.ASCII) is not None,
        }
        digits = last in set("0123456789)") and following in set("0123456789(")
        if sign in _ALWAYS or (sign in between and digits) or allowed.get(sign.lower(), False):
            return len(raw), instead
    return 1, written[place : place + 1]


def _said(check: Callable[[Any], int], candidate: Any) -> int:
    try:
        return int(check(candidate))
    except ValueError:  # so says the library of numbers whose parts make no date
        return 0


def _one(document: bytes, match: Any, entity: Any, rule: Any, checks: Any) -> PlainFinding | None:
    validators, reserved, labels = checks
    group = "value" if "value" in match.re.groupindex else 0
    start, end = match.start(group), match.end(group)
    if match.group(group) is None or not 0 < end - start <= 16384:
        return None
    behind = _behind(document, start - entity.window[0], start)
    ahead = _ahead(document, end, end + entity.window[1])
    context = any(_says(window, word) for window in (behind, ahead) for word in entity.context)
    candidate = SimpleNamespace(
        text=document[start:end].decode("latin-1"),
        before=behind,
        after=ahead,
        context=context,
        groups={k: v.decode("latin-1") for k, v in match.groupdict().items() if v is not None},
    )
    if context and getattr(entity, "label", None):
        context = candidate.context = labels[entity.label](candidate)
    said = [_said(validators[name], candidate) for name in rule.validators]
    if 0 in said:
        return None
    evidence = int(rule.passes) if rule.passes is not None else max([1, *said])
    name = {1: "form", 2: "weak", 3: "strong"}[evidence] + ("" if context else "_bare")
    tier = getattr(rule.tiers, name)
    if tier is None:
        return None
    example = bool(entity.reserved and reserved[entity.reserved](candidate))
    return PlainFinding(
        start=start, end=end, detector=entity.detector, entity=entity.name, tier=int(tier), reserved=example
    )


def _behind(document: bytes, first: int, last: int) -> str:
    """Return a stretch of the document, folded, without the half word or character at its start."""
    first = max(first, 0)
    while 0 < first < last and _splits(document, first):
        first += 1
    return _folded(document[first:last].decode("utf-8", "ignore"))


def _ahead(document: bytes, first: int, last: int) -> str:
    """Return a stretch of the document, folded, without the half word or character at its end."""
    last = min(last, len(document))
    while first < last < len(document) and _splits(document, last):
        last -= 1
    return _folded(document[first:last].decode("utf-8", "ignore"))


def _splits(document: bytes, place: int) -> bool:
    inside_character = 0x80 <= document[place] <= 0xBF
    return inside_character or re.fullmatch(rb"[A-Za-z]{2}", document[place - 1 : place + 1]) is not None


def _folded(text: str) -> str:
    """Return the text in lower case; letters whose lower case is longer, or ASCII while they are not, stay."""
    low = [letter.lower() for letter in text]
    keep = [len(to) != 1 or (ord(to) < 128 <= ord(letter)) for letter, to in zip(text, low, strict=True)]
    return "".join(letter if same else to for letter, to, same in zip(text, low, keep, strict=True))


def _says(window: str, word: str) -> bool:
    low = _folded(word)
    plain = "".join(mark for mark in unicodedata.normalize("NFD", low) if unicodedata.combining(mark) == 0)
    return any(_stands(window, form) for form in (low, unicodedata.normalize("NFC", plain)))


def _stands(window: str, word: str) -> bool:
    open_end = word.endswith("*")
    pieces = word.rstrip("*").split()
    first, last = pieces[0][0], pieces[-1][-1]
    if pieces[0] not in window:
        return False
    phrase = re.compile(r"[ \t\r\n_-]{0,4}".join(map(re.escape, pieces)))
    for place in range(len(window)):
        match = phrase.match(window, place)
        if match is None:
            continue
        joined_before = first.lower() != first.upper() and first.isalpha() and window[:place][-1:].isalpha()
        joined_after = last.lower() != last.upper() and last.isalpha() and window[match.end() :][:1].isalpha()
        if not joined_before and (open_end or not joined_after):
            return True
    return False
