"""A verdict for a terminal: what it comes to, what to do, the rules that do not hold with the shards behind them."""

from __future__ import annotations

from collections.abc import Iterator

from dataaudit import layout
from dataaudit.gate.verdict import RuleResult, State, Verdict
from dataaudit.gate.writers import words
from dataaudit.gate.writers.effects import WORST_FIRST, effect_of
from dataaudit.gate.writers.numbers import numbers, with_unit
from dataaudit.gate.writers.pick import Shown, pick, problems
from dataaudit.text import clean, plural

MOST_CASES = 30
_MOST_OF_A_RULE = 5
_COLUMNS = (
    layout.word_column("state"),
    layout.name_column("rule"),
    layout.name_column("where"),
    layout.name_column("value"),
    layout.name_column("limit"),
)
_RULES = (layout.word_column("state"), layout.name_column("rule"), layout.name_column("cases and numbers"))


def terminal_text(verdict: Verdict, width: int | None = None) -> str:
    """Return the whole text.

    Args:
        verdict: The verdict.
        width: Columns to write for; those of the terminal when None.
    """
    columns = layout.terminal_width() if width is None else width
    subject = verdict.subject
    title = f"{words.headline(verdict)}: {clean(subject.name, 80)} {clean(subject.version, 40)} by {verdict.policy}"
    return layout.page(
        title,
        layout.prose(words.advice(verdict), columns),
        layout.facts(verdict_facts(verdict), columns),
        _problems(verdict, columns),
        _evidence(verdict, columns),
        _waivers(verdict, columns),
        _rules(verdict, columns),
    )


def verdict_facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield names and values of what was judged, by what, and what it comes to."""
    yield "manifest", verdict.subject.id
    if verdict.baseline is not None:
        older = verdict.baseline
        yield "baseline", f"{older.id} ({clean(older.name, 80)} {clean(older.version, 40)})"
    yield "policy", f"{verdict.policy} {clean(verdict.policy_version, 40)}, {verdict.policy_digest}"
    yield "rules", words.tally(verdict)
    codes = [code for code in verdict.codes if code != verdict.exit_code]
    also = f" (also {', '.join(str(int(code)) for code in codes)})" if codes else ""
    yield "exit code", f"{int(verdict.exit_code)}{also}"


def _problems(verdict: Verdict, width: int) -> list[str]:
    picked = pick(verdict, MOST_CASES, first=_MOST_OF_A_RULE, most=_MOST_OF_A_RULE)
    rows = [case_row(shown) for shown in picked.shown]
    more = [f"  {plural(picked.left_out, 'more case')}: see gate.json (--out)"] if picked.left_out else []
    return layout.section("What does not hold", [*layout.table(_COLUMNS, rows, width), *more])


def case_row(shown: Shown) -> tuple[str, ...]:
    """Return a case that does not pass as cells: state, rule, where, value, limit."""
    rule, case = shown.result.rule, shown.case
    return (
        str(shown.effect).lower(),
        words.name(rule.name),
        _where(shown),
        words.value_words(rule, case),
        " ".join(part for part in (words.limit_words(rule), _beside(shown)) if part),
    )


def _where(shown: Shown) -> str:
    """Return the place; of a rule about several statistics also which one."""
    place = words.place(shown.case)
    if shown.case is None or shown.case.stat == shown.result.rule.stat:
        return place
    return f"{words.name(shown.case.stat)}, {place}"


def _beside(shown: Shown) -> str:
    """Return the number that was judged and what it was compared with, where these are not the value."""
    found = numbers(shown.result.rule, shown.case)
    parts = [words.judged_words(shown.result.rule, shown.case)]
    if found.baseline and shown.case is not None:
        word = "median" if shown.result.rule.limit_kind == "robust_sd" else "from"
        parts.append(f"{word} {with_unit(found.baseline, shown.case.unit)}")
    told = ", ".join(part for part in parts if part)
    return f"({told})" if told else ""


def _evidence(verdict: Verdict, width: int) -> list[str]:
    """Return the shards to look at, for each case that is listed, and what to do about it once for each rule."""
    pairs = []
    for result in sorted(verdict.rules, key=lambda one: WORST_FIRST[effect_of(verdict, one)]):
        listed = problems(verdict, result)[:_MOST_OF_A_RULE]
        told = [_case_evidence(shown, named=len(listed) > 1) for shown in listed]
        told += [words.prose(result.rule.runbook)] if listed and result.rule.runbook is not None else []
        told += [f"owner {words.prose(result.rule.owner, 200)}"] if listed and result.rule.owner is not None else []
        lines = [line for line in told if line]
        pairs += [(words.name(result.rule.name) if number == 0 else "", line) for number, line in enumerate(lines)]
    return layout.section("Where to look", layout.facts(pairs, width))


def _case_evidence(shown: Shown, *, named: bool) -> str:
    """Return shards and fingerprint of a case, with its place where a rule lists several."""
    told = [f"{uri} ({count})" for uri, count in words.evidence(shown.result.rule, shown.case)]
    if shown.case is not None and shown.case.fingerprint:
        told.append(f"fingerprint {shown.case.fingerprint}")
    place = f"{words.place(shown.case)}: " if named and told else ""
    return place + "; ".join(told)


def _waivers(verdict: Verdict, width: int) -> list[str]:
    lines = [line for result in verdict.waivers for line in layout.prose(words.waiver_words(result), width)]
    return layout.section("Waivers", lines)


def _rules(verdict: Verdict, width: int) -> list[str]:
    rest = [result for result in verdict.rules if not problems(verdict, result)]
    rows = [(str(effect_of(verdict, one)).lower(), words.name(one.rule.name), _holds(one)) for one in rest]
    return layout.section("The other rules", layout.table(_RULES, rows, width))


def _holds(result: RuleResult) -> str:
    if result.state != State.PASSED:
        return words.why(result)
    nearest = result.cases[0] if result.cases else None
    judged = words.judged_words(result.rule, nearest)
    told = f"{words.value_words(result.rule, nearest)}, limit {words.limit_words(result.rule)}"
    told += f" ({judged})" if judged else ""
    number = result.counts.get(State.PASSED, 0)
    if number < 2:
        return told
    return f"{plural(number, 'case')}, nearest {words.place(nearest)}: {told}"
