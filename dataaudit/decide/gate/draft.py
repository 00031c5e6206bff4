"""Drafts a first policy from what a manifest measured: ``dataaudit policy draft``.

Three kinds of rules, in this order. *Bounds* are those of the built-in policy `release-gate` that fail a release
whatever was measured: unread bytes, leaks, secrets. *Drawn* limits are the measured numbers, rounded outward. *Changes*
are release-gate's rules of change, which need a baseline, and of odd shards. What has no number is listed at the end.

The gate itself measures: drawn rules are judged once with a limit that nothing keeps. So the draft passes on its
manifest, but for a bound that the manifest does not keep: that one stays as it is, and its comment says so.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import re
import textwrap
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from operator import attrgetter

from dataaudit.base.text import plural
from dataaudit.decide.gate import builtin_path
from dataaudit.decide.gate.facts import Facts
from dataaudit.decide.gate.judge import EMPTY
from dataaudit.decide.gate.missing import demandable
from dataaudit.decide.gate.number_texts import discreet_ceiling, reason_text
from dataaudit.decide.gate.policy import NAME_LIMIT, Policy, Rule, ScopeRule, Severity, load_policy
from dataaudit.decide.gate.run import evaluate, facts_for
from dataaudit.decide.gate.verdict import Case, RuleResult, State
from dataaudit.decide.gate.writers.words import judged_words, name, prose, scope_words, value_words
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.registry import PERSONAL

_UNREACHED = {"<=": -1e300, ">=": 1e300}
"""By comparator: limits that no number of a drawn rule keeps."""
_KEPT_REQUIRED = frozenset({"coverage_unread_bytes", "train_val_overlap", "secret_hit_rate"})
"""Metrics whose bounds stay required where the manifest has no number of them, though it could have."""
FAILS = "This manifest fails it"
"""How the comment begins above a rule that does not hold."""
_DEMAND = (
    "Numbers pass by the detectors that measured these alone. Entities that are off, an allow-list, other rules or"
    " tiers and a newer dataaudit have other digests: a build by them is not evaluated before its digest stands here."
)
_LISTED = (
    "The build held back what a quarantine list names. This key has the gate refuse what such a list, a path from"
    " this file, holds back:"
)
_DIGITS = 2
_WIDTH = 118
_TINY = 1e-9
_NO_DAY = dt.date.min  # a draft has no waivers
_PLAIN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./;-]+)*$")
_YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_PARTS = {"source": "sources", "set": "sets", "entity": "entities", "language": "languages", "split": "splits"}


def _drawn(called: str, metric: str, stat: str, unit: str = "ratio", *, at_least: bool = False, **more: object) -> Rule:
    """Return a rule whose limit is still to be drawn; its name ends with the side of the limit."""
    comparator = ">=" if at_least else "<="
    given = {"metric": metric, "stat": stat, "unit": unit, "comparator": comparator, "allow_empty": True, **more}
    called = f"{called}-at-{'least' if at_least else 'most'}"
    return Rule.model_validate({"name": called, "budget": _UNREACHED[comparator], **given})


_SOURCE = {"per": "source"}
_SIMILAR = {"per": ["set", "entity"], "rule": "similar"}
DRAWN: tuple[Rule, ...] = (
    *(_drawn(item, item, "count", item, at_least=True) for item in ("documents", "bytes", "tokens")),
    _drawn("exact-duplicates", "exact_dup_rate", "rate", scope=_SOURCE),
    _drawn("near-duplicates", "near_dup_rate", "rate", scope=_SOURCE),
    _drawn("near-duplicates-recall", "near_dup_rate", "recall", at_least=True, severity="warn", required=False),
    _drawn("repeat-hotspots", "doc_repeat_hotspots", "largest_share", severity="warn"),
    _drawn("val-common-spans", "train_val_overlap", "span", scope={"per": "set"}, severity="warn"),
    _drawn("benchmark-similar", "benchmark_contamination", "rate", scope=_SIMILAR, severity="warn"),
    _drawn("toxic-documents-judged", "data_toxicity_rate", "rate"),
    _drawn("toxic-documents-screened", "data_toxicity_rate", "screen", scope=_SOURCE, bound="value", severity="warn"),
    _drawn("personal-data", "pii_hit_rate", "validated_hits", "hits per million tokens"),
    _drawn("passwords", "secret_hit_rate", "contextual_hits", "hits", severity="warn"),
    _drawn("token-drift", "token_kl_drift", "kl_excess", "nats", scope=_SOURCE, bound="low", severity="warn"),
    _drawn("quality-filters", "filter_reject_rate", "rate", scope=_SOURCE, severity="warn"),
    _drawn("language-detectors-agree", "language_share", "detector_agreement", at_least=True, severity="warn"),
    *(
        _drawn(called, metric, stat, unit, at_least=at_least, severity="warn")
        for called, metric, stat, unit in (
            ("bytes-per-token", "bytes_per_token", "ratio", "bytes/token"),
            ("median-document", "seq_len_p50_p95", "p50", "tokens"),
            ("long-documents", "seq_len_p50_p95", "p95", "tokens"),
        )
        for at_least in (True, False)
    ),
    _drawn("packed-padding", "pad_fraction", "packed_*", severity="warn"),
)
"""Rules whose limits are drawn; ``budget`` is a limit that nothing keeps."""


@functools.cache
def candidates() -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Return the bounds and the changes of `release-gate`; its warnings about measured numbers are drawn instead."""
    rules = load_policy(builtin_path("release-gate")).rules
    bounds = [rule for rule in rules if rule.limit_kind == "budget" and rule.severity == Severity.FAIL]
    return tuple(bounds), tuple(rule for rule in rules if rule.limit_kind != "budget")


