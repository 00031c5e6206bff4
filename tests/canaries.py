"""Canaries: a made-up value of every entity that is looked for, and a search for them in any bytes, in any disguise."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import string
from re import _constants as codes
from re import _parser as parser

from made_secrets import BASE58, in_base
from secret_kinds import KINDS

from dataaudit.detectors.patterns.screen import find_in
from dataaudit.detectors.pii.shipped import load_pii

PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]
SENTENCE = "the quokka {} folded seventeen umber kites beneath a borrowed lighthouse"
TRIES = 400
LEAST = 6
"""Characters of the shortest form that is searched for: shorter ones are found anywhere by chance."""


def drawn(tree, rng) -> str:
    """Return a random string that a parsed regular expression matches; lookarounds are left out."""
    made = []
    for kind, value in tree:
        if kind is codes.LITERAL:
            made.append(chr(value))
        elif kind is codes.NOT_LITERAL:
            made.append(rng.choice([one for one in PRINTABLE if ord(one) != value]))
        elif kind is codes.ANY:
            made.append(rng.choice(PRINTABLE))
        elif kind is codes.IN:
            made.append(rng.choice(_members(value)))
        elif kind in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            low, high, inner = value
            made += [drawn(inner, rng) for _ in range(rng.randint(low, min(int(high), low + 12)))]
        elif kind is codes.SUBPATTERN:
            made.append(drawn(value[3], rng))
        elif kind is codes.BRANCH:
            made.append(drawn(rng.choice(value[1]), rng))
    return "".join(made)


def _members(value) -> list[str]:
    found, negated = [], False
    for kind, one in value:
        if kind is codes.NEGATE:
            negated = True
        elif kind is codes.LITERAL:
            found.append(chr(one))
        elif kind is codes.RANGE:
            found += [chr(code) for code in range(one[0], one[1] + 1)]
        else:
            found += list({codes.CATEGORY_DIGIT: string.digits}.get(one, string.ascii_letters + string.digits))
    return [one for one in PRINTABLE if one not in found] if negated else found


def wallet_address(rng) -> str:
    """A bitcoin address."""
    raw = b"\x00" + rng.randbytes(20)
    raw += hashlib.sha256(hashlib.sha256(raw).digest()).digest()[:4]
    return "1" + in_base(int.from_bytes(raw, "big"), BASE58, 33).lstrip("1")


def iban(rng) -> str:
    """A German account."""
    account = "".join(rng.choices(string.digits, k=18))
    return f"DE{98 - int(account + '131400') % 97:02d}{account}"


OWN = {
    "CRYPTO": ("my bitcoin wallet address: {}", wallet_address),
    "IBAN_CODE": ("iban {}", iban),
    "EMAIL_ADDRESS": ("write to {}", lambda rng: "".join(rng.choices(string.ascii_lowercase, k=14)) + "@riverbank-post.org"),
    "STREET_ADDRESS": ("I live at {}", lambda rng: f"{rng.randrange(1000, 9999)} {''.join(rng.choices(string.ascii_lowercase, k=9)).title()} Street"),
}  # fmt: skip


def personal(rng) -> dict[str, tuple[str, str]]:
    """Return by entity of personal data a line of text that holds one, and the value."""
    registry = load_pii()
    found: dict[str, tuple[str, str]] = {}
    for code, entity in enumerate(registry.entities):
        candidates = []
        if entity.name in OWN:
            line, make = OWN[entity.name]
            candidates = [line.format(make(rng)) for _ in range(20)]
        else:
            words = [word.rstrip("*") for word in entity.context if "#" not in word] or ["number"]
            rules = [rule for at, rule in registry.rules if at == code]
            trees = [parser.parse(rule.regex) for rule in rules]
            candidates = [f"{rng.choice(words)} {drawn(rng.choice(trees), rng)} ." for _ in range(TRIES)]
        for line in candidates:
            text = line.encode()
            kept, _ = find_in(registry, memoryview(text))
            values = [text[one.start : one.end].decode() for one in kept if one.code == code and not one.reserved]
            if len(values) == 1 and len(re.sub(r"[^0-9A-Za-z]", "", values[0])) >= LEAST:
                found[entity.name] = (line, values[0])
                break
    return found


def secrets(rng) -> dict[str, tuple[str, str]]:
    """Return by kind of secret a line that holds one, and the value."""
    made = {}
    for kind, (_, maker, lines) in KINDS.items():
        value = maker(rng)
        made[kind] = (rng.choice(lines).replace("{{", "{").replace("}}", "}").replace("{}", value), value)
    return made


def forms(value: str) -> set[bytes]:
    """Return what a value may look like in a file: plain, lower case, digits, escaped, base64, hex, UTF-16."""
    plain = {value, value.lower(), value.upper()}
    digits = re.sub(r"\D", "", value)
    if len(digits) >= 8:
        plain.add(digits)
    letters = re.sub(r"[^0-9A-Za-z]", "", value)
    if len(letters) >= 8:
        plain |= {letters, letters.lower()}
    for line in value.splitlines():
        if len(line) >= 24 and not line.startswith(("-----", "PuTTY", "Encryption", "Proc-")):
            plain.add(line)
    found: set[bytes] = set()
    for one in plain:
        raw = one.encode()
        found |= {raw, json.dumps(one)[1:-1].encode(), repr(one)[1:-1].encode(), raw.hex().encode()}
        found |= {raw.hex().upper().encode(), one.encode("utf-16-le"), one.encode("utf-16-be")}
        for shift in range(3):  # base64 at each of the three places in a group that a value may begin at
            coded = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")
            found.add(coded[(0, 2, 3)[shift] : -1])
    return {one for one in found if len(one) >= LEAST}
