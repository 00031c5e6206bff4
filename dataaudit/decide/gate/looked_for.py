"""What has no number, and what was looked for: less than in the baseline, or by other detectors than are demanded.

A number that was lost counts as required: whoever switches a stage or the protected sets off has no number that could
fail, and an optional rule would not apply. Less is found of less: such a search passes no rule. What it did find
stands: a rule that fails, fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import nearest
from dataaudit.decide.gate.facts import Facts, is_in_corpus, record_of
from dataaudit.decide.gate.judge import EMPTY, MISSING
from dataaudit.decide.gate.number_texts import reason_text
from dataaudit.decide.gate.policy import Policy, Rule
from dataaudit.decide.gate.scopes import expected_scopes, is_of_patterns, judged_stats
from dataaudit.decide.gate.verdict import DEMANDED, LOST, Case, State
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import JUDGE, LANGUAGE_DETECTION
from dataaudit.metrics.registry import FAMILY_OF, METRICS, statistic

NOTHING = "nothing_to_judge"
_UNEXPLAINED = (MISSING, NOTHING)
_SILENT = (State.NOT_EVALUATED, State.NOT_APPLICABLE)
_KEPT = (State.PASSED, State.WARNED)
_NAMED = 5
"""Entities that a reason names."""
_SHORT = 12
"""Digits of a digest that a reason shows."""
_JUDGES = "detoxify "
"""What the names of judges of toxicity begin with."""


def check_detectors(policy: Policy, where: str) -> None:
    """Compare the detectors that a policy demands with those that its rules rest on."""
    used = {name for rule in policy.rules for name in _deciding(rule.metric)}
    for name in policy.detectors or ():
        if not _is_among(name, used):
            known = sorted(used - {JUDGE}) + ([f"{_JUDGES}original"] if JUDGE in used else [])
            raise ConfigError(
                f"{where}: detectors: no rule rests on a detector `{name}`{nearest(name, known)}",
                f"Take it out, or name one of these: {', '.join(known) or 'none'}.",
            )


def demandable(rules: Iterable[Rule], facts: Facts) -> dict[str, str]:
    """Return the digests of the manifest's detectors that some rules rest on, by name."""
    used = {name for rule in rules for name in _deciding(rule.metric)}
    return {detector.name: detector.sha256 for detector in facts.core.detectors if _is_among(detector.name, used)}


def with_search(policy: Policy, rule: Rule, case: Case, now: Facts, baseline: Facts | None) -> Case:
    """Return a case as not evaluated where what was looked for is not enough to pass it."""
    why = "" if case.state == State.FAILED else other_than_demanded(policy, rule, now)
    if why:
        return replace(case, state=State.NOT_EVALUATED, reason=DEMANDED, why=why)
    why = less_than_before(rule, case, now, baseline) if case.state in _KEPT else ""
    return replace(case, state=State.NOT_EVALUATED, reason=LOST, why=why) if why else case


def other_than_demanded(policy: Policy, rule: Rule, now: Facts) -> str:
    """Return which detectors that a rule rests on are not those that the policy demands; else nothing."""
    used = _deciding(rule.metric)
    return "; ".join(
        f"{name} {_short(found)}, demanded {_short(wanted)}"
        for name, wanted, found, _ in _others(policy, now)
        if _is_among(name, used)
    )


def demanded_remarks(policy: Policy, now: Facts) -> Iterator[str]:
    """Say of each detector that is not the demanded one what was expected and found, and what to do."""
    for name, wanted, found, version in _others(policy, now):
        told = f"The policy demands the detector {name} of sha256 {_short(wanted)}"
        if not found:
            yield (
                f"{told}, and the manifest was searched without it. Build again with the stage that uses it; or take"
                f" {name} out of `detectors` in a policy of your own."
            )
            continue
        yield (
            f"{told}; the manifest was searched by another: {version}. Build again with this version of dataaudit,"
            " without rules or an allow-list of your own; or write"
            f" `{name}: {found}` under `detectors` in a policy of your own."
        )


def less_than_before(rule: Rule, case: Case, now: Facts, baseline: Facts | None) -> str:
    """Return what was looked for in the baseline and not here; nothing where it is the same, or more is not known.

    Entities that are off show in the manifest. Rules that can match nothing, tiers and allow-lists show only in the
    detector's digest, which a new version of this program changes, too: of another version it says nothing.
    """
    detector = METRICS[rule.metric].searches_with
    if not detector or baseline is None or rule.allow_lost is not None:
        return ""
    if not is_of_patterns(METRICS[rule.metric], case.stat):
        return ""
    if case.scope.entity is None:
        gone = sorted(baseline.entities.get(rule.metric, frozenset()) - now.entities.get(rule.metric, frozenset()))
        if gone:
            more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
            return f"{', '.join(gone[:_NAMED])}{more}: looked for in the baseline, and not here"
    if now.core.tool == baseline.core.tool and _digest(now, detector) != _digest(baseline, detector):
        return f"rules, tiers or allow-list of {detector} are not those of the baseline: less may be looked for"
    return ""


def _others(policy: Policy, now: Facts) -> Iterator[tuple[str, str, str, str]]:
    """Yield of each detector that is not the demanded one: name, digest demanded, digest and version found."""
    found = {detector.name: detector for detector in now.core.detectors}
    for name, wanted in (policy.detectors or {}).items():
        item = found.get(name)
        if item is None or item.sha256 not in wanted:
            yield name, wanted[0], item.sha256 if item else "", item.version if item else ""


def _deciding(metric: str) -> frozenset[str]:
    """Return the detectors that numbers of a metric rest on: a sample of a judge is drawn by what the screen says."""
    known = METRICS.get(metric)
    if known is None or known.decided_by is None:
        return frozenset()
    return frozenset(name for item in known.statistics for name in known.decided_by(item.stat)) - {LANGUAGE_DETECTION}


def _is_among(name: str, used: frozenset[str] | set[str]) -> bool:
    return name in used or (JUDGE in used and name.startswith(_JUDGES))


def _digest(facts: Facts, detector: str) -> list[str]:
    return [record.sha256 for record in facts.core.detectors if record.name == detector]


def _short(digest: str) -> str:
    return f"{digest[:_SHORT]}..." if digest else "was not there"


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
    """Yield a case for each part that the baseline has a number of, the corpus still has, and no case speaks of."""
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
