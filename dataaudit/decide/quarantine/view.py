"""What the commands of the list print: text for people, JSON for programs. Names come from the data and are escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataaudit.base import text as t
from dataaudit.base.errors import ExitCode
from dataaudit.base.render.blocks import Block, Facts, Point, Points, Prose, Row, Table, names, numbers, words
from dataaudit.base.render.line import Line, Name, join, say
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
                "entries": [
                    {
                        "state": record.standing.value,
                        "by": record.by and record.by.id,
                        "entry": plain_entry(record.entry),
                    }
                    for record in shown
                ],
                "bad_lines": _bad_json(contents.bad),
                "lifted_lines": _bad_json(contents.passed_over),
                "lines": list(contents.lines),
            }
        ), code
    hidden = len(folded.records) - len(shown)
    entries = "entry" if hidden == 1 else "entries"
    note = f"{hidden:,} {entries} lifted, accepted or expired: --all shows them" if hidden else ""
    open_ = f"{t.count(counts['held'])} held, {t.count(counts['proposed'])} proposed"
    odd = (
        (len(contents.passed_over), "line", "that cannot be read, lifted"),
        (folded.repeated, "line", "that an earlier one says already"),
        (_idle(contents, folded), "lift or acceptance", "of what is not in the list, or was ended already"),
    )
    blocks: list[Block] = [
        Table(title="", columns=_COLUMNS, rows=tuple(map(_cells, shown))),
        Prose(text=note),
        _bad_lines(contents.bad),
        Points(items=tuple(Point(text=f"{t.plural(many, noun)} {words_}") for many, noun, words_ in odd if many)),
    ]
    return render(say("{}: {}, on {}", _path(path), open_, str(folded.on)), _filled(blocks), most=None), code


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
    number = len(change.added)
    done = f"{number:,} {'entry' if number == 1 else 'entries'} added{f', {verb}' if change.added else ''}"
    blocks: list[Block] = [
        Facts(pairs=tuple(map(_pair, change.added))),
        Facts(title="Nothing was added for these: the list says so already", pairs=tuple(map(_pair, change.known))),
        _look_at_this(change.notes[:_LISTED]),
        _bad_lines(change.bad),
    ]
    return render(say("{}: {}", _path(path), done), _filled(blocks))


def _bad_lines(lines: Sequence[BadLine]) -> Facts:
    """Return the section about lines that cannot be read."""
    pairs = [
        (f"line {line.number}, {line.id[7:19]}", f"{line.code}: {line.says} ({t.count(line.size)} bytes)")
        for line in lines[:_LISTED]
    ]
    if len(lines) > _LISTED:
        pairs.append(("and", f"{len(lines) - _LISTED:,} more"))
    title = "Lines that cannot be read: what they leave out is not known, and `apply` refuses the list"
    return Facts(title=title, pairs=tuple(pairs))


def _bad_json(lines: Sequence[BadLine]) -> list[dict[str, Any]]:
    return [
        {
            "line": bad_line.number,
            "code": bad_line.code,
            "says": bad_line.says,
            "id": bad_line.id,
            "bytes": bad_line.size,
        }
        for bad_line in lines
    ]


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
    number = "" if evidence.value is None else f" {t.measured(evidence.value, evidence.unit or 'ratio')}"
    parts = [entry.reason] if evidence.metric != entry.reason else []
    parts += [f"{name}{number}"] if name else []
    if evidence.judged is not None:
        parts.append(f"judged {t.ratio(evidence.judged)}")
    if evidence.limit is not None:
        parts.append(" ".join(part for part in ("limit", evidence.comparator, t.ratio(evidence.limit)) if part))
    parts += [f"{what} {given}" for what, given in (("rule", evidence.rule), ("run", evidence.run)) if given]
    return t.clean(", ".join(parts), _NAME)


_COLUMNS = (*words("entry", "state"), *names("shard or document", "why", "who, when, until, note"))


def _cells(record: Record) -> Row:
    entry, by = record.entry, record.by
    parts = [
        f"{entry.who} {entry.when[:10]}",
        f"until {entry.until}" if entry.until else "",
        f"{record.standing} by {by.who} {by.when[:10]}" if by is not None else "",
        entry.note or "",
    ]
    return (
        short_id(entry),
        record.standing.value,
        Name(target_name(entry), _NAME),
        Name(evidence_text(entry), _NAME),
        Name(", ".join(filter(None, parts)), 2 * _NAME),
    )


def _pair(entry: Entry) -> tuple[Line, Line]:
    """Return the id of a line that was added, and what it does."""
    if entry.lifts is None:
        parts = [t.clean(target_name(entry), _NAME), evidence_text(entry)]
        return short_id(entry), Name(", ".join(filter(None, parts)), _LONG)
    more = f" and {len(entry.lifts) - _LISTED:,} more" if len(entry.lifts) > _LISTED else ""
    return short_id(entry), f"lifts {', '.join(name[7:19] for name in entry.lifts[:_LISTED])}{more}"


def _look_at_this(notes: Sequence[str]) -> Points:
    return Points(title="Look at this", items=tuple(Point(text=Name(note, _LONG)) for note in notes))


def _path(path: Path) -> Name:
    return Name(str(path), _LONG)


def _filled(blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if not isinstance(block, Facts) or block.pairs]


def apply_view(out: Path, applied: Applied, *, as_json: bool) -> str:
    """Return what was done as text or JSON."""
    return (_json if as_json else _text)(out, applied)


def _warnings(applied: Applied) -> list[str]:
    """Return what nobody should overlook, a sentence each."""
    selection, drops = applied.selection, applied.drops
    found = []
    for item in selection.stale[:_LISTED]:
        shard = selection.shards[item.shard]
        so = "left out" if not shard.kept else "NOT left out: it has changed since"
        found.append(f"{shard.name} is listed under another digest ({short_id(item.entry)}, {item.entry.reason}); {so}")
    if len(selection.stale) > _LISTED:
        found.append(f"and {len(selection.stale) - _LISTED:,} more are listed under another digest")
    entries = t.plural(applied.documents_unlisted, "entry").replace("entrys", "entries")
    wrong, bad = applied.wrong_files, len(applied.contents.bad)
    counted = (
        (applied.documents_unlisted, f"{entries} of single documents not applied: --documents writes them"),
        (applied.waiting, f"{t.plural(applied.waiting, 'shard')} proposed and kept: `quarantine accept` decides"),
        (
            len(wrong),
            f"{t.plural(len(wrong), 'kept file')} absent, or not of the size in the manifest: "
            + ", ".join(wrong[:_LISTED]),
        ),
        (applied.streamed, f"{t.plural(applied.streamed, 'kept shard')} of streamed datasets: in no list of files"),
        (bad, f"{t.plural(bad, 'line')} of the list cannot be read and were ignored, as asked"),
    )
    found += [says for number, says in counted if number]
    if drops is not None:
        found += [f"not in the drop list: {what}" for what in drops.incomplete]
        found += [f"the build did not search for: {', '.join(drops.absent)}"] if drops.absent else []
        found += [f"{drops.beyond:,} entries name rows that their shard does not have"] if drops.beyond else []
    return found


def _text(out: Path, applied: Applied) -> str:
    selection = applied.selection
    kept, left = t.plural(len(selection.kept), "shard"), f"{len(selection.excluded):,}"
    heads = ("shards kept", "left out", "documents kept", "tokens kept", "tokens left out")
    blocks: list[Block] = [
        Table(
            title="",
            columns=(*names("split"), *numbers(*heads)),
            rows=tuple((Name(name), *counts) for name, counts in _by_split(applied)),
            whole=True,
        ),
        Table(
            title="Left out",
            columns=names("shard", "why"),
            rows=tuple(
                (Name(shard.name, _NAME), Name(f"{shard.why}: {', '.join(shard.reasons)}", _LONG))
                for shard in selection.excluded[:_LISTED]
            ),
            number=len(selection.excluded),
            noun="shard",
            rest="in excluded.jsonl",
        ),
        *([] if applied.drops is None else [_documents(applied.drops)]),
        _look_at_this(_warnings(applied)),
        _bad_lines(applied.contents.bad),
        Facts(pairs=(("files", join(", ", map(Name, applied.files))),)),
    ]
    title = say("{}: {} kept, {} left out, on {}", _path(out), kept, left, str(applied.quarantine.on))
    return render(title, _filled(blocks))


def _by_split(applied: Applied) -> list[tuple[str, list[int]]]:
    """Return of each split shards kept and left out, documents kept, tokens kept and left out."""
    sums: dict[str, list[int]] = {}
    for shard in applied.selection.shards:
        documents, tokens = shard.row["documents"], shard.row["tokens"]
        more = (1, 0, documents, tokens, 0) if shard.kept else (0, 1, 0, 0, tokens)
        before = sums.get(shard.row["split"], [0] * 5)
        sums[shard.row["split"]] = [number + other for number, other in zip(before, more, strict=True)]
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
