"""The gate's decision: a policy, facts of a manifest and of its baseline in, a verdict out. Pure: no file, no clock."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dataaudit.base import text as t
from dataaudit.decide.gate.facts import Facts, compared_with, declared_for, is_part, record_of, why_not_at_all
from dataaudit.decide.gate.judge import (
    AT_LEAST,
    MISSING,
    UNKNOWN_BYTES,
    UNREAD,
    Judgement,
    case_of,
    excess,
    judge,
    judged_at_least,
)
from dataaudit.decide.gate.looked_for import NOTHING, demanded_remarks, explained, lost_parts, with_search
from dataaudit.decide.gate.policy import Policy, Rule, Waiver
from dataaudit.decide.gate.scopes import expected_scopes, judge_shards, judged_stats, shard_statistics
from dataaudit.decide.gate.verdict import BINDING, ORDER, Case, RuleResult, State, Verdict, WaiverResult, WaiverState
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.comparable import Meaning
from dataaudit.metrics.family import Statistic
from dataaudit.metrics.registry import statistic

_NO_SUCH_PART = "no_such_part"
_NO_WORDS = "no_words"
"""Reason of a case that would hold because nothing could be found."""
_MANY_WORDLESS = 0.5
"""Share of documents without a word from which on a split is remarked on."""
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
    """Judge a manifest."""
    waivers = {waiver.fingerprint: waiver for waiver in policy.waivers if waiver.expires >= on}
    meaning = None if baseline is None else Meaning(baseline.core, now.core)
    sides = _Sides(policy, now, baseline, meaning)
    results = tuple(_result(rule, sides, waivers) for rule in policy.complete_rules)
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
            *_wordless(now),
            *(() if baseline is None else _remarks(now, baseline)),
        ),
        waivers=tuple(
            WaiverResult(waiver=waiver, state=_waiver_state(waiver, on, cases.get(waiver.fingerprint)))
            for waiver in policy.waivers
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
    hits, validated = (0 if item is None or item.value is None else int(item.value) for item in found)
    if stats == {_VALIDATED} and hits > validated:
        yield (
            f"Beside {t.plural(validated, 'validated secret')} there are {hits - validated:,} hits that nothing"
            " confirms, such as passwords: no rule of the policy speaks of them. `dataaudit show DIR --section secrets`"
            " lists them by kind."
        )


def _wordless(now: Facts) -> Iterator[str]:
    """Say which splits have many documents without a word."""
    for scope, (without, of) in sorted(now.wordless.items(), key=lambda item: item[0].split or ""):
        if scope.as_dict().keys() == {"split"} and without >= _MANY_WORDLESS * of:
            some = f"{without:,} of {t.plural(of, 'document')} of the split {scope.split}"
            yield f"No word is in {some}: look whether these are its texts; nothing can be found in them."


def _remarks(now: Facts, baseline: Facts) -> Iterator[str]:
    """Say what makes a comparison empty, and which sets are others: of leaks into less there are fewer."""
    subject, other = now.subject, baseline.subject
    if other.id == subject.id:
        yield "The baseline is this manifest itself: no rule of change can fail."
    elif other.name != subject.name:
        yield f"The baseline is of another dataset: {other.name}, this one is {subject.name}."
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


@dataclass(frozen=True, slots=True)
class _Sides:
    """What every rule is judged by."""

    policy: Policy
    now: Facts
    baseline: Facts | None
    meaning: Meaning | None
    """Whether numbers of both mean the same."""


@dataclass(slots=True)
class _Cases:
    """The cases of a rule that matter, the number of all by state, and whether it waits for a baseline."""

    cases: list[Case] = field(default_factory=list)
    counts: Counter[State] = field(default_factory=Counter)
    waits: bool = False

    def none_passes(self) -> None:
        """Have none pass: of which of them something is wrong is not known."""
        self.cases = [case for case in self.cases if case.state != State.PASSED]
        self.counts[State.NOT_EVALUATED] += self.counts.pop(State.PASSED, 1)


def _result(rule: Rule, sides: _Sides, waivers: dict[str, Waiver]) -> RuleResult:
    found = _cases(rule, sides)
    marked = [_marked(rule, case, waivers) for case in found.cases]
    deciding = {case.state for case in marked if not case.waived}
    if found.counts[State.PASSED] or not deciding:  # or all that is wrong is waived
        deciding.add(State.PASSED)
    marked.sort(key=lambda case: _worst_first(rule, case))
    shown = [case for case in marked if case.state not in {State.PASSED, State.NOT_APPLICABLE}] or marked[:1]
    return RuleResult(
        rule=rule,
        state=next(state for state in ORDER if state in deciding),
        counts={state: number for state, number in found.counts.items() if number},
        waived=sum(case.waived for case in marked),
        cases=tuple(shown),
        waits=found.waits and not any(case.reason in BINDING for case in shown),
    )


def _cases(rule: Rule, sides: _Sides) -> _Cases:
    policy, now, baseline = sides.policy, sides.now, sides.baseline
    found = _Cases()
    if "shard" not in rule.scope.per:
        found = _record_cases(rule, sides)
    elif now.has(rule.metric):
        found = _shard_cases(rule, now)
        if found.counts.total():
            for index, case in enumerate(found.cases):
                found.cases[index] = explained(rule, case, now, baseline)
                found.counts[case.state] -= 1
                found.counts[found.cases[index].state] += 1
            whole = Case(rule=rule.name, stat=rule.stat, scope=Scope(), state=State.PASSED, unit=rule.unit)
            whole = with_search(policy, rule, whole, now, baseline)
            if whole.state != State.PASSED:
                found.none_passes()
                found.cases.insert(0, whole)
            return found
    if not found.cases:
        absent = not rule.required and not now.has(rule.metric)
        state = State.NOT_APPLICABLE if absent else State.NOT_EVALUATED
        reason = NOTHING if now.has(rule.metric) else MISSING
        found.cases = [Case(rule=rule.name, stat=rule.stat, scope=Scope(), state=state, reason=reason, unit=rule.unit)]
    told = [explained(rule, case, now, baseline) for case in found.cases]
    found.cases = [with_search(policy, rule, case, now, baseline) for case in told]
    if "shard" not in rule.scope.per:
        found.cases += lost_parts(rule, now, baseline, found.cases)
    found.counts = Counter(case.state for case in found.cases)
    return found


def _shard_cases(rule: Rule, now: Facts) -> _Cases:
    found = _Cases()
    for item in shard_statistics(rule):
        known = statistic(item.metric, item.stat)
        whole = None if known is None else why_not_at_all(known, now, Scope())
        if whole is None:
            cases, counts = judge_shards(rule, item, now.shards, now.held_out)
            found.cases += cases
            found.counts.update(counts)
            if found.counts[State.PASSED] and now.is_at_least(item.metric, item.stat, Scope()):
                found.none_passes()
                found.cases.append(case_of(rule, item.stat, Scope(), None, _NOT_SEARCHED))
        else:
            missed = judge(rule, whole)
            found.cases.append(case_of(rule, item.stat, Scope(), whole, missed))
            found.counts[missed.state] += 1
    return found


def _record_cases(rule: Rule, sides: _Sides) -> _Cases:
    now, found = sides.now, _Cases()
    held = now.has(rule.metric)
    for stat in judged_stats(rule, now):
        known = statistic(rule.metric, stat)
        if known is None:
            continue
        for scope in _scopes(rule, known, now, sides.baseline):
            record = record_of(known, now, scope)
            compared = None
            if rule.budget_from is not None:
                compared = declared_for(scope, now)
            elif rule.needs_baseline:
                compared = compared_with(known, scope, record, sides.baseline, sides.meaning)
            judged = judge(rule, now.without_tolerated(rule, record), compared, metric_held=held)
            if record is not None and now.is_at_least(rule.metric, stat, scope):
                judged = judged_at_least(rule, record, judged, compared)
            if judged.state == State.PASSED and now.is_of_unknown_size(rule.metric, scope):
                judged = replace(judged, state=State.NOT_EVALUATED, reason=UNKNOWN_BYTES)
            if judged.state == State.PASSED and now.cannot_be_found(known, scope):
                judged = replace(judged, state=State.NOT_EVALUATED, reason=_NO_WORDS)
            found.waits = found.waits or judged.waits
            if judged.reason == MISSING and not is_part(known, now, scope):
                judged = replace(judged, reason=_NO_SUCH_PART)
            of = 0 if compared is None else compared.denominator
            found.cases.append(case_of(rule, stat, scope, record, judged, baseline_denominator=of))
    return found


def _scopes(rule: Rule, stat: Statistic, now: Facts, baseline: Facts | None) -> Sequence[Scope]:
    """Return the scopes to judge; of amounts also those that only the baseline has: they fell to nothing."""
    scopes = expected_scopes(rule, stat, now)
    if rule.budget_from is not None and rule.scope.split is None:
        return [scope for scope in scopes if scope.split in now.splits("training")]
    if baseline is None or not rule.needs_baseline or not stat.is_amount:
        return scopes
    known = set(scopes)
    return [*scopes, *(scope for scope in expected_scopes(rule, stat, baseline) if scope not in known)]


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
