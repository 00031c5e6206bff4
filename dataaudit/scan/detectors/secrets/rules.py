"""The registry of secrets: rules of the package, of the installed detect-secrets and of the user, and the allow-list.

A rule of detect-secrets may have lookarounds, back references and repeats of hundreds, which hyperscan lacks. The
prefilter of such a rule is its leading part without those: every match of the rule begins with a match of it.

The allow-list has fingerprints of values; the values themselves are never written down.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import explain, load_yaml
from dataaudit.scan.detectors.patterns.entity import Candidate, Entity, Evidence, Predicate
from dataaudit.scan.detectors.patterns.registry import Registry, build_registry
from dataaudit.scan.detectors.patterns.written import (
    Layer,
    Names,
    codes,
    parse_layer,
    parser,
    read_layer,
    read_text,
    shipped_layer,
)
from dataaudit.scan.detectors.secrets.pem import body_of
from dataaudit.scan.detectors.secrets.validators import RESERVED, VALIDATORS, VERSION

_REACH_BYTES = 160
"""How far a match can extend beyond the leading part; the library's regexes are short but for two."""
UPSTREAM_FILE = "upstream.yaml"
_OPEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)", re.DOTALL)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]


class Use(BaseModel):
    """How the rules of a plugin are used: a row of ``upstream.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    skip: str = ""
    entity: _Names = ()
    context: _Names = ()
    validators: _Names = ("random",)
    tiers: Mapping[str, str] = {}
    whole: bool = False
    left: str = ""
    right: str = ""


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    plugins: dict[str, Use]


def add_upstream(entities: tuple[Entity, ...], names: Names) -> tuple[Entity, ...]:
    """Add the library's rules to the entities that they belong to; new entities where there are none."""
    all_entities = {entity.name: entity for entity in entities}
    uses = _read_uses()
    for plugin, regexes in _plugins():
        other = "OTHER_" + _CAMEL.sub("_", plugin.removesuffix("Detector")).upper()
        use = uses.get(plugin) or Use(entity=(other,))
        if use.skip:
            continue
        for number, regex in enumerate(regexes):
            name = use.entity[min(number, len(use.entity) - 1)]
            made = _made(name, f"detect-secrets {plugin} {number + 1}", use, regex, names)
            known = all_entities.get(name)
            all_entities[name] = replace(known, rules=known.rules + made.rules) if known else made
    return tuple(all_entities.values())


