"""Rules of detect-secrets: read from the installed library at run time, so that its updates are ours.

From a regex of Python to what hyperscan can look for: its leading part, without what hyperscan lacks.

A rule of another project may hold lookarounds, back references and repeats of hundreds. Every match of it begins
with a match of its leading part in which those are left out, so looking for that loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import metadata, resources
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from dataaudit.detectors.patterns.entity import Entity
from dataaudit.detectors.patterns.written import Names, codes, parse_layer, parser
from dataaudit.errors import ConfigError
from dataaudit.yamlfile import explain, load_yaml

_REACH_BYTES = 160
"""How far a match can extend beyond the part that is looked for; the library's regexes are short but for two."""
UPSTREAM_FILE = "upstream.yaml"
"""Of this folder: how the rules of each plugin are used."""
_OPEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)", re.DOTALL)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]


class Use(BaseModel):
    """How the rules of one plugin are used."""

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


def library_version() -> str:
    """Return the version of detect-secrets that is installed."""
    return metadata.version("detect-secrets")


def add_upstream(entities: tuple[Entity, ...], names: Names) -> tuple[Entity, ...]:
    """Add the library's rules to the entities that they belong to; new entities where there are none.

    Raises:
        ConfigError: The package's file of uses is wrong, or a regex of the library cannot be searched for.
    """
    found = {entity.name: entity for entity in entities}
    uses = _read_uses()
    for plugin, regexes in _plugins():
        use = uses.get(plugin) or Use(entity=(_entity_name(plugin),))
        if use.skip:
            continue
        for number, regex in enumerate(regexes):
            name = use.entity[min(number, len(use.entity) - 1)]
            made = _made(name, f"detect-secrets {plugin} {number + 1}", use, regex, names)
            known = found.get(name)
            found[name] = replace(known, rules=known.rules + made.rules) if known else made
    return tuple(found.values())


def _plugins() -> list[tuple[str, list[re.Pattern[str]]]]:
    """List the library's plugins that are made of regexes, by name."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    classes: Any = get_mapping_from_secret_type_to_class().values()
    made = {one.__name__: list(one().denylist) for one in classes if issubclass(one, RegexBasedDetector)}
    return sorted(made.items())


def _read_uses() -> dict[str, Use]:
    text = resources.files("dataaudit.detectors.secrets").joinpath(UPSTREAM_FILE).read_text(encoding="utf-8")
    try:
        return _File.model_validate(load_yaml(text, where=UPSTREAM_FILE)).plugins
    except ValidationError as error:
        raise ConfigError(f"{UPSTREAM_FILE}: " + "; ".join(explain(error, _File))) from None


def _made(name: str, rule: str, use: Use, regex: re.Pattern[str], names: Names) -> Entity:
    """Make an entity of one regex, by way of the same checks as what people write."""
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
    """Name the first group that captures, which the library takes for the secret."""
    for found in _OPEN.finditer(pattern):
        if found[0] == "(":
            return f"{pattern[: found.start()]}(?P<value>{pattern[found.end() :]}"
    return pattern


def _entity_name(plugin: str) -> str:
    return "OTHER_" + _CAMEL.sub("_", plugin.removesuffix("Detector")).upper()


_LONGEST = 44
"""Copies of a repeat that are kept as they are; longer ones make a database too large."""
_SHORT = 24
"""Copies that are kept of a longer one, which is where the pattern then ends."""
_SKIPPED = 64
"""Letters that an item at the start may have to be left out."""
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

    What may be absent at the start is left out as well: it finds nothing and costs most.

    Returns:
        The pattern, and the most letters that a match has before it.

    Raises:
        ValueError: The regex holds something that is not known here.
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
        text, cut = _item(code, value)
        parts.append(text)
        if cut:
            return "".join(parts), True
    return "".join(parts), False


def _item(code: Any, value: Any) -> tuple[str, bool]:
    if code not in _KINDS:
        raise ValueError(f"a regex with {code} cannot be searched for")
    return _KINDS[code](value)


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
