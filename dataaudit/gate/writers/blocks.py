"""The verdict as blocks: what it comes to, what does not hold and where to look, the other rules, what was judged."""

from __future__ import annotations

from collections.abc import Iterator

from dataaudit.errors import ExitCode
from dataaudit.gate.numbers import numbers, with_unit
from dataaudit.gate.policy import Rule
from dataaudit.gate.verdict import ORDER, RuleResult, State, Verdict
from dataaudit.gate.writers import words
from dataaudit.gate.writers.effects import WORST_FIRST, Effect, effect_of
from dataaudit.gate.writers.pick import Shown, pick, problems
from dataaudit.metrics.registry import METRICS
from dataaudit.render.blocks import (
    MOST_ROWS,
    Block,
    Cell,
    Facts,
    Point,
    Points,
    Prose,
    Row,
    Section,
    Table,
    Tone,
    first,
    names,
    texts,
    toned,
    web_address,
    worst,
)
from dataaudit.render.blocks import words as word_columns
from dataaudit.render.line import Line, Name, join, say
from dataaudit.render.terminal import render
from dataaudit.text import plural

MOST_CASES = 30
_OF_A_RULE = 5
_ANY = 10_000
"""Characters of a text that is short already."""
_TONES: dict[State, Tone] = {
    State.FAILED: "bad",
    State.NOT_EVALUATED: "bad",
    State.WARNED: "warn",
    State.PASSED: "good",
    State.NOT_APPLICABLE: "quiet",
}
_EFFECTS: dict[Effect, Tone] = {Effect.STOPS: "bad", Effect.UNKNOWN: "bad", Effect.WARNS: "warn", Effect.HOLDS: "good"}
_CAUSES = {
    ExitCode.BUDGET_EXCEEDED: "a budget is exceeded",
    ExitCode.NOT_EVALUATED: "a rule could not be evaluated",
    ExitCode.NOTHING_EVALUATED: "nothing was evaluated",
}
_VERBS = {State.FAILED: "fails", State.NOT_EVALUATED: "not evaluated", State.WARNED: "warns"}


def terminal_text(verdict: Verdict, width: int | None = None) -> str:
    """Return the verdict for a terminal.

    Args:
        verdict: The verdict.
        width: Columns to write for; those of the terminal when None.
    """
    shown = verdict_blocks(verdict)
    facts, *rules = reversed(shown.blocks)
    return render(shown.title, [Prose(text=shown.lead), facts, *reversed(rules)], width=width, most=None)


def verdict_blocks(verdict: Verdict) -> Section:
    """Return the verdict as it stands alone: in a terminal, or in a notebook."""
    subject = verdict.subject
    policy = Name(words.name(verdict.policy), _ANY)
    name = say("{}: {} {} by {}", words.headline(verdict), Name(subject.name, 80), Name(subject.version, 40), policy)
    tone: Tone = "bad" if not verdict.passed else "warn" if verdict.count(State.WARNED) else "good"
    blocks = (*_rules(verdict), _judged(verdict))
    return Section(id="verdict", title=name, lead=words.advice(verdict), tone=tone, blocks=blocks)


def verdict_title(verdict: Verdict) -> tuple[str, Tone]:
    """Return the verdict in a few words."""
    if not verdict.passed:
        return f"Stopped: {', and '.join(_CAUSES[code] for code in verdict.codes if code in _CAUSES)}", "bad"
    warned = verdict.count(State.WARNED)
    return (f"Passed, with {plural(warned, 'warning')}", "warn") if warned else ("Passed", "good")


def area_tones(verdict: Verdict) -> dict[str, Tone]:
    """Return the tone of each area of which a rule does not hold, by the id of its section."""
    found: dict[str, Tone] = {}
    for one in verdict.rules:
        if (tone := _TONES[one.state]) in {"bad", "warn"}:
            area = _area(one.rule) or "verdict"
            found[area] = worst((tone, found.get(area, "")))
    return found