def _plugins() -> list[tuple[str, list[re.Pattern[str]]]]:
    """List the library's plugins that are made of regexes, by name."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    classes: Any = get_mapping_from_secret_type_to_class().values()
    made = {class_.__name__: list(class_().denylist) for class_ in classes if issubclass(class_, RegexBasedDetector)}
    return sorted(made.items())


def _read_uses() -> dict[str, Use]:
    text = resources.files("dataaudit.scan.detectors.secrets").joinpath(UPSTREAM_FILE).read_text(encoding="utf-8")
    try:
        return _File.model_validate(load_yaml(text, where=UPSTREAM_FILE)).plugins
    except ValidationError as error:
        raise ConfigError(f"{UPSTREAM_FILE}: " + "; ".join(explain(error, _File))) from None


def _made(name: str, rule: str, use: Use, regex: re.Pattern[str], names: Names) -> Entity:
    """Make an entity of a regex; it passes the same checks as those of files."""
    try:
        prefilter, before = leading_part(regex)
    except ValueError as error:
        raise ConfigError(f"{rule}: {error}", "Use a version of detect-secrets that the constraints allow.") from None
    written = {
        "reserved": "placeholder",
        "context": list(use.context),
        "rules": [
            {
                "name": rule,
                "regex": regex.pattern if use.whole else _mark_value(regex.pattern),
                "prefilter": prefilter,
                "reach": [before + 1, _REACH_BYTES],
                "left": use.left,
                "right": use.right,
                "ignore_case": bool(regex.flags & re.IGNORECASE),
                "validators": list(use.validators),
                "tiers": dict(use.tiers),
            }
        ],
    }
    import yaml

    layer = parse_layer(yaml.safe_dump({"entities": {name: written}}), where=rule, detector="secrets", names=names)
    return layer.entities[0]


def _mark_value(pattern: str) -> str:
    """Name the first group that captures: the library takes it for the secret."""
    for match in _OPEN.finditer(pattern):
        if match[0] == "(":
            return f"{pattern[: match.start()]}(?P<value>{pattern[match.end() :]}"
    return pattern


_LONGEST = 44
"""Copies of a repeat that stay as they are; longer repeats make a database too large."""
_SHORT = 24
"""Copies that stay of a longer repeat; there the pattern ends."""
_SKIPPED = 64
"""Letters of the longest item at the start that is left out."""
_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}


def leading_part(pattern: re.Pattern[str]) -> tuple[str, int]:
    """Return a pattern without lookarounds and long repeats that every match of ``pattern`` begins with.

    Optional items at the start are left out as well; how many letters they may have is returned beside.
    """
    parsed = parser.parse(pattern.pattern, pattern.flags & re.VERBOSE)
    before = 0
    while len(parsed) > 1:
        least, most = parsed[:1].getwidth()
        if least or most > _SKIPPED:
            break
        before += most
        parsed = parsed[1:]
    return _sequence(parsed)[0], before


def _sequence(parsed: Any) -> tuple[str, bool]:
    """Return the text of a sequence, and whether it was cut, so that nothing may follow."""
    parts = []
    for code, value in parsed:
        if code not in _KINDS:
            raise ValueError(f"a regex with {code} cannot be searched for")
        text, cut = _KINDS[code](value)
        parts.append(text)
        if cut:
            return "".join(parts), True
    return "".join(parts), False


def _branch(value: Any) -> tuple[str, bool]:
    branches = [_sequence(branch) for branch in value[1]]
    return "(?:" + "|".join(text for text, _ in branches) + ")", any(cut for _, cut in branches)


def _group(value: Any) -> tuple[str, bool]:
    text, cut = _sequence(value[-1])
    return f"(?:{text})", cut


def _repeat(value: Any) -> tuple[str, bool]:
    low, high, parsed = value
    text, cut = _sequence(parsed)
    if cut:
        return (f"(?:{text})", True) if low else ("", True)
    if high is codes.MAXREPEAT and low <= 1:
        return f"(?:{text}){'+' if low else '*'}", False
    if high > _LONGEST:
        return (f"(?:{text}){{{min(low, _SHORT)}}}", True) if low else ("", True)
    return f"(?:{text}){{{low},{high}}}", False


def _class(items: Any) -> str:
    parts = []
    for code, value in items:
        if code is codes.NEGATE:
            parts.append("^")
        elif code is codes.LITERAL:
            parts.append(_letter(value))
        elif code is codes.RANGE:
            parts.append(f"{_letter(value[0])}-{_letter(value[1])}")
        else:
            parts.append(_CATEGORIES[value])
    return "[" + "".join(parts) + "]"


def _letter(code: int) -> str:
    letter = chr(code)
    return letter if letter.isalnum() and letter.isascii() else f"\\x{code:02x}"


_KINDS: dict[Any, Callable[[Any], tuple[str, bool]]] = {
    codes.LITERAL: lambda value: (_letter(value), False),
    codes.NOT_LITERAL: lambda value: (f"[^{_letter(value)}]", False),
    codes.ANY: lambda _: (".", False),
    codes.IN: lambda value: (_class(value), False),
    codes.ASSERT: lambda _: ("", False),
    codes.ASSERT_NOT: lambda _: ("", False),
    codes.AT: lambda _: ("", False),
    codes.SUBPATTERN: _group,
    codes.BRANCH: _branch,
    codes.MAX_REPEAT: _repeat,
    codes.MIN_REPEAT: _repeat,
}
"""The text of each kind of node, and whether it was cut."""
_FILE = "secrets.yaml"


def load_secrets(paths: Sequence[Path] = (), *, allow: Path | None = None) -> Registry:
    """Return the shipped rules for secrets with those of the user's files; a later file overrides an earlier one."""
    names = _names()
    layers = [_shipped(), *(read_layer(path, detector="secrets", names=names) for path in paths)]
    allowed = documented_values() | (read_allow_list(allow) if allow else frozenset())
    predicates = {}
    for number, layer in enumerate(layers):
        entities = []
        for entity in layer.entities:
            reserved = entity.reserved or "allowed_only"
            key = f"{entity.name}:{reserved}"
            predicates[key] = Allowed(entity=entity.name, placeholder=RESERVED[reserved], fingerprints=allowed)
            entities.append(replace(entity, reserved=key))
        layers[number] = replace(layer, entities=tuple(entities))
    digest = hashlib.sha256("\n".join(sorted(allowed)).encode()).hexdigest()
    other = _other_forms(entity for layer in layers for entity in layer.entities)
    return build_registry(
        layers,
        names=Names(validators={**VALIDATORS, CHECK: other}, reserved=predicates),
        versions={"secrets": VERSION, "detect-secrets": version("detect-secrets"), "allow-list": f"sha256:{digest}"},
    )


