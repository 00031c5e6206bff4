"""The rules of a verdict as other programs count them: passed, failed or skipped, with what was expected and found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dataaudit import text as t
from dataaudit.gate.verdict import Case, RuleResult, State, Verdict

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
PERSONAL = "pii_hit_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule."""

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
    """What was found where it is worst."""
    applies: bool = True
    params: dict[str, Any] = field(default_factory=dict)


def checks_of(verdict: Verdict) -> tuple[Check, ...]:
    """Return the rules of a verdict."""
    return tuple(_check(result) for result in verdict.rules)


def _check(result: RuleResult) -> Check:
    rule = result.rule
    worst = result.cases[0] if result.cases else None
    expected = f"{rule.limit_kind} {rule.comparator} {rule.limit:g}"
    return Check(
        name=rule.name, kind=f"{rule.metric}.{rule.stat}", status=_STATUS[result.state],
        severity=_SEVERITY[rule.severity.value], description=rule.reason, expected=f"{expected} {rule.unit}".strip(),
        actual=_actual(rule.metric, worst), applies=result.state != State.NOT_APPLICABLE,
        params={"state": result.state.value, "waived": result.waived, **_scope(worst)},
    )  # fmt: skip


def _actual(metric: str, case: Case | None) -> str | None:
    """Return what was found; of personal data nothing, as a small number points at people."""
    if case is None or (metric == PERSONAL and case.judged is not None):
        return None
    return case.reason or None if case.judged is None else f"{case.judged:.12g}"


def _scope(case: Case | None) -> dict[str, Any]:
    if case is None:
        return {}
    return {name: t.clean(str(value), _NAME_LIMIT) for name, value in case.scope.as_dict().items()}
