"""What is known of a shard, or of a document, as blocks: from the same facts as the JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from dataaudit.base.render.blocks import Block, Column, Facts, Prose, Table, column, table_of
from dataaudit.base.render.line import Line, Name, decimal, join, nats, per_million, say, share
from dataaudit.base.render.terminal import render
from dataaudit.base.text import count, plural
from dataaudit.metrics.disclosure import BELOW, FEW, ROUNDED, SHARED, WITHHELD
from dataaudit.metrics.family import TIERS
from dataaudit.metrics.pii.definition import ANALYZER
from dataaudit.metrics.registry import SHARD_STATISTICS
from dataaudit.present.report.highlights import outlier_table

_ROWS, _PLACES, _NAME = 10, 10, 60
COUNTED = frozenset(statistic.column for statistic in SHARD_STATISTICS if statistic.compared and statistic.per_document)
"""Compared columns that count documents: compared as shares of a shard's documents."""
_REST = "; --json lists all"
_NOT_LISTED = {
    "exact": "an exact duplicate",
    "neighbours": "a near-duplicate",
    "hotspots": "holding a hotspot",
    "held_out_copies": "holding a piece of a held-out document",
    "items": "holding an evaluation item",
    "copied_by": "a held-out document that is in training data",
    "pii": "holding personal data",
    "secrets": "holding a secret",
}

Known = dict[str, Any]
"""Of :mod:`dataaudit.present.report.inspect`."""


def render_shard(value: Known, folder: str) -> str:
    """Return a shard's facts, what is unusual about it, its losses and duplicates."""
    shard = value["shard"]
    blocks: list[Block] = [Facts(pairs=tuple(_identity(shard)))]
    if shard["documents"]:
        blocks.append(Facts(title="Contents", pairs=tuple(_contents(shard, value["medians_of_others"]))))
    blocks.append(outlier_table(value["outliers"], named=False))
    blocks += [_parts("source", shard["sources"], shard["tokens"])]
    blocks += [_parts("language", shard["languages"] or [], shard["tokens"])]
    blocks += [_rules(value["rules"]), *_content(value), Facts(title="Drift from the reference", pairs=_drift(shard))]
    blocks += _losses(shard["losses"])
    if shard["documents"]:
        blocks += [_duplicates(kind, groups) for kind, groups in value["duplicates"].items()]
        command = f"dataaudit inspect {shlex.quote(folder)} {shard['shard']}:ROW"
        blocks.append(Prose(text=say("One document: {}", Name(command, 10_000))))
    return render(_title(shard), blocks, most=_ROWS, rest=_REST)


def render_row(value: Known) -> str:
    """Return a document's facts."""
    shard, row = value["shard"], value["row"]
    blocks: list[Block] = [Facts(pairs=(("shard", _status(shard)), ("row", _row_text(shard, row))))]
    for group in row["groups"]:
        kept, members = group["kept"], plural(group["documents"], "document")
        own = "this one" if group["this_one_is_kept"] else _place(kept)
        others = [item | {"kept": "kept" if item == kept else ""} for item in group["others"]]
        blocks.append(
            table_of(
                f"Group of {group['kind']} duplicates, number {group['cluster']}",
                others,
                *_PLACE,
                column("", "kept", kind="word"),
                number=len(others) + group["others_not_listed"],
                noun="",
                note=f"{members}; the first in the manifest's order is {own}",
            )
        )
    blocks += [_found(title, columns, row["found"][name]) for name, (title, columns) in _FOUND.items()]
    blocks.append(Prose(text=_not_listed(row)))
    return render(say("row {} of {}", str(row["row"]), _title(shard)), blocks, most=None)


def _title(shard: Known) -> Line:
    return say("shard {}: {}", str(shard["shard"]), Name(shard["name"], 10_000))


def _status(shard: Known) -> str:
    reason = f" ({shard['reason']})" if shard["reason"] else ""
    return f"{shard['status']}{reason}: {shard['status_meaning']}"


