"""Applies a list to a manifest: which shards a loader may open, and which of their rows it skips.

A document-level drop list has, in this order:

1. documents that entries of the list name, and those that the build left out by an entry that has ended since: nobody
   audited them,
2. training documents that leak: they hold an item of an evaluation set, a copied span or an edited copy of a held-out
   document, or at least ``ngram_score`` of its 13-grams, common text (notices, licences) aside; and their exact copies,
3. documents with findings of the chosen detectors and tiers,
4. of every exact, then of every near-duplicate cluster, all remaining documents but the first.

The first is the manifest's choice where it remains. Where a held-out document remains in a cluster, it is the first,
and all training documents of the cluster are dropped: a leak is mended in training data. Held-out documents are dropped
only when an entry names them, or when asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.decide.quarantine.entry import Entry
from dataaudit.decide.quarantine.list import Quarantine
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.locate import ROW_BITS, places_of, rows_of, shards_of
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.tables import COUNT, HELD_BACK, STRING, TableSpec
from dataaudit.manifest.tables import field as column

_DIGESTS = ["sha256", "rows_digest"]
_COUNTS = ["rows", "documents", "bad_records", "tokens"]
COLUMNS = ["shard", "split", "uri", "size", *_DIGESTS, "status", "reason", *_COUNTS]
QUARANTINED = "quarantined"
CHANGED = "changed"
UNREAD = "unread"
_NOT_READ = frozenset({"quarantined", "skipped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A row of the table of shards, and what becomes of it."""

    row: dict[str, Any]
    """The columns of :data:`COLUMNS`."""
    why: str = ""
    """quarantined, changed or unread when it is left out; else empty."""
    reasons: tuple[str, ...] = ()
    """Codes: of the entries, or of why it was not read."""
    entries: tuple[Entry, ...] = ()
    """The entries that leave it out, or that name it under another digest."""

    @property
    def kept(self) -> bool:
        """Whether loaders get it."""
        return not self.why

    @property
    def name(self) -> str:
        """``split/uri``."""
        return f"{self.row['split']}/{self.row['uri']}"


class Stale(NamedTuple):
    """An entry that names a shard of the manifest, by its ordinal, whose bytes and rows are others now."""

    shard: int
    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The shards of a manifest, each kept or left out by a list."""

    shards: tuple[Shard, ...]
    """Every shard, in the manifest's order."""
    stale: tuple[Stale, ...]
    """Entries under another digest: the shard has changed since, so they do not leave it out."""
    unmatched: tuple[Entry, ...]
    """Entries in force that name nothing of this manifest."""

    @property
    def kept(self) -> list[Shard]:
        """The shards that loaders get."""
        return [shard for shard in self.shards if shard.kept]

    @property
    def excluded(self) -> list[Shard]:
        """The shards that are left out."""
        return [shard for shard in self.shards if not shard.kept]


def select(
    manifest: Manifest, quarantine: Quarantine, *, exclude_changed: bool = False, keep_unread: bool = False
) -> Selection:
    """Decide about every shard of a manifest.

    A shard goes by its digests: it is left out still when it was packed anew, but not when its rows have changed (but
    for ``exclude_changed``); the entry is then stale. What the build could not read was not audited, so it is
    left out too, but for ``keep_unread``.
    """
    rows = manifest.table("shards", COLUMNS).to_pylist()
    numbers = {(row["split"], row["uri"]): row["shard"] for row in rows}
    whole = [quarantine.shard_entries(**digests) if (digests := digests_of(row)) else () for row in rows]
    single = [quarantine.document_entries(**row_digests_of(row)) if digests_of(row) else () for row in rows]
    matched = {entry.id for entries in (*whole, *single) for entry in entries}
    stale, unmatched = [], []
    changed: dict[int, list[Entry]] = {}
    for entry in quarantine.entries:
        target = entry.target
        if entry.id in matched or target is None:
            continue
        number = numbers.get((target.split or "", target.uri or ""))
        if number is None:
            unmatched.append(entry)
            continue
        stale.append(Stale(shard=number, entry=entry))
        if target.kind == "shard":
            changed.setdefault(number, []).append(entry)
    shards = []
    for row, entries in zip(rows, whole, strict=True):
        why, left_by = (QUARANTINED, entries) if entries else ("", ())
        if not entries and row["status"] in _NOT_READ and not keep_unread:
            why = UNREAD
        elif not entries and exclude_changed and row["shard"] in changed:
            why, left_by = CHANGED, tuple(changed[row["shard"]])
        reasons = (row["reason"],) if why == UNREAD else tuple(sorted({entry.reason for entry in left_by}))
        shards.append(Shard(row=row, why=why, reasons=reasons, entries=left_by))
    return Selection(shards=tuple(shards), stale=tuple(stale), unmatched=tuple(unmatched))


