"""What was looked for: less than in the baseline, or by other detectors than the policy demands. Less is found of less.

Such a search passes no rule. What it did find stands: a rule that fails, fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dataaudit.errors import ConfigError
from dataaudit.gate.facts import Facts
from dataaudit.gate.policy import Policy, Rule
from dataaudit.gate.scopes import is_of_patterns
from dataaudit.gate.verdict import DEMANDED, LOST, Case, State
from dataaudit.metrics.family import JUDGE, LANGUAGE_DETECTION
from dataaudit.metrics.registry import METRICS
from dataaudit.yamlfile import nearest

_KEPT = (State.PASSED, State.WARNED)
_NAMED = 5
"""Entities that a reason names."""
_SHORT = 12
"""Digits of a digest that a reason shows."""
_JUDGES = "detoxify "
"""What the names of judges of toxicity begin with."""


def check_detectors(policy: Policy, where: str) -> None:
    """Compare the detectors that a policy demands with those that its rules rest on.

    Raises:
        ConfigError: No rule of the policy rests on one of them, so that nothing would come of the demand.
    """
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
    return {one.name: one.sha256 for one in facts.core.detectors if _is_among(one.name, used)}


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
    found = {one.name: one for one in now.core.detectors}
    for name, wanted in (policy.detectors or {}).items():
        one = found.get(name)
        if one is None or one.sha256 not in wanted:
            yield name, wanted[0], one.sha256 if one else "", one.version if one else ""


def _deciding(metric: str) -> frozenset[str]:
    """Return the detectors that numbers of a metric rest on: a sample of a judge is drawn by what the screen says."""
    known = METRICS.get(metric)
    if known is None or known.decided_by is None:
        return frozenset()
    return frozenset(name for one in known.statistics for name in known.decided_by(one.stat)) - {LANGUAGE_DETECTION}


def _is_among(name: str, used: frozenset[str] | set[str]) -> bool:
    return name in used or (JUDGE in used and name.startswith(_JUDGES))


def _digest(facts: Facts, detector: str) -> list[str]:
    return [one.sha256 for one in facts.core.detectors if one.name == detector]


def _short(digest: str) -> str:
    return f"{digest[:_SHORT]}..." if digest else "was not there"
