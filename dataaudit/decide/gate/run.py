"""The gate: reads a policy and manifests, judges every rule, and returns the verdict.

:func:`evaluate` decides, and is pure: no file, no clock. What reads stands around it: policies, facts, evidence, and
the records of ``dataaudit map`` and ``dataaudit canary`` that a policy may demand.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.base.text import clean, plural, some_of
from dataaudit.decide.gate.evidence import Clues, evidence_columns, with_evidence
from dataaudit.decide.gate.facts import (
    Facts,
    compared_with,
    declared_for,
    is_part,
    read_facts,
    record_of,
    why_not_at_all,
)
from dataaudit.decide.gate.judge import (
    AT_LEAST,
    MISSING,
    NO_BASELINE,
    UNKNOWN_BYTES,
    UNREAD,
    Judgement,
    case_of,
    excess,
    judge_at_least,
    judge_record,
)
from dataaudit.decide.gate.missing import NOTHING, check_detectors, demanded_remarks, explained, lost_parts, with_search
from dataaudit.decide.gate.policy import Policy, Rule, Waiver, check_values, load_policy
from dataaudit.decide.gate.scopes import (
    check_entities,
    expected_scopes,
    judge_shards,
    judged_stats,
    rule_problems,
    shard_statistics,
)
from dataaudit.decide.gate.verdict import (
    BINDING,
    ORDER,
    CanarySeen,
    Case,
    ListSeen,
    RuleResult,
    State,
    Verdict,
    WaiverResult,
    WaiverState,
)
from dataaudit.manifest.canary_record import LEAST_SEEDS, read_canary
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.load import Manifest, differing_text_columns, text_columns
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.token_proof import Faults, Kind, TokenProof, read_proof
from dataaudit.metrics.comparable import Meaning
from dataaudit.metrics.family import Statistic
from dataaudit.metrics.registry import statistic
from dataaudit.metrics.relations import hold_together

_NO_SUCH_PART = "no_such_part"
_NO_WORDS = "no_words"
"""Reason of a case that would pass because nothing could be found."""
_MANY_WORDLESS = 0.5
"""Share of documents without a word from which on a split gets a remark."""
_ITEMS = "benchmark_contamination"
_SECRETS, _HITS, _VALIDATED = "secret_hit_rate", "hits", "validated_hits"
_UNCOUNTED = ("context", "too_short", "boilerplate")
"""Statistics of the questions that no rule finds wherever they stand."""
_SHOWN = 3
"""Shards that a remark names; `gate.json` has all of them."""


def policy_of(given: Path | Mapping[str, Any] | Policy) -> Policy:
    """Return a policy from a file, from a file's content, or as it is, checked against the catalogue of metrics."""
    if isinstance(given, Path):
        return load_policy(given, rule_problems, today())
    plain = given if isinstance(given, Policy) else dict(given)
    return check_values(plain, where="policy", more=rule_problems, on=today())


def files_of(path: Path | None) -> dict[str, Path | None]:
    """Return a policy's file and those that it names, by option or key; of a wrong policy the file alone."""
    files = {"--policy": path}
    with contextlib.suppress(ConfigError):
        if path is not None:
            policy = load_policy(path)
            for key in ("quarantine_list", "token_proof", "canary"):
                files[f"`{key}` of the policy"] = policy.path_of(key)
    return files


def judge(
    manifest: Manifest,
    policy: Policy,
    *,
    baseline: Manifest | None = None,
    fail_on: str = "fail",
    on: dt.date | None = None,
    lists: Sequence[ListSeen] = (),
) -> Verdict:
    """Judge a manifest, with evidence."""
    canary = _check_inputs(policy, manifest, baseline, lists)
    facts = facts_for(manifest, policy)
    older = None if baseline is None else facts_for(baseline, policy, shards=False)
    for judged in (manifest, baseline) if policy.same_text_column else ():
        if judged is not None and (different := differing_text_columns(text_columns(judged))):
            raise ManifestMismatch(
                f"the policy {policy.policy} asks for the same text column in all splits; {judged.place}: {different}",
                "Look whether these are the texts. If not, name the column of each split in a config, and build again."
                " If so, give the columns one name, or judge by a policy without `same_text_column`:"
                " `dataaudit policy draft` writes one.",
            )
    check_entities(policy, facts, older, f"policy {policy.policy}")
    check_detectors(policy, f"policy {policy.policy}")
    now = today()
    verdict = evaluate(policy, facts, older, on=max(on or now, now), fail_on=fail_on)
    if on is not None and not any(on <= waiver.expires < now for waiver in policy.waivers):
        verdict = replace(verdict, on=on.isoformat())  # the same on that day as now
    remarks = (*verdict.remarks, *(_changed_since(seen.changed) for seen in lists if seen.changed))
    verdict = replace(verdict, quarantine_lists=tuple(lists), canary=canary, remarks=remarks)
    return with_evidence(verdict, Clues(manifest=manifest, facts=facts, baseline=baseline))


