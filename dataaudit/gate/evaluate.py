"""The gate's decision: a policy, facts of a manifest and of its baseline in, a verdict out. Pure: no file, no clock."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dataaudit.gate.facts import Facts
from dataaudit.gate.judge import COVERAGE, EMPTY, MISSING, NEW, NO_BASELINE, UNREAD, Compared, excess, judge
from dataaudit.gate.policy import Policy, Rule, ScopeRule, Waiver
from dataaudit.gate.scopes import expected_scopes, judged_stats
from dataaudit.gate.shards import judge_shards, shard_statistics
from dataaudit.gate.verdict import ORDER, Case, RuleResult, State, Verdict, WaiverResult, WaiverState
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.catalogue import Statistic, statistic
from dataaudit.manifest.metric import Metric, Scope

_OTHER_TOKENIZER = "other_tokenizer"
_OTHER_DEFINITION = "other_definition"
_BASELINE_MISSING = "baseline_missing"
_NOTHING = "nothing_to_judge"
_WAIVED = (State.FAILED, State.WARNED)
COVERAGE_RULE = Rule(
    name="coverage", metric=COVERAGE, stat="shard_bytes", unit="bytes", scope=ScopeRule(), budget=0.0,
    reason="Every shard has to be read. The gate adds this rule to a policy that has none about coverage.",
)  # fmt: skip


def evaluate(
    policy: Policy,
    now: Facts,
    baseline: Facts | None = None,
    *,
    on: dt.date,
    fail_on: str = "fail",
) -> Verdict:
    """Judge a manifest.

    Args:
        policy: The policy; :func:`dataaudit.gate.scopes.check_policy` has found nothing wrong with it.
        now: The manifest.
        baseline: What rules of change compare with.
        on: The day that waivers are held against.
        fail_on: ``fail`` or ``warn``.
    """
    rules = complete_rules(policy)
    waivers = {waiver.fingerprint: waiver for waiver in policy.waivers if waiver.expires >= on}
    results = tuple(_result(rule, now, baseline, waivers) for rule in rules)
    used = {case.fingerprint for result in results for case in result.cases if case.waived}
    return Verdict(
        policy=policy.policy, policy_version=policy.version, policy_digest=policy.digest, subject=now.subject,
        baseline=None if baseline is None else baseline.subject, fail_on=fail_on, on=on.isoformat(), rules=results,
        waivers=tuple(WaiverResult(waiver=one, state=_waiver_state(one, on, used)) for one in policy.waivers),
    )  # fmt: skip


def complete_rules(policy: Policy) -> tuple[Rule, ...]:
    """Return the rules of a policy, and one about coverage when it has none that speaks of the whole dataset."""
    told = any(rule.metric == COVERAGE and not rule.scope.fields and rule.required for rule in policy.rules)
    if told:
        return policy.rules
    name = "coverage"
    while any(rule.name == name for rule in policy.rules):
        name += "-of-all-shards"
    return (*policy.rules, COVERAGE_RULE.model_copy(update={"name": name}))


def fingerprint(rule: Rule, case: Case) -> str:
    """Return 16 hex digits that name a rule at a place, whatever manifest it is in."""
    place = {name: value for name, value in case.scope.as_dict().items() if name != "shard"}
    facts = [rule.name, rule.metric, case.stat, rule.limit_kind, place, case.shard_uri or ""]
    return hashlib.sha256(canonical_json(facts)).hexdigest()[:16]


def _waiver_state(waiver: Waiver, on: dt.date, used: set[str]) -> WaiverState:
    if waiver.expires < on:
        return WaiverState.EXPIRED
    return WaiverState.USED if waiver.fingerprint in used else WaiverState.UNUSED


def _result(rule: Rule, now: Facts, baseline: Facts | None, waivers: dict[str, Waiver]) -> RuleResult:
    cases, counts, waits = _cases(rule, now, baseline)
    marked = [_marked(rule, case, waivers) for case in cases]
    deciding = {case.state for case in marked if not case.waived} | ({State.PASSED} if counts[State.PASSED] else set())
    if not deciding:
        deciding = {State.PASSED}  # all that is wrong is waived
    marked.sort(key=lambda case: _worst_first(rule, case))
    shown = [case for case in marked if case.state not in {State.PASSED, State.NOT_APPLICABLE}] or marked[:1]
    return RuleResult(
        rule=rule, state=next(state for state in ORDER if state in deciding),
        counts={state: number for state, number in counts.items() if number},
        waived=sum(case.waived for case in marked), cases=tuple(shown), waits=waits,
    )  # fmt: skip


def _cases(rule: Rule, now: Facts, baseline: Facts | None) -> tuple[list[Case], Counter[State], bool]:
    """Return the cases of a rule that matter, the number of all by state, and whether it waits for a baseline."""
    if "shard" in rule.scope.per and now.has(rule.metric):
        found = [judge_shards(rule, one, now.shards, now.held_out, metric_held=True) for one in shard_statistics(rule)]
        counts = sum((Counter(one.counts) for one in found), Counter[State]())
        cases = [case for one in found for case in one.cases]
        if counts.total():
            return cases, counts, False
    cases, waits = _record_cases(rule, now, baseline) if "shard" not in rule.scope.per else ([], False)
    if not cases:
        absent = not rule.required and not now.has(rule.metric)
        state = State.NOT_APPLICABLE if absent else State.NOT_EVALUATED
        reason = _NOTHING if now.has(rule.metric) else MISSING
        cases = [Case(rule=rule.name, stat=rule.stat, scope=Scope(), state=state, reason=reason, unit=rule.unit)]
    return cases, Counter(case.state for case in cases), waits


def _record_cases(rule: Rule, now: Facts, baseline: Facts | None) -> tuple[list[Case], bool]:
    held = now.has(rule.metric)
    cases, waits = [], False
    for stat in judged_stats(rule, now):
        known = statistic(rule.metric, stat)
        if known is None:
            continue
        for scope in _scopes(rule, known, now, baseline):
            record = _record(known, now, scope)
            compared = _compared(known, scope, record, now, baseline) if rule.needs_baseline else None
            found = judge(rule, record, compared, metric_held=held)
            waits = waits or found.waits
            cases.append(_case(rule, stat, scope, record, found.state, found.reason, found.baseline, found.judged))
    return cases, waits


def _scopes(rule: Rule, stat: Statistic, now: Facts, baseline: Facts | None) -> Sequence[Scope]:
    """Return the scopes to judge; of shares also those that only the baseline has: they fell to nothing."""
    scopes = expected_scopes(rule, stat, now)
    if baseline is None or not rule.needs_baseline or not stat.absent_is_zero & rule.scope.fields:
        return scopes
    known = set(scopes)
    return [*scopes, *(scope for scope in expected_scopes(rule, stat, baseline) if scope not in known)]


def _record(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return the record of a scope; 0 where its absence says that there is none of it.

    A part of a share has no record where it has nothing. That is known from elsewhere: from the tables of sources
    and languages, or from the record of the same statistic for all entities together.
    """
    found = facts.find(stat.metric, stat.stat, scope) or _of_the_whole(stat, facts, scope)
    zero = [name for name in stat.absent_is_zero if getattr(scope, name) is not None]
    if found is not None or not zero:
        return found
    if stat.metric in {"source_mix_share", "language_share"}:
        whole = next((one for one in facts.records.get((stat.metric, stat.stat), {}).values()), None)
        if whole is None or _is_listed(facts, scope, zero[0]):
            return None
    else:
        whole = facts.find(stat.metric, stat.stat, replace(scope, **dict.fromkeys(zero)))
        if whole is None or whole.status != "ok":
            return None
    return Metric(
        metric=stat.metric, stat=stat.stat, scope=scope, unit=stat.unit, value=0.0, n=whole.n,
        denominator=whole.denominator, version=whole.version,
    )  # fmt: skip


