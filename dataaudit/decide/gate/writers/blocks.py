"""The verdict as blocks: what it comes to, what does not hold and where to look, the other rules, what was judged."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dataaudit.base.errors import ExitCode
from dataaudit.base.render.blocks import (
    Cell,
    Facts,
    Point,
    Prose,
    Row,
    Section,
    Table,
    Tone,
    names,
    rows_of,
    texts,
    toned,
    web_address,
    worst,
)
from dataaudit.base.render.blocks import numbers as number_columns
from dataaudit.base.render.blocks import words as word_columns
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
from dataaudit.decide.gate.writers.words import (
    WORST_FIRST,
    Effect,
    Shown,
    effect_of,
    expired,
    only_expired,
    pick,
    problems,
    skipped,
)
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
    if only_expired(verdict):
        return f"Stopped: {plural(len(expired(verdict)), 'waiver')} of the policy expired, no rule fails", "bad"
    if not verdict.passed:
        return f"Stopped: {', and '.join(_CAUSES[code] for code in verdict.codes if code in _CAUSES)}", "bad"
    warned = verdict.count(State.WARNED)
    none = len(skipped(verdict))
    more = f", {none:,} of {plural(len(verdict.rules), 'rule')} skipped" if none else ""
    return (f"Passed, with {plural(warned, 'warning')}{more}", "warn") if warned else (f"Passed{more}", "good")


def area_tones(verdict: Verdict) -> dict[str, Tone]:
    """Return the tone of each area of which a rule does not hold, by the id of its section."""
    found: dict[str, Tone] = {}
    for rule_result in verdict.rules:
        if (tone := _TONES[rule_result.state]) in {"bad", "warn"}:
            area = _area(rule_result.rule) or "verdict"
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
        lead = say("{} Waiting for a baseline: {}.", lead, join(", ", (Name(name, 60) for name in verdict.waiting)))
    blocks = (*rule_blocks(verdict, shards=len(verdict.shards_behind)), _judged(verdict))
    section = Section(id="verdict", title="Rules", lead=lead, tone=verdict_title(verdict)[1], blocks=blocks)
    points = [_point(rule_result) for state in _VERBS for rule_result in verdict.rules if rule_result.state == state]
    return section, [*_behind_point(verdict), *points]


def _area(rule: Rule) -> str:
    """Return the section of a page that says more of a rule's metric; nothing where none does."""
    return METRICS[rule.metric].area if rule.metric in METRICS else ""


