"""What has no number: why, and whether the baseline has one. A number that was lost counts as required.

Whoever switches a stage or the protected sets off has no number that could fail; an optional rule would then not apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from dataaudit.gate.facts import Facts
from dataaudit.gate.judge import EMPTY, MISSING
from dataaudit.gate.lookup import is_in_corpus, record_of
from dataaudit.gate.policy import Rule
from dataaudit.gate.reasons import reason_text
from dataaudit.gate.scopes import expected_scopes, judged_stats
from dataaudit.gate.verdict import LOST, Case, State
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.registry import FAMILY_OF, METRICS, statistic

NOTHING = "nothing_to_judge"
_UNEXPLAINED = (MISSING, NOTHING)
_SILENT = (State.NOT_EVALUATED, State.NOT_APPLICABLE)


def why_none(metric: str, scope: Scope, facts: Facts) -> str:
    """Return why a manifest has no number of a metric: what was switched off or never given; else nothing."""
    sets = METRICS[metric].sets
    if sets and not facts.sets_of(metric):  # a build without one has no such stage, and nobody switched it off
        return "no held-out split" if sets == "held_out" else "no evaluation set is given"
    stage = FAMILY_OF[metric].stage_name
    if stage and METRICS[metric].by_stage and stage not in facts.stages and not facts.has(metric):
        return f"stage {stage} is off"
    looked_for = facts.entities.get(metric)
    if scope.entity is not None and looked_for is not None and scope.entity not in looked_for:
        return f"{scope.entity} was not looked for"
    return ""


def explained(rule: Rule, case: Case, now: Facts, baseline: Facts | None) -> Case:
    """Return a case with why it has no number, as lost where the baseline has one and the rule allows none."""
    if case.value is not None or case.state not in _SILENT or case.reason == EMPTY or case.scope.shard is not None:
        return case
    why = why_none(rule.metric, case.scope, now) if case.reason in _UNEXPLAINED else ""
    if baseline is None or not _had(rule, case, baseline):
        return replace(case, why=why)
    if rule.allow_lost is not None:
        return replace(case, why="; ".join(filter(None, (why, f"the policy allows it: {rule.allow_lost}"))))
    told = why or ("" if case.reason in _UNEXPLAINED else reason_text(case.reason))
    return replace(case, state=State.NOT_EVALUATED, reason=LOST, why=told)


def lost_parts(rule: Rule, now: Facts, baseline: Facts | None, judged: Iterable[Case]) -> Iterator[Case]:
    """Yield a case for each part that the baseline has a number of, the corpus still has, and no case speaks of.

    Args:
        rule: Of records, not of shards.
        now: The manifest.
        baseline: What it is compared with.
        judged: The cases that the manifest's own parts give.
    """
    if baseline is None or rule.allow_lost is not None or not now.has(rule.metric):
        return
    known_cases = {(case.stat, case.scope) for case in judged}
    for stat in judged_stats(rule, baseline):
        known = statistic(rule.metric, stat)
        for scope in expected_scopes(rule, known, baseline) if known is not None else ():
            if known is None or (stat, scope) in known_cases or not is_in_corpus(now, scope):
                continue
            was, record = record_of(known, baseline, scope), record_of(known, now, scope)
            if was is None or was.value is None or (record is not None and record.value is not None):
                continue
            yield Case(
                rule=rule.name,
                stat=stat,
                scope=scope,
                state=State.NOT_EVALUATED,
                reason=LOST,
                why=_why_part(rule.metric, scope, now),
                unit=rule.unit,
            )


def _why_part(metric: str, scope: Scope, now: Facts) -> str:
    if scope.set is not None and scope.set not in now.sets_of(metric):
        kind = "held-out split" if METRICS[metric].sets == "held_out" else "evaluation set"
        return f"no {kind} is named {scope.set}"
    return why_none(metric, scope, now)


def _had(rule: Rule, case: Case, baseline: Facts) -> bool:
    """Return whether the baseline has a number where a case has none."""
    known = statistic(rule.metric, case.stat)
    if known is not None and frozenset(case.scope.as_dict()) == rule.scope.fields:
        record = record_of(known, baseline, case.scope)
        return record is not None and record.value is not None
    return any(
        record.value is not None
        for (metric, stat), records in baseline.records.items()
        if metric == rule.metric and ("shard" in rule.scope.per or fnmatchcase(stat, rule.stat))
        for scope, record in records.items()
        if "shard" in rule.scope.per or scope.as_dict().keys() == rule.scope.fields
    )
