"""The verdict as Markdown, for a step summary and for a comment: the verdict first, then why, then everything else.

A page is fitted into a platform's limit: whole rows only, and what is left out is said.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from dataaudit.gate.numbers import numbers
from dataaudit.gate.policy import Rule
from dataaudit.gate.verdict import Case, RuleResult, Subject, Verdict, WaiverState
from dataaudit.gate.writers import words as w
from dataaudit.gate.writers.effects import Effect, effect_of
from dataaudit.gate.writers.pick import Picked, Shown, pick
from dataaudit.render.blocks import web_address
from dataaudit.render.markdown import cells, code, heads
from dataaudit.text import count, plural

SUMMARY_BYTES = 1024 * 1024
"""Of a step; a runner drops the whole of a larger one."""
COMMENT_CHARACTERS = 65_535
_NAME, _TEXT = 120, 300
_WORD = r"(?:[A-Za-z]+(?:[-/][a-z]+)*|-?[0-9][0-9,]*(?:\.[0-9]+)?)"
_PLAIN = re.compile(rf"{_WORD}(?:[,;:)]{{0,2}} \(?{_WORD}|'[a-z]+)*(?: %)?\)?\.?")
_HEXADECIMAL = re.compile(r"\b[0-9a-fA-F]{7,}\b")
_HEAD = ("Rule", "State", "Where", "Value", "Limit", "Baseline", "Owner", "Runbook")
_ORDER = {WaiverState.EXPIRED: 0, WaiverState.UNUSED: 1, WaiverState.USED: 2}


def step_summary(verdict: Verdict, *, used: int = 0) -> str:
    """Return the page for ``GITHUB_STEP_SUMMARY``; empty when there is no room for the verdict.

    Args:
        verdict: The verdict.
        used: Bytes that the step's summary holds already.
    """
    return _page(verdict, SUMMARY_BYTES - used, num_bytes, rows=500, of_rule=20)


def comment(verdict: Verdict) -> str:
    """Return the page for a comment on a pull request; its first line is what finds it again, to update it."""
    return _page(verdict, COMMENT_CHARACTERS, num_characters, rows=60, of_rule=5)


def marker(verdict: Verdict) -> str:
    """Return the hidden first line: the same for the same policy and dataset."""
    key = f"{verdict.policy}\0{verdict.subject.name}".encode("utf-8", "backslashreplace")
    return f"<!-- dataaudit-gate {hashlib.sha256(key).hexdigest()[:16]} -->"


def _page(verdict: Verdict, limit: int, measure: Measure, *, rows: int, of_rule: int) -> str:
    picked = pick(verdict, rows, first=1, most=of_rule)
    shown = [one for one in picked.shown if one.effect != Effect.WAIVED]
    sections = [
        _not_holding(verdict, shown, picked),
        _where(shown),
        _waivers(verdict),
        _waiting(verdict, rows),
        _holding(verdict, rows),
        _skipped(verdict, rows),
    ]
    page = fit(_head(verdict), [one for one in sections if one.rows], _tail(verdict), limit, measure)
    if page is None:
        page = f"**dataaudit gate: {w.headline(verdict)}**, exit code {int(verdict.exit_code)}.\n"
        return page if measure(page) <= limit else ""
    return page


def _head(verdict: Verdict) -> str:
    lines = [
        marker(verdict),
        f"## dataaudit gate: {w.headline(verdict)}",
        "",
        f"**Exit code {_codes(verdict)}: {w.tally(verdict)}.**",
        "",
        w.advice(verdict),
        "",
        f"Judged: {_subject(verdict.subject)}.",
    ]
    if verdict.baseline is not None:
        lines += ["", f"Compared with: {_subject(verdict.baseline)}."]
    return "\n".join([*lines, "", ""])


def _codes(verdict: Verdict) -> str:
    code = int(verdict.exit_code)
    others = ", ".join(str(int(one)) for one in verdict.codes if one != code)
    return f"{code} (also {others})" if others else str(code)


def _subject(subject: Subject) -> str:
    return (
        f"{code(subject.name)} {code(subject.version)}, {plural(subject.documents, 'document')}"
        f" in {plural(subject.shards, 'shard')}, manifest {code(subject.id)}"
    )


def _tail(verdict: Verdict) -> str:
    return (
        f"\nPolicy {code(verdict.policy)} {code(verdict.policy_version)}, {code(verdict.policy_digest)};"
        f" `--fail-on` {code(verdict.fail_on)}; waivers held against {code(verdict.on)}.\n"
    )


def _not_holding(verdict: Verdict, shown: list[Shown], picked: Picked) -> Section:
    waived = sum(result.waived for result in verdict.rules)
    left = max(0, len(picked.shown) + picked.left_out - waived - len(shown))
    return Section(
        before=("### What does not hold", "", *heads(_HEAD)),
        rows=[_row(one.result.rule, one.case, one.effect) for one in shown],
        total=len(shown) + left,
        noun="case",
    )


def _row(rule: Rule, case: Case | None, effect: Effect) -> str:
    found = numbers(rule, case)
    value = w.value_words(rule, case)
    if judged := w.judged_words(rule, case):
        value = f"{value}; {judged}"
    title = f"{code(rule.name, _NAME)} {code(w.metric_words(rule, case), _NAME)}"
    return cells(
        [
            title,
            f"**{effect}**",
            _place(case),
            _text(value),
            _text(w.limit_words(rule)),
            _text(found.baseline),
            _text(rule.owner),
            _runbook(rule.runbook),
        ]
    )


def _where(shown: list[Shown]) -> Section:
    rows = []
    for one in shown:
        if one.case is None:
            continue
        found = [f"{_text(number)} in {code(uri, _NAME)}" for uri, number in w.evidence(one.result.rule, one.case)]
        if one.case.fingerprint:
            found.append(f"fingerprint {code(one.case.fingerprint)}")
        if found:
            rows.append(f"- {code(one.result.rule.name, _NAME)}, {_place(one.case)}: {'; '.join(found)}")
    return Section(before=("", "### Where to look", ""), rows=rows, total=len(rows), noun="place")


def _waivers(verdict: Verdict) -> Section:
    covered = {
        case.fingerprint: (result.rule, case)
        for result in verdict.rules
        if result.waived
        for case in result.cases
        if case.waived
    }
    head = ("Waiver", "Rule", "Fingerprint", "Owner", "Reason", "Last day", "Case")
    rows = []
    for result in sorted(verdict.waivers, key=lambda one: _ORDER[one.state]):
        waiver = result.waiver
        case = covered.get(waiver.fingerprint)
        rows.append(
            cells(
                [
                    f"**{result.state.upper()}**" if result.state == WaiverState.EXPIRED else str(result.state),
                    code(waiver.rule, _NAME),
                    code(waiver.fingerprint),
                    _text(waiver.owner),
                    _text(waiver.reason),
                    _day(waiver.expires),
                    "" if case is None else _text(w.message(*case)),
                ]
            )
        )
    return Section(
        before=("", "### Waivers", "", *heads(head)),
        rows=rows,
        total=len(rows),
        noun="waiver",
    )


def _waiting(verdict: Verdict, most: int) -> Section:
    rows = [f"- {code(name, _NAME)}" for name in verdict.waiting[:most]]
    before = ("", "### Rules that wait for a baseline", "")
    return Section(before=before, rows=rows, total=len(verdict.waiting), noun="rule")


def _holding(verdict: Verdict, most: int) -> Section:
    results = [result for result in verdict.rules if effect_of(verdict, result) == Effect.HOLDS]
    head = ("Rule", "Nearest to the limit", "Value", "Limit", "Baseline")
    rows = [_holding_row(result) for result in results[:most]]
    before = (
        "",
        f"<details><summary>{plural(len(results), 'rule')} hold{'s' if len(results) == 1 else ''}</summary>",
        "",
        *heads(head),
    )
    return Section(before=before, rows=rows, after=("", "</details>", ""), total=len(results), noun="rule")


def _holding_row(result: RuleResult) -> str:
    rule = result.rule
    case = next((one for one in result.cases if not one.waived), None)
    if case is None:
        waived = f"all {count(result.waived)} cases that do not are waived" if result.waived else "nothing else to show"
        return cells([code(rule.name, _NAME), waived, "", _text(w.limit_words(rule)), ""])
    value = w.value_words(rule, case)
    if judged := w.judged_words(rule, case):
        value = f"{value}; {judged}"
    return cells(
        [
            code(rule.name, _NAME),
            _place(case),
            _text(value),
            _text(w.limit_words(rule)),
            _text(numbers(rule, case).baseline),
        ]
    )


def _skipped(verdict: Verdict, most: int) -> Section:
    results = [result for result in verdict.rules if effect_of(verdict, result) == Effect.SKIPPED and not result.waits]
    rows = [f"- {code(result.rule.name, _NAME)}: {_text(w.why(result))}" for result in results[:most]]
    title = f"<details><summary>{plural(len(results), 'rule')} not judged</summary>"
    return Section(before=("", title, ""), rows=rows, after=("", "</details>", ""), total=len(results), noun="rule")


def _place(case: Case | None) -> str:
    return ", ".join(f"{field} {code(name, _NAME)}" for field, name in w.places(case)) or "whole dataset"


def _runbook(text: str | None) -> str:
    address = web_address(text)
    return f"[runbook](<{address}>)" if address else _text(text)


def _text(text: str | None) -> str:
    """Return a text that people or we wrote: as it is where nothing in it could be markup, else as a code span."""
    shown = w.prose(text, _TEXT)
    if not shown:
        return ""
    return shown if _PLAIN.fullmatch(shown) and not _HEXADECIMAL.search(shown) else code(shown, _TEXT * 12)


def _day(day: date) -> str:
    return code(day.isoformat())


Measure = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page: rows of a table or a list, of which some may be left out from the end."""

    before: tuple[str, ...]
    """Lines above the rows: title, head of the table."""
    rows: Sequence[str]
    after: tuple[str, ...] = ()
    """Lines below, for what was opened above."""
    total: int
    """Rows that there are in all; more than ``rows`` where a writer made some of them only."""
    noun: str
    """What a row is, in the singular."""