def _check_inputs(
    policy: Policy, manifest: Manifest, baseline: Manifest | None, lists: Sequence[ListSeen]
) -> CanarySeen | None:
    """Refuse to judge without what the policy demands beside its rules: signatures, a list, a token proof, a canary."""
    if policy.require_signature and not all(item.signed_by for item in (manifest, baseline) if item is not None):
        raise ConfigError(
            f"the policy {policy.policy} asks for signed manifests, and nobody said whose signature counts",
            "Name a key, --public-key FILE, or an identity, --identity WHO with --issuer URL.",
        )
    if policy.quarantine_list is not None and not lists:
        raise ConfigError(
            f"the policy {policy.policy} names a quarantine list, and the manifest was not compared with it",
            "Judge with `dataaudit gate`, in Python dataaudit.gate(...).",
        )
    if (path := policy.path_of("token_proof")) is not None:
        check_proof(path, manifest, lists, policy.token_proof_refuses)
    return check_canary(policy, manifest)


def check_canary(policy: Policy, manifest: Manifest) -> CanarySeen | None:
    """Refuse a canary that is not what the policy demands of this manifest; return what the record says."""
    if (path := policy.path_of("canary")) is None:
        return None
    record = read_canary(path)
    problem = ""
    if record.core.canary.manifest != manifest.id:
        problem = f"is of the manifest {record.core.canary.manifest}, judged is {manifest.id}"
    elif record.core.verdict != "pass":
        problem = f"does not pass: {record.core.verdict}, {'; '.join(record.core.reasons)}"
    elif record.core.pairs < (least := policy.canary_seeds or LEAST_SEEDS):
        problem = f"has {plural(record.core.pairs, 'pair')} of seeds, and {least} are demanded (canary_seeds)"
    elif policy.canary_baseline not in {None, record.core.baseline_id}:
        problem = f"is beside the baseline {record.core.baseline_id}, demanded is {policy.canary_baseline}"
    elif policy.canary_days is not None:
        age = dt.datetime.now(dt.UTC) - record.run.at
        if age <= dt.timedelta(days=-1):
            problem = f"is of {record.run.at:%Y-%m-%d}, which is later than this machine's clock"
        elif age > dt.timedelta(days=policy.canary_days):
            problem = f"is of {record.run.at:%Y-%m-%d}, and may be {plural(policy.canary_days, 'day')} old"
    if problem:
        raise ManifestMismatch(
            f"the record of the canary {clean(str(path))} {problem}",
            f"Run `dataaudit canary run FUNCTION --baseline DIR --manifest {clean(manifest.place)}` again.",
        )
    day = record.run.at.astimezone(dt.UTC).date().isoformat()
    return CanarySeen(id=record.id, verdict=record.core.verdict, pairs=record.core.pairs, on=day)


def check_proof(
    path: Path, manifest: Manifest, lists: Sequence[ListSeen], refuses: Collection[Kind] | None = None
) -> None:
    """Refuse a record that does not prove it of this manifest, all that it trains on, and the lists of today."""
    if problem := _proof_problem(read_proof(path), manifest, lists, refuses):
        raise ManifestMismatch(
            f"the record of token files {clean(str(path))} {problem}",
            f"Run `dataaudit map FILE... --manifest {clean(manifest.place)}` again, with the list in force.",
        )


def _proof_problem(
    proof: TokenProof, manifest: Manifest, lists: Sequence[ListSeen], refuses: Collection[Kind] | None
) -> str:
    if proof.manifest != manifest.id:
        return f"is of the manifest {proof.manifest}, judged is {manifest.id}"
    if proof.tokenizer != f"sha256:{manifest.core.tokenizer.sha256}":
        return "is of another tokenizer"
    trained = {split.name for split in manifest.core.splits if not split.held_out}
    if absent := sorted(trained - set(proof.splits)):
        return f"says nothing of the split {clean(absent[0])}"
    if lists and proof.quarantine not in {list_seen.digest for list_seen in lists}:
        return f"was made with another quarantine list: {proof.quarantine or 'none'}"
    return "" if proof.proves else _differences(proof, refuses)