def draft(manifest: Manifest) -> str:
    """Return a policy as commented YAML; the same manifest gives the same text."""
    return draft_of(facts_for(manifest, _asked()))


def draft_of(facts: Facts) -> str:
    """Return the policy from the facts of a manifest."""
    bounds, changes = candidates()
    results = {rule_result.rule.name: rule_result for rule_result in evaluate(_asked(), facts, on=_NO_DAY).rules}
    limits = {rule.name: _limit(results[rule.name], bounds) for rule in DRAWN}
    compared = {rule.name: _change(results[rule.name]) for rule in changes}
    drawn = [rule for rule in DRAWN if isinstance(limits[rule.name], str)]
    parts = [
        _head(facts, demandable([*bounds, *drawn], facts)),
        "# What fails a release whatever was measured, as in the ready policy release-gate.",
        *(_bound(results[rule.name], facts) for rule in bounds),
        "# Drawn from what was measured: loosen what may grow, tighten what is to become better.",
        *(_texts(limits) or ["# Nothing was measured that a limit could be drawn from."]),
        "# As in release-gate: changes, which wait without a baseline; and shards, which are compared with each other.",
        *(_texts(compared) or ["# Nothing was measured that could change."]),
    ]
    absent = [item for item in (*limits.values(), *compared.values()) if isinstance(item, RuleResult)]
    if absent:
        lines = [
            f"#   {result.rule.name}, {result.rule.metric}.{result.rule.stat}: {_why(result.cases[0])}"
            for result in absent
        ]
        parts.append("\n".join(["# Not drafted, for want of a number:", *lines]))
    return "\n\n".join(parts) + "\n"


def _asked() -> Policy:
    bounds, changes = candidates()
    return Policy(policy="draft", rules=(*bounds, *DRAWN, *changes))


Block = str | RuleResult
"""A rule as text, or the result of a rule that is not drafted."""


def _texts(blocks: Mapping[str, Block | None]) -> list[str]:
    return [block for block in blocks.values() if isinstance(block, str)]


