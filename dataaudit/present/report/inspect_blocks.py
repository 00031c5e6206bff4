"""What is known of one shard, or of one document, as blocks: from the same facts as the JSON."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dataaudit.base.render.blocks import Block, Column, Facts, Prose, Row, Table, names, numbers, words
from dataaudit.base.render.line import Line, Name, decimal, join, nats, per_million, say, share
from dataaudit.base.render.terminal import render
from dataaudit.base.text import count, plural
from dataaudit.metrics.disclosure import BELOW, ROUNDED, SHARED, WITHHELD
from dataaudit.metrics.family import TIERS
from dataaudit.present.report.inspect_found import COUNTED, JUDGE_OF_PII, is_small
from dataaudit.present.report.standouts import Outlier, outlier_table

_ROWS, _PLACES, _NAME = 10, 10, 60
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
    blocks.append(outlier_table([Outlier(**item) for item in value["outliers"]], named=False))
    blocks += [_parts("source", shard["sources"], shard["tokens"])]
    blocks += [_parts("language", shard["languages"] or [], shard["tokens"])]
    blocks += [_rules(value["rules"]), *_content(value), Facts(title="Drift from the reference", pairs=_drift(shard))]
    blocks += _losses(shard["losses"])
    if shard["documents"]:
        blocks += [block for kind, found in value["duplicates"].items() for block in _duplicates(kind, found)]
        command = f"dataaudit inspect {shlex.quote(folder)} {shard['shard']}:ROW"
        blocks.append(Prose(text=say("One document: {}", Name(command, 10_000))))
    return render(_title(shard), _filled(blocks), most=_ROWS, rest=_REST)


def render_row(value: Known) -> str:
    """Return a document's facts."""
    shard, row = value["shard"], value["row"]
    blocks: list[Block] = [Facts(pairs=(("shard", _status(shard)), ("row", _row_text(shard, row))))]
    for group in row["groups"]:
        kept = group["kept"]
        own = "this one" if group["this_one_is_kept"] else _place(kept)
        members = plural(group["documents"], "document")
        rows = ((_place(item), Name(item["name"]), "kept" if item == kept else "") for item in group["others"])
        blocks.append(
            Table(
                title=f"Group of {group['kind']} duplicates, number {group['cluster']}",
                columns=(*words("shard:row"), *names("split/uri"), *words("")),
                rows=tuple(rows),
                number=len(group["others"]) + group["others_not_listed"],
                noun="",
                note=f"{members}; the first in the manifest's order is {own}",
            )
        )
    blocks += [_found(title, columns, cells, row["found"][name]) for name, title, columns, cells in _FOUND]
    blocks.append(Prose(text=_not_listed(row)))
    return render(say("row {} of {}", str(row["row"]), _title(shard)), _filled(blocks), most=None)


def _filled(blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if not isinstance(block, Facts) or block.pairs]


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
    ranked = sorted(parts, key=lambda row: (-row["tokens"], row[kind]))
    part = (share(row["tokens"] / tokens if tokens else None) for row in ranked)
    return Table(
        title=f"{kind.capitalize()}s",
        columns=(*names(kind), *numbers("documents", "tokens", "share")),
        rows=tuple(
            (Name(row[kind], _NAME), row["documents"], row["tokens"], own)
            for row, own in zip(ranked, part, strict=True)
        ),
        noun=kind,
    )


