"""What a loader asks of a list: is this shard held back, and which of its rows. Read once, never changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from dataaudit.quarantine.entry import Entry
from dataaudit.quarantine.file import read
from dataaudit.quarantine.fold import Standing, fold
from dataaudit.quarantine.lines import no_collection

_Index = Mapping[str, tuple[Entry, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The entries that are in force on a day, by what they name."""

    digest: str
    """``sha256:`` and the sha256 of the file that was read."""
    on: dt.date
    """The day, UTC."""
    entries: tuple[Entry, ...]
    """In force, in the file's order."""
    _shards: _Index
    """Of shards, by either digest."""
    _documents: _Index
    """Of documents, by either digest of their shard."""

    def holds(self, *, sha256: str | None = None, rows_digest: str | None = None) -> bool:
        """Tell whether a whole shard is held back.

        Args:
            sha256: Of the shard's stored bytes, hex.
            rows_digest: Of its documents, hex, as the manifest has it; finds a shard that was packed anew.

        Raises:
            ValueError: Neither is given: without a digest nothing can be said, and "no" would be a guess.
        """
        return any(digest in self._shards for digest in _given(sha256, rows_digest))

    def shard_entries(self, *, sha256: str | None = None, rows_digest: str | None = None) -> tuple[Entry, ...]:
        """Return the entries that hold a whole shard back; arguments as of :meth:`holds`."""
        return _found(self._shards, _given(sha256, rows_digest))

    def rows(self, *, sha256: str | None = None, rows_digest: str | None = None) -> frozenset[int]:
        """Return the rows of a shard that are held back one by one.

        Args:
            sha256: Of the shard's stored bytes, hex.
            rows_digest: Of its documents, hex; give it only for a shard without bad records, whose rows are its
                documents.
        """
        entries = self.document_entries(sha256=sha256, rows_digest=rows_digest)
        return frozenset(entry.target.row for entry in entries if entry.target and entry.target.row is not None)

    def document_entries(self, *, sha256: str | None = None, rows_digest: str | None = None) -> tuple[Entry, ...]:
        """Return the entries that hold single documents of a shard back; arguments as of :meth:`rows`."""
        return _found(self._documents, _given(sha256, rows_digest))


def load_quarantine(path: Path, *, on: dt.date | None = None, ignore_bad_lines: bool = False) -> Quarantine:
    """Read a list for a loader.

    Args:
        path: The file.
        on: The day that expiries are held against; today, UTC, when None.
        ignore_bad_lines: Go on although lines cannot be read; what they hold back is not held back then.

    Raises:
        QuarantineError: There is no such file, or it is of a newer version.
        QuarantineDamaged: Lines of it cannot be read.
    """
    with no_collection():
        contents = read(path)
        if not ignore_bad_lines:
            contents.check(str(path))
        folded = fold(contents.entries, on or today())
        return in_force(folded.standing(Standing.HELD), digest=contents.digest, on=folded.on)


def in_force(entries: Iterable[Entry], *, digest: str, on: dt.date) -> Quarantine:
    """Return an index of entries that are in force."""
    held = tuple(entries)
    shards = _index(entry for entry in held if entry.target is not None and entry.target.kind == "shard")
    documents = _index(entry for entry in held if entry.target is not None and entry.target.kind == "document")
    return Quarantine(digest=digest, on=on, entries=held, _shards=shards, _documents=documents)


def _index(entries: Iterable[Entry]) -> _Index:
    """Return entries by each of their digests; most digests have one entry, some documents' have very many."""
    first: dict[str, tuple[Entry, ...]] = {}
    many: dict[str, list[Entry]] = {}
    for entry in entries:
        assert entry.target is not None
        for name in {entry.target.sha256, entry.target.rows_digest}:
            if name is None:
                continue
            found = first.setdefault(name, (entry,))
            if found[0] is not entry:
                many.setdefault(name, [*found]).append(entry)
    return MappingProxyType(first | {name: tuple(found) for name, found in many.items()})


def today() -> dt.date:
    """Return the day, UTC."""
    return dt.datetime.now(dt.UTC).date()


def _given(sha256: str | None, rows_digest: str | None) -> list[str]:
    digests = [digest for digest in (sha256, rows_digest) if digest]
    if not digests:
        raise ValueError("a shard is named by its digests, found neither sha256 nor rows_digest")
    return digests


def _found(index: _Index, digests: list[str]) -> tuple[Entry, ...]:
    found = {entry.id: entry for digest in digests for entry in index.get(digest, ())}
    return tuple(found.values())