def verdict_section(verdict: Verdict) -> tuple[Section, list[Point]]:
    """Return the rules as a part of a page, the gravest first, and what stands out of them."""
    counts = [
        f"{verdict.count(state)} {'not evaluated' if state == State.NOT_EVALUATED else state.value.replace('_', ' ')}"
        for state in ORDER
        if verdict.count(state)
    ]
    lead: Line = f"{plural(len(verdict.rules), 'rule')}: {', '.join(counts)}."
    if verdict.waiting:
        lead = say("{} Waiting for a baseline: {}.", lead, join(", ", (Name(one, 60) for one in verdict.waiting)))
    blocks = (*_rules(verdict), _judged(verdict))
    section = Section(id="verdict", title="Rules", lead=lead, tone=verdict_title(verdict)[1], blocks=blocks)
    return section, [_point(one) for state in _VERBS for one in verdict.rules if one.state == state]


def _area(rule: Rule) -> str:
    """Return the section of a page that says more of a rule's metric; nothing where none does."""
    return METRICS[rule.metric].area if rule.metric in METRICS else ""


def _judged(verdict: Verdict) -> Facts:
    """Return what was judged, by what, and what it comes to."""
    older = verdict.baseline
    baseline = (
        ()
        if older is None
        else (("baseline", say("{} ({} {})", older.id, Name(older.name, 80), Name(older.version, 40))),)
    )
    codes = [code for code in verdict.codes if code != verdict.exit_code]
    also = f" (also {', '.join(str(int(code)) for code in codes)})" if codes else ""
    policy = (Name(words.name(verdict.policy), _ANY), Name(verdict.policy_version, 40), verdict.policy_digest)
    return Facts(
        pairs=(
            ("manifest", verdict.subject.id),
            *baseline,
            ("policy", say("{} {}, {}", *policy)),
            ("rules", words.tally(verdict)),
            ("exit code", f"{int(verdict.exit_code)}{also}"),
        )
    )


def _rules(verdict: Verdict) -> list[Block]:
    """Return what does not hold, where to look, waivers, and the other rules."""
    picked = pick(verdict, MOST_CASES, first=_OF_A_RULE, most=_OF_A_RULE)
    heads = (*word_columns("state"), *names("rule", "where"), *texts("value"), *names("limit"))
    blocks: list[Block] = [
        Table(
            title="What does not hold",
            columns=heads,
            rows=tuple(map(_case, picked.shown)),
            number=len(picked.shown) + picked.left_out,
            noun="case",
            rest="in gate.json (--out)",
        )
    ]
    if look := tuple(_look(verdict)):
        blocks.append(Facts(title="Where to look", pairs=look))
    if verdict.waivers:
        waivers = tuple(Point(text=Name(words.waiver_words(one), _ANY)) for one in first(verdict.waivers, MOST_ROWS))
        blocks.append(Points(title="Waivers", items=waivers))
    rest = [result for result in verdict.rules if not problems(verdict, result)]
    columns = (*word_columns("state"), *names("rule"), *texts("cases and numbers"))
    blocks.append(
        Table(title="The other rules", columns=columns, rows=tuple(_other(verdict, one) for one in rest), noun="rule")
    )
    return [one for one in blocks if not isinstance(one, Table) or one.rows]


def _case(shown: Shown) -> Row:
    """Return a case that does not pass as cells: state, rule, where, value, limit."""
    rule, case = shown.result.rule, shown.case
    tone = "quiet" if shown.effect == Effect.WAIVED else _EFFECTS.get(shown.effect, "")
    metric = Name(words.metric_words(rule, case), _ANY)
    return (
        Cell(text=str(shown.effect).lower(), tone=tone),
        Cell(text=Name(words.name(rule.name), _ANY), href=_area(rule), aside=metric),
        Cell(text=_where(shown), aside=case.fingerprint if case is not None else ""),
        words.value_words(rule, case),
        Cell(text=words.limit_words(rule), detail=_beside(shown)),
    )


def _where(shown: Shown) -> Line:
    """Return the place; of a rule about several statistics also which one."""
    place = Name(words.place(shown.case), _ANY)
    if shown.case is None or shown.case.stat == shown.result.rule.stat:
        return place
    return say("{}, {}", Name(words.name(shown.case.stat), _ANY), place)


def _beside(shown: Shown) -> str:
    """Return the number that was judged and what it was compared with, where these are not the value."""
    rule, case = shown.result.rule, shown.case
    found = numbers(rule, case)
    baseline = ""
    if found.baseline and case is not None:
        baseline = f"{'median' if rule.limit_kind == 'robust_sd' else 'from'} {with_unit(found.baseline, case.unit)}"
    return ", ".join(part for part in (words.judged_words(rule, case), baseline) if part)


