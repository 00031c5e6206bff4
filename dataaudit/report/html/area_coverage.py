"""Coverage: what was planned, what was read, what was lost and why."""

from __future__ import annotations

from collections.abc import Sequence

from dataaudit import text as t
from dataaudit.report.html.pieces import (
    Block,
    Finding,
    Grid,
    Prose,
    Section,
    cell,
    first,
    more,
    name,
    named,
    numbers,
    prose,
)
from dataaudit.report.html.pieces import row as cells
from dataaudit.report.meanings import reason_text
from dataaudit.report.view import LostShard, Overview

_ROWS = 50
_STATES = ("planned", "read", "bad", "quarantined", "skipped")


def coverage_section(view: Overview) -> tuple[Section, list[Finding]]:
    """Return the ledger with every lost shard, and what stands out of it."""
    ledger, findings = view.ledger, []
    unread = ledger["unread_bytes"]
    lead = f"All {t.plural(ledger['shards']['planned'], 'planned shard')} were read"
    if view.unread:
        one, number = view.unread[0], len(view.unread)
        lead = (
            f"{t.count(number)} of {t.plural(ledger['shards']['planned'], 'shard')} {'was' if number == 1 else 'were'}"
            f" not read ({t.size(unread)}): {named(f'{one.split}/{one.uri}', 80)}, {_why(one)}"
        )
        whole = [code for code, records in one.reasons.items() if records < 0]
        lead += f" ({reason_text(whole[0])})" if len(whole) == 1 else ""
        lead += f", and {t.count(number - 1)} more" if number > 1 else ""
        findings.append(Finding(tone="bad", text=f"{lead}.", section="coverage"))
    bad = ledger["documents"]["bad"]
    if bad:
        text = f"{t.plural(bad, 'bad record')} in {t.plural(len(view.partial), 'shard')} were left out of every number."
        findings.append(Finding(tone="warn", text=text, section="coverage"))
    if ledger["documents"]["read"] == 0:
        findings.insert(0, Finding(tone="bad", text="No document was read: nothing was evaluated.", section="coverage"))
    blocks: list[Block] = [_ledger(view)]
    if view.unread:
        blocks.append(_lost(view.unread, "Shards that were not read"))
    if view.partial:
        blocks.append(_lost(view.partial, "Shards read without their bad records"))
    codes = sorted({code for one in (*view.unread, *view.partial) for code in one.reasons})[:30]
    if codes:
        rows = tuple(cells(named(code, 60), reason_text(code)) for code in codes)
        blocks.append(
            Grid(title="What the codes mean", columns=(name("code"), prose("meaning")), rows=rows, folded=True)
        )
    if ledger["shards_of_unknown_documents"]:
        many = t.plural(ledger["shards_of_unknown_documents"], "unread shard")
        blocks.append(Prose(text=f"The documents of {many} cannot be counted.", tone="quiet"))
    tone = findings[0].tone if findings else "good"
    section = Section(id="coverage", title="Coverage", lead=f"{lead}.", tone=tone, blocks=tuple(blocks))
    return section, findings


def _ledger(view: Overview) -> Grid:
    lines = (("shards", "shards"), ("stored bytes", "stored_bytes"), ("documents", "documents"))
    rows = tuple(
        cells(
            title,
            *(cell(t.count(line[state]), "bad" if state in _STATES[2:] and line[state] else "") for state in _STATES),
        )
        for title, line in ((title, view.ledger[key]) for title, key in lines)
    )
    return Grid(title="Planned and read", columns=(name(""), *numbers(*_STATES)), rows=rows)


def _lost(shards: Sequence[LostShard], title: str) -> Grid:
    shown = first(shards, _ROWS)
    rows = tuple(
        cells(t.count(one.shard), named(f"{one.split}/{one.uri}"), t.size(one.size), one.status, _why(one))
        for one in shown
    )
    return Grid(
        title=title,
        rows=rows,
        more=more(shards, shown, "shard"),
        columns=(*numbers("shard"), name("split/uri"), *numbers("size"), name("status"), prose("why")),
    )


def _why(shard: LostShard) -> str:
    """Return the reason that took the whole shard, then those that took records of it."""
    place = f" ({named(shard.place, 60)})" if shard.place else ""
    whole = [f"{named(code, 60)}{place}" for code, records in sorted(shard.reasons.items()) if records < 0]
    some = [(records, code) for code, records in shard.reasons.items() if records >= 0]
    parts = [f"{t.plural(records, 'record')} {named(code, 60)}" for records, code in sorted(some, reverse=True)]
    return ", ".join(whole + parts) or shard.status
