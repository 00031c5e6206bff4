"""All rules of secrets as one registry: the package's, those of detect-secrets, the user's, and the allow-list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dataaudit.detectors.patterns.entity import Entity
from dataaudit.detectors.patterns.registry import Registry, build_registry
from dataaudit.detectors.patterns.written import Layer, Names, parse_layer, read_layer, shipped_layer
from dataaudit.detectors.secrets.allowlist import Allowed, digest_allow_list, documented_values, read_allow_list
from dataaudit.detectors.secrets.forms import CHECK, NoOtherForm, other_forms
from dataaudit.detectors.secrets.upstream import UPSTREAM_FILE, add_upstream, library_version
from dataaudit.detectors.secrets.validators import RESERVED, VALIDATORS, VERSION

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
    names = Names(validators={**VALIDATORS, CHECK: NoOtherForm(forms=())}, reserved=dict(RESERVED))
    layers = [_shipped(names)]
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


def _shipped(names: Names) -> Layer:
    def parsed(text: str) -> Layer:
        own = parse_layer(text, where=_FILE, detector=DETECTOR, names=names)
        return Layer(entities=add_upstream(own.entities, names), off=own.off, where=own.where)

    folder = Path(__file__).parent
    return shipped_layer(folder, _FILE, parsed, (folder / UPSTREAM_FILE).read_text(encoding="utf-8"), library_version())


def _predicate(entity: Entity) -> str:
    return f"{entity.name}:{entity.reserved or 'allowed_only'}"


def _with_allowed(entity: Entity) -> Entity:
    return replace(entity, reserved=_predicate(entity))
