"""Which shards of a manifest a loader may open: the list held against the manifest's digests. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dataaudit.manifest.load import Manifest
from dataaudit.quarantine.entry import Entry
from dataaudit.quarantine.held import Quarantine

COLUMNS = [
    "shard",
    "split",
    "uri",
    "size",
    "sha256",
    "rows_digest",
    "status",
    "reason",
    "rows",
    "documents",
    "bad_records",
    "tokens",
]
QUARANTINED = "quarantined"
CHANGED = "changed"
UNREAD = "unread"
_NOT_READ = frozenset({"quarantined", "skipped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A row of the table of shards, and what becomes of it."""

    row: dict[str, Any]
    """The columns of :data:`COLUMNS`."""
    why: str
    """quarantined, changed or unread when it is left out; else empty."""
    reasons: tuple[str, ...]
    """Codes: of the entries, or of why it was not read."""
    entries: tuple[Entry, ...]
    """The entries that hold it back, or that name it under another digest."""

    @property
    def kept(self) -> bool:
        """Whether loaders get it."""
        return not self.why

    @property
    def name(self) -> str:
        """``split/uri``."""
        return f"{self.row['split']}/{self.row['uri']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """An entry that names a shard of the manifest whose bytes and rows are others now."""

    shard: int
    """Its ordinal."""
    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a list makes of a manifest."""

    shards: tuple[Shard, ...]
    """Every shard, in the manifest's order."""
    stale: tuple[Stale, ...]
    """Entries listed under another digest: the shard has changed since, so they do not hold it back."""
    unmatched: tuple[Entry, ...]
    """Entries in force that have nothing to do with this manifest."""

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

    A shard goes by its digests: one that was packed anew is held back still, one whose rows have changed is not; the
    entry is then named as stale. What the build could not read was not audited, so it is left out too.

    Args:
        manifest: A loaded manifest.
        quarantine: The entries in force.
        exclude_changed: Leave out changed shards that an entry names.
        keep_unread: Keep shards that the build did not read.

    Raises:
        ManifestError: The table of shards cannot be read.
    """
    rows = manifest.table("shards", COLUMNS).to_pylist()
    matched: set[str] = set()
    held: list[tuple[Entry, ...]] = []
    for row in rows:
        digests = digests_of(row)
        whole = quarantine.shard_entries(**digests) if digests else ()
        single = quarantine.document_entries(**row_digests_of(row)) if digests else ()
        matched.update(entry.id for entry in (*whole, *single))
        held.append(whole)
    stale, unmatched = _leftover(
        quarantine.entries, matched, {(row["split"], row["uri"]): row["shard"] for row in rows}
    )
    changed: dict[int, list[Entry]] = {}
    for one in stale:
        if one.entry.target is not None and one.entry.target.kind == "shard":
            changed.setdefault(one.shard, []).append(one.entry)
    shards = []
    for row, entries in zip(rows, held, strict=True):
        if entries:
            shard = Shard(row=row, why=QUARANTINED, reasons=_codes(entries), entries=entries)
        elif row["status"] in _NOT_READ and not keep_unread:
            shard = Shard(row=row, why=UNREAD, reasons=(row["reason"],), entries=())
        elif exclude_changed and row["shard"] in changed:
            others = tuple(changed[row["shard"]])
            shard = Shard(row=row, why=CHANGED, reasons=_codes(others), entries=others)
        else:
            shard = Shard(row=row, why="", reasons=(), entries=())
        shards.append(shard)
    return Selection(shards=tuple(shards), stale=tuple(stale), unmatched=tuple(unmatched))


def digests_of(row: dict[str, Any]) -> dict[str, str]:
    """Return the digests that name a whole shard; none when it was not read at all.

    The digest of no rows names nothing: all shards without documents have it.
    """
    found = {"sha256": row["sha256"], "rows_digest": row["rows_digest"] if row["documents"] else None}
    return {name: digest for name, digest in found.items() if digest}


def row_digests_of(row: dict[str, Any]) -> dict[str, str]:
    """Return the digests under which a row number means the same document.

    Equal documents in equal order do not make equal rows when bad records stand between them.
    """
    found = digests_of(row)
    if row["bad_records"] and len(found) > 1:
        del found["rows_digest"]
    return found


def _leftover(
    entries: Iterable[Entry], matched: set[str], names: dict[tuple[str, str], int]
) -> tuple[list[Stale], list[Entry]]:
    stale, unmatched = [], []
    for entry in entries:
        target = entry.target
        if entry.id in matched or target is None:
            continue
        shard = names.get((target.split or "", target.uri or ""))
        if shard is None:
            unmatched.append(entry)
        else:
            stale.append(Stale(shard=shard, entry=entry))
    return stale, unmatched


def _codes(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(sorted({entry.reason for entry in entries}))
