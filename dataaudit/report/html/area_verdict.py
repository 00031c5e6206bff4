"""The verdict: what the policy says, rule by rule, with the shards that decided it."""

from __future__ import annotations

from collections.abc import Sequence

from dataaudit import text as t
from dataaudit.errors import ExitCode
from dataaudit.gate.policy import Rule
from dataaudit.gate.reasons import reason_text
from dataaudit.gate.verdict import ORDER, Case, RuleResult, State, Verdict
from dataaudit.gate.writers.numbers import evidence_count, with_unit
from dataaudit.gate.writers.numbers import numbers as numbers_of
from dataaudit.gate.writers.words import judged_words, limit_words, value_words
from dataaudit.report.html.pieces import (
    Block,
    Cell,
    Facts,
    Finding,
    Grid,
    Section,
    Tone,
    cell,
    first,
    more,
    name,
    named,
    numbers,
    prose,
    row,
    web_address,
    word,
    worst,
)

TONES: dict[State, Tone] = {
    State.FAILED: "bad",
    State.NOT_EVALUATED: "bad",
    State.WARNED: "warn",
    State.PASSED: "good",
    State.NOT_APPLICABLE: "quiet",
}
WORDS = {
    State.FAILED: "fails",
    State.NOT_EVALUATED: "not evaluated",
    State.WARNED: "warns",
    State.PASSED: "passes",
    State.NOT_APPLICABLE: "not applicable",
}
_CAUSES = {
    ExitCode.BUDGET_EXCEEDED: "a budget is exceeded",
    ExitCode.NOT_EVALUATED: "a rule could not be evaluated",
    ExitCode.NOTHING_EVALUATED: "nothing was evaluated",
}
_AREAS = {
    "train_val_overlap": "leakage",
    "benchmark_contamination": "leakage",
    "exact_dup_rate": "duplicates",
    "near_dup_rate": "duplicates",
    "near_dup_component_rate": "duplicates",
    "doc_repeat_hotspots": "duplicates",
    "source_mix_share": "mixture",
    "language_share": "languages",
    "seq_len_p50_p95": "lengths",
    "token_kl_drift": "tokens",
    "pad_fraction": "tokens",
    "bytes_per_token": "shards",
    "filter_reject_rate": "quality",
    "data_toxicity_rate": "toxicity",
    "pii_hit_rate": "privacy",
    "secret_hit_rate": "secrets",
    "coverage_unread_bytes": "coverage",
}
"""Where the page says more of a metric."""
_CASES, _EVIDENCE = 20, 3


def verdict_title(verdict: Verdict) -> tuple[str, Tone]:
    """Return the verdict in a few words."""
    if not verdict.passed:
        return f"Stopped: {', and '.join(_CAUSES[code] for code in verdict.codes if code in _CAUSES)}", "bad"
    warned = verdict.count(State.WARNED)
    return (f"Passed, with {t.plural(warned, 'warning')}", "warn") if warned else ("Passed", "good")


def area_tones(verdict: Verdict) -> dict[str, Tone]:
    """Return the tone of each area of which a rule does not hold, by the id of its section."""
    found: dict[str, Tone] = {}
    for one in verdict.rules:
        if (tone := TONES[one.state]) in {"bad", "warn"}:
            area = _AREAS.get(one.rule.metric, "verdict")
            found[area] = worst((tone, found.get(area, "")))
    return found


