"""The registry of all entities of a build, with its digest, and the first pass over a document.

All prefilters of a registry are in one hyperscan database, compiled once on each machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import nearest
from dataaudit.manifest.canonical import canonical_json
from dataaudit.scan.detectors.patterns.context import compile_patterns, make_database
from dataaudit.scan.detectors.patterns.entity import Entity, Predicate, Rule, Validator
from dataaudit.scan.detectors.patterns.written import Layer, Names, codes, parser

ENGINE_VERSION = "5"
"""Raised when the same rules find something else than before."""
_LIBRARIES = frozenset({"detect-secrets", "phonenumbers", "python-stdnum"})
"""Of others: which of their versions is installed is no choice of rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Entities and the functions that their rules name; :attr:`digest` names all that decides findings."""

    entities: tuple[Entity, ...]
    """Sorted by detector and name; names are unique."""
    validators: Mapping[str, Validator] = field(default_factory=dict)
    reserved: Mapping[str, Predicate] = field(default_factory=dict)
    labels: Mapping[str, Predicate] = field(default_factory=dict)
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
        """The digest without versions of libraries, for policies: it is the same whichever are installed."""
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
    """Merge layers: a later entity replaces an earlier entity of its name, ``enabled: false`` removes it."""
    entities: dict[str, Entity] = {}
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
            entities.pop(name, None)
        for entity in layer.entities:
            other = entities.get(entity.name, entity).detector
            if other != entity.detector:
                raise ConfigError(
                    f"{layer.where}: entities.{entity.name} is already an entity of {other}", "Give it another name."
                )
            entities[entity.name] = entity
            known.add(entity.name)
    return _registry(entities.values(), names, versions, enable, disable)


def join_registries(*registries: Registry) -> Registry:
    """Make one registry of several, so that one pass over the text serves all detectors."""
    entities = [entity for registry in registries for entity in registry.entities]
    counts = Counter(entity.name for entity in entities)
    twice = sorted(name for name, number in counts.items() if number > 1)
    if twice:
        raise ConfigError(f"the entity {twice[0]} is defined by two detectors", "Give one of them another name.")
    names = Names(
        validators={name: check for registry in registries for name, check in registry.validators.items()},
        reserved={name: check for registry in registries for name, check in registry.reserved.items()},
        labels={name: check for registry in registries for name, check in registry.labels.items()},
    )
    versions = {name: version for registry in registries for name, version in registry.versions.items()}
    enable = {name for registry in registries for name in registry.enable}
    disable = {name for registry in registries for name in registry.disable}
    return _registry(entities, names, versions, enable, disable)


def _registry(
    entities: Iterable[Entity], names: Names, versions: Mapping[str, str], enable: set[str], disable: set[str]
) -> Registry:
    ordered = tuple(sorted(entities, key=lambda entity: (entity.detector, entity.name)))
    return Registry(
        entities=ordered,
        validators=names.validators,
        reserved=names.reserved,
        labels=names.labels,
        versions=dict(versions),
        enable=tuple(sorted(enable)),
        disable=tuple(sorted(disable)),
        digest=_digest(ordered, versions),
    )


def _digest(entities: Iterable[Entity], versions: Mapping[str, str]) -> str:
    """Digest the canonical JSON, made entity by entity: each is in several registries."""
    written = b",".join(_written(entity) for entity in entities)
    parts = (canonical_json(ENGINE_VERSION), written, canonical_json(dict(versions)))
    whole = b'{"engine":%b,"entities":[%b],"versions":%b}' % parts
    return f"sha256:{hashlib.sha256(whole).hexdigest()}"


@lru_cache(maxsize=4096)
def _written(entity: Entity) -> bytes:
    return canonical_json(json.loads(json.dumps(asdict(entity))))


BLOCK_BYTES = 64 * 1024
"""Documents are searched in blocks that begin at multiples of this."""
OVERLAP_BYTES = 2048
"""A block also sees this much of the next block, so that what begins in it ends in it."""
MAX_BLOCK_HITS = 64 * 1024
"""A block with more hits of prefilters than bytes is hostile and is skipped; lists of people have 12 to 24 thousand."""
MAX_DOCUMENT_HITS = 8 * MAX_BLOCK_HITS
"""Hits of a document that are kept at most.

