"""Output of the list's commands: text for people, JSON for programs. Names come from the data and are escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataaudit.base import text as t
from dataaudit.base.errors import ExitCode
from dataaudit.base.render.blocks import Block, Facts, Point, Points, Prose, column, table_of
from dataaudit.base.render.line import Line, Name, join, measured, say, spell
from dataaudit.base.render.terminal import render
from dataaudit.decide.quarantine.changes import Change
from dataaudit.decide.quarantine.entry import BadLine, Contents, Entry, plain_entry
from dataaudit.decide.quarantine.list import OPEN, Folded, Record, Standing, short_id, target_name
from dataaudit.metrics.disclosure import BELOW, FEW

if TYPE_CHECKING:  # a list is shown without what reads manifests
    from dataaudit.decide.quarantine.apply import Applied
    from dataaudit.decide.quarantine.selection import Drops

_NAME = 300
"""Characters of a name that are shown."""
_LISTED = 10
_LONG = 2000
_PERSONAL = "pii:"


def list_view(
    path: Path, contents: Contents, folded: Folded, *, everything: bool, as_json: bool, lost: bool = False
) -> tuple[str, ExitCode]:
    """Return what `quarantine list` prints, and its exit code: 3 when lines cannot be read, or are ``lost``."""
    code = ExitCode.NOT_EVALUATED if contents.bad or lost else ExitCode.PASS
    idle = _idle(contents, folded)
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
                "idle": idle,
                "entries": [
                    {"state": item.standing.value, "by": item.by and item.by.id, "entry": plain_entry(item.entry)}
                    for item in shown
                ],
                "bad_lines": _bad_json(contents.bad),
                "lifted_lines": _bad_json(contents.passed_over),
                "lines": list(contents.lines),
            }
        ), code
    hidden = len(folded.records) - len(shown)
    note = f"{_entries(hidden)} lifted, accepted or expired: --all shows them" if hidden else ""
    open_ = f"{t.count(counts['held'])} held, {t.count(counts['proposed'])} proposed"
    odd = (
        (len(contents.passed_over), "line", "that cannot be read, lifted"),
        (folded.repeated, "line", "that an earlier one says already"),
        (idle, "lift or acceptance", "of what is not in the list, or was ended already"),
    )
    blocks: list[Block] = [
        table_of(
            "",
            shown,
            ("entry", "word", lambda record: short_id(record.entry)),
            ("state", "word", lambda record: record.standing.value),
            ("shard or document", "name", lambda record: Name(target_name(record.entry), _NAME)),
            ("why", "name", lambda record: Name(evidence_text(record.entry), _NAME)),
            ("who, when, until, note", "name", _who),
            most=len(shown),
        ),
        Prose(text=note),
        _bad_lines(contents.bad),
        Points(items=tuple(Point(text=f"{t.plural(number, noun)} {what}") for number, noun, what in odd if number)),
    ]
    return render(say("{}: {}, on {}", _path(path), open_, str(folded.on)), blocks, most=None), code


def change_view(path: Path, change: Change, *, verb: str, as_json: bool) -> str:
    """Return what a command that changes the list prints; ``verb`` is what was done to the entries: ``lifted``."""
    if as_json:
        return t.as_json(
            {
                "file": str(path),
                "added": [plain_entry(entry) for entry in change.added],
                "known": [plain_entry(entry) for entry in change.known],
                "notes": [t.clean(note, _LONG) for note in change.notes],
                "bad_lines": _bad_json(change.bad),
            }
        )
    done = f"{_entries(len(change.added))} added{f', {verb}' if change.added else ''}"
    blocks: list[Block] = [
        Facts(pairs=tuple(map(_pair, change.added))),
        Facts(title="Nothing was added for these: the list says so already", pairs=tuple(map(_pair, change.known))),
        _look_at_this(change.notes[:_LISTED]),
        _bad_lines(change.bad),
    ]
    return render(say("{}: {}", _path(path), done), blocks)


def _bad_lines(lines: Sequence[BadLine]) -> Facts:
    pairs = [
        (f"line {line.number}, {line.id[7:19]}", f"{line.code}: {line.problem} ({t.count(line.size)} bytes)")
        for line in lines[:_LISTED]
    ]
    if len(lines) > _LISTED:
        pairs.append(("and", f"{len(lines) - _LISTED:,} more"))
    title = "Lines that cannot be read: what they leave out is not known, and `apply` refuses the list"
    return Facts(title=title, pairs=tuple(pairs))


def _bad_json(lines: Sequence[BadLine]) -> list[dict[str, Any]]:
    return [
        {"line": bad.number, "code": bad.code, "says": bad.problem, "id": bad.id, "bytes": bad.size} for bad in lines
    ]


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'}"


def _idle(contents: Contents, folded: Folded) -> int:
    """Return how many lifts and acceptances change nothing; a lift of a line that cannot be read does."""
    spoiled = {line.id for line in contents.passed_over}
    lifts = {entry.id: entry.lifts or () for entry in contents.entries}
    return folded.no_ops - sum(name in spoiled for lifted in lifts.values() for name in lifted)


def evidence_text(entry: Entry) -> str:
    """Return reason and evidence in a few words: ``METRIC.rate 0.9700, limit <= 0.1000, rule dups``."""
    evidence = entry.evidence
    if evidence is None:
        return t.clean(entry.reason)
    name = f"{evidence.metric}.{evidence.stat}" if evidence.stat else evidence.metric or ""
    number = "" if evidence.value is None else f" {spell(measured(evidence.value, evidence.unit or 'ratio'))}"
    parts = [entry.reason] if evidence.metric != entry.reason else []
    parts += [f"{name}{number}"] if name else []
    if evidence.judged is not None:
        parts.append(f"judged {t.ratio(evidence.judged)}")
    if evidence.limit is not None:
        parts.append(" ".join(part for part in ("limit", evidence.comparator, t.ratio(evidence.limit)) if part))
    parts += [f"{what} {given}" for what, given in (("rule", evidence.rule), ("run", evidence.run)) if given]
    return t.clean(", ".join(parts), _NAME)


def _who(record: Record) -> Name:
    entry, by = record.entry, record.by
    parts = [
        f"{entry.who} {entry.when[:10]}",
        f"until {entry.until}" if entry.until else "",
        f"{record.standing} by {by.who} {by.when[:10]}" if by is not None else "",
        entry.note or "",
    ]
    return Name(", ".join(filter(None, parts)), 2 * _NAME)


def _pair(entry: Entry) -> tuple[Line, Line]:
    if entry.lifts is None:
        parts = [t.clean(target_name(entry), _NAME), evidence_text(entry)]
        return short_id(entry), Name(", ".join(filter(None, parts)), _LONG)
    return short_id(entry), f"lifts {t.some_of([name[7:19] for name in entry.lifts], _LISTED)}"


def _look_at_this(notes: Sequence[str]) -> Points:
    return Points(title="Look at this", items=tuple(Point(text=Name(note, _LONG)) for note in notes))


def _path(path: Path) -> Name:
    return Name(str(path), _LONG)


def apply_view(out: Path, applied: Applied, *, as_json: bool) -> str:
    """Return what was done as text or JSON."""
    return (_json if as_json else _text)(out, applied)


def _warnings(applied: Applied) -> list[str]:
    selection, drops = applied.selection, applied.drops
    warnings = []
    for item in selection.stale[:_LISTED]:
        shard = selection.shards[item.shard]
        state = "left out" if not shard.kept else "NOT left out: it has changed since"
        entry = f"{short_id(item.entry)}, {item.entry.reason}"
        warnings.append(f"{shard.name} is listed under another digest ({entry}); {state}")
    if len(selection.stale) > _LISTED:
        warnings.append(f"and {len(selection.stale) - _LISTED:,} more are listed under another digest")
    wrong, bad = applied.wrong_files, len(applied.contents.bad)
    if number := applied.documents_unlisted:
        warnings.append(f"{_entries(number)} of single documents not applied: --documents writes them")
    if applied.waiting:
        warnings.append(f"{t.plural(applied.waiting, 'shard')} proposed and kept: `quarantine accept` decides")
    if wrong:
        files = f"{t.plural(len(wrong), 'kept file')} absent, or not of the size in the manifest"
        warnings.append(f"{files}: {', '.join(wrong[:_LISTED])}")
    if applied.streamed:
        warnings.append(f"{t.plural(applied.streamed, 'kept shard')} of streamed datasets: in no list of files")
    if bad:
        warnings.append(f"{t.plural(bad, 'line')} of the list cannot be read and were ignored, as asked")
    if drops is not None:
        warnings += [f"not in the drop list: {what}" for what in drops.incomplete]
        warnings += [f"the build did not search for: {', '.join(drops.absent)}"] if drops.absent else []
        warnings += [f"{drops.beyond:,} entries name rows that their shard does not have"] if drops.beyond else []
    return warnings


def _text(out: Path, applied: Applied) -> str:
    selection = applied.selection
    kept, left = t.plural(len(selection.kept), "shard"), f"{len(selection.excluded):,}"
    blocks: list[Block] = [
        table_of(
            "",
            [{"split": name, **counts} for name, counts in _by_split(applied).items()],
            column("split", shown=Name),
            column("shards kept"),
            column("left out", "shards_left_out"),
            *map(column, ("documents kept", "tokens kept", "tokens left out")),
            most=len(selection.shards),
            whole=True,
        ),
        table_of(
            "Left out",
            selection.excluded,
            ("shard", "name", lambda shard: Name(shard.name, _NAME)),
            ("why", "name", lambda shard: Name(f"{shard.why}: {', '.join(shard.reasons)}", _LONG)),
            most=_LISTED,
            noun="shard",
            rest="in excluded.jsonl",
        ),
        *([] if applied.drops is None else [_documents(applied.drops)]),
        _look_at_this(_warnings(applied)),
        _bad_lines(applied.contents.bad),
        Facts(pairs=(("files", join(", ", map(Name, applied.files))),)),
    ]
    title = say("{}: {} kept, {} left out, on {}", _path(out), kept, left, str(applied.quarantine.on))
    return render(title, blocks)


def _by_split(applied: Applied) -> dict[str, dict[str, int]]:
    names = ("shards_kept", "shards_left_out", "documents_kept", "tokens_kept", "tokens_left_out")
    counts: dict[str, dict[str, int]] = {}
    for shard in applied.selection.shards:
        own = counts.setdefault(shard.row["split"], dict.fromkeys(names, 0))
        what = "kept" if shard.kept else "left_out"
        own[f"shards_{what}"] += 1
        own[f"tokens_{what}"] += shard.row["tokens"]
        own["documents_kept"] += shard.row["documents"] if shard.kept else 0
    return dict(sorted(counts.items()))


def _documents(drops: Drops) -> Block:
    shown, total = _counts(drops)
    number = "documents (fewer than 5 of some kind of personal data)" if total is None else t.plural(total, "document")
    split = join("; ", (say("{}: {}", Name(name), count) for name, count in drops.by_split.items()))
    return table_of(
        say("To drop: {}{}", number, say(" ({})", split) if total is not None and split.parts else ""),
        list(shown.items()),
        ("reason", "name", lambda item: Name(item[0])),
        ("documents", "number", lambda item: BELOW if item[1] is None else item[1]),
        most=len(shown),
        whole=True,
        note="One document may have several reasons. Their tokens are not known: a manifest counts them by shard.",
    )


def _counts(drops: Drops) -> tuple[dict[str, int | None], int | None]:
    """Return documents by reason and their total; None where it would tell of 1 to 4 with personal data."""
    small = {reason for reason, number in drops.by_reason.items() if reason.startswith(_PERSONAL) and number < FEW}
    shown = {reason: None if reason in small else number for reason, number in drops.by_reason.items()}
    return shown, None if small else drops.table.num_rows


def _json(out: Path, applied: Applied) -> str:
    selection, drops = applied.selection, applied.drops
    documents: dict[str, Any] | None = None
    if drops is not None:
        shown, total = _counts(drops)
        documents = {
            "dropped": total,
            "by_reason": shown,
            "by_split": dict(drops.by_split) if total is not None else None,
            "tokens": None,
            "not_looked_for": list(drops.absent),
            "incomplete": list(drops.incomplete),
        }
    return t.as_json(
        {
            "out": str(out),
            "manifest": applied.request.manifest.id,
            "quarantine": applied.quarantine.digest,
            "on": applied.quarantine.on.isoformat(),
            "exit_code": int(applied.exit_code),
            "splits": _by_split(applied),
            "left_out_by": dict(sorted(Counter(shard.why for shard in selection.excluded).items())),
            "listed_under_another_digest": [
                {"shard": selection.shards[item.shard].name, "entry": item.entry.id} for item in selection.stale
            ],
            "entries_without_a_shard": len(selection.unmatched),
            "proposed_and_kept": applied.waiting,
            "wrong_files": list(applied.wrong_files),
            "documents": documents,
            "warnings": [t.clean(line, _LONG) for line in _warnings(applied)],
            "files": list(applied.files),
        }
    )
