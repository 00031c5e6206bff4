"""The verdict as blocks: result, what does not hold and where to look, the other rules, what was judged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from dataaudit.base.errors import ExitCode
from dataaudit.base.render.blocks import (
    Cell,
    Facts,
    Point,
    Prose,
    Section,
    Table,
    Tone,
    table_of,
    toned,
    web_address,
    worst,
)
from dataaudit.base.render.line import Line, Name, join, say
from dataaudit.base.render.terminal import render
from dataaudit.base.text import plural
from dataaudit.decide.gate.number_texts import number, numbers, with_unit
from dataaudit.decide.gate.policy import Rule
from dataaudit.decide.gate.verdict import (
    ORDER,
    Case,
    RuleResult,
    ShardBehind,
    State,
    Verdict,
    WaiverResult,
    WaiverState,
)
from dataaudit.decide.gate.writers import words
from dataaudit.metrics.registry import METRICS

MOST_CASES = 30
OF_A_RULE = 5
"""Cases of a rule that are listed, and shards behind all rules."""
_RULES = 12
"""Rules that are named of a shard."""
_REST = "in gate.json (--out)"
_WORD = r"(?:[A-Za-z]+(?:[-/][a-z]+)*|-?[0-9][0-9,]*(?:\.[0-9]+)?)"
_PLAIN = re.compile(rf"(?:{_WORD}(?:[,;:)]{{0,2}} \(?{_WORD}|'[a-z]+)*(?: %)?\)?\.?)?")
_HEXADECIMAL = re.compile(r"\b[0-9a-fA-F]{7,}\b")
"""What a platform may take for a commit."""
_WAIVERS = {WaiverState.EXPIRED: 0, WaiverState.EXCEEDED: 1, WaiverState.UNUSED: 2, WaiverState.USED: 3}
_NAME, _TEXT = 120, 300
_ANY = 10_000
"""Characters of a text that is short already."""
_EFFECTS: dict[words.Effect, Tone] = {
    words.Effect.STOPS: "bad",
    words.Effect.UNKNOWN: "bad",
    words.Effect.WARNS: "warn",
    words.Effect.HOLDS: "good",
}
_CAUSES = {
    ExitCode.BUDGET_EXCEEDED: "a budget is exceeded",
    ExitCode.NOT_EVALUATED: "a rule could not be evaluated",
    ExitCode.NOTHING_EVALUATED: "nothing was evaluated",
}
_VERBS = {State.FAILED: "fails", State.NOT_EVALUATED: "not evaluated", State.WARNED: "warns"}


def terminal_text(verdict: Verdict, width: int | None = None) -> str:
    """Return the verdict for a terminal."""
    shown = verdict_blocks(verdict)
    first = 1 if verdict.shards_behind else 0
    *rules, facts = shown.blocks[first:]
    return render(shown.title, [Prose(text=shown.lead), *shown.blocks[:first], facts, *rules], width=width, most=None)


def verdict_blocks(verdict: Verdict) -> Section:
    """Return the verdict as it stands alone: in a terminal, or in a notebook."""
    subject = verdict.subject
    policy = _name(verdict.policy)
    name = say("{}: {} {} by {}", words.headline(verdict), Name(subject.name, 80), Name(subject.version, 40), policy)
    tone: Tone = "bad" if not verdict.passed else "warn" if verdict.count(State.WARNED) else "good"
    blocks = (*rule_blocks(verdict), _judged(verdict))
    return Section(id="verdict", title=name, lead=words.advice(verdict), tone=tone, blocks=blocks)


def verdict_title(verdict: Verdict) -> tuple[str, Tone]:
    """Return the verdict in a few words."""
    if words.only_expired(verdict):
        return (
            f"Stopped: {plural(len(words.expired(verdict)), 'waiver')} of the policy expired, no rule fails",
            "bad",
        )
    if not verdict.passed:
        return f"Stopped: {', and '.join(_CAUSES[code] for code in verdict.codes if code in _CAUSES)}", "bad"
    warned = verdict.count(State.WARNED)
    none = len(words.skipped(verdict))
    more = f", {none:,} of {plural(len(verdict.rules), 'rule')} skipped" if none else ""
    return (f"Passed, with {plural(warned, 'warning')}{more}", "warn") if warned else (f"Passed{more}", "good")


def area_tones(verdict: Verdict) -> dict[str, Tone]:
    """Return the tone of each area of which a rule does not hold, by the id of its section."""
    tones: dict[str, Tone] = {}
    for result in verdict.rules:
        if result.state in _VERBS:
            area = _area(result.rule) or "verdict"
            tones[area] = worst((_tone(verdict, result), tones.get(area, "")))
    return tones


def _tone(verdict: Verdict, result: RuleResult) -> Tone:
    """Return the tone of a rule that does not hold: red where it stops the release."""
    return "bad" if words.effect_of(verdict, result) in words.STOPPING else "warn"


def verdict_section(verdict: Verdict) -> tuple[Section, list[Point]]:
    """Return the rules as a part of a page, the gravest first, and what stands out of them."""
    counts = [
        f"{verdict.count(state)} {'not evaluated' if state == State.NOT_EVALUATED else state.value.replace('_', ' ')}"
        for state in ORDER
        if verdict.count(state)
    ]
    lead: Line = f"{plural(len(verdict.rules), 'rule')}: {', '.join(counts)}."
    if verdict.waiting:
        lead = say("{} Waiting for a baseline: {}.", lead, join(", ", (Name(name, 60) for name in verdict.waiting)))
    blocks = (*rule_blocks(verdict, shards=len(verdict.shards_behind)), _judged(verdict))
    section = Section(id="verdict", title="Rules", lead=lead, tone=verdict_title(verdict)[1], blocks=blocks)
    broken = [(_tone(verdict, result), result) for state in _VERBS for result in verdict.rules if result.state == state]
    points = [_point(result, tone) for tone, result in sorted(broken, key=lambda item: item[0] != "bad")]
    return section, [*_behind_point(verdict), *points]


def _area(rule: Rule) -> str:
    return METRICS[rule.metric].area if rule.metric in METRICS else ""


def _judged(verdict: Verdict) -> Facts:
    older = verdict.baseline
    baseline: tuple[tuple[Line, Line], ...] = ()
    if older is not None:
        baseline = (("baseline", say("{} ({} {})", older.id, Name(older.name, 80), Name(older.version, 40))),)
    policy = (_name(verdict.policy), Name(verdict.policy_version, 40), verdict.policy_digest)
    return Facts(
        pairs=(
            ("manifest", verdict.subject.id),
            *baseline,
            *((("canary", words.canary_words(verdict.canary)),) if verdict.canary else ()),
            *(("remark", words.prose(remark)) for remark in verdict.remarks),
            ("policy", say("{} {}, {}", *policy)),
            ("rules", words.tally(verdict)),
            ("exit code", f"{int(verdict.exit_code)}{words.other_codes(verdict)}"),
        )
    )


def rule_blocks(
    verdict: Verdict, rows: int = MOST_CASES, of_a_rule: int = OF_A_RULE, shards: int = OF_A_RULE
) -> list[Table | Facts]:
    """Return the shards behind what fails, what does not hold, where to look, waivers, and the other rules."""
    shown, left_out = words.pick(verdict, rows, first=of_a_rule, most=of_a_rule)
    cases = table_of(
        "What does not hold",
        shown,
        ("state", "word", lambda item: Cell(text=str(item.effect).lower(), tone=_EFFECTS.get(item.effect, "quiet"))),
        ("rule", "name", lambda item: _rule(item.result.rule, item.case, href=_area(item.result.rule))),
        ("where", "name", _where),
        ("value", "text", lambda item: _ours(words.value_words(item.result.rule, item.case))),
        ("limit", "name", _limit),
        most=len(shown),
        noun="case",
        rest=_REST,
    )
    blocks: list[Table | Facts] = [_behind(verdict, shards), replace(cases, number=len(shown) + left_out)]
    if look := tuple(_look(verdict, of_a_rule)):
        blocks.append(Facts(title="Where to look", pairs=look))
    if verdict.waivers:
        blocks.append(_waivers(verdict, rows))
    others = [
        (words.effect_of(verdict, result), result) for result in verdict.rules if not words.problems(verdict, result)
    ]
    blocks.append(
        table_of(
            "The other rules",
            others,
            ("state", "word", lambda item: toned(str(item[0]).lower(), _EFFECTS.get(item[0], "quiet"))),
            ("rule", "name", lambda item: _rule(item[1].rule, None)),
            ("cases and numbers", "text", lambda item: _holds(item[1])),
            most=len(others),
            noun="rule",
        )
    )
    return [block for block in blocks if not isinstance(block, Table) or block.rows]


def _behind(verdict: Verdict, most: int) -> Table:
    def rules(behind: ShardBehind) -> Line:
        named: list[Line] = [_name(rule) for rule in behind.rules[:_RULES]]
        if len(behind.rules) > _RULES:
            named.append(f"{len(behind.rules) - _RULES:,} more")
        new = ", changed since the baseline" if behind.changed else ", new since the baseline" if behind.fresh else ""
        return say("{}{}", join(", ", named), new)

    shards = table_of(
        "Shards behind this",
        verdict.shards_behind[:most],
        ("shard", "name", lambda behind: _name(words.name(behind.uri))),
        ("rules", "number", lambda behind: len(behind.rules)),
        ("weight", "number", lambda behind: f"{behind.weight:.2f}" if behind.weight >= 0.005 else "<0.01"),
        ("which rules", "text", rules),
        most=most,
        noun="shard",
        rest=_REST,
    )
    return replace(shards, number=verdict.num_shards_behind)


def _behind_point(verdict: Verdict) -> Iterator[Point]:
    first = verdict.shards_behind[:OF_A_RULE]
    shards: list[Line] = [
        say("{} ({})", _name(words.name(behind.uri)), plural(len(behind.rules), "rule")) for behind in first
    ]
    left = verdict.num_shards_behind - len(first)
    if left > 0:
        shards.append(plural(left, "more shard"))
    if shards:
        yield Point(tone="bad", head="Shards behind this", text=say("{}.", join(", ", shards)), section="verdict")


def _rule(rule: Rule, case: Case | None, href: str = "") -> Cell:
    return Cell(text=_name(rule.name), href=href, aside=Name(words.metric_words(rule, case), _ANY))


def _where(shown: words.Shown) -> Cell:
    case, where = shown.case, _scope(shown.case)
    if case is not None and case.stat != shown.result.rule.stat:
        where = say("{}, {}", _name(case.stat), where)
    return Cell(text=where, aside=Name(case.fingerprint) if case is not None and case.fingerprint else "")


def _limit(shown: words.Shown) -> Cell:
    rule = shown.result.rule
    return Cell(text=_ours(words.limit_words(rule)), detail=_ours(_beside(shown.result, shown.case)))


def _beside(result: RuleResult, case: Case | None) -> str:
    """Return the number that was judged and what it was compared with, where these are not the value."""
    rule = result.rule
    shown = numbers(rule, case)
    baseline = ""
    if shown.baseline and case is not None:
        of = "median" if rule.limit_kind == "robust_sd" else rule.budget_from or "from"
        baseline = f"{of} {with_unit(shown.baseline, case.unit)}"
    return ", ".join(part for part in (words.judged_words(rule, case), baseline) if part)


def _waivers(verdict: Verdict, most: int) -> Table:
    covered = {
        case.fingerprint: words.message(result.rule, case)
        for result in verdict.rules
        if result.waived
        for case in result.cases
        if case.waived
    }

    def state(result: WaiverResult) -> Cell | Line:
        return toned(str(result.state), "bad", when=result.state in {WaiverState.EXPIRED, WaiverState.EXCEEDED})

    def last_day(result: WaiverResult) -> Line:
        ceiling = "" if result.waiver.up_to is None else f", up to {number(result.waiver.up_to)}"
        return Name(result.waiver.expires.isoformat() + ceiling)

    return table_of(
        "Waivers",
        sorted(verdict.waivers, key=lambda result: _WAIVERS[result.state]),
        ("state", "word", state),
        ("rule", "name", lambda result: _name(result.waiver.rule)),
        ("fingerprint", "name", lambda result: Name(result.waiver.fingerprint)),
        ("owner", "name", lambda result: _written(result.waiver.owner, 200)),
        ("reason", "text", lambda result: _written(result.waiver.reason)),
        ("last day", "name", last_day),
        ("covers", "text", lambda result: _ours(covered.get(result.waiver.fingerprint, ""))),
        most=most,
        noun="waiver",
    )


def _look(verdict: Verdict, of_a_rule: int) -> Iterator[tuple[Line, Line | Cell]]:
    """Yield the shards to look at, for each case that is listed, and what to do about it once for each rule."""
    for result in sorted(verdict.rules, key=lambda item: words.WORST_FIRST[words.effect_of(verdict, item)]):
        rule, listed = result.rule, words.problems(verdict, result)[:of_a_rule]
        lines: list[Line | Cell] = [line for shown in listed if (line := _evidence(shown, named=len(listed) > 1))]
        if listed and rule.runbook is not None:
            lines.append(_runbook(rule))
        if listed and rule.owner is not None:
            lines.append(say("owner {}", _written(rule.owner, 200)))
        if listed and rule.reason is not None:
            lines.append(say("why: {}", _written(rule.reason)))
        for index, item in enumerate(lines):
            yield "" if index else _name(rule.name), item


def _evidence(shown: words.Shown, *, named: bool) -> Line:
    parts: list[Line] = [
        say("{} ({})", _name(uri), _ours(count)) for uri, count in words.evidence(shown.result.rule, shown.case)
    ]
    if shown.case is not None and shown.case.fingerprint:
        parts.append(say("fingerprint {}", Name(shown.case.fingerprint)))
    if not parts:
        return ""
    line = join("; ", parts)
    return say("{}: {}", _scope(shown.case), line) if named else line


def _holds(result: RuleResult) -> Line:
    if result.state != State.PASSED:
        return _ours(words.why(result))
    nearest = next((case for case in result.cases if not case.waived), None)
    beside: Line = ""
    if nearest is not None and (judged := _beside(result, nearest)):
        beside = say(" ({})", _ours(judged))
    value, limit = _ours(words.value_words(result.rule, nearest)), _ours(words.limit_words(result.rule))
    text = say("{}, limit {}{}", value, limit, beside)
    if result.waived:
        text = say("{}; {} waived", text, plural(result.waived, "case"))
    passing = result.counts.get(State.PASSED, 0)
    return text if passing < 2 else say("{}, nearest {}: {}", plural(passing, "case"), _scope(nearest), text)


def _point(result: RuleResult, tone: Tone) -> Point:
    rule = result.rule
    text: Line = _name(rule.metric, 60)
    if result.cases:
        case, others = result.cases[0], result.counts.get(result.state, 0) - 1
        of = say(" of {}", _scope(case)) if words.scope_pairs(case) else ""
        value, beside = words.value_words(rule, case), _beside(result, case)
        if case.judged is not None:
            value = f"is {value}{f', {beside}' if beside else ''}, limit {words.limit_words(rule)}"
        else:
            value = f"has {value}" if value.startswith("no number") else f"is {value}, and cannot be judged"
        text = say("{} {}{} {}.", text, _name(case.stat, 40), of, value)
        evidence = [say("{}: {}", _name(uri), count) for uri, count in words.evidence(rule, case)]
        if evidence:
            rest = f"; and {plural(len(case.evidence) - 1, 'more shard')}" if len(case.evidence) > 1 else ""
            text = say("{} {}{}.", text, evidence[0], rest)
        if others > 0:
            text = say("{} And {}.", text, plural(others, "further place"))
    return Point(
        tone=tone,
        head=say("{} {}", _name(rule.name, 60), _VERBS[result.state]),
        text=text,
        section=_area(rule) or "verdict",
        owner="" if rule.owner is None else _written(rule.owner, 100),
        reason="" if rule.reason is None else _written(rule.reason),
        runbook=None if rule.runbook is None else _runbook(rule),
    )


def _name(text: str, limit: int = _NAME) -> Name:
    return Name(words.name(text, limit), _ANY)


def _ours(text: str) -> Line:
    """Return words of ours that may hold a unit or a code of the data: as a name, but where all of them are plain."""
    return text if _PLAIN.fullmatch(text) and not _HEXADECIMAL.search(text) else Name(text, _ANY)


def _scope(case: Case | None) -> Line:
    """Return ``set val, source web``, or ``whole dataset``."""
    pairs = [say("{} {}", field, _name(name)) for field, name in words.scope_pairs(case)]
    return join(", ", pairs) if pairs else "whole dataset"


def _written(text: str, limit: int = _TEXT) -> Name:
    return Name(words.prose(text, limit), _ANY)


def _runbook(rule: Rule) -> Cell:
    """Return the runbook, as a link only where it is an address of the web."""
    return Cell(text=_written(rule.runbook or ""), link=web_address(rule.runbook))
