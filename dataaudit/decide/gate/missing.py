"""Says why a case has no number, and whether less was looked for: than in the baseline, or than the policy demands.

A number that was lost counts as required: whoever switches a stage or the protected sets off has no number that could
fail, and an optional rule would not apply. A search for less finds less, so it passes no rule; a rule that fails on
what it did find still fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from dataaudit.base.errors import ConfigError
from dataaudit.base.text import some_of
from dataaudit.base.yamlfile import nearest
from dataaudit.decide.gate.facts import Facts, is_in_corpus, record_of
from dataaudit.decide.gate.judge import EMPTY, MISSING, Judgement, case_of
from dataaudit.decide.gate.number_texts import reason_text
from dataaudit.decide.gate.policy import Policy, Rule
from dataaudit.decide.gate.scopes import expected_scopes, is_of_patterns, judged_stats
from dataaudit.decide.gate.verdict import DEMANDED, LOST, Case, State
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import JUDGE, LANGUAGE_DETECTION
from dataaudit.metrics.registry import FAMILY_OF, METRICS, statistic

NOTHING = "nothing_to_judge"
_UNEXPLAINED = (MISSING, NOTHING)
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
    if case.state != State.FAILED:
        used = _deciding(rule.metric)
        others = [other for other in _others(policy, now) if _is_among(other[0], used)]
        if others:
            why = "; ".join(f"{name} {_short(own)}, demanded {_short(wanted)}" for name, wanted, own, _ in others)
            return replace(case, state=State.NOT_EVALUATED, reason=DEMANDED, why=why)
    if case.state in {State.PASSED, State.WARNED} and (why := less_than_before(rule, case, now, baseline)):
        return replace(case, state=State.NOT_EVALUATED, reason=LOST, why=why)
    return case


def demanded_remarks(policy: Policy, now: Facts) -> Iterator[str]:
    """Yield of each detector that is not the demanded one what was expected and used, and what to do."""
    for name, wanted, own, version in _others(policy, now):
        remark = f"The policy demands the detector {name} of sha256 {_short(wanted)}"
        if own:
            yield (
                f"{remark}; the manifest was searched by another: {version}. Build again with this version of"
                " dataaudit, without rules or an allow-list of your own; or write"
                f" `{name}: {own}` under `detectors` in a policy of your own."
            )
        else:
            yield (
                f"{remark}, and the manifest was searched without it. Build again with the stage that uses it; or take"
                f" {name} out of `detectors` in a policy of your own."
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
            return f"{some_of(gone, _NAMED)}: looked for in the baseline, and not here"
    digests = [[item.sha256 for item in side.core.detectors if item.name == detector] for side in (now, baseline)]
    if now.core.tool == baseline.core.tool and digests[0] != digests[1]:
        return f"rules, tiers or allow-list of {detector} are not those of the baseline: less may be looked for"
    return ""


def _others(policy: Policy, now: Facts) -> Iterator[tuple[str, str, str, str]]:
    """Yield of each detector that is not the demanded one: name, digest demanded, digest and version used."""
    used = {detector.name: detector for detector in now.core.detectors}
    for name, wanted in (policy.detectors or {}).items():
        item = used.get(name)
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


def _short(digest: str) -> str:
    return f"{digest[:_SHORT]}..." if digest else "was not there"


def why_none(metric: str, scope: Scope, facts: Facts) -> str:
    """Return why a manifest has no number of a metric: what was switched off or never given; else nothing."""
    sets = METRICS[metric].sets
    if sets and not facts.sets_of(metric):  # then the build has no such stage, and nobody switched it off
        return "no held-out split" if sets == "held_out" else "no evaluation set is given"
    stage = FAMILY_OF[metric].stage_name
    if stage and METRICS[metric].by_stage and stage not in facts.stages and not facts.has(metric):
        return f"stage {stage} is off"
    looked_for = facts.entities.get(metric)
    if scope.entity is not None and looked_for is not None and scope.entity not in looked_for:
        return f"{scope.entity} was not looked for"
    return ""


def explained(rule: Rule, case: Case, now: Facts, baseline: Facts | None) -> Case:
    """Return a case with why it has no number; as lost where the baseline has a number."""
    if (
        case.value is not None
        or case.state not in {State.NOT_EVALUATED, State.NOT_APPLICABLE}
        or case.reason == EMPTY
        or case.scope.shard is not None
    ):
        return case
    why = why_none(rule.metric, case.scope, now) if case.reason in _UNEXPLAINED else ""
    if baseline is None or not _had(rule, case, baseline):
        return replace(case, why=why)
    if rule.allow_lost is not None:
        return replace(case, why="; ".join(filter(None, (why, f"the policy allows it: {rule.allow_lost}"))))
    why = why or ("" if case.reason in _UNEXPLAINED else reason_text(case.reason))
    return replace(case, state=State.NOT_EVALUATED, reason=LOST, why=why)


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
            why = why_none(rule.metric, scope, now)
            if scope.set is not None and scope.set not in now.sets_of(rule.metric):
                kind = "held-out split" if METRICS[rule.metric].sets == "held_out" else "evaluation set"
                why = f"no {kind} is named {scope.set}"
            judgement = Judgement(state=State.NOT_EVALUATED, reason=LOST)
            yield case_of(rule, stat, scope, None, judgement, why=why)


def _had(rule: Rule, case: Case, baseline: Facts) -> bool:
    """Return whether the baseline has a number where a case has none."""
    known = statistic(rule.metric, case.stat)
    if known is not None and frozenset(case.scope.as_dict()) == rule.scope.fields:
        record = record_of(known, baseline, case.scope)
        return record is not None and record.value is not None
    of_shards = "shard" in rule.scope.per
    return any(
        record.value is not None
        for (metric, stat), records in baseline.records.items()
        if metric == rule.metric and (of_shards or fnmatchcase(stat, rule.stat))
        for scope, record in records.items()
        if of_shards or scope.as_dict().keys() == rule.scope.fields
    )