def _differences(proof: TokenProof, refuses: Collection[Kind] | None) -> str:
    """Return which differences refuse a record; nothing when none of them does."""
    refused = [
        f"{plural(number, 'document')} {name.replace('_', ' ')}"
        for name in Faults.model_fields
        if (number := getattr(proof.faults, name).documents)
        and (refuses is None or name == "held_out" or name in refuses)
    ]
    if refuses is not None and proof.matched and not refused:
        unread = proof.unread_splits if proof.faults.extra.documents else ()
        return f"does not say whether documents of {clean(unread[0])} are in the files" if unread else ""
    return f"says that the files are not what was audited: {', '.join(refused) or 'nothing was compared'}"


def today() -> dt.date:
    """Return the day by the clock, UTC."""
    return dt.datetime.now(dt.UTC).date()


def facts_for(manifest: Manifest, policy: Policy, *, shards: bool = True) -> Facts:
    """Read the facts that a policy asks for; those of shards only where asked for."""
    rules = policy.complete_rules
    metrics = {rule.metric for rule in rules}
    hold_together(manifest, metrics)
    statistics = [item for rule in rules for item in shard_statistics(rule)]
    columns = evidence_columns(rules) | {name for item in statistics for name in item.needs}
    partial = any(rule.max_bad_records is not None for rule in rules)
    return read_facts(manifest, metrics, shards=columns if shards else (), partial=partial)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The policy and the facts that every rule is judged by."""

    policy: Policy
    now: Facts
    baseline: Facts | None
    meaning: Meaning | None
    """Whether numbers of both mean the same."""


def evaluate(
    policy: Policy, now: Facts, baseline: Facts | None = None, *, on: dt.date, fail_on: str = "fail"
) -> Verdict:
    """Judge a manifest by its facts and those of its baseline."""
    waivers = {waiver.fingerprint: waiver for waiver in policy.waivers if waiver.expires >= on}
    sides = _Sides(policy, now, baseline, None if baseline is None else Meaning(baseline.core, now.core))
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
        remarks=tuple(_remarks(policy, now, baseline)),
        waivers=tuple(
            WaiverResult(waiver=waiver, state=_waiver_state(waiver, on, cases.get(waiver.fingerprint)))
            for waiver in policy.waivers
        ),
    )


def _result(rule: Rule, sides: _Sides, waivers: dict[str, Waiver]) -> RuleResult:
    cases, counts = _cases(rule, sides)
    marked = sorted((_marked(rule, case, waivers) for case in cases), key=lambda case: _worst_first(rule, case))
    deciding = {case.state for case in marked if not case.waived}
    if counts[State.PASSED] or not deciding:  # or all that is wrong is waived
        deciding.add(State.PASSED)
    shown = [case for case in marked if case.state not in {State.PASSED, State.NOT_APPLICABLE}] or marked[:1]
    waits = any(case.reason == NO_BASELINE and case.state == State.NOT_APPLICABLE for case in marked)
    return RuleResult(
        rule=rule,
        state=next(state for state in ORDER if state in deciding),
        counts={state: number for state, number in counts.items() if number},
        waived=sum(case.waived for case in marked),
        cases=tuple(shown),
        waits=waits and not any(case.reason in BINDING for case in shown),
    )


def _cases(rule: Rule, sides: _Sides) -> tuple[list[Case], Counter[State]]:
    now, baseline = sides.now, sides.baseline
    of_shards, is_kept = "shard" in rule.scope.per, now.has(rule.metric)
    if of_shards and is_kept:
        cases, counts = _shard_cases(rule, sides)
        if counts.total():
            return cases, counts
    cases = [] if of_shards else _record_cases(rule, sides)
    if not cases:
        state = State.NOT_EVALUATED if rule.required or is_kept else State.NOT_APPLICABLE
        reason = NOTHING if is_kept else MISSING
        cases = [Case(rule=rule.name, stat=rule.stat, scope=Scope(), state=state, reason=reason, unit=rule.unit)]
    cases = [explained(rule, case, now, baseline) for case in cases]
    cases = [with_search(sides.policy, rule, case, now, baseline) for case in cases]
    if not of_shards:
        cases += lost_parts(rule, now, baseline, cases)
    return cases, Counter(case.state for case in cases)


def _shard_cases(rule: Rule, sides: _Sides) -> tuple[list[Case], Counter[State]]:
    now, baseline = sides.now, sides.baseline
    cases, counts = list[Case](), Counter[State]()
    for item in shard_statistics(rule):
        known = statistic(item.metric, item.stat)
        whole = None if known is None else why_not_at_all(known, now, Scope())
        if whole is not None:
            case = case_of(rule, item.stat, Scope(), whole, judge_record(rule, whole))
            cases.append(explained(rule, case, now, baseline))
            counts[cases[-1].state] += 1
            continue
        own, numbers = judge_shards(rule, item, now.shards, now.held_out)
        cases += own
        counts.update(numbers)
        if counts[State.PASSED] and now.is_at_least(item.metric, item.stat, Scope()):
            not_searched = Judgement(state=State.NOT_EVALUATED, reason=AT_LEAST)
            case = explained(rule, case_of(rule, item.stat, Scope(), None, not_searched), now, baseline)
            cases = [*_none_passes(cases, counts), case]
    for split in sorted({*(rule.scope.split or ())} - now.held_out.keys()):
        no_such = Judgement(state=State.NOT_EVALUATED, reason=_NO_SUCH_PART)
        cases.append(case_of(rule, rule.stat, Scope(split=split), None, no_such))
        counts[State.NOT_EVALUATED] += 1
    whole_case = Case(rule=rule.name, stat=rule.stat, scope=Scope(), state=State.PASSED, unit=rule.unit)
    whole_case = with_search(sides.policy, rule, whole_case, now, baseline)
    if counts.total() and whole_case.state != State.PASSED:
        cases = [whole_case, *_none_passes(cases, counts)]
    return cases, counts


def _none_passes(cases: list[Case], counts: Counter[State]) -> list[Case]:
    """Count all cases that pass as not evaluated, and return the others: which of them are wrong is not known."""
    counts[State.NOT_EVALUATED] += counts.pop(State.PASSED, 1)
    return [case for case in cases if case.state != State.PASSED]


def _record_cases(rule: Rule, sides: _Sides) -> list[Case]:
    now, cases = sides.now, []
    is_kept = now.has(rule.metric)
    for stat in judged_stats(rule, now):
        known = statistic(rule.metric, stat)
        for scope in () if known is None else _scopes(rule, known, now, sides.baseline):
            assert known is not None
            record, compared = record_of(known, now, scope), None
            if rule.budget_from is not None:
                compared = declared_for(scope, now)
            elif rule.needs_baseline:
                compared = compared_with(known, scope, record, sides.baseline, sides.meaning)
            judged = judge_record(rule, now.without_tolerated(rule, record), compared, is_kept=is_kept)
            if record is not None and now.is_at_least(rule.metric, stat, scope):
                judged = judge_at_least(rule, record, judged, compared)
            if judged.judged is not None and now.is_of_unknown_size(rule, scope):
                judged = replace(judged, state=State.NOT_EVALUATED, reason=UNKNOWN_BYTES)
            if judged.state == State.PASSED and now.cannot_be_found(known, scope):
                judged = replace(judged, state=State.NOT_EVALUATED, reason=_NO_WORDS)
            if judged.reason == MISSING and not is_part(known, now, scope):
                judged = replace(judged, reason=_NO_SUCH_PART)
            of = 0 if compared is None else compared.denominator
            cases.append(case_of(rule, stat, scope, record, judged, baseline_denominator=of))
    return cases


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
    if case.state not in {State.FAILED, State.WARNED} and case.reason != UNREAD:
        return case
    name = fingerprint(rule, case)
    waiver = waivers.get(name)
    waived = waiver is not None and waiver.rule == rule.name and waiver.covers(rule, case.judged)
    return replace(case, fingerprint=name, waived=waived)


def fingerprint(rule: Rule, case: Case) -> str:
    """Return 16 hex digits that name a rule in a scope, the same in any manifest."""
    scope = {name: value for name, value in case.scope.as_dict().items() if name != "shard"}
    kind = rule.limit_kind if rule.budget_from is None else f"{rule.limit_kind} from {rule.budget_from}"
    facts = [rule.name, rule.metric, case.stat, kind, scope, case.shard_uri or ""]
    return hashlib.sha256(canonical_json(facts)).hexdigest()[:16]


def _worst_first(rule: Rule, case: Case) -> tuple[bool, int, bool, float, tuple[str, ...]]:
    far = 0.0 if case.judged is None else -excess(rule, case.judged)
    scope = tuple(str(value) for value in case.scope.as_dict().values())
    return case.waived, ORDER.index(case.state), case.reason not in BINDING, far, scope


def _waiver_state(waiver: Waiver, on: dt.date, case: Case | None) -> WaiverState:
    if waiver.expires < on:
        return WaiverState.EXPIRED
    if case is None or case.rule != waiver.rule:
        return WaiverState.UNUSED
    return WaiverState.USED if case.waived else WaiverState.EXCEEDED


def _remarks(policy: Policy, now: Facts, baseline: Facts | None) -> Iterator[str]:
    yield from demanded_remarks(policy, now)
    sources = frozenset[str]().union(*(names for side in (now, baseline) if side for names in side.sources.values()))
    for rule in policy.rules:
        for name in sorted({*(rule.scope.source or ())} - sources):
            yield f"The rule {rule.name} names the source {name}, which no split has: 0 of it is counted, or no number."
    if any(rule.metric == _ITEMS and rule.stat.startswith("rate") for rule in policy.rules):
        yield from _uncounted_questions(now)
    hits, validated = (_whole_number(now, _SECRETS, stat) for stat in (_HITS, _VALIDATED))
    if {rule.stat for rule in policy.rules if rule.metric == _SECRETS} == {_VALIDATED} and hits > validated:
        yield (
            f"Beside {plural(validated, 'validated secret')} there are {hits - validated:,} hits that nothing"
            " confirms, such as passwords: no rule of the policy speaks of them. `dataaudit show DIR --section secrets`"
            " lists them by kind."
        )
    for scope, (without, of) in sorted(now.wordless.items(), key=lambda item: item[0].split or ""):
        if scope.as_dict().keys() == {"split"} and without >= _MANY_WORDLESS * of:
            some = f"{without:,} of {plural(of, 'document')} of the split {scope.split}"
            yield f"No word is in {some}: look whether these are its texts; nothing can be found in them."
    if baseline is not None:
        yield from _comparison_remarks(now, baseline)


def _whole_number(now: Facts, metric: str, stat: str) -> int:
    record = now.find(metric, stat, Scope())
    return int(record.value) if record is not None and record.value is not None else 0


def _changed_since(names: Sequence[str]) -> str:
    some = some_of([clean(name) for name in names], _SHOWN)
    return (
        f"A quarantine list names {plural(len(names), 'shard')} under another digest; their rows of today are not left"
        f" out: {some}. Look at them, then `dataaudit quarantine add` or `lift`."
    )


def _uncounted_questions(now: Facts) -> Iterator[str]:
    """Yield of how many questions of an evaluation set no share speaks."""
    for name in now.protected:
        counts = [now.find(_ITEMS, stat, Scope(set=name, entity="question")) for stat in _UNCOUNTED]
        left_out = sum(int(record.value or 0) for record in counts if record is not None)
        if left_out:
            of = next(record.n for record in counts if record is not None)
            some = f"{left_out:,} of {plural(of, 'question')} of the evaluation set {name}"
            yield f"In no share of leaked questions are {some}: no rule finds them wherever they stand."


def _comparison_remarks(now: Facts, baseline: Facts) -> Iterator[str]:
    """Yield what makes a comparison empty, and which sets are others: of leaks into less there are fewer."""
    subject, other = now.subject, baseline.subject
    if other.id == subject.id:
        yield "The baseline is this manifest itself: no rule of change can fail."
    elif other.name != subject.name:
        yield f"The baseline is of another dataset: {other.name}, this one is {subject.name}."
    were = {item.name: item for item in baseline.core.protected}
    for item in now.core.protected:
        was = were.get(item.name, item)
        if was.sha256 != item.sha256:
            sizes = f"{plural(item.items, 'item')}, {was.items:,} before"
            yield f"The evaluation set {item.name} is not the baseline's: {sizes}."
    splits = {split.name: split for split in baseline.core.splits}
    for split in now.core.splits:
        old = splits.get(split.name, split)
        if split.held_out and (old.documents, old.bytes) != (split.documents, split.bytes):
            sizes = f"{plural(split.documents, 'document')}, {old.documents:,} before"
            yield f"The held-out split {split.name} is not the baseline's: {sizes}."
        elif (rows := baseline.held_out_rows.get(split.name)) and rows != now.held_out_rows.get(split.name):
            what = "other shards than the baseline's: other documents, or packed anew"
            yield f"The held-out split {split.name} has {what}."
