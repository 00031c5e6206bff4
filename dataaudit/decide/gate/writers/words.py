"""A verdict in plain sentences, and what a rule or a case means for the release. Every writer asks here.

Names are made printable here; each writer still escapes them for its own format. A severity is what the policy says; an
effect is what it comes to under ``--fail-on``, with waivers. Each writer shows as an error exactly what stops the
release. Where there is room for some cases, the worst are shown first, and every rule with its worst.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import islice

from dataaudit.base.errors import ExitCode
from dataaudit.base.text import clean, plural, some_of
from dataaudit.decide.gate.judge import UNKNOWN_BYTES
from dataaudit.decide.gate.number_texts import Numbers, evidence_count, number, numbers, reason_text, with_unit
from dataaudit.decide.gate.policy import COVERAGE, Rule
from dataaudit.decide.gate.verdict import (
    BINDING,
    CanarySeen,
    Case,
    RuleResult,
    State,
    Verdict,
    WaiverResult,
    WaiverState,
)


class Effect(StrEnum):
    """From worst to best."""

    STOPS = "FAIL"
    UNKNOWN = "NOT EVALUATED"
    """It stops too: nobody knows."""
    WARNS = "WARN"
    SKIPPED = "SKIPPED"
    WAIVED = "WAIVED"
    HOLDS = "PASS"


WORST_FIRST = {effect: rank for rank, effect in enumerate(Effect)}
BAD = frozenset({Effect.STOPS, Effect.UNKNOWN, Effect.WARNS})
STOPPING = frozenset({Effect.STOPS, Effect.UNKNOWN})
_SHOWN = (Effect.STOPS, Effect.UNKNOWN, Effect.WARNS, Effect.WAIVED)
WORDS = {
    ExitCode.PASS: "PASS",
    ExitCode.BUDGET_EXCEEDED: "FAIL",
    ExitCode.NOT_EVALUATED: "NOT EVALUATED",
    ExitCode.NOTHING_EVALUATED: "NOTHING EVALUATED",
}
"""Exit codes of a gate in words."""


def effect_of(verdict: Verdict, result: RuleResult) -> Effect:
    """Return what a rule means for the release."""
    effect = _effect(result.state, strict=verdict.fail_on == "warn", required=result.is_required)
    hidden = effect == Effect.SKIPPED and State.WARNED in result.open_states
    return Effect.WARNS if hidden else effect


def effect_of_case(verdict: Verdict, rule: Rule, case: Case) -> Effect:
    """Return what a case means for the release."""
    required = rule.required or case.reason in BINDING
    effect = _effect(case.state, strict=verdict.fail_on == "warn", required=required)
    return Effect.WAIVED if case.waived and effect in BAD else effect


def expired(verdict: Verdict) -> tuple[WaiverResult, ...]:
    """Return the waivers that stop the release because their day has passed."""
    return tuple(waiver for waiver in verdict.waivers if waiver.state == WaiverState.EXPIRED)


def only_expired(verdict: Verdict) -> bool:
    """Return whether every rule holds, and all that stops the release is a waiver whose day has passed."""
    stops = any(effect_of(verdict, result) in STOPPING for result in verdict.rules)
    return bool(expired(verdict)) and not stops and verdict.exit_code == ExitCode.BUDGET_EXCEEDED


def skipped(verdict: Verdict) -> tuple[str, ...]:
    """Return the names of the rules that were not judged."""
    return tuple(result.rule.name for result in verdict.rules if effect_of(verdict, result) == Effect.SKIPPED)


def _effect(state: State, *, strict: bool, required: bool) -> Effect:
    if state == State.FAILED:
        return Effect.STOPS
    if state == State.WARNED:
        return Effect.STOPS if strict else Effect.WARNS
    if state == State.NOT_EVALUATED:
        return Effect.UNKNOWN if strict or required else Effect.SKIPPED
    return Effect.SKIPPED if state == State.NOT_APPLICABLE else Effect.HOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A case that does not pass."""

    result: RuleResult
    case: Case | None
    """None where a rule fails without a case."""
    effect: Effect


