"""Coverage: bytes that were planned and not read, and what a list held back. The engine counts them, no stage does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Block, Facts, Section, Table, Tone, bad, column, table_of
from dataaudit.base.render.line import Line, Name, join, say, size
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.tables import HELD_BACK
from dataaudit.metrics.family import Broken, Counted, Family, ShardStatistic, Tables, declare, statistics
from dataaudit.metrics.recomputed import LOST, Condition, Follows, Number, held_back, of_shard, total
from dataaudit.metrics.shown import Highlight, Kind, Oddity, OddShard, Part, Shown, first_of, reason_text, split_and_uri
from dataaudit.metrics.volume.definition import Overview, lost_shards, overview

METRIC = "coverage_unread_bytes"
HELD = "held_back_shards"
_BY_REASON = frozenset({"rule"})


def bad_share(bad: int, records: int, bad_bytes: int, text_bytes: int) -> float:
    """Return which share of a shard is bad: that of its records or that of its bytes, the larger; 0 without bad ones.

    A few long records hold most of a text as well as many short ones do. Which part of a bad record is text is not
    known, so all of it is compared with the text of the good records: other columns make its share no smaller.
    """
    if not bad:
        return 0.0
    return max(bad / max(1, records), bad_bytes / max(1, bad_bytes + text_bytes))


def _unread(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Count the bytes of each shard that were not read; of ``bytes`` also those of bad records in shards that were."""
    names = ("split", "size", "status", "reason")
    splits, sizes, statuses, reasons = (tables.shards[name].to_pylist() for name in names)
    lost = [status in LOST and reasons[shard] != HELD_BACK for shard, status in enumerate(statuses)]
    counts = {shard: sizes[shard] for shard, is_lost in enumerate(lost) if is_lost}
    if case.stat == "bytes":
        for row in tables.table("ledger").to_pylist():
            shard, reason = row["shard"], row["reason"]
            if statuses[shard] not in LOST and case.scope.rule in {None, reason}:
                counts[shard] = counts.get(shard, 0) + row["bytes"]
    kept = (shard for shard in counts if not lost[shard] or case.scope.rule in {None, reasons[shard]})
    own = {shard: counts[shard] for shard in kept if case.scope.split in {None, splits[shard]} and counts[shard] > 0}
    return "bytes not read", own


