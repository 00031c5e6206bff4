"""What a rule, or a case of it, means for the release, and which cases are shown: where every writer asks.

A severity is what the policy says; an effect is what it comes to under ``--fail-on``, with waivers. Each writer shows
as an error exactly what stops the release, so a green page never stands beside an exit code of 1. Where there is room
for some cases, the worst are shown first, and every rule with its worst.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from dataaudit.errors import ExitCode
from dataaudit.gate.policy import Rule
from dataaudit.gate.verdict import BINDING, Case, RuleResult, State, Verdict, WaiverResult, WaiverState


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
    strict, required = verdict.fail_on == "warn", result.is_required
    effect = _effect(result.state, strict=strict, required=required)
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
    """Return the names of the rules of which the verdict says nothing."""
    return tuple(one.rule.name for one in verdict.rules if effect_of(verdict, one) == Effect.SKIPPED)


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
    """None where a rule does not hold and names no place."""
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
    """Return at most ``room`` cases that do not pass, worst first, rules in the policy's order; and how many are left.

    Args:
        verdict: The verdict.
        room: How many there is room for.
        first: So many of each rule come before the others, so that one noisy rule hides no other.
        most: At most so many of a rule.
    """
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
        (number for number, cases in enumerate(rules) if cases), key=lambda number: WORST_FIRST[rules[number][0].effect]
    )
    for start, stop in ((0, first), (first, None)):
        for number in order:
            end = stop if most is None else most if stop is None else min(stop, most)
            for index, shown in enumerate(rules[number][start:end], start):
                yield (number, index), shown