def _row_text(shard: Known, row: Known) -> str:
    if row["exists"] is False:
        last = f"its last one is {shard['rows'] - 1}" if shard["rows"] else "it has no rows"
        return f"does not exist: the shard has {plural(shard['rows'], 'row')}, counted from 0; {last}"
    if row["exists"] is None:
        return "not known: the shard was not read"
    if row["bad"]:
        reasons = "; ".join(f"{code}: {meaning}" for code, meaning in zip(row["bad"], row["bad_meaning"], strict=True))
        return f"a bad record, not in any number ({reasons})"
    if row["in_metrics"] is None:
        unlisted = plural(row["bad_records_not_listed"], "bad record")
        return f"in the numbers, unless it is one of {unlisted} of this shard whose place is not listed"
    return "in the numbers" if row["in_metrics"] else "not in any number: the shard was left out as a whole"


def _identity(shard: Known) -> Iterable[tuple[Line, Line]]:
    packed = "" if shard["compression"] == "none" else f", {shard['compression']}"
    yield "status", _status(shard)
    yield "file", say("{} below {}", Name(shard["uri"], 10_000), Name(shard["root"], 10_000))
    yield "format", f"{shard['format']}{packed}, {count(shard['size'])} stored bytes"
    yield "sha256", shard["sha256"] or "not known: the file could not be read"
    if shard["rows_digest"]:
        yield "rows digest", shard["rows_digest"]


def _contents(shard: Known, medians: dict[str, float | None]) -> Iterable[tuple[Line, Line]]:
    bad = f", {plural(shard['bad_records'], 'bad record')} left out" if shard["bad_records"] else ""
    yield "documents", f"{count(shard['documents'])} of {plural(shard['rows'], 'row')}{bad}"
    yield "text", f"{count(shard['bytes'])} bytes"
    yield "tokens", shard["tokens"]
    if shard["bytes_per_token"] is not None:
        yield "bytes/token", decimal(shard["bytes_per_token"])
    lengths = [(name, shard[f"seq_len_{name}"]) for name in ("p50", "p95", "max")]
    known = [say("{} {}", name, decimal(value)) for name, value in lengths if value is not None]
    if known:
        yield "tokens a document", join(", ", known)
    for name, median in medians.items():
        if (value := shard[name]) is None:
            continue
        notes = [say("{} of its documents", share(value / shard["documents"]))] if name in COUNTED else []
        notes += [say("median of the others {}", share(median))] if median is not None else []
        shown: Line = value if name in COUNTED else share(value)
        yield name, say("{} ({})", shown, join("; ", notes)) if notes else shown


def _parts(kind: str, parts: list[Known], tokens: int) -> Table:
    """Return the sources or languages with the most tokens."""
    return table_of(
        f"{kind.capitalize()}s",
        sorted(parts, key=lambda row: (-row["tokens"], row[kind])),
        _name(kind),
        column("documents"),
        column("tokens"),
        column("share", lambda row: share(row["tokens"] / tokens if tokens else None)),
        most=None,
        noun=kind,
    )


def _rules(rules: list[Known] | None) -> Table:
    """Return the rules that would reject documents; nothing when none was looked at."""
    return table_of(
        "Quality rules",
        [rule for rule in rules or () if rule["documents"]],
        _name("rule"),
        column("documents"),
        column("share", "rate", share),
        column("median of the others", "median_of_others", share),
        most=None,
        noun="rule",
        note="share of documents that each rule would reject, here and in the split's other shards; nothing was"
        " removed",
        empty="none would reject a document" if rules else "",
    )


