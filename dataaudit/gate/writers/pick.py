"""Which cases are shown where there is room for some: worst first, and every rule with its worst."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from dataaudit.gate.verdict import Case, RuleResult, Verdict
from dataaudit.gate.writers.effects import BAD, WORST_FIRST, Effect, effect_of, effect_of_case

_SHOWN = (Effect.STOPS, Effect.UNKNOWN, Effect.WARNS, Effect.WAIVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A case that does not pass."""

    result: RuleResult
    case: Case | None
    """None where a rule does not hold and names no place."""
    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """What is shown, and what is not."""

    shown: tuple[Shown, ...]
    """Worst first, rules in the policy's order, cases in theirs."""
    left_out: int


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


def pick(verdict: Verdict, room: int, *, first: int = 20, most: int | None = None) -> Picked:
    """Return at most ``room`` cases that do not pass.

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
    return Picked(shown=tuple(chosen[index][1] for index in order), left_out=total - len(chosen))


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
