"""What the commands of the list print: text for people, JSON for programs. Names come from the data and are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.errors import ExitCode
from dataaudit.layout import facts, name_column, page, prose, section, table, terminal_width, word_column
from dataaudit.quarantine.changes import Change
from dataaudit.quarantine.entry import BadLine, Contents, Entry, plain_entry
from dataaudit.quarantine.list import OPEN, Folded, Record, Standing, short_id, target_name

_NAME = 300
"""Characters of a name that are shown."""
_LISTED = 10
_LONG = 2000


def list_view(
    path: Path, contents: Contents, folded: Folded, *, everything: bool, as_json: bool
) -> tuple[str, ExitCode]:
    """Return what `quarantine list` prints, and its exit code: 3 when lines cannot be read."""
    code = ExitCode.NOT_EVALUATED if contents.bad else ExitCode.PASS
    shown = [record for record in folded.records if everything or record.standing in OPEN]
    counts = {state.value: sum(record.standing == state for record in folded.records) for state in Standing}
    if as_json:
        return t.as_json(
            {
                "file": str(path),
                "digest": contents.digest,
                "on": folded.on.isoformat(),
                "exit_code": int(code),
                "counts": counts,
                "repeated": folded.repeated,
                "idle": folded.no_ops,
                "entries": [_record_json(record) for record in shown],
                "bad_lines": [_bad_json(line) for line in contents.bad],
                "dismissed_lines": [_bad_json(line) for line in contents.dismissed],
            }
        ), code
    width = terminal_width()
    hidden = len(folded.records) - len(shown)
    held = f"{t.count(counts['held'])} held, {t.count(counts['proposed'])} proposed"
    notes = [f"{t.plural(hidden, 'entry')} lifted, accepted or expired: --all shows them".replace("entrys", "entries")]
    lines = [line for note in notes[: 1 if hidden else 0] for line in prose(note, width)]
    return page(
        f"{t.clean(str(path))}: {held}, on {folded.on}",
        table(_COLUMNS, [_cells(record) for record in shown], width),
        lines,
        bad_lines(contents.bad, width),
        _oddities(contents, folded, width),
    ), code


def change_view(path: Path, change: Change, *, verb: str, as_json: bool) -> str:
    """Return what a command that changes the list prints.

    Args:
        path: The list.
        change: What it came to.
        verb: What was done to the entries: ``held back``.
        as_json: JSON instead of text.
    """
    if as_json:
        return t.as_json(
            {
                "file": str(path),
                "added": [plain_entry(entry) for entry in change.added],
                "known": [plain_entry(entry) for entry in change.known],
                "notes": [t.clean(note, _LONG) for note in change.notes],
                "bad_lines": [_bad_json(line) for line in change.bad],
            }
        )
    width = terminal_width()
    added = [(short_id(entry), _of(entry)) for entry in change.added]
    known = [(short_id(entry), _of(entry)) for entry in change.known]
    title = f"{t.clean(str(path))}: {_entries(len(change.added))} added" + (f", {verb}" if change.added else "")
    return page(
        title,
        facts(added, width),
        section("Nothing was added for these: the list says so already", facts(known, width)),
        section(
            "Look at this", [line for note in change.notes[:_LISTED] for line in prose(t.clean(note, _LONG), width)]
        ),
        bad_lines(change.bad, width),
    )


def bad_lines(lines: Sequence[BadLine], width: int) -> list[str]:
    """Return the section about lines that cannot be read."""
    pairs = [
        (f"line {line.number}", f"{line.code}: {line.says} ({t.count(line.size)} bytes)") for line in lines[:_LISTED]
    ]
    if len(lines) > _LISTED:
        pairs.append(("and", f"{len(lines) - _LISTED:,} more"))
    return section(
        "Lines that cannot be read: what they hold is not known, and `apply` refuses the list", facts(pairs, width)
    )


def evidence_text(entry: Entry) -> str:
    """Return reason and evidence in a few words: ``exact_dup_rate.rate 0.9700, limit <= 0.1000, rule dups``."""
    evidence = entry.evidence
    if evidence is None:
        return t.clean(entry.reason)
    name = f"{evidence.metric}.{evidence.stat}" if evidence.stat else evidence.metric or ""
    number = "" if evidence.value is None else f" {t.measured(evidence.value, evidence.unit or 'ratio')}"
    words = [entry.reason] if evidence.metric != entry.reason else []
    words += [f"{name}{number}"] if name else []
    if evidence.judged is not None:
        words.append(f"judged {t.ratio(evidence.judged)}")
    if evidence.limit is not None:
        words.append(" ".join(part for part in ("limit", evidence.comparator, t.ratio(evidence.limit)) if part))
    words += [f"{what} {given}" for what, given in (("rule", evidence.rule), ("run", evidence.run)) if given]
    return t.clean(", ".join(words), _NAME)


_COLUMNS = [
    word_column("entry"),
    word_column("state"),
    name_column("shard or document"),
    name_column("why"),
    name_column("who, when, until, note"),
]


def _cells(record: Record) -> list[str]:
    entry = record.entry
    said = [f"{entry.who} {entry.when[:10]}"]
    said += [f"until {entry.until}"] if entry.until else []
    said += [f"{record.standing} by {record.by.who} {record.by.when[:10]}"] if record.by is not None else []
    said += [entry.note] if entry.note else []
    return [
        short_id(entry),
        record.standing.value,
        t.clean(target_name(entry), _NAME),
        evidence_text(entry),
        t.clean(", ".join(said), 2 * _NAME),
    ]


def _of(entry: Entry) -> str:
    if entry.lifts is not None:
        return f"lifts {', '.join(name[7:19] for name in entry.lifts[:_LISTED])}" + (
            f" and {len(entry.lifts) - _LISTED:,} more" if len(entry.lifts) > _LISTED else ""
        )
    if entry.dismisses is not None:
        return f"dismisses {t.plural(len(entry.dismisses), 'line')} that cannot be read"
    parts = [t.clean(target_name(entry), _NAME), evidence_text(entry)]
    return ", ".join(part for part in parts if part)


def _oddities(contents: Contents, folded: Folded, width: int) -> list[str]:
    """Return what is strange and changes nothing."""
    lines = []
    if contents.dismissed:
        lines.append(f"{t.plural(len(contents.dismissed), 'line')} that cannot be read, dismissed")
    if folded.repeated:
        lines.append(f"{t.plural(folded.repeated, 'line')} that an earlier one says already")
    if folded.no_ops:
        lines.append(f"{t.plural(folded.no_ops, 'lift or acceptance')} of what is not open where it stands in the file")
    return [line for one in lines for line in prose(one, width)]


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'}"


def _record_json(record: Record) -> dict[str, Any]:
    by = None if record.by is None else record.by.id
    return {"state": record.standing.value, "by": by, "entry": plain_entry(record.entry)}


def _bad_json(line: BadLine) -> dict[str, Any]:
    return {"line": line.number, "code": line.code, "says": line.says, "sha256": line.sha256, "bytes": line.size}
