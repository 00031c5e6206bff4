"""Blocks that several commands show: what the manifest is, splits, sources, coverage, lost shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dataaudit import text as t
from dataaudit.layout import facts, name_column, number_column, prose, section, table, word_column
from dataaudit.report.meanings import encoder_text, reason_text
from dataaudit.report.view import OFF_SHARE, LostShard, Overview, Volume, is_off, off_by

_Item = TypeVar("_Item")
NAME_LIMIT = 60
_LISTED = 10
_LEGEND = (
    "docs: documents; length: tokens of a document; dups: share of documents whose text was seen before, in"
    " their split or overall."
)


def title(view: Overview) -> str:
    """Return name and version of the dataset."""
    return t.clean(f"{view.dataset} {view.version}", NAME_LIMIT)


def identity(view: Overview, width: int) -> list[str]:
    """Return what the manifest is and who counted its tokens."""
    tokenizer = view.tokenizer
    name = t.clean(tokenizer["name"], NAME_LIMIT)
    pairs = [
        ("id", view.id),
        ("manifest", t.clean(view.manifest)),
        ("built", f"{view.built} by {view.tool}"),
        ("tokenizer", f"{name}, {tokenizer['vocab_size']:,} ids, sha256 {tokenizer['sha256'][:12]}..."),
        ("counted by", encoder_text(tokenizer["encoder_reason"]) + _counted(tokenizer["counted_by"])),
    ]
    pairs += [("parent", parent) for parent in view.parents]
    return facts(pairs, width)


def splits(view: Overview, width: int) -> list[str]:
    """Return a row for each split, and one for all."""
    columns = [
        name_column("split"),
        number_column("shards"),
        number_column("docs"),
        number_column("text"),
        number_column("tokens"),
        number_column("bytes/\ntoken"),
        number_column("length\np50"),
        number_column("length\np95"),
        number_column("dups in\nsplit"),
        number_column("dups\noverall"),
    ]
    volumes = [*view.splits, view.totals] if len(view.splits) > 1 else list(view.splits)
    rows = [
        [
            t.clean(one.name) or "(all)",
            t.count(one.shards),
            t.count(one.documents),
            t.size(one.bytes),
            t.count(one.tokens),
            t.decimal(one.bytes_per_token),
            t.decimal(one.seq_len_p50),
            t.decimal(one.seq_len_p95),
            t.ratio(one.exact_dup_rate_within_split),
            t.ratio(one.exact_dup_rate),
        ]
        for one in volumes
    ]
    held_out = [t.clean(one.name) for one in view.splits if one.held_out]
    notes = prose(_LEGEND + (f" Held out: {', '.join(held_out)}." if held_out else ""), width)
    return section("Splits", [*table(columns, rows, width), *notes])


def mixture(view: Overview, width: int, limit: int) -> list[str]:
    """Return the largest sources with their share of the training tokens, beside the declared one.

    Without a training split they are shares of all tokens, and the heading says so.
    """
    shares = view.sources
    declared = any(share.declared is not None for share in shares)
    columns = [
        name_column("source"),
        number_column("docs"),
        number_column("text"),
        number_column("tokens"),
        number_column("share"),
    ]
    if declared:
        columns += [number_column("declared"), number_column("off by"), word_column("")]
    rows = []
    for share in _shown(shares, limit):
        row = [
            t.clean(share.source, NAME_LIMIT),
            t.count(share.documents),
            t.size(share.bytes),
            t.count(share.tokens),
            t.ratio(share.share),
        ]
        if declared and share.share is not None and share.declared is not None:
            row += [t.ratio(share.declared), f"{off_by(share):+.4f}", "<--" if is_off(share) else ""]
        elif declared:
            row += [t.ratio(share.declared), t.NOTHING, ""]
        rows.append(row)
    lines = table(columns, rows, width)
    if len(rows) < len(shares):
        lines += prose(f"and {t.plural(len(shares) - len(rows), 'more source')}", width)
    if any(row[-1] == "<--" for row in rows):
        lines += prose(f"<-- the share is more than {OFF_SHARE} away from the declared one", width)
    trained = any(not split.held_out for split in view.splits)
    kind = "training" if trained else "held-out"
    return section(f"Sources, by share of {kind} tokens", lines)


def volumes(name: str, rows: Sequence[Volume], number: int, tokens: int, width: int) -> list[str]:
    """Return the sources of one split with the metrics that are kept for each."""
    columns = [
        name_column("source"),
        number_column("docs"),
        number_column("tokens"),
        number_column("share"),
        number_column("bytes/\ntoken"),
        number_column("length\np50"),
        number_column("length\np95"),
        number_column("dups\noverall"),
    ]
    cells = [
        [
            t.clean(one.name, NAME_LIMIT),
            t.count(one.documents),
            t.count(one.tokens),
            t.ratio(one.tokens / tokens if tokens else None),
            t.decimal(one.bytes_per_token),
            t.decimal(one.seq_len_p50),
            t.decimal(one.seq_len_p95),
            t.ratio(one.exact_dup_rate),
        ]
        for one in rows
    ]
    lines = table(columns, cells, width)
    if len(rows) < number:
        lines += prose(f"and {t.plural(number - len(rows), 'more source')}; --json lists all", width)
    return section(f"Sources of {name}", lines)


def coverage(view: Overview, width: int) -> list[str]:
    """Return the ledger: planned, read, lost."""
    ledger = view.ledger
    columns = [
        word_column(""),
        number_column("planned"),
        number_column("read"),
        number_column("bad"),
        number_column("quarantined"),
        number_column("skipped"),
    ]
    names = ("planned", "read", "bad", "quarantined", "skipped")
    lines = (("shards", "shards"), ("stored bytes", "stored_bytes"), ("documents", "documents"))
    rows = [[label, *(t.count(ledger[key][name]) for name in names)] for label, key in lines]
    unread = ledger["unread_bytes"]
    notes = [f"unread: {t.count(unread)} stored bytes" + (f" ({t.size(unread)})" if unread > 999 else "")]
    if ledger["shards_of_unknown_documents"]:
        many = t.plural(ledger["shards_of_unknown_documents"], "unread shard")
        notes.append(f"the documents of {many} cannot be counted")
    return section("Coverage", [*table(columns, rows, width), *prose("; ".join(notes), width)])


def lost(shards: Sequence[LostShard], heading: str, width: int) -> list[str]:
    """Return shards that were not read as a whole, each with its reasons in plain English."""
    columns = [number_column("shard"), name_column("split/uri"), number_column("size"), name_column("why")]
    rows = [
        [str(one.shard), t.clean(f"{one.split}/{one.uri}"), t.size(one.size), _why(one)]
        for one in _shown(shards, _LISTED)
    ]
    lines = table(columns, rows, width)
    codes = sorted({code for one in _shown(shards, _LISTED) for code in one.reasons})
    lines += facts([(code, reason_text(code)) for code in codes], width)
    if len(rows) < len(shards):
        lines += prose(f"and {t.plural(len(shards) - len(rows), 'more shard')}; --json lists all", width)
    return section(f"{heading} ({t.plural(len(shards), 'shard')})", lines)


def _why(shard: LostShard) -> str:
    """Return the reason that took the whole shard, then those that took records of it."""
    place = f" ({t.clean(shard.place, NAME_LIMIT)})" if shard.place else ""
    whole = [f"{code}{place}" for code, records in sorted(shard.reasons.items()) if records < 0]
    some = [(records, code) for code, records in shard.reasons.items() if records >= 0]
    parts = [f"{t.plural(records, 'record')} {code}" for records, code in sorted(some, reverse=True)]
    return ", ".join(whole + parts) or shard.status


def _counted(counted_by: dict[str, dict[str, int]]) -> str:
    """Return how many documents each encoder counted, where both did some."""
    used = [f"{t.plural(by['documents'], 'document')} by {name}" for name, by in counted_by.items() if by["documents"]]
    return f" ({', '.join(used)})" if used else ""


def _shown(items: Sequence[_Item], limit: int) -> Sequence[_Item]:
    """Return the first ``limit`` items; all when only one more would be left out."""
    return items if len(items) <= limit + 1 else items[:limit]