def _head(facts: Facts, detectors: Mapping[str, str]) -> str:
    subject = facts.subject
    called = re.sub(r"[^A-Za-z0-9._-]+", "-", subject.name).lstrip("._-")[:NAME_LIMIT] or "draft"
    text = (
        f"A draft from the manifest of {name(subject.name)} {name(subject.version)}, {subject.id}. Drawn limits are"
        f" the judged numbers, rounded outward to {_DIGITS} significant digits: the bound of an interval where there is"
        " one, of several parts that of the worst. Read every limit before you hold anybody to it."
        " `dataaudit explain gate` says what every key means."
    )
    digest = subject.id.rpartition(":")[2][:16]
    lines = _comment(text, "")
    lines += [f"policy: {_scalar(called)}", 'version: "1"', f"description: Drafted from the manifest {digest}."]
    if facts.core.quarantine:
        lines += [*_comment(_LISTED, ""), "# quarantine_list: quarantine.jsonl"]
    if detectors:
        lines += [*_comment(_DEMAND, ""), "detectors:"]
        lines += [f"  {_scalar(detector)}: {sha256}" for detector, sha256 in detectors.items()]
    return "\n".join([*lines, "", "rules:"])


def _bound(result: RuleResult, facts: Facts) -> str:
    """Return a rule of release-gate as it stands, and whether the manifest keeps it."""
    rule, case = result.rule, result.cases[0]
    if result.state == State.FAILED or case.reason == "unread_bytes":
        failing = result.counts.get(result.state, 0)
        others = f" and {plural(failing - 1, 'other part')}" if failing > 1 else ""
        return _rule(rule, f"{FAILS}: {_measured(rule, case)}{others}. The limit is release-gate's.")
    if result.state in {State.PASSED, State.WARNED} or (rule.allow_empty and case.reason == EMPTY):
        return _rule(rule, f"Measured: {_measured(rule, case)}. The limit is release-gate's, not drawn.")
    why = _why(case)
    if not rule.required:
        return _rule(rule, f"No number: {why}. It is judged once there is one.")
    if rule.metric not in _KEPT_REQUIRED or (rule.metric == "train_val_overlap" and not facts.splits("held_out")):
        optional = rule.model_copy(update={"required": False})
        return _rule(optional, f"No number: {why}. It is required in release-gate; here it would stop every release.")
    return _rule(rule, f"{FAILS}: there is no number: {why}. It is required, as in release-gate.")


def _limit(result: RuleResult, bounds: tuple[Rule, ...]) -> Block | None:
    """Return a rule with a limit drawn; None where the manifest fails a bound of the same number."""
    rule = result.rule
    measured = [case for case in result.cases if case.judged is not None and case.value is not None]
    if not measured:
        return result
    at_least = rule.comparator == ">="
    worst = (min if at_least else max)(measured, key=lambda case: case.judged or 0.0)
    limit = _outward(rule, worst)
    if at_least and limit == 0:
        return result
    number = attrgetter("metric", "stat", "scope", "comparator")
    if any(limit > bound.limit for bound in bounds if number(bound) == number(rule)):
        return None
    comment = [f"Measured: {_measured(rule, worst)}{_of_parts(rule, len(measured), at_least=at_least)}."]
    side = "lower" if at_least or rule.bound == "low" else "upper"
    number_of = "The number is" if worst.judged == worst.value else f"The {side} bound is"
    if rule.metric in PERSONAL and limit > 0:
        comment.append("The limit lies above what a report would show: it tells no exact count.")
    elif rule.unit == "ratio" and limit == 1 and not at_least:
        comment.append("No number exceeds the limit: tighten it.")
    elif worst.judged == limit:
        comment.append(f"{number_of} the limit.")
    elif limit == 0:
        comment.append(f"{number_of} below the limit 0.")
    else:
        comment.append(f"{number_of} rounded {'down' if at_least else 'up'} to {_DIGITS} digits.")
    drawn = rule.model_copy(update={"budget": limit})
    missing = [case for case in result.cases if case.state == State.NOT_EVALUATED]
    if missing:
        drawn = drawn.model_copy(update={"required": False})
        comment.append(f"Not required: {plural(len(missing), 'part')} without a number ({_why(missing[0])}).")
    return _rule(drawn, " ".join(comment))