def problems(verdict: Verdict, result: RuleResult) -> tuple[Shown, ...]:
    """Return all cases of a rule that do not pass, worst first; waived ones last."""
    by_effect: dict[Effect, list[Shown]] = {effect: [] for effect in _SHOWN}
    for case in result.cases:
        effect = effect_of_case(verdict, result.rule, case)
        if effect in by_effect:
            by_effect[effect].append(Shown(result=result, case=case, effect=effect))
    of_rule = effect_of(verdict, result)
    if of_rule in BAD and not by_effect[of_rule]:
        by_effect[of_rule].append(Shown(result=result, case=None, effect=of_rule))
    return tuple(shown for effect in _SHOWN for shown in by_effect[effect])


def pick(verdict: Verdict, room: int, *, first: int = 20, most: int | None = None) -> tuple[tuple[Shown, ...], int]:
    """Return at most ``room`` cases that do not pass, worst first, rules in the policy's order; and how many more."""
    rules = [problems(verdict, result) for result in verdict.rules]
    total = sum(map(len, rules))
    chosen = list(islice(_in_turn(rules, first, most), max(0, room)))
    order = sorted(range(len(chosen)), key=lambda index: (WORST_FIRST[chosen[index][1].effect], *chosen[index][0]))
    return tuple(chosen[index][1] for index in order), total - len(chosen)


def _in_turn(
    rules: Sequence[tuple[Shown, ...]], first: int, most: int | None
) -> Iterator[tuple[tuple[int, int], Shown]]:
    """Yield the first cases of every rule, then the rest; within both the rules with the worst cases come first."""
    order = sorted(
        (rule for rule, cases in enumerate(rules) if cases), key=lambda rule: WORST_FIRST[rules[rule][0].effect]
    )
    for start, stop in ((0, first), (first, None)):
        for rule in order:
            end = stop if most is None else most if stop is None else min(stop, most)
            for index, shown in enumerate(rules[rule][start:end], start):
                yield (rule, index), shown


NAME_LIMIT = 200
TEXT_LIMIT = 500
EVIDENCE = 5
"""Shards that are named for a case."""
_ADVICE = {
    ExitCode.PASS: "The manifest may be released.",
    ExitCode.BUDGET_EXCEEDED: (
        "Do not release it. Fix what is named below and build again; or, for a known case, give the policy a waiver"
        " with the case's fingerprint, an owner, a reason and a day on which it ends."
    ),
    ExitCode.NOT_EVALUATED: (
        "Do not release it: a required rule could not be judged. See its reason, and build again with what is missing."
        " If the rule is optional, give it `required: false`; if a number of the baseline may go, `allow_lost: WHY`."
    ),
    ExitCode.NOTHING_EVALUATED: (
        "Do not release it: no rule has a number, or no document was read. See whether it is the right manifest, and"
        " why its shards could not be read."
    ),
}
_SCOPES = ("split", "source", "language", "set", "entity", "rule")


