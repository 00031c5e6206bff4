"""What a rule, or a case of it, means for the release: the one place where every writer asks.

A severity is what the policy says; an effect is what it comes to under ``--fail-on``, with waivers. Each writer shows
as an error exactly what stops the release, so a green page never stands beside an exit code of 1.
"""

from __future__ import annotations

from enum import StrEnum

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
