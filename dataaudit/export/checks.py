"""The rules of a verdict as other programs count them: passed, failed or skipped, with what was expected and found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.errors import ConfigError
from dataaudit.gate.document import read_verdict
from dataaudit.gate.verdict import Case, RuleResult, State, Verdict
from dataaudit.gate.writers.numbers import numbers, with_unit

_STATUS = {
    State.PASSED: "pass",
    State.WARNED: "fail",
    State.FAILED: "fail",
    State.NOT_EVALUATED: "fail",
    State.NOT_APPLICABLE: "skip",
}
"""What is not evaluated is no success: a reader that knows two states only must not take it for one."""
_SEVERITY = {"fail": "error", "warn": "warn"}
_NAME_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule; every text is harmless to print."""

    name: str
    kind: str
    """``metric.stat``."""
    status: str
    """pass, fail or skip."""
    severity: str
    """error or warn."""
    description: str | None
    expected: str
    """Comparator, limit and unit."""
    actual: str | None
    """What was found where it is worst, or why nothing was; small counts of personal data are withheld."""
    applies: bool = True
    params: dict[str, Any] = field(default_factory=dict)
    """State, waived cases, and where the worst case is."""


def read_checks(path: Path, identity: str) -> tuple[Check, ...]:
    """Return the rules of a ``gate.json``.

    Args:
        path: Of the file.
        identity: Of the manifest that it has to be of.

    Raises:
        ManifestError: The file cannot be read, or is none.
        ConfigError: It is the verdict of another manifest.
    """
    verdict = read_verdict(path)
    if verdict.subject.id != identity:
        raise ConfigError(f"{path} is the verdict of {verdict.subject.id}, the manifest is {identity}")
    return checks_of(verdict)


def checks_of(verdict: Verdict) -> tuple[Check, ...]:
    """Return the rules of a verdict."""
    return tuple(_check(result) for result in verdict.rules)


def _check(result: RuleResult) -> Check:
    rule = result.rule
    worst = result.cases[0] if result.cases else None
    shown = numbers(rule, worst)
    found = with_unit(shown.judged or shown.value, rule.unit)
    return Check(
        name=rule.name,
        kind=t.clean(f"{rule.metric}.{rule.stat}", _NAME_LIMIT),
        status=_STATUS[result.state],
        severity=_SEVERITY[rule.severity.value],
        description=None if rule.reason is None else t.clean(rule.reason, _NAME_LIMIT),
        expected=t.clean(f"{shown.limit} {rule.unit}" if rule.limit_kind == "budget" else shown.limit, _NAME_LIMIT),
        actual=found or (t.clean(worst.reason, _NAME_LIMIT) if worst is not None and worst.reason else None),
        applies=result.state != State.NOT_APPLICABLE,
        params={"state": result.state.value, "waived": result.waived, **_place(worst)},
    )


def _place(case: Case | None) -> dict[str, Any]:
    if case is None:
        return {}
    scope = {name: t.clean(str(value), _NAME_LIMIT) for name, value in case.scope.as_dict().items()}
    return scope | ({"shard_uri": t.clean(case.shard_uri, _NAME_LIMIT)} if case.shard_uri else {})