def _of_the_whole(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return why a part has no number, where the whole dataset has none for a reason that holds for its parts."""
    whole = facts.find(stat.metric, stat.stat, Scope())
    if whole is None or whole.status == "ok" or whole.reason == EMPTY:
        return None
    return replace(whole, scope=scope)


def _is_listed(facts: Facts, scope: Scope, name: str) -> bool:
    """Return whether the manifest's own tables say that there is some of it, so that a record is missing."""
    by_split = facts.sources if name == "source" else facts.languages
    splits = (scope.split,) if scope.split is not None else tuple(by_split)
    return any(getattr(scope, name) in by_split.get(split, ()) for split in splits)


def _compared(stat: Statistic, scope: Scope, record: Metric | None, now: Facts, baseline: Facts | None) -> Compared:
    if baseline is None:
        return Compared(reason=NO_BASELINE)
    if "token" in stat.unit and now.tokenizer != baseline.tokenizer:
        return Compared(reason=_OTHER_TOKENIZER)
    other = _record(stat, baseline, scope)
    if other is None:
        return Compared(reason=_BASELINE_MISSING if _was_there(stat, scope, baseline) else NEW)
    if other.value is None:
        return Compared(reason=f"baseline_{other.reason}" if other.status == "not_evaluated" else other.reason)
    if record is not None and (record.version, record.unit) != (other.version, other.unit):
        return Compared(reason=_OTHER_DEFINITION)
    return Compared(value=other.value)


def _was_there(stat: Statistic, scope: Scope, facts: Facts) -> bool:
    """Return whether a manifest had this part of the corpus, so that a record is missing."""
    if scope.split is not None and scope.split not in facts.held_out:
        return False
    listed = [_is_listed(facts, scope, name) for name in ("source", "language") if getattr(scope, name) is not None]
    sets = facts.protected if stat.metric == "benchmark_contamination" else facts.splits("held_out")
    return all(listed) and (scope.set is None or scope.set in sets)


def _case(
    rule: Rule, stat: str, scope: Scope, record: Metric | None, state: State, reason: str,
    baseline: float | None, judged: float | None,
) -> Case:  # fmt: skip
    case = Case(
        rule=rule.name, stat=stat, scope=scope, state=state, reason=reason, unit=rule.unit, baseline=baseline,
        judged=judged,
    )  # fmt: skip
    if record is None:
        return case
    return replace(
        case, unit=record.unit, value=record.value, low=record.low, high=record.high, confidence=record.confidence,
        method=record.method, denominator=record.denominator,
    )  # fmt: skip


def _marked(rule: Rule, case: Case, waivers: dict[str, Waiver]) -> Case:
    """Return the case with its fingerprint, if it can be waived, and whether it is."""
    if case.state not in _WAIVED and case.reason != UNREAD:
        return case
    name = fingerprint(rule, case)
    waiver = waivers.get(name)
    return replace(case, fingerprint=name, waived=waiver is not None and waiver.rule == rule.name)


def _worst_first(rule: Rule, case: Case) -> tuple[bool, int, float, tuple[str, ...]]:
    far = 0.0 if case.judged is None else -excess(rule, case.judged)
    place = tuple(str(value) for value in case.scope.as_dict().values())
    return case.waived, ORDER.index(case.state), far, place