def _names() -> Names:
    """Return the functions that a file of rules may name."""
    return Names(validators={**VALIDATORS, CHECK: NoOtherForm(forms=())}, reserved=dict(RESERVED))


@cache
def _shipped() -> Layer:
    names, folder = _names(), Path(__file__).parent

    def parsed(text: str) -> Layer:
        own = parse_layer(text, where=_FILE, detector="secrets", names=names)
        return replace(own, entities=add_upstream(own.entities, names))

    uses = (folder / UPSTREAM_FILE).read_text(encoding="utf-8")
    return shipped_layer(folder, _FILE, parsed, uses, version("detect-secrets"))


CHECK = "no_other_form"
"""Name of the check, and mark of the rules that give way."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NoOtherForm:
    """Rejects a value that a rule for another entity matches as a whole: it is that, not just some key."""

    forms: tuple[re.Pattern[str], ...]
    """The regexes of those rules."""

    def __call__(self, candidate: Candidate) -> Evidence:
        """Check a candidate."""
        taken = any(form.fullmatch(candidate.text) for form in self.forms)
        return Evidence.REJECTED if taken else Evidence.FORM


def _other_forms(entities: Iterable[Entity]) -> NoOtherForm:
    """Collect the rules that need neither a name before a value nor a word near it."""
    forms = tuple(
        re.compile(rule.regex, re.ASCII | (re.IGNORECASE if rule.ignore_case else 0))
        for entity in entities
        for rule in entity.rules
        if CHECK not in rule.validators and "(?P<value>" not in rule.regex and rule.tiers.form_bare is not None
    )
    return NoOtherForm(forms=forms)


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
    """Read fingerprints, a line each."""
    digests = set()
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ConfigError(f"{where}: line {number} is no fingerprint", _HOW)
        if match["digest"]:
            digests.add(match["digest"])
    return frozenset(digests)


def read_allow_list(path: Path) -> frozenset[str]:
    """Read a file of fingerprints."""
    return parse_allow_list(read_text(path, "allow-list", _HOW), where=str(path))


def documented_values() -> frozenset[str]:
    """Read the package's own list: values that issuers print in their documentation."""
    text = resources.files("dataaudit.scan.detectors.secrets").joinpath("documented.txt").read_text(encoding="utf-8")
    return parse_allow_list(text, where="documented.txt")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Allowed:
    """Tells whether a candidate of an entity is a placeholder or an allowed value."""

    entity: str
    placeholder: Predicate
    fingerprints: frozenset[str]
    """Allowed values of all entities."""

    def __call__(self, candidate: Candidate) -> bool:
        """Return whether it is to be counted apart."""
        return self.placeholder(candidate) or fingerprint(self.entity, candidate.text) in self.fingerprints