def digests_of(row: dict[str, Any]) -> dict[str, str]:
    """Return the digests that name a whole shard; none when it was not read at all.

    The digest of no rows names nothing: all shards without documents have it.
    """
    digests = {"sha256": row["sha256"], "rows_digest": row["rows_digest"] if row["documents"] else None}
    return {name: digest for name, digest in digests.items() if digest}


def row_digests_of(row: dict[str, Any]) -> dict[str, str]:
    """Return the digests under which a row number means the same document.

    Equal documents in equal order do not make equal rows when bad records stand between them.
    """
    digests = digests_of(row)
    if row["bad_records"] and len(digests) > 1:
        del digests["rows_digest"]
    return digests


Origin = Literal["clusters", "overlap", "findings"]
ORIGINS: tuple[Origin, ...] = ("clusters", "overlap", "findings")
TIERS = ("validated", "contextual", "pattern")
DETECTORS = ("secrets", "pii")
_STAGES = {"clusters": ("exact_dup", "near_dup"), "overlap": ("overlap",), "findings": ("pii", "secrets")}

DROPPED = TableSpec(
    name="documents",
    about="Documents to skip, with why; sorted by shard and row.",
    key=("shard", "row"),
    schema=pa.schema(
        [
            column("shard", pa.int32(), "row of the manifest's table of shards"),
            column("split", STRING, "split"),
            column("uri", STRING, "URI of the shard, relative to the root of the split"),
            column("sha256", STRING, "of its stored bytes, hex"),
            column("rows_digest", STRING, "of its documents, hex", null=True),
            column("row", COUNT, "record of the shard, in reading order, from 0, bad records counted"),
            column("reasons", pa.list_(STRING), "why, sorted"),
        ]
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What documents are dropped for."""

    origins: tuple[Origin, ...] = ORIGINS
    """Tables of the manifest; entries of the list count always."""
    findings: tuple[tuple[str, str], ...] = (("secrets", "validated"),)
    """Detectors and tiers."""
    ngram_score: float = 0.5
    """Share of a held-out document's 13-grams from which on a training document leaks it."""
    with_common: bool = False
    """Whether text that very many training documents share makes a leak, too."""
    held_out: bool = False
    """Whether duplicates and findings are dropped from held-out splits too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drops:
    """A drop list."""

    table: pa.Table
    """Of :data:`DROPPED`."""
    by_reason: Mapping[str, int]
    """Documents; each may have several reasons."""
    by_split: Mapping[str, int]
    absent: tuple[str, ...]
    """Detections that were asked for and that the build did not run."""
    incomplete: tuple[str, ...]
    """What the manifest counts and does not list, in words: the drop list lacks it."""
    beyond: int
    """Entries whose row the shard does not have."""


class _Work:
    """Shared by the steps: the manifest, which shards count, and the keys to drop by reason."""

    def __init__(self, manifest: Manifest, selection: Selection, choice: Choice) -> None:
        held_out = {split.name for split in manifest.core.splits if split.held_out}
        self.manifest, self.selection, self.choice = manifest, selection, choice
        self.splits = np.array([shard.row["split"] for shard in selection.shards], dtype=object)
        self.held_out = np.isin(self.splits, list(held_out))
        self.excluded = np.array([not shard.kept for shard in selection.shards], dtype=bool)
        self.reasons: dict[str, np.ndarray] = {}

    def drop(self, reason: str, keys: np.ndarray) -> None:
        if len(keys):
            self.reasons[reason] = np.union1d(self.reasons.get(reason, _NONE), keys)

    def dropped(self) -> np.ndarray:
        return np.unique(np.concatenate([_NONE, *self.reasons.values()]))

    def may_drop(self, shards: np.ndarray) -> np.ndarray:
        """Return which shards' documents are dropped by what was detected."""
        dropped: np.ndarray = ~self.excluded[shards] & (~self.held_out[shards] | self.choice.held_out)
        return dropped


_NONE = np.zeros(0, dtype=np.int64)


def drop_list(manifest: Manifest, selection: Selection, quarantine: Quarantine, choice: Choice) -> Drops:
    """Return the documents of the kept shards to skip."""
    work = _Work(manifest, selection, choice)
    incomplete = []
    beyond = _entries(work, quarantine)
    if "overlap" in choice.origins:
        incomplete += _leaks(work)
    if "findings" in choice.origins:
        _findings(work)
    if "clusters" in choice.origins:
        incomplete += _duplicates(work)
    table = _table(work)
    ran = {stage.name for stage in manifest.core.stages}
    wanted = [stage for origin in choice.origins for stage in _STAGES[origin]]
    detectors = {detector for detector, _ in choice.findings}
    absent = [stage for stage in wanted if stage not in ran and (stage not in DETECTORS or stage in detectors)]
    counts = table.group_by("split", use_threads=False).aggregate([("row", "count")]).to_pylist()
    return Drops(
        table=table,
        by_reason={reason: len(keys) for reason, keys in sorted(work.reasons.items())},
        by_split={row["split"]: row["row_count"] for row in counts},
        absent=tuple(absent),
        incomplete=tuple(incomplete),
        beyond=beyond,
    )


def rows_left_out(manifest: Manifest) -> Mapping[str, set[int]]:
    """Return the rows that a build left out by its quarantine list, by either digest of their shard."""
    rows: dict[str, set[int]] = {}
    for left_out in manifest.core.quarantine:
        for digest in (left_out.sha256, left_out.rows_digest):
            if digest is not None:
                rows.setdefault(digest, set()).update(left_out.rows or ())
    return rows


def _entries(work: _Work, quarantine: Quarantine) -> int:
    """Drop what entries name, in any split, and what the build left out; return how many name a row that is not."""
    beyond, left_out = 0, rows_left_out(work.manifest)
    for shard in work.selection.shards:
        digests = row_digests_of(shard.row)
        if not shard.kept or not digests:
            continue
        by_reason: dict[str, set[int]] = {}
        for entry in quarantine.document_entries(**digests):
            assert entry.target is not None
            assert entry.target.row is not None
            by_reason.setdefault(f"quarantine:{entry.reason}", set()).add(entry.target.row)
            beyond += entry.target.row >= shard.row["rows"]
        gone = set[int]().union(*(left_out.get(digest, ()) for digest in digests.values()))
        by_reason[HELD_BACK] = gone.difference(*by_reason.values())
        for reason, numbers in by_reason.items():
            rows = np.array(sorted(row for row in numbers if row < shard.row["rows"]), np.int64)
            work.drop(reason, _keys(np.full(len(rows), shard.row["shard"], np.int64), rows))
    return beyond


def _leaks(work: _Work) -> list[str]:
    """Drop training documents that leak; return what is counted and not listed."""
    manifest = work.manifest
    score = "score" if work.choice.with_common else "score_without_common"
    leaks = manifest.table("overlap", ["set", "item", "part", "rule", "shard", "row", score])
    cut = [_COMMON_CUT] if work.choice.with_common and _is_cut(manifest, leaks) else []
    least = pc.if_else(pc.equal(leaks["rule"], "ngram"), work.choice.ngram_score, 0.0)
    leaks = leaks.filter(pc.and_(pc.greater(leaks[score], 0), pc.greater_equal(leaks[score], least)))
    shards, rows = _columns(leaks)
    keys, open_ = _keys(shards, rows), ~work.excluded[shards]
    documents = pc.equal(leaks["part"], "document").to_numpy()
    copies = manifest.table("clusters", ["kind", "cluster", "shard", "row"])
    copies = copies.filter(pc.equal(copies["kind"], "exact"))
    listed = {"held_out_copies": _NONE, "contaminated": _NONE}
    exact = pc.not_equal(leaks["rule"], "ngram").to_numpy()
    for is_document, prefix, name in ((True, "held_out", "held_out_copies"), (False, "benchmark", "contaminated")):
        mine = (documents == is_document) & open_
        for set_ in pc.unique(leaks["set"].filter(pa.array(mine))).to_pylist():
            of_set = mine & pc.equal(leaks["set"], set_).to_numpy()
            work.drop(f"{prefix}:{set_}", _with_copies(work, copies, keys[of_set]))
        listed[name] = _with_copies(work, copies, keys[mine & exact])
    return _unlisted(work, listed) + cut


_COMMON_CUT = "documents that share common text: of each held-out document the first alone are listed"


def _is_cut(manifest: Manifest, leaks: pa.Table) -> bool:
    """Return whether a held-out document or an item has as many matches as the build lists of each."""
    most = next((stage.parameters["max_rows"] for stage in manifest.core.stages if stage.name == "overlap"), math.inf)
    counted = leaks.group_by(["set", "item", "part"]).aggregate([([], "count_all")])["count_all"]
    return bool((pc.max(counted).as_py() or 0) >= most)


def _unlisted(work: _Work, listed: dict[str, np.ndarray]) -> list[str]:
    """Compare the listed documents with what the table of shards counts: rows of a very common item are cut."""
    words = {
        "held_out_copies": "documents with a copied held-out span or an edited copy",
        "contaminated": "documents with an evaluation item",
    }
    counts = work.manifest.table("shards", list(words))
    missing = []
    for name, what in words.items():
        counted = pc.fill_null(counts[name], 0).to_numpy()
        here = np.bincount(shards_of(listed[name]), minlength=len(work.excluded))
        short = np.where(work.excluded, 0, np.maximum(counted - here, 0))
        if short.any():
            missing.append(
                f"{int(short.sum()):,} {what}, in {int((short > 0).sum()):,} shards: counted, but not listed"
            )
    if any(record.method == "sampled" for record in work.manifest.metrics("train_val_overlap", "ngram")):
        missing.append("copies of held-out documents that the build did not search for: only a sample was")
    return missing


def _with_copies(work: _Work, clusters: pa.Table, keys: np.ndarray) -> np.ndarray:
    shards, rows = _columns(clusters)
    members, numbers = _keys(shards, rows), clusters["cluster"].to_numpy()
    hit = np.unique(numbers[np.isin(members, keys)])
    copies = members[np.isin(numbers, hit) & ~work.excluded[shards] & ~work.held_out[shards]]
    return np.union1d(keys, copies)


def _findings(work: _Work) -> None:
    findings = work.manifest.table("findings", ["detector", "tier", "shard", "row", "reserved"])
    findings = findings.filter(pc.invert(findings["reserved"]))
    for detector, tier in work.choice.findings:
        is_chosen = pc.and_(pc.equal(findings["detector"], detector), pc.equal(findings["tier"], tier))
        shards, rows = _columns(findings.filter(is_chosen))
        work.drop(f"{detector}:{tier}", _keys(shards, rows)[work.may_drop(shards)])


def _duplicates(work: _Work) -> list[str]:
    """Drop all documents of each cluster but the first; return what the build knows to have missed."""
    table = work.manifest.table("clusters")
    for kind in ("exact", "near"):
        members = table.filter(pc.equal(table["kind"], kind))
        shards, rows = _columns(members)
        keys = _keys(shards, rows)
        left = ~work.excluded[shards] & ~np.isin(keys, work.dropped())
        shards, keys = shards[left], keys[left]
        numbers, kept = (members[name].to_numpy()[left] for name in ("cluster", "kept"))
        order = np.lexsort((keys, ~kept, ~work.held_out[shards], numbers))
        shards, keys, numbers = shards[order], keys[order], numbers[order]
        first = np.r_[True, numbers[1:] != numbers[:-1]] if len(numbers) else np.zeros(0, dtype=bool)
        leader = shards[first][np.cumsum(first) - 1]
        drop = ~first & work.may_drop(shards)
        work.drop(f"{kind}_duplicate", keys[drop])
        leaking = drop & work.held_out[leader] & ~work.held_out[shards]
        for split in sorted(set(work.splits[leader[leaking]])):
            work.drop(f"held_out:{split}", keys[leaking & (work.splits[leader] == split)])
    undecided = work.manifest.metrics("near_dup_rate", "undecided", Scope())
    cut = [int(record.value) for record in undecided if record.value]
    return [f"near-duplicates among {number:,} documents whose template is too common to compare all" for number in cut]


def _table(work: _Work) -> pa.Table:
    keys = work.dropped()
    names = sorted(work.reasons)
    marks = np.zeros((len(keys), len(names)), dtype=bool)
    for index, name in enumerate(names):
        marks[np.searchsorted(keys, work.reasons[name]), index] = True
    columns = np.nonzero(marks)[1]
    offsets = pa.array(np.r_[0, np.cumsum(marks.sum(axis=1))], pa.int32())
    reasons = pa.ListArray.from_arrays(offsets, pa.array(names, STRING).take(pa.array(columns)))
    shards = shards_of(keys)
    filled = {"shard": pa.array(shards), "row": pa.array(rows_of(keys), COUNT), "reasons": reasons}
    for name in ("split", "uri", "sha256", "rows_digest"):
        filled[name] = pa.array([shard.row[name] for shard in work.selection.shards], STRING).take(pa.array(shards))
    return pa.table([filled[name] for name in DROPPED.schema.names], schema=DROPPED.schema)


def _columns(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    return table["shard"].to_numpy().astype(np.int64), table["row"].to_numpy()


def _keys(shards: np.ndarray, rows: np.ndarray) -> np.ndarray:
    if len(rows) and int(rows.max()) >= 1 << ROW_BITS:
        raise ValueError(f"a shard with more than {1 << ROW_BITS} rows")
    return places_of(shards, rows)
