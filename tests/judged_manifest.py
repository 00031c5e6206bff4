"""Verdicts made by hand, without a policy being judged."""

import datetime as dt

from dataaudit.decide.gate.policy import Rule, Severity, Waiver
from dataaudit.decide.gate.verdict import Case, RuleResult, State, Subject, Verdict, WaiverResult, WaiverState
from dataaudit.manifest.metric import Scope


def rule_result(name, state, *, severity="fail", metric="exact_dup_rate", stat="rate", scope=None, judged=0.25, **more):
    """Return the result of a rule with one case in that state."""
    rule = Rule(
        name=name, metric=metric, stat=stat, unit="ratio", budget=0.1, severity=Severity(severity), reason=f"why {name}"
    )
    value = None if state == State.NOT_EVALUATED else judged
    case = Case(
        rule=name,
        stat=stat,
        scope=scope or Scope(),
        state=state,
        unit="ratio",
        value=value,
        judged=value,
        reason="metric_missing" if value is None else "",
        fingerprint="0123456789abcdef",
    )
    return RuleResult(rule=rule, state=state, counts={state: 1}, cases=(case,), **more)


def verdict_of(manifest, *results, baseline=None, waivers=()):
    """Return a verdict of a manifest; without results one rule passes."""
    return Verdict(
        policy="strict",
        policy_version="7",
        policy_digest=f"sha256:{'5a' * 32}",
        subject=subject(manifest),
        baseline=None if baseline is None else subject(baseline),
        fail_on="fail",
        on="2026-11-22",
        rules=results or (rule_result("duplicates", State.PASSED, judged=0.01),),
        waivers=waivers,
    )


def subject(manifest):
    """Return a manifest as the subject of a verdict."""
    core = manifest.core
    return Subject(
        id=manifest.id,
        name=core.dataset.name,
        version=core.dataset.version,
        documents=core.totals.documents,
        shards=core.totals.shards,
    )


def used_waiver():
    """Return a waiver that covers a case."""
    waiver = Waiver(
        fingerprint="0123456789abcdef", rule="duplicates", owner="a@b.c", reason="known", expires=dt.date(2027, 1, 1)
    )
    return WaiverResult(waiver=waiver, state=WaiverState.USED)