def _judged(verdict: Verdict) -> Facts:
    """Return what was judged, by what, and what it comes to."""
    older = verdict.baseline
    baseline: tuple[tuple[Line, Line], ...] = ()
    if older is not None:
        baseline = (("baseline", say("{} ({} {})", older.id, Name(older.name, 80), Name(older.version, 40))),)
    policy = (_name(verdict.policy), Name(verdict.policy_version, 40), verdict.policy_digest)
    return Facts(
        pairs=(
            ("manifest", verdict.subject.id),
            *baseline,
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
    shown, left_out = pick(verdict, rows, first=of_a_rule, most=of_a_rule)
    heads = (*word_columns("state"), *names("rule", "where"), *texts("value"), *names("limit"))
    blocks: list[Table | Facts] = [
        _behind(verdict, shards),
        Table(
            title="What does not hold",
            columns=heads,
            rows=tuple(map(_case, shown)),
            number=len(shown) + left_out,
            noun="case",
            rest=_REST,
        ),
    ]
    if look := tuple(_look(verdict, of_a_rule)):
        blocks.append(Facts(title="Where to look", pairs=look))
    if verdict.waivers:
        blocks.append(_waivers(verdict, rows))
    rest = [result for result in verdict.rules if not problems(verdict, result)]
    columns = (*word_columns("state"), *names("rule"), *texts("cases and numbers"))
    blocks.append(
        Table(
            title="The other rules",
            columns=columns,
            rows=tuple(_other(verdict, rule_result) for rule_result in rest),
            noun="rule",
        )
    )
    return [block for block in blocks if not isinstance(block, Table) or block.rows]


def _behind(verdict: Verdict, most: int) -> Table:
    """Return the shards that most rules which stop the release sit in."""

    def row(behind: ShardBehind) -> Row:
        new = ", changed since the baseline" if behind.changed else ", new since the baseline" if behind.fresh else ""
        named: list[Line] = [_name(rule) for rule in behind.rules[:_RULES]]
        if len(behind.rules) > _RULES:
            named.append(f"{len(behind.rules) - _RULES:,} more")
        weight = f"{behind.weight:.2f}" if behind.weight >= 0.005 else "<0.01"
        return _name(words.name(behind.uri)), len(behind.rules), weight, say("{}{}", join(", ", named), new)

    return Table(
        title="Shards behind this",
        columns=(*names("shard"), *number_columns("rules", "weight"), *texts("which rules")),
        rows=tuple(map(row, verdict.shards_behind[:most])),
        number=verdict.num_shards_behind,
        noun="shard",
        rest=_REST,
    )


def _behind_point(verdict: Verdict) -> Iterator[Point]:
    """Yield the first shards behind what fails, where there is more than one rule to tell."""
    first = verdict.shards_behind[:OF_A_RULE]
    told: list[Line] = [
        say("{} ({})", _name(words.name(shard_behind.uri)), plural(len(shard_behind.rules), "rule"))
        for shard_behind in first
    ]
    left = verdict.num_shards_behind - len(first)
    if left > 0:
        told.append(plural(left, "more shard"))
    if told:
        yield Point(tone="bad", head="Shards behind this", text=say("{}.", join(", ", told)), section="verdict")


def _case(shown: Shown) -> Row:
    """Return a case that does not pass as cells: state, rule, where, value, limit."""
    rule, case = shown.result.rule, shown.case
    tone = "quiet" if shown.effect == Effect.WAIVED else _EFFECTS.get(shown.effect, "")
    metric = Name(words.metric_words(rule, case), _ANY)
    return (
        Cell(text=str(shown.effect).lower(), tone=tone),
        Cell(text=_name(rule.name), href=_area(rule), aside=metric),
        Cell(text=_where(shown), aside=Name(case.fingerprint) if case is not None and case.fingerprint else ""),
        _told(words.value_words(rule, case)),
        Cell(text=_told(words.limit_words(rule)), detail=_told(_beside(shown.result, case))),
    )


def _where(shown: Shown) -> Line:
    """Return the place; of a rule about several statistics also which one."""
    place = _place(shown.case)
    if shown.case is None or shown.case.stat == shown.result.rule.stat:
        return place
    return say("{}, {}", _name(shown.case.stat), place)


def _beside(result: RuleResult, case: Case | None) -> str:
    """Return the number that was judged and what it was compared with, where these are not the value."""
    rule = result.rule
    found = numbers(rule, case)
    baseline = ""
    if found.baseline and case is not None:
        of = "median" if rule.limit_kind == "robust_sd" else rule.budget_from or "from"
        baseline = f"{of} {with_unit(found.baseline, case.unit)}"
    return ", ".join(part for part in (words.judged_words(rule, case), baseline) if part)


def _waivers(verdict: Verdict, most: int) -> Table:
    """Return the waivers, expired ones first, with the cases that they cover."""
    covered = {
        case.fingerprint: words.message(result.rule, case)
        for result in verdict.rules
        if result.waived
        for case in result.cases
        if case.waived
    }

    def row(result: WaiverResult) -> Row:
        waiver, late = result.waiver, result.state in {WaiverState.EXPIRED, WaiverState.EXCEEDED}
        ceiling = "" if waiver.up_to is None else f", up to {number(waiver.up_to)}"
        last = Name(waiver.expires.isoformat() + ceiling)
        told = (_written(waiver.owner, 200), _written(waiver.reason), last)
        name, covers = _name(waiver.rule), _told(covered.get(waiver.fingerprint, ""))
        return toned(str(result.state), "bad", when=late), name, Name(waiver.fingerprint), *told, covers

    return Table(
        title="Waivers",
        columns=(
            *word_columns("state"),
            *names("rule", "fingerprint", "owner"),
            *texts("reason"),
            *names("last day"),
            *texts("covers"),
        ),
        **rows_of(sorted(verdict.waivers, key=lambda waiver: _WAIVERS[waiver.state]), row, most),
        noun="waiver",
    )


def _look(verdict: Verdict, of_a_rule: int) -> Iterator[tuple[Line, Line | Cell]]:
    """Yield the shards to look at, for each case that is listed, and what to do about it once for each rule."""
    for result in sorted(verdict.rules, key=lambda item: WORST_FIRST[effect_of(verdict, item)]):
        rule, listed = result.rule, problems(verdict, result)[:of_a_rule]
        told: list[Line | Cell] = [line for shown in listed if (line := _evidence(shown, named=len(listed) > 1))]
        if listed and rule.runbook is not None:
            told.append(_runbook(rule))
        if listed and rule.owner is not None:
            told.append(say("owner {}", _written(rule.owner, 200)))
        if listed and rule.reason is not None:
            told.append(say("why: {}", _written(rule.reason)))
        for index, item in enumerate(told):
            yield "" if index else _name(rule.name), item


def _evidence(shown: Shown, *, named: bool) -> Line:
    """Return shards and fingerprint of a case, with its place where a rule lists several."""
    told: list[Line] = [
        say("{} ({})", _name(uri), _told(count)) for uri, count in words.evidence(shown.result.rule, shown.case)
    ]
    if shown.case is not None and shown.case.fingerprint:
        told.append(say("fingerprint {}", Name(shown.case.fingerprint)))
    if not told:
        return ""
    line = join("; ", told)
    return say("{}: {}", _place(shown.case), line) if named else line


def _other(verdict: Verdict, result: RuleResult) -> Row:
    effect = effect_of(verdict, result)
    metric = Name(words.metric_words(result.rule, None), _ANY)
    rule = Cell(text=_name(result.rule.name), aside=metric)
    return toned(str(effect).lower(), _EFFECTS.get(effect, "quiet")), rule, _holds(result)


def _holds(result: RuleResult) -> Line:
    if result.state != State.PASSED:
        return _told(words.why(result))
    nearest = next((case for case in result.cases if not case.waived), None)
    beside: Line = ""
    if nearest is not None and (judged := _beside(result, nearest)):
        beside = say(" ({})", _told(judged))
    told = say(
        "{}, limit {}{}", *map(_told, (words.value_words(result.rule, nearest), words.limit_words(result.rule))), beside
    )
    if result.waived:
        told = say("{}; {} waived", told, plural(result.waived, "case"))
    passing = result.counts.get(State.PASSED, 0)
    if passing < 2:
        return told
    return say("{}, nearest {}: {}", plural(passing, "case"), _place(nearest), told)


def _point(result: RuleResult) -> Point:
    """Return a rule that does not hold, with the place where it holds least."""
    rule = result.rule
    text: Line = _name(rule.metric, 60)
    if result.cases:
        case, others = result.cases[0], result.counts.get(result.state, 0) - 1
        of = say(" of {}", _place(case)) if words.places(case) else ""
        found, beside = words.value_words(rule, case), _beside(result, case)
        value = f"has {found}" if found.startswith("no number") else f"is {found}, and cannot be judged"
        if case.judged is not None:
            value = f"is {found}{f', {beside}' if beside else ''}, limit {words.limit_words(rule)}"
        text = say("{} {}{} {}.", text, _name(case.stat, 40), of, value)
        evidence = [say("{}: {}", _name(uri), count) for uri, count in words.evidence(rule, case)]
        if evidence:
            rest = f"; and {plural(len(case.evidence) - 1, 'more shard')}" if len(case.evidence) > 1 else ""
            text = say("{} {}{}.", text, evidence[0], rest)
        if others > 0:
            text = say("{} And {}.", text, plural(others, "further place"))
    return Point(
        tone=_TONES[result.state],
        head=say("{} {}", _name(rule.name, 60), _VERBS[result.state]),
        text=text,
        section=_area(rule) or "verdict",
        owner="" if rule.owner is None else _written(rule.owner, 100),
        reason="" if rule.reason is None else _written(rule.reason),
        runbook=None if rule.runbook is None else _runbook(rule),
    )


def _name(text: str, limit: int = _NAME) -> Name:
    return Name(words.name(text, limit), _ANY)


def _told(text: str) -> Line:
    """Return words of ours that may hold a unit or a code of the data: as a name, but where all of them are plain."""
    return text if _PLAIN.fullmatch(text) and not _HEXADECIMAL.search(text) else Name(text, _ANY)


def _place(case: Case | None) -> Line:
    """Return ``set val, source web``, or ``whole dataset``."""
    pairs = [say("{} {}", field, _name(name)) for field, name in words.places(case)]
    return join(", ", pairs) if pairs else "whole dataset"


def _written(text: str, limit: int = _TEXT) -> Name:
    """Return what the policy's author wrote, on one line."""
    return Name(words.prose(text, limit), _ANY)


def _runbook(rule: Rule) -> Cell:
    """Return the runbook, as a link only where it is an address of the web."""
    return Cell(text=_written(rule.runbook or ""), link=web_address(rule.runbook))
