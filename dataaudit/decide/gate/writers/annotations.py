"""GitHub's annotations: workflow commands on stdout that a runner turns into marks on the pull request.

A runner shows ten of a type for each step, so each rule has one, and the tenth sums up the rest. Names are
escaped twice: made printable, and then as the runner's own toolkit does it. Marks point at the policy's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from dataaudit.base.text import clean, plural
from dataaudit.decide.gate.verdict import Verdict
from dataaudit.decide.gate.writers import words as w

_WORKSPACE = "GITHUB_WORKSPACE"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """A policy file, as marks need it."""

    name: str = "policy.yaml"
    """Its path as it was given."""
    in_repository: str | None = None
    """Its path from the repository's root, with slashes; None outside of a repository."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of each rule, from 1, by name."""


def policy_file(path: str, text: str | None, environ: Mapping[str, str]) -> PolicyFile:
    """Return where a policy stands: in the nearest checkout, else in the runner's folder or the current one."""
    whole = Path(path).resolve()
    checkout = next((above for above in whole.parents if (above / ".git").exists()), None)
    root = checkout or Path(environ.get(_WORKSPACE) or ".").resolve()
    inside = whole.relative_to(root).as_posix() if whole.is_relative_to(root) else None
    name = clean(inside or whole.name or "policy.yaml", 500)
    lines = {} if text is None else rule_lines(text)
    return PolicyFile(name=name, in_repository=inside if inside == name else None, lines=lines)


def rule_lines(text: str) -> dict[str, int]:
    """Return the line of each rule of a policy, from 1; none where the text is no policy."""
    try:
        return dict(_names(yaml.compose(text, yaml.SafeLoader)))
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}


def _names(root: yaml.Node | None) -> Iterator[tuple[str, int]]:
    rules = _value(root, "rules")
    for rule in rules.value if isinstance(rules, yaml.SequenceNode) else ():
        name = _value(rule, "name")
        if isinstance(name, yaml.ScalarNode):
            yield name.value, name.start_mark.line + 1


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for item, value in node.value if isinstance(item, yaml.ScalarNode) and item.value == key), None)


PER_TYPE = 10
"""Annotations of a type that a runner shows for a step."""
CASES = 5
"""Cases that an annotation lists."""
MOST = 4000
"""Characters of a message before it is escaped."""
_TITLE = "dataaudit gate"
_Kind = Literal["error", "warning", "notice"]


@dataclass(frozen=True, slots=True)
class _Mark:
    kind: _Kind
    title: str
    message: str
    line: int | None = None


def annotation_lines(verdict: Verdict, policy: PolicyFile) -> str:
    """Return the lines to print, each a command of the runner; none when there is nothing to say."""
    marks = _rules(verdict, policy)
    marks += [_Mark("error", "waiver has expired", w.waiver_words(late)) for late in w.expired(verdict)]
    if not verdict.passed and not any(mark.kind == "error" for mark in marks):
        marks.append(_Mark("error", w.headline(verdict), w.advice(verdict)))
    if verdict.waiting:
        waiting = ", ".join(w.name(name) for name in verdict.waiting[:20])
        marks.append(_Mark("notice", "waiting for a baseline", f"{plural(len(verdict.waiting), 'rule')}: {waiting}"))
    marks += [_Mark("notice", "remark", w.prose(remark)) for remark in verdict.remarks]
    if waived := sum(result.waived for result in verdict.rules):
        marks.append(_Mark("notice", "waived", f"{plural(waived, 'case')} that the policy's waivers cover"))
    lines = [
        _line(mark, policy)
        for kind in ("error", "warning", "notice")
        for mark in _capped([mark for mark in marks if mark.kind == kind])
    ]
    return "".join(f"{line}\n" for line in lines)


def _rules(verdict: Verdict, policy: PolicyFile) -> list[_Mark]:
    effects = [(w.effect_of(verdict, result), result) for result in verdict.rules]
    marks = []
    for effect, result in sorted(effects, key=lambda pair: w.WORST_FIRST[pair[0]]):
        if effect not in w.BAD:
            continue
        rule = result.rule
        cases = [shown.case for shown in w.problems(verdict, result) if shown.effect == effect]
        lines = [w.message(rule, case) for case in cases[:CASES]] or [w.why(result)]
        if len(cases) > CASES:
            lines.append(f"and {plural(len(cases) - CASES, 'more case')}")
        text = "\n".join([*lines, *w.about(rule, "owner", "runbook")])
        kind: _Kind = "warning" if effect == w.Effect.WARNS else "error"
        marks.append(_Mark(kind, f"{effect}, {w.name(rule.name)}", text, policy.lines.get(rule.name)))
    return marks


def _capped(marks: Sequence[_Mark]) -> list[_Mark]:
    if len(marks) <= PER_TYPE:
        return list(marks)
    rest = marks[PER_TYPE - 1 :]
    summed = "; ".join(mark.title for mark in rest[:50]) + ("; ..." if len(rest) > 50 else "")
    return [*marks[: PER_TYPE - 1], _Mark(rest[0].kind, f"{len(rest):,} more", summed)]


def _line(mark: _Mark, policy: PolicyFile) -> str:
    message = mark.message if len(mark.message) <= MOST else mark.message[:MOST] + " ..."
    fields = {"title": f"{_TITLE}: {mark.title}"}
    if policy.in_repository is not None and mark.line is not None:
        fields |= {"file": policy.in_repository, "line": str(mark.line)}
    escaped = {name: _data(value).replace(":", "%3A").replace(",", "%2C") for name, value in fields.items()}
    given = ",".join(f"{name}={value}" for name, value in escaped.items())
    return f"::{mark.kind} {given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