@lru_cache(maxsize=4096)
def name(text: str, limit: int = NAME_LIMIT) -> str:
    """Return a name from the data on one line, printable, and not too long, its escapes counted."""
    shown = clean(text, limit)
    return shown if len(shown) <= 2 * limit else clean(text, limit // 10)


def prose(text: str | None, limit: int = TEXT_LIMIT) -> str:
    """Return a text that people wrote on one line."""
    return "" if text is None else clean(" ".join(text[: limit * 20].split()), limit)


def scope_pairs(case: Case | None) -> list[tuple[str, str]]:
    """Return pairs of a field and a printable name; none for the whole dataset."""
    if case is None:
        return []
    pairs = [(field, getattr(case.scope, field)) for field in _SCOPES]
    named = [(field, name(value)) for field, value in pairs if value is not None]
    if case.shard_uri is not None:
        named.append(("shard", name(case.shard_uri)))
    elif case.scope.shard is not None:
        named.append(("shard", str(case.scope.shard)))
    return named


def scope_words(case: Case | None) -> str:
    """Return ``set val, source web``, or ``whole dataset``."""
    return ", ".join(f"{field} {value}" for field, value in scope_pairs(case)) or "whole dataset"


def value_words(rule: Rule, case: Case | None) -> str:
    """Return the value with its interval and what was judged, or why there is none."""
    if case is None:
        return "no number"
    shown = numbers(rule, case)
    if rule.metric == COVERAGE and rule.limit_kind == "budget" and shown.value:
        return _unread_words(case, shown)
    if not shown.value:
        return f"no number: {_reason(case)}" if case.reason else "no number"
    confirmed = "validated " if case.stat == "validated_hits" and case.unit == "hits" else ""
    parts = [with_unit(shown.value, confirmed + case.unit)]
    if shown.interval:
        sure = f", {case.confidence * 100:.3g} %" if case.confidence is not None else ""
        parts.append(f"({shown.interval}{sure})")
    if case.reason:
        parts.append(f"({_reason(case)})")
    return " ".join(parts)


def _unread_words(case: Case, shown: Numbers) -> str:
    """Return unread bytes as they count: without bad records that are tolerated, with whole shards of too many."""
    if not shown.judged or case.value is None or case.judged is None:
        text = f"{shown.value} {name(case.unit, 60)} not read" if case.value else with_unit(shown.value, case.unit)
        return f"{text} ({_reason(case)})" if case.reason == UNKNOWN_BYTES else text
    if case.judged < case.value:
        rest = f"another {number(case.value - case.judged)} are bad records that the policy tolerates"
    else:
        rest = f"{shown.value} were not read; a shard with too many bad records counts whole"
    return f"{shown.judged} {name(case.unit, 60)}, which count as not read ({rest})"


def _reason(case: Case) -> str:
    text = name(reason_text(case.reason), 100)
    return f"{text}: {prose(case.why, 160)}" if case.why else text


def judged_words(rule: Rule, case: Case | None) -> str:
    """Return the number that was compared with the limit, where it is not the value."""
    shown = numbers(rule, case)
    if not shown.judged or (rule.metric == COVERAGE and rule.limit_kind == "budget"):
        return ""
    kind = {"budget": "judged", "robust_sd": "distance"}.get(rule.limit_kind, rule.limit_kind.replace("_", " "))
    return f"{kind}: {shown.judged}{' robust SD' if rule.limit_kind == 'robust_sd' else ''}"


def limit_words(rule: Rule) -> str:
    """Return what was allowed, with its unit."""
    shown = numbers(rule, None).limit
    if rule.limit_kind in {"budget", "change"}:
        return shown if rule.unit == "ratio" else f"{shown} {name(rule.unit, 60)}"
    return f"{shown} robust SD" if rule.limit_kind == "robust_sd" else shown


def metric_words(rule: Rule, case: Case | None) -> str:
    """Return ``metric.stat``."""
    return name(f"{rule.metric}.{rule.stat if case is None else case.stat}", 120)


def message(rule: Rule, case: Case | None) -> str:
    """Return a case as one sentence: what, where, how much, against what, and in which shards."""
    parts = [f"{metric_words(rule, case)}, {scope_words(case)}: {value_words(rule, case)}"]
    shown = numbers(rule, case)
    if shown.baseline:
        of = "median of the source" if rule.limit_kind == "robust_sd" else rule.budget_from or "baseline"
        parts.append(f"{of} {shown.baseline}")
    if judged := judged_words(rule, case):
        parts.append(judged)
    parts.append(f"limit {limit_words(rule)}")
    if shards := evidence(rule, case):
        parts.append("see " + ", ".join(f"{uri} ({number})" for uri, number in shards))
    return "; ".join(parts)


def evidence(rule: Rule, case: Case | None) -> list[tuple[str, str]]:
    """Return the shards to look at, each with how much it holds."""
    return [] if case is None else [(name(item.uri), evidence_count(rule, item)) for item in case.evidence[:EVIDENCE]]


def about(rule: Rule, *names: str) -> list[str]:
    """Return the owner, reason and runbook of a rule, as far as the policy has them, a line each."""
    return [f"{name}: {prose(text)}" for name in names if (text := getattr(rule, name.lower()))]


def canary_words(seen: CanarySeen) -> str:
    """Return the record of a canary on one line."""
    return f"{name(seen.id)}, {name(seen.verdict)}, {plural(seen.pairs, 'pair')}, {name(seen.on)}"


def waiver_words(result: WaiverResult) -> str:
    """Return a waiver on one line."""
    waiver = result.waiver
    ceiling = "" if waiver.up_to is None else f", up to {number(waiver.up_to)}"
    return (
        f"{result.state}: rule {name(waiver.rule)}, fingerprint {waiver.fingerprint}, owner {prose(waiver.owner, 200)},"
        f" expires {waiver.expires.isoformat()}{ceiling}: {prose(waiver.reason)}"
    )


_NAMED = 12
"""Rules that were not judged and are named at most."""


def headline(verdict: Verdict) -> str:
    """Return ``FAIL``, or how else it ended; of ``PASS`` also how many rules were not judged."""
    none = len(skipped(verdict)) if verdict.passed else 0
    return _ending(verdict) + (f", {none:,} of {plural(len(verdict.rules), 'rule')} skipped" if none else "")


def other_codes(verdict: Verdict) -> str:
    """Return the exit codes with a cause beside the verdict's own, in parentheses."""
    codes = ", ".join(str(int(code)) for code in verdict.codes if code != verdict.exit_code)
    return f" (also {codes})" if codes else ""


def _ending(verdict: Verdict) -> str:
    word = WORDS.get(verdict.exit_code, "FAIL")
    fails = verdict.exit_code != ExitCode.BUDGET_EXCEEDED and ExitCode.BUDGET_EXCEEDED in verdict.codes
    return f"FAIL, {word}" if fails else word


def advice(verdict: Verdict) -> str:
    """Return what to do now; of a verdict that passes, also which rules were not judged."""
    first = _ADVICE.get(verdict.exit_code, _ADVICE[ExitCode.BUDGET_EXCEEDED])
    if only_expired(verdict):
        return _late(verdict)
    if verdict.passed and (none := skipped(verdict)):
        named = some_of([name(rule) for rule in none], _NAMED)
        return f"{first} It says nothing of {plural(len(none), 'rule')} without anything to judge: {named}."
    also = verdict.exit_code == ExitCode.NOT_EVALUATED and ExitCode.BUDGET_EXCEEDED in verdict.codes
    return _both(verdict) if also else first


def _both(verdict: Verdict) -> str:
    effects = Counter(effect_of(verdict, result) for result in verdict.rules)
    stops, unknown = effects[Effect.STOPS], effects[Effect.UNKNOWN]
    fails = f"{plural(stops, 'rule')} {'fails' if stops == 1 else 'fail'}"
    others = f"{unknown:,} could not be judged" if unknown else "some parts of them could not be judged"
    return (
        f"Do not release it: {fails}, and {others}, for which the exit code is 3. Both are named below. Fix what fails"
        " and build again, or give it a waiver; give the build, or the gate, what is missing."
    )


def _late(verdict: Verdict) -> str:
    late = [f"rule {name(item.waiver.rule)}, {item.waiver.expires.isoformat()}" for item in expired(verdict)]
    return (
        f"Do not release it: no rule fails, but the last day of {plural(len(late), 'waiver')} has passed:"
        f" {some_of(late, _NAMED, '; ')}."
        " Take what is no longer needed out of the policy, or have somebody answer for it until a later day."
    )


def tally(verdict: Verdict) -> str:
    """Return how many rules hold, and how many do not."""
    effects = Counter(effect_of(verdict, result) for result in verdict.rules)
    waits, waived, late = len(verdict.waiting), sum(result.waived for result in verdict.rules), len(expired(verdict))
    parts = [
        (effects[Effect.STOPS], "rule", "fails", "fail"),
        (effects[Effect.UNKNOWN], "rule", "could not be evaluated", "could not be evaluated"),
        (effects[Effect.WARNS], "rule", "warns", "warn"),
        (effects[Effect.HOLDS], "rule", "holds", "hold"),
        (effects[Effect.SKIPPED], "rule", "is skipped", "are skipped"),
        (waits, "", "of them waits for a baseline", "of them wait for a baseline"),
        (waived, "case", "is waived", "are waived"),
        (late, "waiver", "has expired", "have expired"),
    ]
    shown = [
        f"{plural(number, noun) if noun else f'{number:,}'} {alone if number == 1 else several}"
        for number, noun, alone, several in parts
        if number
    ]
    return ", ".join(shown) or "no rule"


def why(result: RuleResult) -> str:
    """Return why a rule was not judged."""
    if result.waits:
        return "it waits for a baseline"
    reasons = dict.fromkeys(_reason(case) for case in result.cases if case.reason)
    return ", ".join(list(reasons)[:3]) or "nothing to judge"


def line(verdict: Verdict) -> str:
    """Return a verdict on one line."""
    subject = f"{name(verdict.subject.name, 80)} {name(verdict.subject.version, 40)}"
    return f"{_ending(verdict)}: {subject} by {name(verdict.policy)}, {tally(verdict)}"
