"""The text of ``dataaudit inspect``, from the same facts as its JSON."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.layout import (
    facts,
    name_column,
    number_column,
    page,
    prose,
    section,
    table,
    terminal_width,
    word_column,
)
from dataaudit.report.blocks import NAME_LIMIT
from dataaudit.report.inspect_content_text import content_blocks, finding_block
from dataaudit.report.inspect_found import COUNTED
from dataaudit.report.inspect_found_text import found_blocks, not_listed
from dataaudit.report.outliers import LIMIT_SD

_PARTS = 10
_RULES = 10
_PLACES = 10
_BYTE_RATIO = "bytes_per_token"


def render_shard(value: dict[str, Any], folder: Path) -> str:
    """Return a shard's facts, what is unusual about it, its losses and duplicates."""
    shard, width = value["shard"], terminal_width()
    blocks = [
        facts(_identity(shard), width),
        section("Contents", facts(_contents(shard, value["medians_of_others"]), width)) if shard["documents"] else [],
        _outliers(value["outliers"], width),
        _parts("source", shard["sources"], shard["tokens"], width),
        _parts("language", shard["languages"] or [], shard["tokens"], width),
        _rules(value["rules"], width),
        *content_blocks(value, width),
        section("Drift from the reference", facts(_drift(shard), width)),
        _losses(shard["losses"], width),
    ]
    if shard["documents"]:
        blocks += [_duplicates(kind, found, width) for kind, found in value["duplicates"].items()]
        command = t.clean(f"dataaudit inspect {shlex.quote(str(folder))} {shard['shard']}:ROW")
        blocks.append(prose(f"One document: {command}", width))
    return page(_title(shard), *blocks)


def render_row(value: dict[str, Any]) -> str:
    """Return a document's facts."""
    shard, row, width = value["shard"], value["row"], terminal_width()
    blocks = [facts([("shard", _status(shard)), ("row", _row_text(shard, row))], width)]
    for group in row["groups"]:
        kept = group["kept"]
        own = "this one" if group["this_one_is_kept"] else f"{kept['shard']}:{kept['row']}"
        columns = [word_column("shard:row"), name_column("split/uri"), word_column("")]
        cells = [
            [f"{one['shard']}:{one['row']}", t.clean(one["name"]), "kept" if one == kept else ""]
            for one in group["others"]
        ]
        lines = prose(f"{t.plural(group['documents'], 'document')}; the first in the manifest's order is {own}", width)
        lines += table(columns, cells, width)
        if group["others_not_listed"]:
            lines += prose(f"and {t.count(group['others_not_listed'])} more", width)
        blocks.append(section(f"Group of {group['kind']} duplicates, number {group['cluster']}", lines))
    blocks += [finding_block(row["found"]["findings"], width), *found_blocks(row, width), not_listed(row, width)]
    return page(f"row {row['row']} of {_title(shard)}", *blocks)


def _title(shard: dict[str, Any]) -> str:
    return t.clean(f"shard {shard['shard']}: {shard['name']}")


def _status(shard: dict[str, Any]) -> str:
    reason = f" ({shard['reason']})" if shard["reason"] else ""
    return f"{shard['status']}{reason}: {shard['status_meaning']}"


def _row_text(shard: dict[str, Any], row: dict[str, Any]) -> str:
    if row["exists"] is False:
        last = f"its last one is {shard['rows'] - 1}" if shard["rows"] else "it has no rows"
        return f"does not exist: the shard has {t.plural(shard['rows'], 'row')}, counted from 0; {last}"
    if row["exists"] is None:
        return "not known: the shard was not read"
    if row["bad"]:
        reasons = "; ".join(f"{code}: {meaning}" for code, meaning in zip(row["bad"], row["bad_meaning"], strict=True))
        return f"a bad record, not in any number ({reasons})"
    if row["in_metrics"] is None:
        return (
            f"in the numbers, unless it is one of {t.plural(row['bad_records_not_listed'], 'bad record')}"
            " of this shard whose place is not listed"
        )
    return "in the numbers" if row["in_metrics"] else "not in any number: the shard was left out as a whole"