def _look(verdict: Verdict) -> Iterator[tuple[Line, Line | Cell]]:
    """Yield the shards to look at, for each case that is listed, and what to do about it once for each rule."""
    for result in sorted(verdict.rules, key=lambda one: WORST_FIRST[effect_of(verdict, one)]):
        rule, listed = result.rule, problems(verdict, result)[:_OF_A_RULE]
        told: list[Line | Cell] = [line for shown in listed if (line := _evidence(shown, named=len(listed) > 1))]
        if listed and rule.runbook is not None:
            told.append(_runbook(rule))
        if listed and rule.owner is not None:
            told.append(say("owner {}", _written(rule.owner, 200)))
        if listed and rule.reason is not None:
            told.append(say("why: {}", _written(rule.reason)))
        for number, one in enumerate(told):
            yield "" if number else Name(words.name(rule.name), _ANY), one


def _evidence(shown: Shown, *, named: bool) -> Line:
    """Return shards and fingerprint of a case, with its place where a rule lists several."""
    told: list[Line] = [
        say("{} ({})", Name(uri, _ANY), count) for uri, count in words.evidence(shown.result.rule, shown.case)
    ]
    if shown.case is not None and shown.case.fingerprint:
        told.append(f"fingerprint {shown.case.fingerprint}")
    if not told:
        return ""
    line = join("; ", told)
    return say("{}: {}", Name(words.place(shown.case), _ANY), line) if named else line


def _other(verdict: Verdict, result: RuleResult) -> Row:
    effect = effect_of(verdict, result)
    metric = Name(words.metric_words(result.rule, None), _ANY)
    rule = Cell(text=Name(words.name(result.rule.name), _ANY), aside=metric)
    return toned(str(effect).lower(), _EFFECTS.get(effect, "quiet")), rule, _holds(result)


def _holds(result: RuleResult) -> Line:
    if result.state != State.PASSED:
        return words.why(result)
    nearest = result.cases[0] if result.cases else None
    judged = words.judged_words(result.rule, nearest)
    told = f"{words.value_words(result.rule, nearest)}, limit {words.limit_words(result.rule)}"
    told += f" ({judged})" if judged else ""
    number = result.counts.get(State.PASSED, 0)
    if number < 2:
        return told
    return say("{}, nearest {}: {}", plural(number, "case"), Name(words.place(nearest), _ANY), told)


def _point(result: RuleResult) -> Point:
    """Return a rule that does not hold, with the place where it holds least."""
    rule = result.rule
    text: Line = Name(words.name(rule.metric, 60), _ANY)
    if result.cases:
        case, others = result.cases[0], result.counts.get(result.state, 0) - 1
        shown = Shown(result=result, case=case, effect=Effect.STOPS)
        of = say(" of {}", Name(words.place(case), _ANY)) if words.places(case) else ""
        found, beside = words.value_words(rule, case), _beside(shown)
        value = f"has {found}" if found.startswith("no number") else f"is {found}, and cannot be judged"
        if case.judged is not None:
            value = f"is {found}{f', {beside}' if beside else ''}, limit {words.limit_words(rule)}"
        text = say("{} {}{} {}.", text, Name(words.name(case.stat, 40), _ANY), of, value)
        evidence = [say("{}: {}", Name(uri, 80), count) for uri, count in words.evidence(rule, case)]
        if evidence:
            rest = f"; and {plural(len(case.evidence) - 1, 'more shard')}" if len(case.evidence) > 1 else ""
            text = say("{} {}{}.", text, evidence[0], rest)
        if others > 0:
            text = say("{} And {}.", text, plural(others, "further place"))
    return Point(
        tone=_TONES[result.state],
        head=say("{} {}", Name(words.name(rule.name, 60), _ANY), _VERBS[result.state]),
        text=text,
        section=_area(rule) or "verdict",
        owner="" if rule.owner is None else _written(rule.owner, 100),
        reason="" if rule.reason is None else _written(rule.reason),
        runbook=None if rule.runbook is None else _runbook(rule),
    )


def _written(text: str, limit: int = words.TEXT_LIMIT) -> Name:
    """Return what the policy's author wrote, on one line."""
    return Name(words.prose(text, limit), _ANY)


def _runbook(rule: Rule) -> Cell:
    """Return the runbook, as a link only where it is an address of the web."""
    return Cell(text=_written(rule.runbook or ""), link=web_address(rule.runbook))
