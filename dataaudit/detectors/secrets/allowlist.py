"""Fingerprints of values that are known and allowed: the value itself is never written down."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dataaudit.detectors.patterns.entity import Candidate, Predicate
from dataaudit.detectors.secrets.pem import body_of
from dataaudit.errors import ConfigError

_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})?[ \t]*(?:#.*)?")
_HOW = "Each line is the sha256 of entity, zero byte and value, in 64 hexadecimal digits; `#` begins a comment."


def fingerprint(entity: str, value: str) -> str:
    """Return the SHA-256, in hexadecimal, of the entity's name, a zero byte and the value.

    A private key's value is its base64 alone, so that indents and line ends do not matter.
    """
    if entity == "PRIVATE_KEY":
        value = body_of(value) or value
    return hashlib.sha256(entity.encode() + b"\0" + value.encode("latin-1", "replace")).hexdigest()


def parse_allow_list(text: str, *, where: str) -> frozenset[str]:
    """Read fingerprints, one a line.

    Raises:
        ConfigError: A line is no fingerprint. Its number is told, not its text: it may be the secret.
    """
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ConfigError(f"{where}: line {number} is no fingerprint", _HOW)
        if match["digest"]:
            found.add(match["digest"])
    return frozenset(found)


def read_allow_list(path: Path) -> frozenset[str]:
    """Read a file of fingerprints.

    Raises:
        ConfigError: It cannot be read, or a line is no fingerprint.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read the allow-list {path}: {reason}", _HOW) from None
    return parse_allow_list(text, where=str(path))


def documented_values() -> frozenset[str]:
    """Read the package's own list: values that issuers print in their documentation."""
    text = resources.files("dataaudit.detectors.secrets").joinpath("documented.txt").read_text(encoding="utf-8")
    return parse_allow_list(text, where="documented.txt")


def digest_allow_list(fingerprints: Iterable[str]) -> str:
    """Return what names a set of fingerprints in the digest of the rules."""
    return "sha256:" + hashlib.sha256("\n".join(sorted(fingerprints)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Allowed:
    """Tells whether a candidate of an entity is a placeholder or one that is allowed."""

    entity: str
    """Its name."""
    placeholder: Predicate
    """The entity's own idea of a value that stands for a secret."""
    fingerprints: frozenset[str]
    """Those that are allowed, of all entities."""

    def __call__(self, candidate: Candidate) -> bool:
        """Return whether it is to be counted apart."""
        return self.placeholder(candidate) or fingerprint(self.entity, candidate.text) in self.fingerprints