def _held_back(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Return the shards that the list of the build held back, or held documents of back."""
    rows = [row for row in tables.table("shards").to_pylist() if case.scope.split in {None, row["split"]}]
    counts = {row["shard"]: held_back(row)[case.stat] for row in rows}
    noun = "held back" if case.stat == "shards" else "documents held back"
    return noun, {shard: number for shard, number in counts.items() if number}


_IS_READ = Condition(lambda: ~pc.field("status").isin(LOST))
_IS_LISTED = Condition(lambda: pc.field("rule") == HELD_BACK)
_LOST_BYTES = Number("planned", "size", ~_IS_READ & ~_IS_LISTED)
_PLANNED = Number("planned", "size", ~_IS_LISTED)
_UNREAD = total(_LOST_BYTES, Number("ledger", "bytes", _IS_READ))
_ACCOUNTED = total(Number("shards", "documents"), Number("shards", "bad_records"))

FAMILY = Family(
    name="coverage",
    metrics=(
        declare(
            METRIC,
            statistics("bytes", "bytes", "all, rule", absent_is_zero=_BY_REASON, headline=True),
            statistics("shard_bytes", "bytes", "all, split", absent_is_zero=_BY_REASON),
            evidence=Counted(count=_unread, columns=("size",)),
            area="coverage",
            by_stage=False,
            columns=(ShardStatistic("shard_bytes", "size", head="stored size", shown_as="size", spare=True),),
        ),
        declare(
            HELD,
            statistics("shards documents", "", "all, split", zero_version="1"),
            evidence=Counted(count=_held_back),
            area="coverage",
            by_stage=False,
        ),
    ),
    checked_with=("ledger", "shards"),
    checks=(
        Follows(METRIC, "bytes", _UNREAD, _PLANNED, "all, rule"),
        Follows(METRIC, "shard_bytes", _LOST_BYTES, _PLANNED, drops=frozenset({"split"})),
        of_shard("bad_records", Number("ledger", "records", _IS_READ)),
        Follows(HELD, "shards", Number("planned", "", ~_IS_READ & _IS_LISTED)),
        Follows(HELD, "documents", total(Number("shards", "rows"), _ACCOUNTED, -1)),
    ),
)

_LISTED = "held_back"
_STATES = ("planned", "read", "bad", _LISTED, "quarantined", "skipped")
_MISSED = ("bad", "quarantined", "skipped")
_LINES = (("shards", "shards"), ("stored bytes", "stored_bytes"), ("documents", "documents"))
_CODES, _CODE = 30, 40


def _section(view: Overview) -> Section:
    """Return the ledger with every lost shard."""
    ledger = view.ledger
    bad_records, nothing = ledger["documents"]["bad"], ledger["documents"]["read"] == 0
    blocks = [
        _ledger(view),
        *_lost(view.unread, "Not read"),
        *_lost(view.held_back, "Held back by the quarantine list"),
        *_lost(view.partial, "Read without their bad records"),
    ]
    if codes := sorted({code for shard in (*view.unread, *view.partial) for code in shard["reasons"]})[:_CODES]:
        pairs = tuple((Name(code), reason_text(code)) for code in codes)
        blocks.append(Facts(title="What the codes mean", pairs=pairs))
    tone: Tone = "bad" if view.unread or nothing else "warn" if bad_records else "good"
    return Section(id="coverage", title="Coverage", lead=join(" ", _leads(view)), tone=tone, blocks=tuple(blocks))


def _leads(view: Overview) -> Iterator[Line]:
    ledger = view.ledger
    planned, bad_records = ledger["shards"]["planned"], ledger["documents"]["bad"]
    if ledger["documents"]["read"] == 0:
        yield "No document was read: nothing was evaluated."
    if view.unread:
        shard, number = view.unread[0], len(view.unread)
        whole = [code for code, records in shard["reasons"].items() if records < 0]
        yield say(
            "{} of {} {} not read ({}): {}, {}{}{}.",
            number,
            t.plural(planned, "shard"),
            "was" if number == 1 else "were",
            size(ledger["unread_bytes"]),
            Name(split_and_uri(shard), 80),
            why_lost(shard),
            f" ({reason_text(whole[0])})" if len(whole) == 1 else "",
            f", and {t.count(number - 1)} more" if number > 1 else "",
        )
    else:
        yield f"All {t.plural(planned - len(view.held_back), 'planned shard')} were read."
    if listed := _left_out(view):
        yield f"The quarantine list holds back {listed}: in no number, and not counted as unread."
    if bad_records:
        many = t.plural(bad_records, "bad record")
        yield f"Left out of every number: {many} in {t.plural(len(view.partial), 'shard')}, {_bad_size(view)}."
    if view.remarked:
        where = t.plural(view.remarked, "shard")
        yield f"NaN or an infinity outside the text, which is no JSON, was read as null in {where}."
    if unknown := ledger["shards_of_unknown_documents"]:
        yield f"The documents of {t.plural(unknown, 'unread shard')} cannot be counted."


def _bad_size(view: Overview) -> str:
    return t.size(sum(shard["bad_bytes"] for shard in view.partial))


def _ledger(view: Overview) -> Table:
    lines = [view.ledger[key] | {"title": title} for title, key in _LINES]
    states = [state for state in _STATES if state != _LISTED or any(line[_LISTED] for line in lines)]
    unread = view.ledger["unread_bytes"]
    return table_of(
        "Planned and read",
        lines,
        column("", "title", kind="name"),
        *(column(state.replace("_", " "), state, bad if state in _MISSED else None) for state in states),
        note=f"unread: {t.count(unread)} stored bytes" + (f" ({t.size(unread)})" if unread > 999 else ""),
    )


def _left_out(view: Overview) -> str:
    """Return what the quarantine list of the build held back; nothing without a list."""
    counts = {"shard": len(view.held_back), "document": view.ledger["documents"][_LISTED]}
    return " and ".join(t.plural(number, noun) for noun, number in counts.items() if number)


def _lost(shards: Sequence[dict[str, Any]], title: str) -> list[Block]:
    table = table_of(
        f"{title} ({t.plural(len(shards), 'shard')})",
        shards,
        column("shard"),
        column("split/uri", split_and_uri, Name),
        column("size", shown=size),
        column("status", kind="word"),
        column("why", why_lost, kind="text"),
        noun="shard",
    )
    return [table] if shards else []


def why_lost(shard: dict[str, Any]) -> Line:
    """Return the reason that took the whole shard, then those that took records of it."""
    reasons = shard["reasons"]
    whole = [say("{}{}", Name(code, 60), _beside(shard)) for code, records in sorted(reasons.items()) if records < 0]
    some = sorted(((records, code) for code, records in reasons.items() if records > 0), reverse=True)
    parts = [say("{} {}", t.plural(records, "record"), Name(code, 60)) for records, code in some]
    lost: list[Line] = [t.size(shard["bad_bytes"])] if shard["status"] == "partial" else []
    return join(", ", [*whole, *parts, *lost]) if whole or parts else shard["status"]


def _beside(shard: dict[str, Any]) -> Line:
    """Return the site of a loss in parentheses; nothing where none is known."""
    return say(" ({})", Name(shard["place"], 60)) if shard["place"] else ""


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    view = overview(manifest)
    planned = view.ledger["shards"]["planned"]
    if not view.totals["documents"]:
        text = f"No document was read, of {t.plural(planned, 'shard')}: nothing was evaluated"
        yield Highlight(kind=Kind.NOTHING_READ, part="coverage", size=1, text=text)
    groups: dict[str, list[dict[str, Any]]] = {}
    for lost in view.unread:
        whole = sorted(code for code, records in lost["reasons"].items() if records < 0) or sorted(lost["reasons"])
        groups.setdefault(whole[0] if whole else lost["status"], []).append(lost)
    for code, shards in groups.items():
        unread = sum(shard["size"] for shard in shards)
        largest = max(shards, key=lambda shard: (shard["size"], -shard["shard"]))
        number = f"{t.count(len(shards))} of {t.plural(planned, 'shard')}"
        bad = Counter[str]()
        for shard in shards:
            bad.update({why: records for why, records in shard["reasons"].items() if records > 0})
        why = min(bad, key=lambda name: (-bad[name], name), default="")
        share = "most" if 2 * bad[why] > bad.total() else "some"
        cause = say(", {} {}", share, Name(why, _CODE, ends=True)) if why else ""
        yield Highlight(
            kind=Kind.UNREAD,
            part="coverage",
            size=unread,
            place=split_and_uri(largest),
            shard=largest["shard"],
            text=say("{} not read, {}{} ({})", number, Name(code, _CODE, ends=True), cause, t.size(unread)),
            link=first_of(len(shards)),
        )
    bad_records = view.ledger["documents"]["bad"]
    if bad_records and view.partial:
        most = max(view.partial, key=lambda shard: (sum(shard["reasons"].values()), -shard["shard"]))
        yield Highlight(
            kind=Kind.BAD_RECORDS,
            part="coverage",
            size=bad_records,
            place=split_and_uri(most),
            shard=most["shard"],
            text=f"{t.plural(bad_records, 'bad record')} left out, {_bad_size(view)}",
            link=first_of(len(view.partial), f"most of {len(view.partial):,}"),
        )


def _odd_shards(manifest: Manifest) -> Iterator[OddShard]:
    for lost in lost_shards(manifest):
        reasons = lost["reasons"]
        if HELD_BACK in reasons:
            continue
        codes = join(", ", (Name(code, 60) for code in sorted(reasons)[:4]))
        kind = Oddity.UNREAD if lost["status"] in LOST else Oddity.BAD_RECORDS
        if kind is Oddity.UNREAD:
            text = say("{}: {}{}", lost["status"], codes if reasons else "without a reason", _beside(lost))
        else:
            records = sum(number for number in reasons.values() if number > 0)
            text = say("{} left out: {}", t.plural(records, "bad record"), codes)
        yield OddShard(shard=lost["shard"], kind=kind, size=lost["size"], text=text)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    view = overview(manifest)
    shards, stored, documents = (view.ledger[name] for name in ("shards", "stored_bytes", "documents"))
    if listed := _left_out(view):
        yield f"The quarantine list of the build held back {listed}, which are in no number."
    read = f"{t.count(shards['read'])} of {t.plural(shards['planned'], 'shard')}"
    yield f"The audit read {read}, {t.count(stored['read'])} of {t.plural(stored['planned'], 'stored byte')}."
    if view.unread:
        why = "; ".join(map(reason_text, sorted({reason for shard in view.unread for reason in shard["reasons"]})))
        verb = "is" if len(view.unread) == 1 else "are"
        yield f"{t.plural(len(view.unread), 'shard')} could not be read and {verb} in no number: {why}."
    if documents["bad"]:
        yield f"{t.plural(documents['bad'], 'record')} of shards that were read could not be used."


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="coverage", area="coverage", blocks=lambda manifest: [_section(overview(manifest))]),),
    highlights=_highlights,
    odd_shards=_odd_shards,
)
