"""A verdict in a notebook: what it comes to, what does not hold with the shards behind it, then the rest."""

from __future__ import annotations

from collections.abc import Iterator

from dataaudit.gate.verdict import State, Verdict
from dataaudit.gate.writers import words
from dataaudit.gate.writers.pick import Shown, pick
from dataaudit.gate.writers.terminal import case_row, verdict_facts
from dataaudit.notebook import Block, Facts, Heading, Prose, Rows, Tone
from dataaudit.text import clean, plural

_CASES, _OF_A_RULE, _SHARDS = 20, 5, 2
_HEADS = ("state", "rule", "where", "value", "limit", "see")


def verdict_blocks(verdict: Verdict) -> Iterator[Block]:
    """Yield what a notebook shows of a verdict."""
    subject = verdict.subject
    title = f"{clean(subject.name, 80)} {clean(subject.version, 40)} by {words.name(verdict.policy)}"
    yield Heading(text=f"{words.headline(verdict)}: {title}", tone=_tone(verdict))
    yield Prose(text=words.advice(verdict))
    picked = pick(verdict, _CASES, first=_OF_A_RULE, most=_OF_A_RULE)
    yield Rows(
        title="What does not hold",
        heads=_HEADS,
        rows=tuple((*case_row(one), _see(one)) for one in picked.shown),
        more=f"{plural(picked.left_out, 'more case')} in .rules" if picked.left_out else "",
    )
    yield Rows(title="Waivers", heads=("",), rows=tuple((words.waiver_words(one),) for one in verdict.waivers))
    yield Facts(pairs=tuple(verdict_facts(verdict)))


def _tone(verdict: Verdict) -> Tone:
    if not verdict.passed:
        return "bad"
    return "warn" if verdict.count(State.WARNED) else "good"


def _see(shown: Shown) -> str:
    """Return the shards to look at first."""
    found = [f"{uri} ({count})" for uri, count in words.evidence(shown.result.rule, shown.case)]
    return "; ".join(found[:_SHARDS] + ["..."] * (len(found) > _SHARDS))
