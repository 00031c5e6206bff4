"""All rules of secrets as one registry: the package's, those of detect-secrets, the user's, and the allow-list.

Values with a form of their own: what a name such as ``api_key`` holds is then that, not just some key.

Fingerprints of values that are known and allowed: the value itself is never written down.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path

from dataaudit.detectors.patterns.entity import Candidate, Entity, Evidence, Predicate
from dataaudit.detectors.patterns.registry import Registry, build_registry
from dataaudit.detectors.patterns.written import Layer, Names, parse_layer, read_layer, shipped_layer
from dataaudit.detectors.secrets.pem import body_of
from dataaudit.detectors.secrets.upstream import UPSTREAM_FILE, add_upstream, library_version
from dataaudit.detectors.secrets.validators import RESERVED, VALIDATORS, VERSION
from dataaudit.errors import ConfigError
from dataaudit.regular import read_regular

DETECTOR = "secrets"
_FILE = "secrets.yaml"


def load_secrets(paths: Sequence[Path] = (), *, allow: Path | None = None) -> Registry:
    """Return the shipped rules for secrets with those of the user's files, later files first in right.

    Args:
        paths: YAML files of the user, as ``secrets.yaml``; an entity replaces an earlier one of its name.
        allow: Fingerprints of values that are allowed, beside the package's own list of documented values.

    Raises:
        ConfigError: A file cannot be read or is wrong.
    """
    names = _names()
    layers = [_shipped()]
    layers += [read_layer(path, detector=DETECTOR, names=names) for path in paths]
    allowed = documented_values() | (read_allow_list(allow) if allow else frozenset())
    predicates = {}
    for layer in layers:
        for entity in layer.entities:
            placeholder = RESERVED[entity.reserved or "allowed_only"]
            predicates[_predicate(entity)] = Allowed(entity=entity.name, placeholder=placeholder, fingerprints=allowed)
    return build_registry(
        [replace(layer, entities=tuple(map(_with_allowed, layer.entities))) for layer in layers],
        names=Names(
            validators={**VALIDATORS, CHECK: other_forms(entity for layer in layers for entity in layer.entities)},
            reserved=predicates,
        ),
        versions={
            "secrets": VERSION,
            "detect-secrets": library_version(),
            "allow-list": digest_allow_list(allowed),
        },
    )


def _names() -> Names:
    """What a file of rules may name."""
    return Names(validators={**VALIDATORS, CHECK: NoOtherForm(forms=())}, reserved=dict(RESERVED))


@cache
def _shipped() -> Layer:
    names = _names()

    def parsed(text: str) -> Layer:
        own = parse_layer(text, where=_FILE, detector=DETECTOR, names=names)
        return Layer(entities=add_upstream(own.entities, names), off=own.off, where=own.where)

    folder = Path(__file__).parent
    return shipped_layer(folder, _FILE, parsed, (folder / UPSTREAM_FILE).read_text(encoding="utf-8"), library_version())


def _predicate(entity: Entity) -> str:
    return f"{entity.name}:{entity.reserved or 'allowed_only'}"


def _with_allowed(entity: Entity) -> Entity:
    return replace(entity, reserved=_predicate(entity))


CHECK = "no_other_form"
"""Name of the check, and mark of the rules that give way."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NoOtherForm:
    """Rejects a value that a rule for another entity takes as a whole."""

    forms: tuple[re.Pattern[str], ...]
    """The regexes of those rules."""

    def __call__(self, candidate: Candidate) -> Evidence:
        """Return what follows for a candidate."""
        taken = any(form.fullmatch(candidate.text) for form in self.forms)
        return Evidence.REJECTED if taken else Evidence.FORM


def other_forms(entities: Iterable[Entity]) -> NoOtherForm:
    """Collect the rules that need neither a name before a value nor a word near it."""
    rules = [
        rule
        for entity in entities
        for rule in entity.rules
        if CHECK not in rule.validators and "(?P<value>" not in rule.regex and rule.tiers.form_bare is not None
    ]
    return NoOtherForm(
        forms=tuple(re.compile(rule.regex, re.ASCII | (re.IGNORECASE if rule.ignore_case else 0)) for rule in rules)
    )


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
        text = read_regular(path).decode("utf-8")
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
