"""Counts of findings where a document was not searched to its end: a number is then at least what it says.

Such a number fails a rule that what was found already breaks. It passes one that no larger number would break. In
between the rule is not evaluated, and the case says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dataaudit.gate.facts import Facts
from dataaudit.gate.judge import Judgement
from dataaudit.gate.policy import Rule
from dataaudit.gate.verdict import State
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.findings import LOWER_BOUNDS, TRUNCATED
from dataaudit.metrics.registry import METRICS

AT_LEAST = "at_least"
"""Reason of a case whose number is a lower bound."""
BASELINE_AT_LEAST = f"baseline_{AT_LEAST}"
_JUDGED = frozenset({State.PASSED, State.WARNED, State.FAILED})
_LARGEST = 1e300


def is_at_least(metric: str, stat: str, facts: Facts, scope: Scope) -> bool:
    """Return whether a number counts findings, and documents of its part of the corpus were not searched whole."""
    if not METRICS[metric].searches_with or stat not in LOWER_BOUNDS:
        return False
    record = facts.find(metric, TRUNCATED, Scope(split=scope.split, source=scope.source))
    return record is not None and bool(record.value)


def judged_at_least(rule: Rule, record: Metric, found: Judgement, judge: Callable[[Metric], Judgement]) -> Judgement:
    """Return a judgement of a lower bound: as it was found when no larger number would change it.

    Args:
        rule: The rule.
        record: The number.
        found: What it is judged as.
        judge: Judges another number in its place.
    """
    if found.state not in _JUDGED or record.value is None:
        return found
    turns = rule.limit if rule.limit_kind == "budget" else found.baseline or 0.0
    larger = (replace(record, value=value) for value in (max(turns, record.value), _LARGEST))
    if {judge(one).state for one in larger} == {found.state}:
        return replace(found, reason=AT_LEAST)
    return replace(found, state=State.NOT_EVALUATED, reason=AT_LEAST)