When there are more, each prefilter over its even share keeps its first hits and gets no further ones; the others are
searched for to the end of the document. Only if these have too many, too, the rest of the document is skipped.
"""
_MOST_OF_ONE = MAX_DOCUMENT_HITS // 8


Hit = tuple[int, int, int]
"""Match of a prefilter: its index in :attr:`Prefilters.rules`, first byte in the document, byte after."""


@dataclass(frozen=True, slots=True)
class Database:
    """Some compiled prefilters."""

    needs: bytes
    """What stands in every match."""
    compiled: Any
    """Of hyperscan."""
    owners: tuple[int, ...]
    """By its id the prefilter of each expression: alternatives are expressions of their own."""


@dataclass(frozen=True, slots=True)
class Prefilters:
    """The compiled prefilters of a registry."""

    databases: tuple[Database, ...]
    rules: tuple[tuple[int, ...], ...]
    """The rules that share each prefilter, by their index over all rules of the registry."""


@lru_cache(maxsize=8)
def compile_database(registry: Registry) -> Prefilters:
    """Compile the registry's prefilters; rules that share a prefilter are searched for once.

    Hyperscan makes a slow machine of an expression with many alternatives, and of expressions with ``@`` and others.
    """
    import hyperscan

    shared: dict[tuple[str, bool], list[int]] = {}
    for index, (_, rule) in enumerate(registry.rules):
        shared.setdefault((rule.prefilter, _caseless(rule)), []).append(index)
    apart: dict[bytes, list[tuple[int, bytes, int]]] = {}
    for number, (prefilter, caseless) in enumerate(shared):
        for way in alternatives(prefilter):
            item = number, way.encode(), _flags(hyperscan, caseless)
            apart.setdefault(b"@" if _needs(way, "@") else b"", []).append(item)
    try:
        databases = [
            Database(needs, make_database([item[1:] for item in items]), tuple(item[0] for item in items))
            for needs, items in apart.items()
        ]
    except hyperscan.error as error:
        raise _blame(hyperscan, registry) or ConfigError(f"the patterns cannot be compiled together: {error}") from None
    return Prefilters(tuple(databases), tuple(tuple(rules) for rules in shared.values()))


_SIGN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]", re.DOTALL)
_LEAST = 4
"""A group of fewer alternatives stays."""


def alternatives(pattern: str) -> list[str]:
    """Return patterns that together match what one does: its alternatives, or those of its first large group."""
    flag = "(?i)" if pattern.startswith("(?i)") else ""
    body = pattern.removeprefix(flag)
    if re.search(r"\(\?[^:]|\\[QE]", body):  # more than groups: the signs may mean something else
        return [pattern]
    inside, large = [[-1]], list[int]()
    for sign in _SIGN.finditer(body):
        if sign[0] == "(":
            inside.append([sign.start()])
        elif sign[0] == "|":
            inside[-1].append(sign.start())
        elif sign[0] == ")":
            bars = [*inside.pop(), sign.start()]
            is_group = body.startswith("(?:", bars[0]) and body[sign.end() : sign.end() + 1] not in tuple("?*+{")
            if not large and len(inside) == 1 and len(bars) > _LEAST and is_group:
                large = [bars[0] + 2, *bars[1:]]
    if len(inside[0]) > 1:
        ways = [body[start + 1 : stop] for start, stop in pairwise([*inside[0], len(body)])]
        return [part for way in ways for part in alternatives(flag + way)]
    if not large:
        return [pattern]
    before, after = flag + body[: large[0] + 1], body[large[-1] :]
    return [before + body[start + 1 : stop] + after for start, stop in pairwise(large)]


def _needs(pattern: str, sign: str) -> bool:
    """Tell whether a sign stands in all that a pattern matches."""
    try:
        return sign in pattern and _has(parser.parse(pattern), ord(sign))
    except re.error:
        return False


def _has(parsed: Any, letter: int) -> bool:
    return any(
        (code is codes.LITERAL and value == letter)
        or (code is codes.SUBPATTERN and _has(value[-1], letter))
        or (code is codes.BRANCH and all(_has(way, letter) for way in value[1]))
        or (code in {codes.MAX_REPEAT, codes.MIN_REPEAT} and value[0] > 0 and _has(value[2], letter))
        for code, value in parsed
    )


def _caseless(rule: Rule) -> bool:
    return rule.ignore_case or rule.anchored


def _flags(hyperscan: Any, ignore_case: bool) -> int:
    flags: int = hyperscan.HS_FLAG_SOM_LEFTMOST
    return flags | hyperscan.HS_FLAG_CASELESS if ignore_case else flags


def _blame(hyperscan: Any, registry: Registry) -> ConfigError | None:
    """Compile the patterns one by one; return the error of the first that is refused."""
    for code, rule in registry.rules:
        try:
            compile_patterns([(rule.prefilter.encode(), _flags(hyperscan, _caseless(rule)))])
        except hyperscan.error as error:
            return ConfigError(
                f"entity {registry.entities[code].name}, rule {rule.name}: the pattern `{rule.prefilter[:120]}` "
                f"cannot be searched for: {str(error).rstrip('.')}",
                "Give the rule a `prefilter` without lookarounds, backreferences and long repeats, "
                "and a `reach` if the regex extends beyond it.",
            )
    return None


def scan(prefilters: Prefilters, document: bytes) -> tuple[list[Hit], bool]:
    """Return the hits in a document, and whether parts of it were skipped.

    The order of hits means nothing. A hit that lies in the overlap of two blocks is returned twice.
    """
    size = len(document)
    hits: list[Hit] = []
    truncated = False
    full: set[int] = set()
    for first in range(0, size, BLOCK_BYTES):
        block = _scan_block(prefilters.databases, document[first : min(size, first + BLOCK_BYTES + OVERLAP_BYTES)])
        if block is None:
            truncated = True
            continue
        if full:
            block = [hit for hit in block if hit[0] not in full]
        hits += [(index, first + start, first + end) for index, start, end in block] if first else block
        if len(hits) > MAX_DOCUMENT_HITS:
            truncated = True
            counts = Counter(index for index, _, _ in hits)
            more = {index for index, number in counts.items() if number > _MOST_OF_ONE}
            hits, own = [hit for hit in hits if hit[0] not in more], hits
            for index in sorted(more):  # sorted: the order of hits in a block means nothing
                hits += sorted(hit for hit in own if hit[0] == index)[:_MOST_OF_ONE]
            full |= more
            if not more:
                break
    return hits, truncated


def _scan_block(databases: tuple[Database, ...], block: bytes) -> list[Hit] | None:
    """Return the hits, or None when there are too many: their number, unlike their order, is the same everywhere.

    Of alternatives of a prefilter that end at a byte, the match that begins first is the hit.
    """
    import hyperscan

    starts: dict[tuple[int, int], int] = {}

    def on_match(index: int, start: int, end: int, _flags: int, owners: tuple[int, ...]) -> bool | None:
        place = owners[index], end
        if start < starts.setdefault(place, start):
            starts[place] = start
        return len(starts) > MAX_BLOCK_HITS or None

    try:
        for database in databases:
            if database.needs in block:
                database.compiled.scan(block, match_event_handler=on_match, context=database.owners)
    except hyperscan.ScanTerminated:
        return None
    return [(number, start, end) for (number, end), start in starts.items()]