def _identity(shard: dict[str, Any]) -> list[tuple[str, str]]:
    packed = "" if shard["compression"] == "none" else f", {shard['compression']}"
    pairs = [
        ("status", _status(shard)),
        ("file", t.clean(f"{shard['uri']} below {shard['root']}")),
        ("format", f"{shard['format']}{packed}, {t.count(shard['size'])} stored bytes"),
        ("sha256", shard["sha256"] or "not known: the file could not be read"),
    ]
    if shard["rows_digest"]:
        pairs.append(("rows digest", shard["rows_digest"]))
    return pairs


def _contents(shard: dict[str, Any], medians: dict[str, float | None]) -> list[tuple[str, str]]:
    bad = f", {t.plural(shard['bad_records'], 'bad record')} left out" if shard["bad_records"] else ""
    lengths = [
        f"{name} {t.decimal(shard[f'seq_len_{name}'])}"
        for name in ("p50", "p95", "max")
        if shard[f"seq_len_{name}"] is not None
    ]
    pairs = [
        ("documents", f"{t.count(shard['documents'])} of {t.plural(shard['rows'], 'row')}{bad}"),
        ("text", f"{t.count(shard['bytes'])} bytes"),
        ("tokens", t.count(shard["tokens"])),
        ("bytes/token", t.decimal(shard["bytes_per_token"])),
        ("tokens a document", ", ".join(lengths) or t.NOTHING),
        *((name, _compared(shard, name, median)) for name, median in medians.items()),
    ]
    return [pair for pair in pairs if pair[1] != t.NOTHING]


def _compared(shard: dict[str, Any], name: str, median: float | None) -> str:
    """Return a column's value beside the median of the split's other shards."""
    value, notes = shard[name], []
    if value is None:
        return t.NOTHING
    if name in COUNTED:
        notes.append(f"{t.ratio(value / shard['documents'])} of its documents")
    if median is not None:
        notes.append(f"median of the others {t.ratio(median)}")
    shown = t.count(value) if name in COUNTED else t.ratio(value)
    return shown + (f" ({'; '.join(notes)})" if notes else "")


def _parts(kind: str, parts: list[dict[str, Any]], tokens: int, width: int) -> list[str]:
    """Return the sources or languages with the most tokens."""
    ranked = sorted(parts, key=lambda row: (-row["tokens"], row[kind]))
    columns = [name_column(kind), number_column("documents"), number_column("tokens"), number_column("share")]
    rows = [
        [
            t.clean(row[kind], NAME_LIMIT),
            t.count(row["documents"]),
            t.count(row["tokens"]),
            t.ratio(row["tokens"] / tokens if tokens else None),
        ]
        for row in ranked[:_PARTS]
    ]
    lines = table(columns, rows, width)
    if len(ranked) > _PARTS:
        lines += prose(f"and {t.plural(len(ranked) - _PARTS, f'more {kind}')}; --json lists all", width)
    return section(f"{kind.capitalize()}s", lines)


def _outliers(found: list[dict[str, Any]], width: int) -> list[str]:
    columns = [
        name_column("what"),
        number_column("value"),
        number_column("median of\nthe split"),
        number_column("robust sd\naway"),
    ]
    rows = []
    for one in found:
        show = t.decimal if one["column"] == _BYTE_RATIO else t.ratio
        name = t.clean(one["column"], NAME_LIMIT)
        rows.append([name, show(one["value"]), show(one["median"]), f"{one['deviations']:+,.1f}"])
    lines = table(columns, rows, width)
    if any(one["column"] != _BYTE_RATIO for one in found):
        lines += prose("a set of quality rules stands for the share of documents that it would reject", width)
    return section(f"Over {LIMIT_SD:g} robust sd from its split's median", lines)


