"""Registry: all entities of a build, from the package's files and the user's, with their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache

from dataaudit.detectors.patterns.entity import Entity, Predicate, Rule, Validator
from dataaudit.detectors.patterns.written import Layer, Names
from dataaudit.errors import ConfigError
from dataaudit.manifest.canonical import canonical_json
from dataaudit.yamlfile import nearest

ENGINE_VERSION = "4"
"""Raised when the same rules find something else than before."""
_LIBRARIES = frozenset({"detect-secrets", "phonenumbers", "python-stdnum"})
"""Of others: which of their versions is installed is no choice of what is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Entities by (detector, name) and what their rules refer to; :attr:`digest` names all that decides findings."""

    entities: tuple[Entity, ...]
    """Sorted by detector and name; no name stands twice."""
    validators: Mapping[str, Validator] = field(default_factory=dict)
    """Checks by name."""
    reserved: Mapping[str, Predicate] = field(default_factory=dict)
    """Predicates by name."""
    labels: Mapping[str, Predicate] = field(default_factory=dict)
    """Predicates of labels by name."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of code and libraries that decide findings beside the rules."""
    enable: tuple[str, ...] = ()
    """presidio's recognizers that are switched on beside, sorted; they decide nothing here."""
    disable: tuple[str, ...] = ()
    """presidio's recognizers that are switched off, sorted."""
    digest: str = ""
    """``sha256:`` of the canonical JSON of all rules and versions."""

    @property
    def own_digest(self) -> str:
        """The digest without versions of libraries: a policy demands it, whatever versions of them are installed."""
        own = {name: version for name, version in self.versions.items() if name not in _LIBRARIES}
        return _digest(self.entities, own)

    @property
    def rules(self) -> tuple[tuple[int, Rule], ...]:
        """Every rule with the index of its entity, in order."""
        return tuple((code, rule) for code, entity in enumerate(self.entities) for rule in entity.rules)

    def __hash__(self) -> int:
        """Hash by digest, so that what is compiled from a registry can be cached."""
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        """Compare by digest: functions are compared by the versions that stand for them."""
        return isinstance(other, Registry) and other.digest == self.digest


def build_registry(layers: Iterable[Layer], *, names: Names, versions: Mapping[str, str]) -> Registry:
    """Merge layers: a later entity replaces an earlier one of its name, ``enabled: false`` takes it out.

    Raises:
        ConfigError: An entity is switched off that no earlier layer holds, or one name is used by two detectors.
    """
    found: dict[str, Entity] = {}
    known: set[str] = set()
    enable: set[str] = set()
    disable: set[str] = set()
    for layer in layers:
        enable = enable - set(layer.disable) | set(layer.enable)
        disable = disable - set(layer.enable) | set(layer.disable)
        for name in layer.off:
            if name not in known:
                raise ConfigError(
                    f"{layer.where}: entities.{name} is switched off but not known{nearest(name, sorted(known))}"
                )
            found.pop(name, None)
        for entity in layer.entities:
            if entity.name in found and found[entity.name].detector != entity.detector:
                raise ConfigError(
                    f"{layer.where}: entities.{entity.name} is already an entity of {found[entity.name].detector}",
                    "Give it another name.",
                )
            found[entity.name] = entity
            known.add(entity.name)
    entities = tuple(sorted(found.values(), key=lambda entity: (entity.detector, entity.name)))
    return Registry(
        entities=entities,
        validators=names.validators,
        reserved=names.reserved,
        labels=names.labels,
        versions=dict(versions),
        enable=tuple(sorted(enable)),
        disable=tuple(sorted(disable)),
        digest=_digest(entities, versions),
    )


def join_registries(*registries: Registry) -> Registry:
    """Make one registry of several, so that one pass over the text serves all detectors.

    Raises:
        ConfigError: Two of them define one entity.
    """
    entities = tuple(
        sorted((e for one in registries for e in one.entities), key=lambda entity: (entity.detector, entity.name))
    )
    names = [entity.name for entity in entities]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"the entity {twice[0]} is defined by two detectors", "Give one of them another name.")
    validators: dict[str, Validator] = {}
    reserved: dict[str, Predicate] = {}
    labels: dict[str, Predicate] = {}
    versions: dict[str, str] = {}
    for one in registries:
        validators |= one.validators
        reserved |= one.reserved
        labels |= one.labels
        versions |= one.versions
    return Registry(
        entities=entities,
        validators=validators,
        reserved=reserved,
        labels=labels,
        versions=versions,
        enable=tuple(sorted({name for one in registries for name in one.enable})),
        disable=tuple(sorted({name for one in registries for name in one.disable})),
        digest=_digest(entities, versions),
    )


def _digest(entities: Iterable[Entity], versions: Mapping[str, str]) -> str:
    """Digest the JSON of all of it, entity by entity: each is in several registries."""
    written = b",".join(_written(entity) for entity in entities)
    parts = (canonical_json(ENGINE_VERSION), written, canonical_json(dict(versions)))
    whole = b'{"engine":%b,"entities":[%b],"versions":%b}' % parts
    return f"sha256:{hashlib.sha256(whole).hexdigest()}"


@lru_cache(maxsize=4096)
def _written(entity: Entity) -> bytes:
    return canonical_json(json.loads(json.dumps(asdict(entity))))
