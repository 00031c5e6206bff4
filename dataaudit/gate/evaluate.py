"""The gate's decision: a policy, facts of a manifest and of its baseline in, a verdict out. Pure: no file, no clock."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from dataaudit import text as t
from dataaudit.gate.coverage import UNKNOWN_BYTES, complete_rules, is_of_unknown_size, without_tolerated
from dataaudit.gate.facts import Facts
from dataaudit.gate.judge import MISSING, UNREAD, Judgement, excess, judge
from dataaudit.gate.looked_for import demanded_remarks, with_search
from dataaudit.gate.lookup import compared_with, declared_for, is_part, record_of, why_not_at_all
from dataaudit.gate.lost import NOTHING, explained, lost_parts
from dataaudit.gate.policy import Policy, Rule, Waiver
from dataaudit.gate.scopes import expected_scopes, judged_stats
from dataaudit.gate.searched import AT_LEAST, is_at_least, judged_at_least
from dataaudit.gate.shards import judge_shards, shard_statistics
from dataaudit.gate.verdict import BINDING, ORDER, Case, RuleResult, State, Verdict, WaiverResult, WaiverState
from dataaudit.gate.wordless import NO_WORDS, cannot_be_found, wordless_remarks
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.comparable import Meaning
from dataaudit.metrics.family import Statistic
from dataaudit.metrics.registry import statistic

_NO_SUCH_PART = "no_such_part"
_ITEMS = "benchmark_contamination"
_SECRETS, _HITS, _VALIDATED = "secret_hit_rate", "hits", "validated_hits"
_UNCOUNTED = ("context", "too_short", "boilerplate")
"""Statistics of the questions that no rule finds wherever they stand."""
_NOT_SEARCHED = Judgement(state=State.NOT_EVALUATED, reason=AT_LEAST)
_WAIVED = (State.FAILED, State.WARNED)


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
    meaning = None if baseline is None else Meaning(baseline.core, now.core)
    results = tuple(_result(policy, rule, now, baseline, meaning, waivers) for rule in rules)
    cases = {case.fingerprint: case for result in results for case in result.cases if case.fingerprint}
    return Verdict(
        policy=policy.policy,
        policy_version=policy.version,
        policy_digest=policy.digest,
        subject=now.subject,
        baseline=None if baseline is None else baseline.subject,
        fail_on=fail_on,
        on=on.isoformat(),
        rules=results,
        remarks=(
            *demanded_remarks(policy, now),
            *_not_looked_for(policy, now),
            *_unconfirmed(policy, now),
            *wordless_remarks(now.wordless),
            *(() if baseline is None else _remarks(now, baseline)),
        ),
        waivers=tuple(
            WaiverResult(waiver=one, state=_waiver_state(one, on, cases.get(one.fingerprint))) for one in policy.waivers
        ),
    )


def _not_looked_for(policy: Policy, now: Facts) -> Iterator[str]:
    """Say of how many questions of an evaluation set no share speaks, where a rule asks for shares of them."""
    if not any(rule.metric == _ITEMS and rule.stat.startswith("rate") for rule in policy.rules):
        return
    for name in now.protected:
        scope = Scope(set=name, entity="question")
        counts = [now.records.get((_ITEMS, stat), {}).get(scope) for stat in _UNCOUNTED]
        left_out = sum(int(record.value or 0) for record in counts if record is not None)
        if left_out:
            of = next(record.n for record in counts if record is not None)
            some = f"{left_out:,} of {t.plural(of, 'question')} of the evaluation set {name}"
            yield f"In no share of leaked questions are {some}: no rule finds them wherever they stand."


def _unconfirmed(policy: Policy, now: Facts) -> Iterator[str]:
    """Say how many secrets are not confirmed, where the policy asks for those alone that are."""
    stats = {rule.stat for rule in policy.rules if rule.metric == _SECRETS}
    found = [now.find(_SECRETS, stat, Scope()) for stat in (_HITS, _VALIDATED)]
    hits, validated = (0 if one is None or one.value is None else int(one.value) for one in found)
    if stats == {_VALIDATED} and hits > validated:
        yield (
            f"Beside {t.plural(validated, 'validated secret')} there are {hits - validated:,} hits that nothing"
            " confirms, such as passwords: no rule of the policy speaks of them. `dataaudit show DIR --section secrets`"
            " lists them by kind."
        )


def _remarks(now: Facts, baseline: Facts) -> Iterator[str]:
    """Say what makes a comparison empty, and which sets are others: of leaks into less there are fewer."""
    one, other = now.subject, baseline.subject
    if other.id == one.id:
        yield "The baseline is this manifest itself: no rule of change can fail."
    elif other.name != one.name:
        yield f"The baseline is of another dataset: {other.name}, this one is {one.name}."
    were = {item.name: item for item in baseline.core.protected}
    for item in now.core.protected:
        was = were.get(item.name, item)
        if was.sha256 != item.sha256:
            sizes = f"{t.plural(item.items, 'item')}, {was.items:,} before"
            yield f"The evaluation set {item.name} is not the baseline's: {sizes}."
    splits = {split.name: split for split in baseline.core.splits}
    for split in now.core.splits:
        old = splits.get(split.name, split)
        if split.held_out and (old.documents, old.bytes) != (split.documents, split.bytes):
            sizes = f"{t.plural(split.documents, 'document')}, {old.documents:,} before"
            yield f"The held-out split {split.name} is not the baseline's: {sizes}."
        elif (rows := baseline.held_out_rows.get(split.name)) and rows != now.held_out_rows.get(split.name):
            what = "other shards than the baseline's: other documents, or packed anew"
            yield f"The held-out split {split.name} has {what}."


def fingerprint(rule: Rule, case: Case) -> str:
    """Return 16 hex digits that name a rule at a place, whatever manifest it is in."""
    place = {name: value for name, value in case.scope.as_dict().items() if name != "shard"}
    kind = rule.limit_kind if rule.budget_from is None else f"{rule.limit_kind} from {rule.budget_from}"
    facts = [rule.name, rule.metric, case.stat, kind, place, case.shard_uri or ""]
    return hashlib.sha256(canonical_json(facts)).hexdigest()[:16]


def _waiver_state(waiver: Waiver, on: dt.date, case: Case | None) -> WaiverState:
    if waiver.expires < on:
        return WaiverState.EXPIRED
    if case is None or case.rule != waiver.rule:
        return WaiverState.UNUSED
    return WaiverState.USED if case.waived else WaiverState.EXCEEDED


def _result(
    policy: Policy,
    rule: Rule,
    now: Facts,
    baseline: Facts | None,
    meaning: Meaning | None,
    waivers: dict[str, Waiver],
) -> RuleResult:
    cases, counts, waits = _cases(policy, rule, now, baseline, meaning)
    marked = [_marked(rule, case, waivers) for case in cases]
    deciding = {case.state for case in marked if not case.waived} | ({State.PASSED} if counts[State.PASSED] else set())
    if not deciding:
        deciding = {State.PASSED}  # all that is wrong is waived
    marked.sort(key=lambda case: _worst_first(rule, case))
    shown = [case for case in marked if case.state not in {State.PASSED, State.NOT_APPLICABLE}] or marked[:1]
    return RuleResult(
        rule=rule,
        state=next(state for state in ORDER if state in deciding),
        counts={state: number for state, number in counts.items() if number},
        waived=sum(case.waived for case in marked),
        cases=tuple(shown),
        waits=waits and not any(case.reason in BINDING for case in shown),
    )


def _cases(
    policy: Policy, rule: Rule, now: Facts, baseline: Facts | None, meaning: Meaning | None
) -> tuple[list[Case], Counter[State], bool]:
    """Return the cases of a rule that matter, the number of all by state, and whether it waits for a baseline."""
    if "shard" in rule.scope.per and now.has(rule.metric):
        cases, counts = _shard_cases(rule, now)
        if counts.total():
            told = [explained(rule, case, now, baseline) for case in cases]
            for was, case in zip(cases, told, strict=True):
                counts[was.state] -= 1
                counts[case.state] += 1
            whole = Case(rule=rule.name, stat=rule.stat, scope=Scope(), state=State.PASSED, unit=rule.unit)
            whole = with_search(policy, rule, whole, now, baseline)
            if whole.state != State.PASSED:  # of which shards it is not known
                told = [whole, *(case for case in told if case.state != State.PASSED)]
                counts[State.NOT_EVALUATED] += counts.pop(State.PASSED, 1)
            return told, counts, False
    cases, waits = _record_cases(rule, now, baseline, meaning) if "shard" not in rule.scope.per else ([], False)
    if not cases:
        absent = not rule.required and not now.has(rule.metric)
        state = State.NOT_APPLICABLE if absent else State.NOT_EVALUATED
        reason = NOTHING if now.has(rule.metric) else MISSING
        cases = [Case(rule=rule.name, stat=rule.stat, scope=Scope(), state=state, reason=reason, unit=rule.unit)]
    cases = [explained(rule, case, now, baseline) for case in cases]
    cases = [with_search(policy, rule, case, now, baseline) for case in cases]
    if "shard" not in rule.scope.per:
        cases += lost_parts(rule, now, baseline, cases)
    return cases, Counter(case.state for case in cases), waits


def _shard_cases(rule: Rule, now: Facts) -> tuple[list[Case], Counter[State]]:
    cases: list[Case] = []
    counts: Counter[State] = Counter()
    for one in shard_statistics(rule):
        known = statistic(one.metric, one.stat)
        whole = None if known is None else why_not_at_all(known, now, Scope())
        if whole is None:
            found = judge_shards(rule, one, now.shards, now.held_out)
            cases += found.cases
            counts.update(found.counts)
            if counts[State.PASSED] and is_at_least(one.metric, one.stat, now, Scope()):  # in which shard is not known
                cases = [case for case in cases if case.state != State.PASSED]
                cases.append(_case(rule, one.stat, Scope(), None, _NOT_SEARCHED))
                counts[State.NOT_EVALUATED] += counts.pop(State.PASSED)
        else:
            missed = judge(rule, whole)
            cases.append(_case(rule, one.stat, Scope(), whole, missed))
            counts[missed.state] += 1
    return cases, counts


def _record_cases(rule: Rule, now: Facts, baseline: Facts | None, meaning: Meaning | None) -> tuple[list[Case], bool]:
    held = now.has(rule.metric)
    cases, waits = [], False
    for stat in judged_stats(rule, now):
        known = statistic(rule.metric, stat)
        if known is None:
            continue
        for scope in _scopes(rule, known, now, baseline):
            record = record_of(known, now, scope)
            compared = None
            if rule.budget_from is not None:
                compared = declared_for(scope, now)
            elif rule.needs_baseline:
                compared = compared_with(known, scope, record, baseline, meaning)
            found = judge(rule, without_tolerated(rule, record, now.partial), compared, metric_held=held)
            if record is not None and is_at_least(rule.metric, stat, now, scope):
                found = judged_at_least(rule, record, found, partial(judge, rule, compared=compared))
            if found.state == State.PASSED and is_of_unknown_size(rule.metric, scope, now.unsized):
                found = replace(found, state=State.NOT_EVALUATED, reason=UNKNOWN_BYTES)
            if found.state == State.PASSED and cannot_be_found(known, scope, now.held_out, now.wordless):
                found = replace(found, state=State.NOT_EVALUATED, reason=NO_WORDS)
            waits = waits or found.waits
            if found.reason == MISSING and not is_part(known, now, scope):
                found = replace(found, reason=_NO_SUCH_PART)
            cases.append(_case(rule, stat, scope, record, found, 0 if compared is None else compared.denominator))
    return cases, waits


def _scopes(rule: Rule, stat: Statistic, now: Facts, baseline: Facts | None) -> Sequence[Scope]:
    """Return the scopes to judge; of amounts also those that only the baseline has: they fell to nothing."""
    scopes = expected_scopes(rule, stat, now)
    if rule.budget_from is not None and rule.scope.split is None:
        return [scope for scope in scopes if scope.split in now.splits("training")]
    if baseline is None or not rule.needs_baseline or not stat.is_amount:
        return scopes
    known = set(scopes)
    return [*scopes, *(scope for scope in expected_scopes(rule, stat, baseline) if scope not in known)]


def _case(
    rule: Rule, stat: str, scope: Scope, record: Metric | None, found: Judgement, baseline_denominator: int = 0
) -> Case:
    of = record or Metric(
        metric=rule.metric, stat=stat, scope=scope, unit=rule.unit, value=None, status="not_evaluated", reason=MISSING
    )
    return Case(
        rule=rule.name,
        stat=stat,
        scope=scope,
        state=found.state,
        reason=found.reason,
        unit=of.unit,
        value=of.value,
        low=of.low,
        high=of.high,
        confidence=of.confidence,
        method=of.method,
        denominator=of.denominator,
        baseline=found.baseline,
        baseline_denominator=baseline_denominator,
        judged=found.judged,
    )


def _marked(rule: Rule, case: Case, waivers: dict[str, Waiver]) -> Case:
    """Return the case with its fingerprint, if it can be waived, and whether it is."""
    if case.state not in _WAIVED and case.reason != UNREAD:
        return case
    name = fingerprint(rule, case)
    waiver = waivers.get(name)
    waived = waiver is not None and waiver.rule == rule.name and waiver.covers(rule, case.judged)
    return replace(case, fingerprint=name, waived=waived)


def _worst_first(rule: Rule, case: Case) -> tuple[bool, int, bool, float, tuple[str, ...]]:
    far = 0.0 if case.judged is None else -excess(rule, case.judged)
    place = tuple(str(value) for value in case.scope.as_dict().values())
    return case.waived, ORDER.index(case.state), case.reason not in BINDING, far, place