def _rules(rules: list[Known] | None) -> Table:
    """Return the rules that would reject documents; nothing when none was looked at."""
    hit = [rule for rule in rules or () if rule["documents"]]
    return Table(
        title="Quality rules",
        columns=(*names("rule"), *numbers("documents", "share", "median of the others")),
        rows=tuple(
            (Name(record["rule"], _NAME), record["documents"], share(record["rate"]), share(record["median_of_others"]))
            for record in hit
        ),
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
        yield _by_tier("Personal data: hits by kind and tier", shard["pii"], _hidden, " ".join(notes))
    if shard["secrets"] is not None:
        yield _by_tier("Secrets: hits by kind and tier", shard["secrets"], lambda record: record["hits"], "")
    judged = value["judged"]
    of_people = any(item["judge"] == JUDGE_OF_PII for item in judged)
    yield Table(
        title="Found by a judge in the sampled documents",
        columns=(*names("judge", "what"), *numbers("documents", "findings")),
        rows=tuple(
            (Name(item["judge"], _NAME), Name(item["class"], _NAME), _hidden(item, "documents"), _hidden(item))
            for item in judged
        ),
        note=f"Of personal data: numbers {ROUNDED}; {SHARED}" if of_people else "",
    )


def _by_tier(title: str, found: Sequence[Known], shown: Callable[[Known], Line], note: str) -> Table:
    by_entity: dict[str, dict[str, Line]] = {}
    for record in found:
        by_entity.setdefault(record["entity"], {})[record["tier"]] = shown(record)
    return Table(
        title=title,
        columns=(*names("kind"), *numbers(*TIERS)),
        whole=True,
        rows=tuple((Name(kind, _NAME), *(cells.get(tier, 0) for tier in TIERS)) for kind, cells in by_entity.items()),
        note=note,
        empty="none was found",
    )


def _hidden(known: Known, name: str = "hits") -> Line:
    if known.get("suppressed"):
        return BELOW if is_small(known) else WITHHELD
    value: int = known[name]
    return value


def _drift(shard: Known) -> tuple[tuple[Line, Line], ...]:
    named = (("KL", "token_kl_drift"), ("JS", "token_js_drift"), ("KL by chance", "token_kl_bias"))
    known = shard["token_kl_drift"] is not None
    return tuple((name, say("{} nats", nats(shard[key]))) for name, key in named if known and shard[key] is not None)


def _losses(losses: list[Known]) -> list[Block]:
    """Return a row for each reason, its places together, and what the reasons mean."""
    by_reason: dict[str, list[Known]] = {}
    for loss in losses:
        by_reason.setdefault(loss["reason"], []).append(loss)
    rows: list[Row] = []
    for code, held in by_reason.items():
        whole = any(loss["records"] < 0 for loss in held)
        records: Line = "not known" if whole else sum(loss["records"] for loss in held)
        rows.append((Name(code), records, sum(loss["bytes"] for loss in held), _places(held)))
    table = Table(
        title="Lost",
        columns=(*names("reason"), *numbers("records", "bytes"), *names("where")),
        whole=True,
        rows=tuple(rows),
    )
    meanings = tuple((Name(code), held[0]["meaning"]) for code, held in by_reason.items())
    return [table, Facts(title="What the codes mean", pairs=meanings)]


def _places(losses: list[Known]) -> Line:
    """Return the places of one reason, records as numbers after each other."""
    records = [loss["place"].removeprefix("record ") for loss in losses if loss["place"].startswith("record ")]
    others = [loss["place"] for loss in losses if not loss["place"].startswith("record ")]
    told: list[Line] = [Name(place) if place else "the whole shard" for place in others]
    if records:
        more = f" and {len(records) - _PLACES} more" if len(records) > _PLACES else ""
        told.insert(0, say("record {}{}", join(", ", map(Name, records[:_PLACES])), more))
    return join("; ", told)


def _duplicates(kind: str, found: Known) -> list[Block]:
    title = f"Duplicates ({kind})"
    if not found["documents_in_groups"]:
        return [Table(title=title, columns=(), rows=(), empty="none")]
    kept = {item["shard"]: item["count"] for item in found["kept_in"]["top"]}
    shared = {item["shard"]: item["count"] for item in found["shares_groups_with"]["top"]}
    named = {item["shard"]: item["name"] for key in ("kept_in", "shares_groups_with") for item in found[key]["top"]}
    order = sorted(named, key=lambda shard: (-kept.get(shard, 0), -shared.get(shard, 0), shard))
    members, drops = plural(found["documents_in_groups"], "document"), count(found["documents_to_drop"])
    return [
        Table(
            title=title,
            columns=(*numbers("shard"), *names("split/uri"), *numbers("kept there", "groups in common")),
            whole=True,
            rows=tuple((str(shard), Name(named[shard]), kept.get(shard, 0), shared.get(shard)) for shard in order),
            note=f"{members} in groups of duplicates, {drops} of them repeat one that is kept",
        )
    ]


def _found(title: str, columns: tuple[Column, ...], cells: Callable[[Known], Row], found: Known) -> Table:
    note = ""
    if any(item.get("reserved") for item in found["first"]):
        note = "reserved: an example, a test value or an allowed one; in no number"
    rows = tuple(map(cells, found["first"]))
    rest = "in the table `findings`" if any("detector" in item for item in found["first"]) else ""
    return Table(title=title, columns=columns, rows=rows, number=found["count"], noun="", rest=rest, note=note)


_SPAN = numbers("from byte", "to")
_FOUND: tuple[tuple[str, str, tuple[Column, ...], Callable[[Known], Row]], ...] = (
    (
        "findings",
        "Found in its text",
        (*words("by"), *names("what"), *words("tier"), *_SPAN, *numbers("score"), *words("")),
        lambda record: (
            Name(record["detector"], _NAME),
            Name(record["class"], _NAME),
            record["tier"],
            record["start"],
            record["end"],
            f"{record['score']:.2f}",
            "reserved" if record["reserved"] else "",
        ),
    ),
    (
        "neighbours",
        "Near-duplicates of it, most alike first",
        (*words("shard:row"), *names("split/uri"), *numbers("Jaccard"), *words("")),
        lambda record: (
            _place(record),
            Name(record["name"]),
            share(record["jaccard"]),
            "kept" if record["kept"] else "",
        ),
    ),
    (
        "overlap",
        "Held-out documents and evaluation items in it",
        (*names("set", "item"), *words("part", "tier", "rule"), *_SPAN, *numbers("score", "less common")),
        lambda record: (
            Name(record["set"], _NAME),
            Name(record["item"], _NAME),
            record["part"],
            record["tier"],
            record["rule"],
            record["start"],
            record["end"],
            share(record["score"]),
            share(record["score_without_common"]),
        ),
    ),
    (
        "copied_by",
        "Training documents that hold a piece of it",
        (*words("shard:row"), *names("split/uri"), *words("rule"), *_SPAN, *numbers("score", "less common")),
        lambda record: (
            _place(record),
            Name(record["name"]),
            record["rule"],
            record["start"],
            record["end"],
            share(record["score"]),
            share(record["score_without_common"]),
        ),
    ),
    (
        "hotspots",
        "Hotspots in it: spans that many training documents hold",
        (*numbers("hotspot", "words", "documents", "occurrences"), *_SPAN),
        lambda record: tuple(record[name] for name in ("hotspot", "words", "documents", "occurrences", "start", "end")),
    ),
)
"""What the tables say of a document: name of the facts, title, columns, cells of a row."""


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
    absent = [told for name, told in _NOT_LISTED.items() if name in found["looked_for"] and not has[name]]
    return f"Not listed as: {'; '.join(absent)}." if absent else ""


def _place(known: Known) -> str:
    return f"{known['shard']}:{known['row']}"
