"""YAML files of entities and rules: read, checked by pydantic, turned into :class:`Entity` records.

Regexes whose time doubles with each letter are refused: a repeat inside a repeat that can cut a text in many ways. They
are found in the trees of Python's own parser of regular expressions, which no public module gives.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from dataaudit.base import yamlfile
from dataaudit.base.cache import kept, sources_digest
from dataaudit.base.errors import ConfigError
from dataaudit.base.files import read_safely
from dataaudit.base.yamlfile import explain, in_words, load_yaml, nearest
from dataaudit.scan.detectors.patterns.context import anchor
from dataaudit.scan.detectors.patterns.entity import Entity, Evidence, Predicate, Rule, Tier, TierPolicy, Validator

codes: Any = importlib.import_module("re._constants")
"""Names of the nodes: ``LITERAL``, ``SUBPATTERN``, ``MAX_REPEAT``, ..."""
parser: Any = importlib.import_module("re._parser")
"""``parser.parse(regex, flags)`` returns the tree: pairs of a name and its value."""
_MANY = 16
"""Copies from which a repeat counts: 2 to this power ways are many."""
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)
MAX_MATCH_BYTES = 16 * 1024
"""Longest match, and farthest reach: a private key of 16,384 bits in PEM."""
MAX_WINDOW_BYTES = 1024
"""Largest distance of a context word."""
_TIERS = {"validated": Tier.VALIDATED, "contextual": Tier.CONTEXTUAL, "pattern": Tier.PATTERN, "drop": None}
_EVIDENCE = {"form": Evidence.FORM, "weak": Evidence.WEAK, "strong": Evidence.STRONG}
_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_LAST_BYTE = re.compile(r"[^\x00-\x7f](?:[?*+]|\{[0-9])")
_CONTROL = re.compile(r"[\x00-\x1f]")
_MANY_WAYS = "(?: *)(?:=|:|:=|=>| +|::)(?: *)"
"""Between a name and a value in rules of detect-secrets: n blanks can be shared out in n^2 ways, and all are tried."""
_ONE_WAY = "(?: *(?:=|:|:=|=>|::) *| +)"
"""The same texts, each in one way."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Words = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
]
_Tier = Literal["validated", "contextual", "pattern", "drop"]
_Window = Annotated[tuple[int, int], Field(strict=False)]


class Tiers(_Strict):
    """Tier by evidence, with a context word near and (``_bare``) without."""

    strong: _Tier = "validated"
    strong_bare: _Tier = "validated"
    weak: _Tier = "contextual"
    weak_bare: _Tier = "drop"
    form: _Tier = "contextual"
    form_bare: _Tier = "pattern"


class Scores(_Strict):
    """Confidence of a finding of each tier."""

    validated: float = Field(default=0.95, ge=0, le=1)
    contextual: float = Field(default=0.7, ge=0, le=1)
    pattern: float = Field(default=0.3, ge=0, le=1)


class WrittenRule(_Strict):
    """One way in which an entity is written."""

    name: str = Field(default="", description="Name of the rule; its number when left out.")
    regex: str = Field(min_length=1, description="Python's re, on UTF-8 bytes.")
    prefilter: str = Field(default="", description="What is searched first; the regex when left out.")
    reach: _Window = Field(default=(0, 0), description="Bytes around the prefilter's match.")
    anchor: Literal["words"] | None = Field(
        default=None, description="words: search for the entity's context words; `reach` is the length of a match."
    )
    left: str = Field(default=r"\w", description="Characters none of which stands before a match.")
    right: str = Field(default=r"\w", description="Characters none of which follows a match.")
    before_not: Words = Field(default=(), strict=False, description="Regexes that must not end before a match.")
    after_not: Words = Field(default=(), strict=False, description="Regexes that must not begin behind a match.")
    ignore_case: bool = False
    validators: Words = Field(default=(), strict=False)
    passes: Literal["form", "weak", "strong"] | None = None
    tiers: Tiers = Tiers()


class WrittenEntity(_Strict):
    """One entity; ``enabled: false`` alone switches one off."""

    enabled: bool = True
    rules: tuple[WrittenRule, ...] = Field(default=(), strict=False)
    languages: Words = Field(default=(), strict=False)
    context: Words = Field(default=(), strict=False)
    window: _Window = (64, 32)
    label: str | None = None
    reserved: str | None = None
    normal: Literal["text", "lower", "digits", "alnum"] = "text"
    scores: Scores = Scores()


class WrittenPeers(_Strict):
    """presidio's recognizers that a file switches, by class name."""

    enable: Words = Field(default=(), strict=False, description="Those that presidio does not use by itself.")
    disable: Words = Field(default=(), strict=False, description="Those that it does.")


