"""Where the policy stands in the repository: what marks on a pull request point at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from dataaudit.text import clean

_WORKSPACE = "GITHUB_WORKSPACE"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """A policy file, as marks need it."""

    name: str = "policy.yaml"
    """What to call it: its path as it was given."""
    in_repository: str | None = None
    """Its path from the repository's root, with slashes; None outside of one."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of each rule, from 1, by name."""


def policy_file(path: str, text: str | None, environ: Mapping[str, str]) -> PolicyFile:
    """Return where a policy stands.

    Args:
        path: As the user gave it.
        text: What the file holds, to find the rules' lines; None when it cannot be read again.
        environ: The environment; where no folder above is a checkout, the repository is what a runner says in it,
            or else the current folder.
    """
    whole = os.path.realpath(path)
    root = _checkout(whole) or os.path.realpath(environ.get(_WORKSPACE) or ".")
    inside = (
        os.path.relpath(whole, root).replace(os.sep, "/") if whole.startswith(root.rstrip(os.sep) + os.sep) else None
    )
    name = clean(inside or os.path.basename(path) or "policy.yaml", 500)
    return PolicyFile(
        name=name, in_repository=inside if inside == name else None, lines={} if text is None else rule_lines(text)
    )


def rule_lines(text: str) -> dict[str, int]:
    """Return the line of each rule of a policy, from 1; none where the text is no policy."""
    try:
        return dict(_names(yaml.compose(text, yaml.SafeLoader)))
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}


def _checkout(path: str) -> str | None:
    """Return the nearest folder above that is a checkout of git."""
    above = os.path.dirname(path)
    while not os.path.exists(os.path.join(above, ".git")):
        if above == os.path.dirname(above):
            return None
        above = os.path.dirname(above)
    return above


def _names(root: yaml.Node | None) -> Iterator[tuple[str, int]]:
    rules = _value(root, "rules")
    for rule in rules.value if isinstance(rules, yaml.SequenceNode) else ():
        name = _value(rule, "name")
        if isinstance(name, yaml.ScalarNode):
            yield name.value, name.start_mark.line + 1


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for one, value in node.value if isinstance(one, yaml.ScalarNode) and one.value == key), None)
