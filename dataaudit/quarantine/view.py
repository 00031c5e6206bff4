"""What the commands of the list print: text for people, JSON for programs. Names come from the data and are escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataaudit import text as t
from dataaudit.errors import ExitCode
from dataaudit.metrics.disclosure import BELOW, FEW
from dataaudit.quarantine.changes import Change
from dataaudit.quarantine.entry import BadLine, Contents, Entry, plain_entry
from dataaudit.quarantine.list import OPEN, Folded, Record, Standing, short_id, target_name
from dataaudit.render.blocks import Block, Facts, Point, Points, Prose, Row, Table, names, numbers, words
from dataaudit.render.line import Line, Name, join, say
from dataaudit.render.terminal import render

if TYPE_CHECKING:  # a list is shown without what reads manifests
    from dataaudit.quarantine.apply import Applied
    from dataaudit.quarantine.selection import Drops

_NAME = 300
"""Characters of a name that are shown."""
_LISTED = 10
_LONG = 2000
_PERSONAL = "pii:"


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
                "idle": _idle(contents, folded),
                "entries": [_record_json(record) for record in shown],
                "bad_lines": [_bad_json(line) for line in contents.bad],
                "lifted_lines": [_bad_json(line) for line in contents.passed_over],
                "lines": list(contents.lines),
            }
        ), code
    hidden = len(folded.records) - len(shown)
    held = f"{t.count(counts['held'])} held, {t.count(counts['proposed'])} proposed"
    entries = "entry" if hidden == 1 else "entries"
    note = f"{hidden:,} {entries} lifted, accepted or expired: --all shows them" if hidden else ""
    title = say("{}: {}, on {}", _path(path), held, str(folded.on))
    table = Table(title="", columns=_COLUMNS, rows=tuple(map(_cells, shown)))
    blocks: list[Block] = [table, Prose(text=note), bad_lines(contents.bad), _oddities(contents, folded)]
    return render(title, _filled(blocks), most=None), code


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
    number = len(change.added)
    told = f"{number:,} {'entry' if number == 1 else 'entries'} added{f', {verb}' if change.added else ''}"
    blocks: list[Block] = [
        Facts(pairs=tuple(map(_pair, change.added))),
        Facts(title="Nothing was added for these: the list says so already", pairs=tuple(map(_pair, change.known))),
        _look_at_this(change.notes[:_LISTED]),
        bad_lines(change.bad),
    ]
    return render(say("{}: {}", _path(path), told), _filled(blocks))


def bad_lines(lines: Sequence[BadLine]) -> Facts:
    """Return the section about lines that cannot be read."""
    pairs = [
        (f"line {line.number}, {line.id[7:19]}", f"{line.code}: {line.says} ({t.count(line.size)} bytes)")
        for line in lines[:_LISTED]
    ]
    if len(lines) > _LISTED:
        pairs.append(("and", f"{len(lines) - _LISTED:,} more"))
    title = "Lines that cannot be read: what they leave out is not known, and `apply` refuses the list"
    return Facts(title=title, pairs=tuple(pairs))


def evidence_text(entry: Entry) -> str:
    """Return reason and evidence in a few words: ``METRIC.rate 0.9700, limit <= 0.1000, rule dups``."""
    evidence = entry.evidence
    if evidence is None:
        return t.clean(entry.reason)
    name = f"{evidence.metric}.{evidence.stat}" if evidence.stat else evidence.metric or ""
    number = "" if evidence.value is None else f" {t.measured(evidence.value, evidence.unit or 'ratio')}"
    told = [entry.reason] if evidence.metric != entry.reason else []
    told += [f"{name}{number}"] if name else []
    if evidence.judged is not None:
        told.append(f"judged {t.ratio(evidence.judged)}")
    if evidence.limit is not None:
        told.append(" ".join(part for part in ("limit", evidence.comparator, t.ratio(evidence.limit)) if part))
    told += [f"{what} {given}" for what, given in (("rule", evidence.rule), ("run", evidence.run)) if given]
    return t.clean(", ".join(told), _NAME)


_COLUMNS = (
    *words("entry", "state"),
    *names("shard or document", "why", "who, when, until, note"),
)


def _cells(record: Record) -> Row:
    entry = record.entry
    said = [f"{entry.who} {entry.when[:10]}"]
    said += [f"until {entry.until}"] if entry.until else []
    said += [f"{record.standing} by {record.by.who} {record.by.when[:10]}"] if record.by is not None else []
    said += [entry.note] if entry.note else []
    return (
        short_id(entry),
        record.standing.value,
        Name(target_name(entry), _NAME),
        Name(evidence_text(entry), _NAME),
        Name(", ".join(said), 2 * _NAME),
    )


def _pair(entry: Entry) -> tuple[Line, Line]:
    return short_id(entry), Name(_of(entry), _LONG)


def _of(entry: Entry) -> str:
    if entry.lifts is not None:
        return f"lifts {', '.join(name[7:19] for name in entry.lifts[:_LISTED])}" + (
            f" and {len(entry.lifts) - _LISTED:,} more" if len(entry.lifts) > _LISTED else ""
        )
    parts = [t.clean(target_name(entry), _NAME), evidence_text(entry)]
    return ", ".join(part for part in parts if part)


def _oddities(contents: Contents, folded: Folded) -> Points:
    """Return what is strange and changes nothing."""
    told = (
        (len(contents.passed_over), "line", "that cannot be read, lifted"),
        (folded.repeated, "line", "that an earlier one says already"),
        (_idle(contents, folded), "lift or acceptance", "of what is not in the list, or was ended already"),
    )
    return Points(items=tuple(Point(text=f"{t.plural(many, noun)} {says}") for many, noun, says in told if many))


def _idle(contents: Contents, folded: Folded) -> int:
    """Return how many lifts and acceptances change nothing; a lift of a line that cannot be read does."""
    spoiled = {line.id for line in contents.passed_over}
    lifts = {entry.id: entry.lifts or () for entry in contents.entries}
    return folded.no_ops - sum(name in spoiled for names_ in lifts.values() for name in names_)


def _look_at_this(notes: Sequence[str]) -> Points:
    return Points(title="Look at this", items=tuple(Point(text=Name(note, _LONG)) for note in notes))


def _path(path: Path) -> Name:
    return Name(str(path), _LONG)


def _filled(blocks: Iterable[Block]) -> list[Block]:
    return [one for one in blocks if not isinstance(one, Facts) or one.pairs]


def _record_json(record: Record) -> dict[str, Any]:
    by = None if record.by is None else record.by.id
    return {"state": record.standing.value, "by": by, "entry": plain_entry(record.entry)}


def _bad_json(line: BadLine) -> dict[str, Any]:
    return {"line": line.number, "code": line.code, "says": line.says, "id": line.id, "bytes": line.size}


def apply_view(out: Path, applied: Applied, *, as_json: bool) -> str:
    """Return what was done as text or JSON."""
    return _json(out, applied) if as_json else _text(out, applied)


def warnings(applied: Applied) -> list[str]:
    """Return what nobody should overlook, a sentence each."""
    entries = t.plural(applied.documents_unlisted, "entry").replace("entrys", "entries")
    files = t.plural(len(applied.wrong_files), "kept file")
    bad = t.plural(len(applied.contents.bad), "line")
    told = (
        (applied.documents_unlisted, f"{entries} of single documents not applied: --documents writes them"),
        (applied.waiting, f"{t.plural(applied.waiting, 'shard')} proposed and kept: `quarantine accept` decides"),
        (
            applied.wrong_files,
            f"{files} absent, or not of the size in the manifest: {', '.join(applied.wrong_files[:_LISTED])}",
        ),
        (applied.streamed, f"{t.plural(applied.streamed, 'kept shard')} of streamed datasets: in no list of files"),
        (applied.contents.bad, f"{bad} of the list cannot be read and were ignored, as asked"),
    )
    about_documents = [] if applied.drops is None else _missing(applied.drops)
    return [*_stale(applied), *(says for holds, says in told if holds), *about_documents]


def _stale(applied: Applied) -> list[str]:
    selection = applied.selection
    found = []
    for one in selection.stale[:_LISTED]:
        shard = selection.shards[one.shard]
        so = "left out" if not shard.kept else "NOT left out: it has changed since"
        found.append(f"{shard.name} is listed under another digest ({short_id(one.entry)}, {one.entry.reason}); {so}")
    if len(selection.stale) > _LISTED:
        found.append(f"and {len(selection.stale) - _LISTED:,} more are listed under another digest")
    return found


def _missing(drops: Drops) -> list[str]:
    found = [f"not in the drop list: {what}" for what in drops.incomplete]
    if drops.absent:
        found.append(f"the build did not search for: {', '.join(drops.absent)}")
    if drops.beyond:
        found.append(f"{drops.beyond:,} entries name rows that their shard does not have")
    return found


def _text(out: Path, applied: Applied) -> str:
    selection = applied.selection
    kept, left = t.plural(len(selection.kept), "shard"), f"{len(selection.excluded):,}"
    heads = ("shards kept", "left out", "documents kept", "tokens kept", "tokens left out")
    rows: tuple[Row, ...] = tuple((Name(name), *counts) for name, counts in _by_split(applied))
    blocks: list[Block] = [
        Table(title="", columns=(*names("split"), *numbers(*heads)), rows=rows, whole=True),
        Table(
            title="Left out",
            columns=names("shard", "why"),
            rows=tuple(
                (Name(one.name, _NAME), Name(f"{one.why}: {', '.join(one.reasons)}", _LONG))
                for one in selection.excluded[:_LISTED]
            ),
            number=len(selection.excluded),
            noun="shard",
            rest="in excluded.jsonl",
        ),
        *([] if applied.drops is None else [_documents(applied.drops)]),
        _look_at_this(warnings(applied)),
        bad_lines(applied.contents.bad),
        Facts(pairs=(("files", join(", ", map(Name, applied.files))),)),
    ]
    return render(
        say("{}: {} kept, {} left out, on {}", _path(out), kept, left, str(applied.quarantine.on)), _filled(blocks)
    )


def _by_split(applied: Applied) -> list[tuple[str, list[int]]]:
    sums: dict[str, list[int]] = {}
    for shard in applied.selection.shards:
        held = sums.setdefault(shard.row["split"], [0] * 5)
        kept = shard.kept
        for index, number in (
            (0 if kept else 1, 1),
            (2, shard.row["documents"] if kept else 0),
            (3 if kept else 4, shard.row["tokens"]),
        ):
            held[index] += number
    return sorted(sums.items())


def _documents(drops: Drops) -> Table:
    shown, total = _counts(drops)
    number = "documents (fewer than 5 of some kind of personal data)" if total is None else t.plural(total, "document")
    split = join("; ", (say("{}: {}", Name(name), count) for name, count in drops.by_split.items()))
    return Table(
        title=say("To drop: {}{}", number, say(" ({})", split) if total is not None and split.parts else ""),
        columns=(*names("reason"), *numbers("documents")),
        whole=True,
        rows=tuple((Name(reason), BELOW if number is None else number) for reason, number in shown.items()),
        note="One document may have several reasons. Their tokens are not known: a manifest counts them by shard.",
    )


def _counts(drops: Drops) -> tuple[dict[str, int | None], int | None]:
    """Return documents by reason and their total; None where it would tell of one to four with personal data."""
    small = {reason for reason, number in drops.by_reason.items() if reason.startswith(_PERSONAL) and number < FEW}
    shown = {reason: None if reason in small else number for reason, number in drops.by_reason.items()}
    return shown, None if small else drops.table.num_rows


def _json(out: Path, applied: Applied) -> str:
    selection, drops = applied.selection, applied.drops
    names = ("shards_kept", "shards_left_out", "documents_kept", "tokens_kept", "tokens_left_out")
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
            "splits": {name: dict(zip(names, numbers, strict=True)) for name, numbers in _by_split(applied)},
            "left_out_by": dict(sorted(Counter(shard.why for shard in selection.excluded).items())),
            "listed_under_another_digest": [
                {"shard": selection.shards[one.shard].name, "entry": one.entry.id} for one in selection.stale
            ],
            "entries_without_a_shard": len(selection.unmatched),
            "proposed_and_kept": applied.waiting,
            "wrong_files": list(applied.wrong_files),
            "documents": documents,
            "warnings": _plain(warnings(applied)),
            "files": list(applied.files),
        }
    )


def _plain(lines: Iterable[str]) -> list[str]:
    return [t.clean(line, 2000) for line in lines]