def _change(result: RuleResult) -> Block:
    """Return a rule of change or of odd shards as release-gate has it, where the manifest has what it speaks of."""
    rule, case = result.rule, result.cases[0]
    judged = sum(result.counts.get(state, 0) for state in (State.PASSED, State.WARNED, State.FAILED))
    if not result.waits and not judged:
        return result
    comment = "Waits for a baseline." if rule.needs_baseline else "Shards are compared with each other."
    if result.state in {State.WARNED, State.FAILED}:
        comment += f" This manifest warns: {plural(result.counts[result.state], 'shard')}."
    if State.NOT_EVALUATED in result.open_states and rule.required:
        rule = rule.model_copy(update={"required": False})
        comment += f" Not required: some parts have no number ({_why(case)})."
    return _rule(rule, comment)


def _why(case: Case) -> str:
    if case.reason:
        return prose(case.why) or reason_text(case.reason)
    return "it is 0" if case.value == 0 else "there is nothing to compare"


def _measured(rule: Rule, case: Case) -> str:
    """Return a number with its interval, what was judged of it, and where; small counts of personal data withheld."""
    where, judged = scope_words(case), "" if case.low is not None else judged_words(rule, case)
    parts = [value_words(rule, case), f"({judged})" if judged else ""]
    parts += [f"of {case.stat}" if "*" in rule.stat else "", "" if where == "whole dataset" else f"at {where}"]
    return " ".join(part for part in parts if part)


def _of_parts(rule: Rule, count: int, *, at_least: bool) -> str:
    fields = [_PARTS.get(item, item) for item in rule.scope.per]
    if "*" in rule.stat:
        fields.append("statistics")
    return f", the {'lowest' if at_least else 'highest'} of {count} ({' and '.join(fields)})" if count > 1 else ""


def _outward(rule: Rule, case: Case) -> float:
    assert case.judged is not None
    judged = discreet_ceiling(rule, case) if rule.metric in PERSONAL else case.judged
    limit = max(0.0, outward(judged, up=rule.comparator == "<="))
    return min(limit, 1.0) if rule.unit == "ratio" else limit


def outward(value: float, *, up: bool) -> float:
    """Round to two significant digits, up or down; 0 stays 0."""
    exact = Decimal(repr(value))
    if exact == 0:
        return 0.0
    step = Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    return float((exact / step).to_integral_value(ROUND_CEILING if up else ROUND_FLOOR) * step)


def _rule(rule: Rule, comment: str) -> str:
    """Return a rule as YAML with a comment above it: what it judges and its limit, then what is not the default."""
    lines = []
    for key, field in type(rule).model_fields.items():
        if (value := getattr(rule, key)) != field.default:
            shown = _scope(value) if isinstance(value, ScopeRule) else _scalar(value)
            lines.append(f"{'- ' if key == 'name' else '  '}{key}: {shown}")
    return "\n".join([*_comment(comment, "  "), *(f"  {line}" for line in lines)])


def _scope(scope: ScopeRule) -> str:
    parts = {"per": scope.per, **scope.fixed()}
    shown = {
        key: _scalar(values[0]) if len(values) == 1 else f"[{', '.join(map(_scalar, values))}]"
        for key, values in parts.items()
        if values
    }
    return f"{{{', '.join(f'{key}: {value}' for key, value in shown.items())}}}"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _decimal(float(value))
    text = str(value)
    is_other = text[:1].isdigit() or text.lower() in _YAML_WORDS
    return text if _PLAIN.match(text) and not is_other else json.dumps(text)


def _decimal(value: float) -> str:
    if value == int(value):
        return str(int(value))
    return f"{Decimal(repr(value)):f}" if value >= _TINY else repr(value)


def _comment(text: str, indent: str) -> list[str]:
    lines = textwrap.wrap(
        text, _WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )
    return [f"{indent}# {line}" for line in lines]