class _File(_Strict):
    entities: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], WrittenEntity]
    presidio: WrittenPeers = WrittenPeers()


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Functions that a file may refer to by name."""

    validators: Mapping[str, Validator] = field(default_factory=dict)
    reserved: Mapping[str, Predicate] = field(default_factory=dict)
    """Predicates for examples and reserved values."""
    labels: Mapping[str, Predicate] = field(default_factory=dict)
    """Predicates that tell whether a context word stands where a label does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The entities of a file, and the names of those that it switches off."""

    entities: tuple[Entity, ...]
    """In the order of the file."""
    off: tuple[str, ...]
    where: str
    """The file, for messages."""
    enable: tuple[str, ...] = ()
    """presidio's recognizers that it switches on, by class name."""
    disable: tuple[str, ...] = ()
    """presidio's recognizers that it switches off."""


def read_text(path: Path, what: str, hint: str = "") -> str:
    """Read a file that the user names."""
    try:
        return read_safely(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read the {what} {path}: {reason}", hint) from None


def read_layer(path: Path, *, detector: str, names: Names) -> Layer:
    """Read a file of entities."""
    text = read_text(path, "file of entities")
    return parse_layer(text, where=str(path), detector=detector, names=names)


def parse_layer(text: str, *, where: str, detector: str, names: Names) -> Layer:
    """Parse the YAML of a file of entities; the error lists every problem with its key."""
    data = load_yaml(text, where=where)
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected a mapping with a key `entities`, found {in_words(data)}")
    try:
        written = _File.model_validate(data)
    except ValidationError as error:
        raise _problems(where, explain(error, _File)) from None
    problems: list[str] = []
    entities = []
    for name, entity in written.entities.items():
        if entity.enabled and not entity.rules:
            problems.append(f"entities.{name}.rules: expected at least one entry; or `enabled: false`")
        if entity.enabled:
            problems += _check_entity(name, entity, names)
            entities.append(_entity(name, detector, entity))
    if problems:
        raise _problems(where, problems)
    off = tuple(name for name, entity in written.entities.items() if not entity.enabled)
    peers = written.presidio
    return Layer(entities=tuple(entities), off=off, where=where, enable=peers.enable, disable=peers.disable)


def shipped_layer(folder: Path, file: str, make: Callable[[str], Layer], *versions: str) -> Layer:
    """Return the layer of a file of the package, from disk when an earlier process has parsed and checked it."""
    text = (folder / file).read_bytes()
    code = sources_digest(Path(__file__).parent, Path(yamlfile.__file__).parent, folder)
    return kept(
        f"rules-{file}",
        [text, code, sys.version.encode(), *(version.encode() for version in versions)],
        lambda: _layers().dump_json(make(text.decode())),
        _layers().validate_json,
    )


@cache
def _layers() -> TypeAdapter[Layer]:
    return TypeAdapter(Layer)


def full_regex(rule: Rule) -> re.Pattern[bytes]:
    """Return the regex of a rule with its conditions on what stands before and behind a match."""
    left = "".join(f"(?<!{name})" for name in (*([f"[{rule.left}]"] if rule.left else []), *rule.before_not))
    right = "".join(f"(?!{name})" for name in (*([f"[{rule.right}]"] if rule.right else []), *rule.after_not))
    pattern = f"{left}(?:{rule.regex.replace(_MANY_WAYS, _ONE_WAY)}){right}"
    return re.compile(pattern.encode(), re.IGNORECASE if rule.ignore_case else 0)


def _entity(name: str, detector: str, written: WrittenEntity) -> Entity:
    same = written.model_dump(include={"languages", "context", "window", "label", "reserved", "normal"})
    rules = tuple(_rule(rule, number, written) for number, rule in enumerate(written.rules, 1))
    scores = written.scores.validated, written.scores.contextual, written.scores.pattern
    return Entity(name=name, detector=detector, rules=rules, scores=scores, **same)


def _rule(written: WrittenRule, number: int, entity: WrittenEntity) -> Rule:
    prefilter, reach = written.prefilter or written.regex, written.reach
    if written.anchor is not None:
        prefilter = anchor(entity.context)
        reach = (reach[0] + entity.window[1], reach[1] + entity.window[0])
    same = {"regex", "left", "right", "before_not", "after_not", "ignore_case", "validators"}
    return Rule(
        name=written.name or str(number),
        prefilter=prefilter,
        anchored=written.anchor is not None,
        reach=reach,
        passes=_EVIDENCE[written.passes] if written.passes else None,
        tiers=_tiers(written),
        **written.model_dump(include=same),
    )


def _tiers(written: WrittenRule) -> TierPolicy:
    return TierPolicy(**{name: _TIERS[value] for name, value in written.tiers.model_dump().items()})


def _check_entity(name: str, entity: WrittenEntity, names: Names) -> list[str]:
    key = f"entities.{name}"
    problems = _unknown(f"{key}.reserved", [entity.reserved], names.reserved)
    problems += _unknown(f"{key}.label", [entity.label], names.labels)
    problems += _check_range(f"{key}.window", entity.window, MAX_WINDOW_BYTES)
    problems += [
        f"{key}.context.{number}: expected a word, found `{word}`"
        for number, word in enumerate(entity.context)
        if not word.removesuffix("*").split()
    ]
    for number, rule in enumerate(entity.rules):
        problems += _check_rule(f"{key}.rules.{number}", rule, entity, names)
    labels = [rule.name or str(number) for number, rule in enumerate(entity.rules, 1)]
    if len(set(labels)) < len(labels):
        problems.append(f"{key}.rules: two rules have one name")
    return problems


def _unknown(key: str, names: Iterable[str | None], known: Mapping[str, Any]) -> list[str]:
    return [
        f"{key}: `{name}` is not known{nearest(name, list(known))}"
        for name in names
        if name is not None and name not in known
    ]


def _check_range(key: str, window: tuple[int, int], most: int) -> list[str]:
    if all(0 <= size <= most for size in window):
        return []
    return [f"{key}: expected two numbers from 0 to {most}, found {list(window)}"]


def _check_rule(key: str, rule: WrittenRule, entity: WrittenEntity, names: Names) -> list[str]:
    problems = _unknown(f"{key}.validators", rule.validators, names.validators)
    problems += _check_range(f"{key}.reach", rule.reach, MAX_MATCH_BYTES)
    if rule.anchor and (rule.prefilter or not entity.context or not _tiers(rule).needs_context):
        problems.append(f"{key}.anchor: expected `context`, no `prefilter`, and tiers that drop all without context")
    for part in ("regex", "prefilter", "left", "right"):
        if _CONTROL.search(getattr(rule, part)):
            problems.append(f"{key}.{part}: holds a control character; put the pattern in single quotes")
    if any(_LAST_BYTE.search(name) for name in (rule.regex, rule.prefilter, *rule.before_not, *rule.after_not)):
        problems.append(f"{key}: a repeat stands behind a letter beyond ASCII: it repeats a byte; write (?:x)?")
    if problems:
        return problems
    if not (rule.left + rule.right).isascii() or any(not item.isascii() for item in _CLASS.findall(rule.regex)):
        return [f"{key}: a class in brackets holds more than ASCII; write (?:x|y), patterns see bytes of UTF-8"]
    shown = f"{key}.regex: `{rule.regex[:120]}`"
    try:
        with warnings.catch_warnings(action="error"):
            compiled = full_regex(_rule(rule, 1, entity))
    except (re.error, RecursionError, OverflowError, Warning) as error:
        reason = "it is too deep or too large" if isinstance(error, RecursionError | OverflowError) else str(error)
        return [f"{shown} is not a regular expression: {reason}"]
    if compiled.match(b"") is not None:
        return [f"{shown} matches empty text"]
    if any(map(runs_away, (rule.regex, *rule.before_not, *rule.after_not))):
        return [f"{shown} repeats a repeat, which may take forever; let a letter stand between"]
    return []


def _problems(where: str, problems: list[str]) -> ConfigError:
    listed = "\n".join(f"  - {line}" for line in problems)
    return ConfigError(f"{where}: {len(problems)} problem(s)\n{listed}", "See `dataaudit explain detectors`.")


def runs_away(regex: str) -> bool:
    """Tell whether a repeat has a branch with another repeat and nothing that must stand beside it.

    ``(a+)+`` and ``(?:[a-z]+[.-]?)+`` do; ``(?:[a-z]+-)+`` does not, nor do possessive repeats and atomic groups.
    Branches that begin alike, ``(?:a|ab)+``, are not looked for.
    """
    return any(
        code in _REPEATS and _is_many(value) and any(map(_is_loose, _ways(value[2])))
        for code, value in _items(parser.parse(regex.encode()))
    )


def _is_many(repeat: Any) -> bool:
    low, high, _ = repeat
    return bool(high >= _MANY and high > low)


def _is_loose(way: Any) -> bool:
    """Tell whether a sequence is a repeat and, beside it, only what may be absent."""
    for at, (code, value) in enumerate(way):
        if way[:at].getwidth()[0] + way[at + 1 :].getwidth()[0]:
            continue
        if code in _REPEATS and (_is_many(value) or any(map(_is_loose, _ways(value[2])))):
            return True
        if code is codes.SUBPATTERN and any(map(_is_loose, _ways(value[-1]))):
            return True
    return False


def _ways(parsed: Any) -> Iterator[Any]:
    """Yield the branches of a sequence that is a choice, else the sequence."""
    if len(parsed) == 1 and parsed[0][0] is codes.BRANCH:
        yield from parsed[0][1][1]
    elif len(parsed) == 1 and parsed[0][0] is codes.SUBPATTERN:
        yield from _ways(parsed[0][1][-1])
    else:
        yield parsed


def _items(parsed: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every item, those inside of others too; a possessive repeat and an atomic group are never cut again."""
    for code, value in parsed:
        yield code, value
        if code in _REPEATS:
            yield from _items(value[2])
        elif code is codes.SUBPATTERN:
            yield from _items(value[-1])
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from _items(branch)
        elif code in {codes.ASSERT, codes.ASSERT_NOT}:
            yield from _items(value[1])