def _rules(rules: list[dict[str, Any]] | None, width: int) -> list[str]:
    """Return the rules that would reject documents; nothing when none was looked at."""
    if not rules:
        return []
    hit = [one for one in rules if one["documents"]]
    if not hit:
        return section("Quality rules", prose("none would reject a document", width))
    columns = [
        name_column("rule"),
        number_column("documents"),
        number_column("share"),
        number_column("median of\nthe others"),
    ]
    rows = [
        [
            t.clean(one["rule"], NAME_LIMIT),
            t.count(one["documents"]),
            t.ratio(one["rate"]),
            t.ratio(one["median_of_others"]),
        ]
        for one in hit[:_RULES]
    ]
    lines = table(columns, rows, width)
    if len(hit) > _RULES:
        lines += prose(f"and {t.plural(len(hit) - _RULES, 'more rule')}; --json lists all", width)
    note = "share of documents that each rule would reject, here and in the split's other shards; nothing was removed"
    return section("Quality rules", [*lines, *prose(note, width)])


def _drift(shard: dict[str, Any]) -> list[tuple[str, str]]:
    if shard["token_kl_drift"] is None:
        return []
    named = (("KL", "token_kl_drift"), ("JS", "token_js_drift"), ("KL by chance", "token_kl_bias"))
    return [(name, f"{t.ratio(shard[key])} nats") for name, key in named if shard[key] is not None]


def _losses(losses: list[dict[str, Any]], width: int) -> list[str]:
    """Return a row for each reason, its places together."""
    columns = [word_column("reason"), number_column("records"), number_column("bytes"), name_column("where")]
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for loss in losses:
        by_reason.setdefault(loss["reason"], []).append(loss)
    rows = []
    for code, held in by_reason.items():
        whole = any(loss["records"] < 0 for loss in held)
        records = "not known" if whole else t.count(sum(loss["records"] for loss in held))
        rows.append([t.clean(code), records, t.count(sum(loss["bytes"] for loss in held)), _places(held)])
    meanings = [(t.clean(code), held[0]["meaning"]) for code, held in by_reason.items()]
    return section("Lost", [*table(columns, rows, width), *facts(meanings, width)])


def _places(losses: list[dict[str, Any]]) -> str:
    """Return the places of one reason, records as numbers after each other."""
    numbers = [loss["place"].removeprefix("record ") for loss in losses if loss["place"].startswith("record ")]
    others = [t.clean(loss["place"]) or "the whole shard" for loss in losses if not loss["place"].startswith("record ")]
    more = f" and {len(numbers) - _PLACES} more" if len(numbers) > _PLACES else ""
    listed = [f"record {', '.join(map(t.clean, numbers[:_PLACES]))}{more}"] if numbers else []
    return "; ".join(listed + others)


def _duplicates(kind: str, found: dict[str, Any], width: int) -> list[str]:
    if not found["documents_in_groups"]:
        return section(f"Duplicates ({kind})", prose("none", width))
    lines = prose(
        f"{t.plural(found['documents_in_groups'], 'document')} in groups of duplicates,"
        f" {t.count(found['documents_to_drop'])} of them repeat one that is kept:",
        width,
    )
    kept = {one["shard"]: one["count"] for one in found["kept_in"]["top"]}
    shared = {one["shard"]: one["count"] for one in found["shares_groups_with"]["top"]}
    named = {one["shard"]: one["name"] for key in ("kept_in", "shares_groups_with") for one in found[key]["top"]}
    columns = [
        number_column("shard"),
        name_column("split/uri"),
        number_column("kept\nthere"),
        number_column("groups\nin common"),
    ]
    order = sorted(named, key=lambda shard: (-kept.get(shard, 0), -shared.get(shard, 0), shard))
    rows = [
        [str(shard), t.clean(named[shard]), t.count(kept.get(shard, 0)), t.count(shared.get(shard))] for shard in order
    ]
    lines += table(columns, rows, width)
    return section(f"Duplicates ({kind})", lines)