def _content(value: Known) -> Iterable[Block]:
    """Yield a block for each kind of finding of a shard."""
    shard = value["shard"]
    if shard["pii"] is not None:
        notes = [f"Numbers are {ROUNDED}."]
        if not shard["pii_suppressed"]:
            documents, hits = plural(shard["pii_documents"] or 0, "document"), per_million(shard["pii_hits"])
            notes.insert(0, f"In all: {documents}, {hits} hits per million tokens.")
        hidden = shard["pii_suppressed"] or any(item.get("suppressed") for item in shard["pii"])
        notes += [SHARED] if hidden else []
        yield _by_tier("Personal data: hits by kind and tier", shard["pii"], " ".join(notes))
    if shard["secrets"] is not None:
        yield _by_tier("Secrets: hits by kind and tier", shard["secrets"], "")
    of_people = any(item["judge"] == ANALYZER for item in value["judged"])
    yield table_of(
        "Found by a judge in the sampled documents",
        value["judged"],
        _name("judge"),
        _name("what", "class"),
        column("documents", lambda item: _hidden(item, "documents")),
        column("findings", _hidden),
        most=None,
        note=f"Of personal data: numbers {ROUNDED}; {SHARED}" if of_people else "",
    )


def _by_tier(title: str, records: Sequence[Known], note: str) -> Table:
    kinds: dict[str, Known] = {}
    for record in records:
        row = kinds.setdefault(record["entity"], {"kind": record["entity"], **dict.fromkeys(TIERS, 0)})
        row[record["tier"]] = _hidden(record)
    return table_of(
        title,
        list(kinds.values()),
        _name("kind"),
        *map(column, TIERS),
        most=None,
        whole=True,
        note=note,
        empty="none was found",
    )


def _name(head: str, of: str = "", kind: Literal["name", "word"] = "name") -> Column:
    """Return a column of short names."""
    return column(head, of, lambda text: Name(text, _NAME), kind)


def _hidden(known: Known, name: str = "hits") -> Line:
    if known.get("suppressed"):
        return BELOW if known["fewer_than"] == FEW else WITHHELD
    value: int = known[name]
    return value


def _drift(shard: Known) -> tuple[tuple[Line, Line], ...]:
    names = (("KL", "token_kl_drift"), ("JS", "token_js_drift"), ("KL by chance", "token_kl_bias"))
    known = shard["token_kl_drift"] is not None
    return tuple((name, say("{} nats", nats(shard[key]))) for name, key in names if known and shard[key] is not None)


def _losses(losses: list[Known]) -> list[Block]:
    """Return a row for each reason, its sites together, and what the reasons mean."""
    by_reason: dict[str, list[Known]] = {}
    for loss in losses:
        by_reason.setdefault(loss["reason"], []).append(loss)

    def records(own: list[Known]) -> Line:
        return "not known" if any(loss["records"] < 0 for loss in own) else sum(loss["records"] for loss in own)

    table = table_of(
        "Lost",
        list(by_reason.values()),
        column("reason", lambda own: own[0]["reason"], Name),
        column("records", records),
        column("bytes", lambda own: sum(loss["bytes"] for loss in own)),
        column("where", _places, kind="name"),
        most=None,
        whole=True,
    )
    meanings = tuple((Name(code), own[0]["meaning"]) for code, own in by_reason.items())
    return [table, Facts(title="What the codes mean", pairs=meanings)]


def _places(losses: list[Known]) -> Line:
    """Return the sites of a reason, records as numbers after each other."""
    records = [loss["place"].removeprefix("record ") for loss in losses if loss["place"].startswith("record ")]
    others = [loss["place"] for loss in losses if not loss["place"].startswith("record ")]
    parts: list[Line] = [Name(place) if place else "the whole shard" for place in others]
    if records:
        more = f" and {len(records) - _PLACES} more" if len(records) > _PLACES else ""
        parts.insert(0, say("record {}{}", join(", ", map(Name, records[:_PLACES])), more))
    return join("; ", parts)


