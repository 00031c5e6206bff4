"""Canaries: a made-up value of every entity that is looked for, and a search for them in any bytes, in any disguise."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import string
from pathlib import Path
from re import _constants as codes
from re import _parser as parser

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from made_secrets import BASE58, KINDS, in_base

from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.pii import load_pii
from dataaudit.scan.detectors.secrets.rules import load_secrets

PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]
SENTENCE = "the quokka {} folded seventeen umber kites beneath a borrowed lighthouse"
TRIES = 20_000
LEAST = 9
"""Characters of the shortest form that is searched for: shorter ones are found anywhere by chance."""
_PREFIX = 8


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


def _word(rng, size) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=size))


OWN = {
    "CRYPTO": ("my bitcoin wallet address: {}", wallet_address),
    "IBAN_CODE": ("iban {}", iban),
    "EMAIL_ADDRESS": ("write to {}", lambda rng: f"{_word(rng, 14)}@riverbank-post.org"),
    "STREET_ADDRESS": ("I live at {}", lambda rng: f"{rng.randrange(1000, 9999)} {_word(rng, 9).title()} Street"),
}


def made_of(registry, rng, *, without=frozenset()) -> dict[str, tuple[str, str]]:
    """Return by entity of a registry a line of text that holds one, and the value, drawn from its rules."""
    found: dict[str, tuple[str, str]] = {}
    for code, entity in enumerate(registry.entities):
        if entity.name in without:
            continue
        if entity.name in OWN:
            line, make = OWN[entity.name]
            candidates = (line.format(make(rng)) for _ in range(20))
        else:
            words = [word.rstrip("*") for word in entity.context if "#" not in word] or ["number"]
            trees = [parser.parse(rule.regex) for at, rule in registry.rules if at == code]
            candidates = (f"{rng.choice(words)} {drawn(rng.choice(trees), rng)} ." for _ in range(TRIES))
        for line in candidates:
            value = value_in(registry, line, entity.name)
            if value is not None and len(value) >= LEAST:
                found[entity.name] = (line, value)
                break
    return found


def value_in(registry, line, name) -> str | None:
    """Return what an entity is found to be in a line; None unless it is found once, and is no example."""
    text = line.encode()
    kept, _ = find_in(registry, memoryview(text))
    values = [
        text[one.start : one.end] for one in kept if registry.entities[one.code].name == name and not one.reserved
    ]
    return values[0].decode("utf-8", "replace") if len(values) == 1 else None


def personal(rng) -> dict[str, tuple[str, str]]:
    """Return by entity of personal data a line of text that holds one, and the value."""
    return made_of(load_pii(), rng)


def secrets(rng) -> dict[str, tuple[str, str]]:
    """Return by kind of secret, and by entity of no kind, a line that holds one, and the value."""
    registry, made = load_secrets(), {}
    for kind, (name, maker, lines) in KINDS.items():
        for line in rng.sample(lines, len(lines)):
            value = maker(rng)
            made[kind] = (line.replace("{{", "{").replace("}}", "}").replace("{}", value), value)
            if value_in(registry, made[kind][0], name) is not None:
                break
    return made | made_of(registry, rng, without={name for name, _, _ in KINDS.values()})


def forms(value: str) -> set[bytes]:
    """Return what a value may look like in a file: plain, lower case, digits, escaped, base64, hex, UTF-16."""
    plain = {value, value.lower(), value.upper(), re.sub(r"\D", "", value), re.sub(r"[^0-9A-Za-z]", "", value)}
    for line in value.splitlines():
        if len(line) >= 24 and not line.startswith(("-----", "PuTTY", "Encryption", "Proc-", "Comment")):
            plain.add(line)
    found: set[bytes] = set()
    for one in plain:
        if len(one) < LEAST:
            continue
        raw = one.encode()
        found |= {raw, json.dumps(one)[1:-1].encode(), repr(one)[1:-1].encode(), raw.hex().encode()}
        found |= {raw.hex().upper().encode(), one.encode("utf-16-le"), one.encode("utf-16-be")}
        for shift in range(3):  # base64 at each of the three places in a group that a value may begin at
            whole = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")[(0, 2, 3)[shift] : -1]
            found |= {whole, whole.translate(bytes.maketrans(b"+/", b"-_"))}
    return {one for one in found if len(one) >= LEAST}


class Search:
    """Looks for values in bytes.

    Args:
        values: What to look for, by name.
    """

    def __init__(self, values: dict[str, str]) -> None:
        self._names: dict[bytes, str] = {}
        shared = set()  # the first line of a key of some kinds is the same for all
        for name, value in values.items():
            for form in forms(value):
                if self._names.setdefault(form, name) != name:
                    shared.add(form)
        for form in shared:
            del self._names[form]
        self._by_prefix: dict[int, list[bytes]] = {}
        for form in self._names:
            self._by_prefix.setdefault(int.from_bytes(form[:_PREFIX], "little"), []).append(form)
        self._prefixes = np.array(sorted(self._by_prefix), dtype=np.uint64)

    def find(self, data: bytes) -> set[str]:
        """Return the names of the values that stand in the bytes, in whatever form."""
        found = set()
        for shift in range(_PREFIX):
            size = (len(data) - shift) // _PREFIX
            if size <= 0:
                break
            words = np.frombuffer(data, dtype="<u8", count=size, offset=shift)
            places = np.minimum(np.searchsorted(self._prefixes, words), len(self._prefixes) - 1)
            for word in np.flatnonzero(self._prefixes[places] == words).tolist():
                start = shift + word * _PREFIX
                for form in self._by_prefix[int(words[word])]:
                    if data.startswith(form, start):
                        found.add(self._names[form])
        return found

    def find_below(self, folder: Path) -> set[tuple[str, str]]:
        """Return (name, file) for every value in a file below a folder, in its name, or in a Parquet column."""
        found = set()
        for path in sorted(folder.rglob("*")):
            found |= {(name, f"name of {path}") for name in self.find(os.fsencode(path.name))}
            if path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                if data[:4] == data[-4:] == b"PAR1":
                    data += _decompressed(path)
                found |= {(name, str(path)) for name in self.find(data)}
        return found


def _decompressed(path: Path) -> bytes:
    sink = pa.BufferOutputStream()
    table = pq.read_table(path)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