def verdict_section(verdict: Verdict) -> tuple[Section, list[Finding]]:
    """Return the rules, the gravest first, and what stands out of them."""
    order = (State.FAILED, State.NOT_EVALUATED, State.WARNED)
    open_ = [one for state in order for one in verdict.rules if one.state == state]
    rest = [one for one in verdict.rules if one.state not in order]
    blocks: list[Block] = []
    if open_:
        blocks += [_cases(open_), *_answers(open_)]
    blocks.append(_rules(rest, folded=bool(open_)))
    blocks += _waivers(verdict)
    blocks.append(
        Facts(
            pairs=(
                ("policy", f"{named(verdict.policy)} {named(verdict.policy_version, 40)}, {verdict.policy_digest}"),
                ("manifest", verdict.subject.id),
                ("baseline", verdict.baseline.id if verdict.baseline else "none"),
                ("waivers held against", f"{verdict.on} (UTC)"),
                ("exit code", f"{int(verdict.exit_code)} (fails on {verdict.fail_on})"),
            )
        )
    )
    counts = [
        f"{verdict.count(state)} {'not evaluated' if state == State.NOT_EVALUATED else state.value.replace('_', ' ')}"
        for state in ORDER
        if verdict.count(state)
    ]
    lead = f"{t.plural(len(verdict.rules), 'rule')}: {', '.join(counts)}."
    if verdict.waiting:
        lead += f" Waiting for a baseline: {', '.join(named(one, 60) for one in verdict.waiting)}."
    section = Section(id="verdict", title="Rules", lead=lead, tone=verdict_title(verdict)[1], blocks=tuple(blocks))
    return section, [_finding(one) for one in open_]


def _finding(result: RuleResult) -> Finding:
    """Return a rule that does not hold, with the place where it holds least."""
    rule = result.rule
    text = named(rule.metric, 60)
    if result.cases:
        case = result.cases[0]
        where, evidence = _where(case), _evidence(rule, case, 1)
        others = result.counts.get(result.state, 0) - 1
        text += f" {named(case.stat, 40)}{f' of {where}' if where else ''} {_judged(rule, case)}."
        text += f" {evidence}." if evidence else ""
        text += f" And {t.plural(others, 'further place')}." if others > 0 else ""
    return Finding(
        tone=TONES[result.state],
        head=f"{named(rule.name, 60)} {WORDS[result.state]}",
        text=text,
        section=_AREAS.get(rule.metric, "verdict"),
        owner=_written(rule.owner, 100),
        reason=_written(rule.reason),
        runbook=_runbook(rule),
    )


def _answers(results: Sequence[RuleResult]) -> list[Grid]:
    """Return who answers for the rules that do not hold, why there are such rules, and what to do."""
    rules = [one.rule for one in results if one.rule.owner or one.rule.reason or one.rule.runbook]
    if not rules:
        return []
    shown = first(rules, _CASES)
    rows = tuple(
        row(
            named(rule.name, 60),
            _written(rule.owner, 100) or t.NOTHING,
            _written(rule.reason) or t.NOTHING,
            _runbook(rule) or t.NOTHING,
        )
        for rule in shown
    )
    columns = (name("rule"), name("owner"), prose("why there is this rule"), name("runbook"))
    return [Grid(title="Owners", columns=columns, rows=rows, more=more(rules, shown, "rule"))]


def _written(text: str | None, limit: int = 300) -> str:
    """Return what the policy's author wrote, on one line."""
    return "" if text is None else named(" ".join(text[: 20 * limit].split()), limit)


def _runbook(rule: Rule) -> Cell | None:
    """Return the runbook, as a link only where it is an address of the web."""
    return None if rule.runbook is None else cell(_written(rule.runbook, 200), link=web_address(rule.runbook))


def _cases(results: Sequence[RuleResult]) -> Grid:
    entries = [(result, case) for result in results for case in first(result.cases, _CASES)]
    left = sum(len(result.cases) - len(first(result.cases, _CASES)) for result in results)
    rows = tuple(
        row(
            _state(case),
            cell(
                named(result.rule.name, 60),
                href=_AREAS.get(result.rule.metric, ""),
                detail=f"{named(result.rule.metric, 60)} {named(case.stat, 40)}",
            ),
            cell(_where(case) or "whole dataset", detail=case.fingerprint),
            _number(result.rule, case),
            _unbroken(limit_words(result.rule)),
            _evidence(result.rule, case, _EVIDENCE),
        )
        for result, case in entries
    )
    return Grid(
        title="What decides",
        rows=rows,
        columns=(word("state"), name("rule"), name("where"), *numbers("found"), name("limit"), prose("evidence")),
        more=f"and {t.plural(left, 'more place')}; gate.json has all" if left else "",
        note="Under the place stands the fingerprint that a waiver names.",
    )


