"""All rules of secrets as one registry: the package's, those of detect-secrets, the user's, and the allow-list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path

from dataaudit.detectors.patterns.entity import Entity
from dataaudit.detectors.patterns.registry import Registry, build_registry
from dataaudit.detectors.patterns.written import Layer, Names, parse_layer, read_layer
from dataaudit.detectors.secrets.allowlist import Allowed, digest_allow_list, documented_values, read_allow_list
from dataaudit.detectors.secrets.upstream import add_upstream, library_version
from dataaudit.detectors.secrets.validators import RESERVED, VALIDATORS, VERSION

DETECTOR = "secrets"
_FILE = "secrets.yaml"


def secrets_registry(*, files: Iterable[Path] = (), allow_list: Path | None = None) -> Registry:
    """Build the registry of secrets.

    Args:
        files: The user's own entities, as in ``secrets.yaml``; a later one replaces an earlier one of its name.
        allow_list: Fingerprints of values that are allowed, beside the package's own list of documented values.

    Raises:
        ConfigError: A file cannot be read or is wrong.
    """
    names = Names(validators=VALIDATORS, reserved=RESERVED)
    text = resources.files("dataaudit.detectors.secrets").joinpath(_FILE).read_text(encoding="utf-8")
    own = parse_layer(text, where=_FILE, detector=DETECTOR, names=names)
    layers = [Layer(entities=add_upstream(own.entities, names), off=own.off, where=own.where)]
    layers += [read_layer(path, detector=DETECTOR, names=names) for path in files]
    allowed = documented_values() | (read_allow_list(allow_list) if allow_list else frozenset())
    predicates = {}
    for layer in layers:
        for entity in layer.entities:
            placeholder = RESERVED[entity.reserved or "allowed_only"]
            predicates[_predicate(entity)] = Allowed(entity=entity.name, placeholder=placeholder, fingerprints=allowed)
    return build_registry(
        [replace(layer, entities=tuple(map(_with_allowed, layer.entities))) for layer in layers],
        names=Names(validators=VALIDATORS, reserved=predicates),
        versions={
            "secrets": VERSION,
            "detect-secrets": library_version(),
            "allow-list": digest_allow_list(allowed),
        },
    )


def _predicate(entity: Entity) -> str:
    return f"{entity.name}:{entity.reserved or 'allowed_only'}"


def _with_allowed(entity: Entity) -> Entity:
    return replace(entity, reserved=_predicate(entity))
