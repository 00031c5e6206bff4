"""Judges a number by a rule: the state, why, and the number that was compared. Pure."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any

from dataaudit.decide.gate.policy import COVERAGE, Rule, Severity
from dataaudit.decide.gate.verdict import Case, State
from dataaudit.manifest.metric import NO_INTERVAL, Metric, Scope, rounded
from dataaudit.metrics.comparable import OTHER_UNIT

ABSENT = frozenset({"no_judge", "no_analyzer", "no_reference"})
"""Reasons of a missing value that say that its input was never given; all others are failures of something."""
EMPTY = "empty_denominator"
MISSING = "missing"
NO_BASELINE = "no_baseline"
NEW = "new_scope"
UNREAD = "unread_bytes"
FEW_SHARDS = "too_few_shards"
UNKNOWN_BYTES = "unknown_bytes"
"""Reason of a number that lacks a shard which was not read and whose size is not known."""
AT_LEAST = "at_least"
"""Reason of a case whose number is a lower bound."""
_LARGEST = 1e300
_COMPARATORS = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "==": operator.eq}
_OF_RECORD = ("unit", "value", "low", "high", "confidence", "method", "denominator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The state of a case, why, and the numbers that were compared."""

    state: State
    reason: str = ""
    judged: float | None = None
    baseline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a value is compared with, for rules that compare."""

    value: float | None = None
    """The baseline's value, or the median of its peers; None when there is none."""
    reason: str = ""
    """Why there is none."""
    spread: float = 0.0
    """Robust standard deviation of its peers, for rules of ``robust_sd``."""
    denominator: int = 0


def judge_record(
    rule: Rule, record: Metric | None, compared: Compared | None = None, *, is_kept: bool = True
) -> Judgement:
    """Judge a record; ``is_kept`` says whether the manifest has any record of the metric."""
    if record is None:
        return _missing(rule, MISSING, absent=not is_kept)
    if record.status != "ok" or record.value is None:
        if record.reason == EMPTY and rule.allow_empty:
            return Judgement(state=State.NOT_APPLICABLE, reason=EMPTY)
        return _missing(rule, record.reason, absent=record.status == "not_applicable" or record.reason in ABSENT)
    if record.unit != rule.unit:
        return Judgement(state=State.NOT_EVALUATED, reason=OTHER_UNIT)
    if rule.limit_kind == "budget":
        judged = _compare(rule, against(rule, record), None)
    elif compared is None or compared.value is None:
        return _not_compared(rule, compared.reason if compared else NO_BASELINE)
    else:
        judged = _compare(rule, _distance(rule, record, compared), compared.value)
    return replace(judged, reason=record.reason) if record.reason in NO_INTERVAL else judged


def judge_at_least(rule: Rule, record: Metric, judged: Judgement, compared: Compared | None) -> Judgement:
    """Return the judgement of a lower bound: not evaluated where a larger number would change it."""
    if judged.state in {State.NOT_EVALUATED, State.NOT_APPLICABLE} or record.value is None:
        return judged
    turns = rule.limit if rule.limit_kind == "budget" else judged.baseline or 0.0
    larger = (replace(record, value=value) for value in (max(turns, record.value), _LARGEST))
    same = {judge_record(rule, metric, compared).state for metric in larger} == {judged.state}
    return replace(judged, state=judged.state if same else State.NOT_EVALUATED, reason=AT_LEAST)


def case_of(rule: Rule, stat: str, scope: Scope, record: Metric | None, judged: Judgement, **more: Any) -> Case:
    """Return the case of a record, which may be absent, with its judgement."""
    numbers = {} if record is None else {name: getattr(record, name) for name in _OF_RECORD}
    judgement = {name: getattr(judged, name) for name in Judgement.__slots__}
    return Case(**{"rule": rule.name, "stat": stat, "scope": scope, "unit": rule.unit, **numbers, **judgement, **more})


def against(rule: Rule, record: Metric) -> float:
    """Return the number of a record that a budget is compared with: by default the bound on the limit's wrong side.

    Of a value without an interval it is the value, whatever the rule names; its case says why (``NO_INTERVAL``).
    """
    assert record.value is not None
    low = record.value if record.low is None else record.low
    high = record.value if record.high is None else record.high
    if rule.bound != "against":
        return {"value": record.value, "low": low, "high": high}[rule.bound]
    if rule.comparator == "==":
        return max((low, high), key=lambda bound: abs(bound - rule.limit))
    return high if rule.is_upper else low


def is_within(rule: Rule, judged: float, limit: float) -> bool:
    """Return whether a judged number, of 12 digits, keeps a limit."""
    return bool(_COMPARATORS[rule.comparator](judged, rounded(limit)))


def excess(rule: Rule, judged: float) -> float:
    """Return how far a number is on the limit's wrong side, negative on the right side; for sorting."""
    if rule.comparator == "==":
        return abs(judged - rule.limit)
    return judged - rule.limit if rule.is_upper else rule.limit - judged


def _missing(rule: Rule, reason: str, *, absent: bool) -> Judgement:
    """Return the state of what has no value: an optional rule whose input was never given does not apply."""
    state = State.NOT_APPLICABLE if absent and not rule.required else State.NOT_EVALUATED
    return Judgement(state=state, reason=reason)


def _not_compared(rule: Rule, reason: str) -> Judgement:
    """Return the state of a rule that has nothing to compare with.

    A scope that the baseline did not have cannot have changed, a handful of shards has no usual value; without any
    baseline the policy says what holds.
    """
    if reason in {NEW, FEW_SHARDS} or (reason == NO_BASELINE and rule.baseline == "optional"):
        return Judgement(state=State.NOT_APPLICABLE, reason=reason)
    return _missing(rule, reason, absent=reason in ABSENT)


def _distance(rule: Rule, record: Metric, compared: Compared) -> float:
    """Return the change, the relative change or the distance that is compared with the limit; never below 0.

    Of a value with an interval the bound that lies farther away is taken, or the bound that the rule names; the
    baseline's value is taken as it is.
    """
    assert compared.value is not None
    now = {
        name: bound if bound is not None else record.value
        for name, bound in (("value", record.value), ("low", record.low), ("high", record.high))
    }
    names = {"up": ("high",), "down": ("low",), "either": ("low", "high")}[rule.direction]
    chosen = names if rule.bound == "against" else (rule.bound,)
    sign = {"up": 1.0, "down": -1.0}.get(rule.direction)
    differences = [float(now[name] or 0.0) - compared.value for name in chosen]
    far = max(abs(difference) if sign is None else max(0.0, sign * difference) for difference in differences)
    if rule.limit_kind == "change":
        return far
    scale = abs(compared.value) if rule.limit_kind == "relative_change" else compared.spread
    if scale == 0.0:
        return 0.0 if far == 0.0 else math.inf
    return far / scale


def _compare(rule: Rule, judged: float, baseline: float | None) -> Judgement:
    number = rounded(judged) if math.isfinite(judged) else judged
    if is_within(rule, number, rule.limit):
        warns = rule.warn is not None and not is_within(rule, number, rule.warn)
        return Judgement(state=State.WARNED if warns else State.PASSED, judged=number, baseline=baseline)
    if rule.metric == COVERAGE:
        return Judgement(state=State.NOT_EVALUATED, reason=UNREAD, judged=number, baseline=baseline)
    state = State.FAILED if rule.severity == Severity.FAIL else State.WARNED
    return Judgement(state=state, judged=number, baseline=baseline)