def _rules(results: Sequence[RuleResult], *, folded: bool) -> Grid:
    rows = tuple(
        row(
            cell(WORDS[one.state], TONES[one.state]),
            cell(named(one.rule.name, 60), detail=f"{named(one.rule.metric, 60)} {named(one.rule.stat, 40)}"),
            _number(one.rule, one.cases[0]) if one.cases else t.NOTHING,
            _unbroken(limit_words(one.rule)),
            "waits for a baseline" if one.waits else f"{t.count(one.waived)} waived" if one.waived else "",
        )
        for one in results
    )
    return Grid(
        title="Other rules" if folded else "Rules",
        rows=rows,
        folded=folded,
        empty="There is no other rule.",
        columns=(word("state"), name("rule"), *numbers("nearest"), name("limit"), name("note")),
    )


def _waivers(verdict: Verdict) -> list[Block]:
    if not verdict.waivers:
        return []
    shown = first(verdict.waivers, 50)
    rows = tuple(
        row(
            cell(one.state.value, "bad" if one.state.value == "expired" else ""),
            named(one.waiver.rule, 60),
            one.waiver.fingerprint,
            named(one.waiver.owner, 60),
            named(one.waiver.reason, 200),
            one.waiver.expires.isoformat(),
        )
        for one in shown
    )
    columns = (word("state"), name("rule"), word("fingerprint"), name("owner"), name("reason"), word("until"))
    return [Grid(title="Waivers", columns=columns, rows=rows, more=more(verdict.waivers, shown, "waiver"))]


def _where(case: Case) -> str:
    """Return the place of a case in words."""
    if case.shard_uri is not None:
        return f"shard {named(case.shard_uri, 100)}"
    parts = [f"{key} {named(str(value), 60)}" for key, value in case.scope.as_dict().items()]
    return ", ".join(parts)


def _state(case: Case) -> Cell:
    """Return the state; one that is waived is shown and does not decide."""
    return (
        cell(WORDS[case.state], "quiet", detail="waived") if case.waived else cell(WORDS[case.state], TONES[case.state])
    )


def _evidence(rule: Rule, case: Case, limit: int) -> str:
    """Name the shards that hold most; small counts of personal data are not said."""
    shown = [f"{named(one.uri, 80)}: {evidence_count(rule, one)}" for one in case.evidence[:limit]]
    rest = len(case.evidence) - len(shown)
    return "; ".join(shown) + (f"; and {t.plural(rest, 'more shard')}" if rest > 0 else "")


def _judged(rule: Rule, case: Case) -> str:
    """Say in words how a case stands to its limit."""
    found = value_words(rule, case)
    if case.judged is None:
        return f"has {found}" if found.startswith("no number") else f"is {found}, and cannot be judged"
    shown = numbers_of(rule, case)
    how = judged_words(rule, case)
    if shown.baseline and rule.limit_kind != "robust_sd":
        how = f"baseline {with_unit(shown.baseline, case.unit)}{f', {how}' if how else ''}"
    return f"is {found}{f', {how}' if how else ''}, limit {_unbroken(limit_words(rule))}"


def _unbroken(text: str) -> str:
    """Keep a comparator with its number."""
    return text.replace("= ", "=\xa0").replace("< ", "<\xa0").replace("> ", ">\xa0")


def _number(rule: Rule, case: Case) -> Cell:
    """Return what was found as every output of the gate writes it; a small count of personal data is withheld."""
    shown = numbers_of(rule, case)
    of = "median of the split" if rule.limit_kind == "robust_sd" else "baseline"
    words = [
        shown.interval,
        f"{of} {with_unit(shown.baseline, case.unit)}" if shown.baseline else "",
        judged_words(rule, case),
        _reason(case),
    ]
    if not shown.value:
        return cell("none", detail=_reason(case))
    return cell(with_unit(shown.value, case.unit), detail="; ".join(word for word in words if word))


def _reason(case: Case) -> str:
    return named(reason_text(case.reason), 100) if case.reason else ""
