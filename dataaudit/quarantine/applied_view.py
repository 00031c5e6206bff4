"""What `quarantine apply` prints: what is kept, what is not and why, and what somebody should look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.layout import facts, name_column, number_column, page, prose, section, table, terminal_width
from dataaudit.quarantine.apply import Applied
from dataaudit.quarantine.list import short_id
from dataaudit.quarantine.selection import Drops, Shard
from dataaudit.quarantine.view import bad_lines

_NAME = 300
_LISTED = 10
_FEW = 5
"""Documents with personal data from which on a count is shown."""
_PERSONAL = "pii:"


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
    width = terminal_width()
    selection = applied.selection
    title = (
        f"{t.clean(str(out))}: {t.plural(len(selection.kept), 'shard')} kept, {len(selection.excluded):,} left out,"
        f" on {applied.quarantine.on}"
    )
    return page(
        title,
        table(_COLUMNS, [[t.clean(name), *map(t.count, numbers)] for name, numbers in _by_split(applied)], width),
        section("Left out", _excluded(selection.excluded, width)),
        [] if applied.drops is None else _documents(applied.drops, width),
        section("Look at this", [line for one in warnings(applied) for line in prose(t.clean(one, 2000), width)]),
        bad_lines(applied.contents.bad, width),
        facts([("files", ", ".join(map(t.clean, applied.files)))], width),
    )


_COLUMNS = [
    name_column("split"),
    number_column("shards\nkept"),
    number_column("left\nout"),
    number_column("documents\nkept"),
    number_column("tokens\nkept"),
    number_column("tokens\nleft out"),
]


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


def _excluded(shards: list[Shard], width: int) -> list[str]:
    pairs = [
        (t.clean(shard.name, _NAME), f"{shard.why}: {t.clean(', '.join(shard.reasons))}") for shard in shards[:_LISTED]
    ]
    if len(shards) > _LISTED:
        pairs.append(("and", f"{len(shards) - _LISTED:,} more, in excluded.jsonl"))
    return table([name_column("shard"), name_column("why")], pairs, width)


def _documents(drops: Drops, width: int) -> list[str]:
    shown, total = _counts(drops)
    rows = [[t.clean(reason), "<5" if number is None else t.count(number)] for reason, number in shown.items()]
    number = "documents (fewer than 5 of some kind of personal data)" if total is None else t.plural(total, "document")
    per_split = (
        "" if total is None else "; ".join(f"{t.clean(name)}: {count:,}" for name, count in drops.by_split.items())
    )
    return [
        f"To drop: {number}" + (f" ({per_split})" if per_split else ""),
        *table([name_column("reason"), number_column("documents")], rows, width),
        *prose(
            "One document may have several reasons. Their tokens are not known: a manifest counts them by shard.", width
        ),
    ]


def _counts(drops: Drops) -> tuple[dict[str, int | None], int | None]:
    """Return documents by reason and their total; None where it would tell of one to four with personal data."""
    small = {reason for reason, number in drops.by_reason.items() if reason.startswith(_PERSONAL) and number < _FEW}
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
            "manifest": applied.manifest.id,
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