def _duplicates(kind: str, groups: Known) -> Table:
    title = f"Duplicates ({kind})"
    if not groups["documents_in_groups"]:
        return Table(title=title, columns=(), rows=(), empty="none")
    shards: dict[int, Known] = {}
    for key in ("kept_in", "shares_groups_with"):
        for item in groups[key]["top"]:
            row = shards.setdefault(item["shard"], item | {"kept_in": 0, "shares_groups_with": None})
            row[key] = item["count"]
    members, drops = plural(groups["documents_in_groups"], "document"), count(groups["documents_to_drop"])
    return table_of(
        title,
        sorted(shards.values(), key=lambda row: (-row["kept_in"], -(row["shares_groups_with"] or 0), row["shard"])),
        column("shard", shown=str),
        column("split/uri", "name", Name),
        column("kept there", "kept_in"),
        column("groups in common", "shares_groups_with"),
        most=None,
        whole=True,
        note=f"{members} in groups of duplicates, {drops} of them repeat one that is kept",
    )


def _found(title: str, columns: Sequence[Column], found: Known) -> Table:
    rows = found["first"]
    is_reserved = any(item.get("reserved") for item in rows)
    return table_of(
        title,
        rows,
        *columns,
        number=found["count"],
        noun="",
        rest="in the table `findings`" if any("detector" in item for item in rows) else "",
        note="reserved: an example, a test value or an allowed one; in no number" if is_reserved else "",
    )


def _place(known: Known) -> str:
    return f"{known['shard']}:{known['row']}"


def _flag(name: str) -> Column:
    """Return a column that has its name where a record has it."""
    return column("", lambda record: name if record[name] else "", kind="word")


_PLACE = (column("shard:row", _place, kind="word"), column("split/uri", "name", Name))
_RULE, _TIER = column("rule", kind="word"), column("tier", kind="word")
_SPAN = (column("from byte", "start"), column("to", "end"))
_SCORES = (column("score", shown=share), column("less common", "score_without_common", share))
_FOUND: dict[str, tuple[str, tuple[Column, ...]]] = {
    "findings": (
        "Found in its text",
        (
            _name("by", "detector", "word"),
            _name("what", "class"),
            _TIER,
            *_SPAN,
            column("score", lambda record: f"{record['score']:.2f}"),
            _flag("reserved"),
        ),
    ),
    "neighbours": (
        "Near-duplicates of it, most alike first",
        (*_PLACE, column("Jaccard", "jaccard", share), _flag("kept")),
    ),
    "overlap": (
        "Held-out documents and evaluation items in it",
        (*map(_name, ("set", "item")), column("part", kind="word"), _TIER, _RULE, *_SPAN, *_SCORES),
    ),
    "copied_by": ("Training documents that hold a piece of it", (*_PLACE, _RULE, *_SPAN, *_SCORES)),
    "hotspots": (
        "Hotspots in it: spans that many training documents hold",
        (*map(column, ("hotspot", "words", "documents", "occurrences")), *_SPAN),
    ),
}
"""What the tables say of a document: title and columns, by the name of the facts."""


def _not_listed(row: Known) -> str:
    """Return what the document is not listed as, of all that was looked for; nothing of a row without numbers."""
    if not row["in_metrics"]:
        return ""
    found, kinds = row["found"], {group["kind"] for group in row["groups"]}
    parts = {item["part"] == "document" for item in found["overlap"]["first"]}
    every = not found["overlap"]["not_listed"]
    detectors = {item["detector"] for item in found["findings"]["first"]}
    unlisted = bool(found["findings"]["not_listed"])
    has = {
        "exact": "exact" in kinds,
        "neighbours": "near" in kinds or bool(found["neighbours"]["count"]),
        "hotspots": bool(found["hotspots"]["count"]),
        "copied_by": bool(found["copied_by"]["count"]),
        "pii": "pii" in detectors or unlisted,
        "secrets": "secrets" in detectors or unlisted,
        "held_out_copies": True in parts or not every,
        "items": False in parts or not every,
    }
    absent = [words for name, words in _NOT_LISTED.items() if name in found["looked_for"] and not has[name]]
    return f"Not listed as: {'; '.join(absent)}." if absent else ""