def num_bytes(text: str) -> int:
    """Return the length in UTF-8, as the step summary counts."""
    return len(text.encode("utf-8", "backslashreplace"))


def num_characters(text: str) -> int:
    """Return the length in UTF-16 units, the larger of the ways to count characters."""
    return len(text) + sum(character > "\uffff" for character in text)


def fit(head: str, sections: Sequence[Section], tail: str, limit: int, measure: Measure) -> str | None:
    """Return the page; None when not even head and tail fit.

    Sections come in the order of their worth: an earlier one takes what it needs before a later one gets room.
    """
    room = limit - measure(head) - measure(tail)
    if room < 0:
        return None
    parts = [head]
    for section in sections:
        text = _section(section, room, measure)
        parts.append(text)
        room -= measure(text)
    return "".join([*parts, tail])


def _section(section: Section, room: int, measure: Measure) -> str:
    frame = "".join(f"{line}\n" for line in (*section.before, *section.after, _left(section, section.total), ""))
    free = room - measure(frame)
    rows = []
    for row in section.rows:
        free -= measure(row) + 1
        if free < 0:
            break
        rows.append(row)
    if not rows:
        return ""
    left = section.total - len(rows)
    note = ["", _left(section, left)] if left else []
    return "".join(f"{line}\n" for line in (*section.before, *rows, *note, *section.after))


def _left(section: Section, number: int) -> str:
    return f"{plural(number, f'more {section.noun}')} not shown here; `--out gate.json` writes them to a file."
