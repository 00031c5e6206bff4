"""A quarantine list: the file, what is in force on a day, and what a loader asks of it.

Two writers at once, or a writer that is killed, lose nothing. A writer has the lock (flock, on the list itself) while
it reads the list, decides what to add, appends its lines with one write, and forces them to disk; only then it reports
success. Under NFS the kernel turns flock into a lock of the server. A file system without locks still gets whole lines
of O_APPEND, which are read back; there, two writers may both add the same entry.

A writer that is killed in the middle leaves part of a line. The next writer begins with a line end, so that the rest is
a line that cannot be read, and its own line is whole.
"""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from dataaudit.base.errors import QuarantineError
from dataaudit.base.files import NotAFileError, open_safely, sync_folder
from dataaudit.decide.quarantine.entry import Action, Contents, Entry, no_collection, parse

if TYPE_CHECKING:
    from dataaudit.manifest.load import Manifest

Decide = Callable[[Contents], Sequence[Entry]]
DEFAULT = Path("quarantine.jsonl")
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_PATIENCE_SECONDS = 60.0
_MODE = 0o644


def read(path: Path) -> Contents:
    """Read a list; a writer at work is waited for."""
    try:
        with _opened(path, os.O_RDONLY, fcntl.LOCK_SH) as (descriptor, _):
            data = _whole(descriptor)
    except FileNotFoundError:
        raise _absent(path) from None
    except OSError as error:
        raise QuarantineError(f"the quarantine list {path} cannot be read: {error.strerror or error}") from None
    return parse(data, str(path))


def update(path: Path, decide: Decide, *, create: bool) -> tuple[Entry, ...]:
    """Let ``decide`` look at the list and append what it returns, which is on disk then; nobody else writes in between.

    With ``create`` a file is made when there is none, also for no entry: an empty file is a list.
    """
    flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
    made = create and not path.exists()
    try:
        with _opened(path, flags, fcntl.LOCK_EX) as (descriptor, locked):
            try:
                data = _whole(descriptor)
                contents = parse(data, str(path))
                if not contents.entries and any(not line.is_ours for line in contents.bad):
                    raise QuarantineError(  # a shard of a corpus, named by mistake
                        f"{path} is no quarantine list: none of its lines is an entry", "Name another file."
                    )
                added = tuple(decide(contents))
                if added and not data:
                    sync_folder(path.absolute().parent)
                if added:
                    _append(descriptor, path, data, added, locked=locked)
            except BaseException:  # an empty file would be a list that leaves nothing out
                if made and locked and os.fstat(descriptor).st_size == 0:
                    path.unlink(missing_ok=True)
                raise
            else:
                return added
    except FileNotFoundError:
        raise _absent(path) from None
    except OSError as error:
        raise QuarantineError(
            f"the quarantine list {path} cannot be written: {error.strerror or error}; nothing was added",
            "Free space or name a file that may be written.",
        ) from None


def _absent(path: Path) -> QuarantineError:
    if not path.absolute().parent.is_dir():
        return QuarantineError(f"no quarantine list at {path}: there is no such folder", "Make the folder first.")
    return QuarantineError(
        f"no quarantine list at {path}",
        "`dataaudit quarantine add` begins one; an empty file is a list that leaves nothing out.",
    )


def _append(descriptor: int, path: Path, before: bytes, entries: Sequence[Entry], *, locked: bool) -> None:
    data = b"".join(entry.line + b"\n" for entry in entries)
    if before and not before.endswith(b"\n"):
        data = b"\n" + data
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except OSError:
        if locked and os.fstat(descriptor).st_size >= len(before):
            os.ftruncate(descriptor, len(before))
        raise
    stop = os.lseek(descriptor, 0, os.SEEK_CUR)
    if os.pread(descriptor, len(data), stop - len(data)) != data:
        raise QuarantineError(
            f"the quarantine list {path} does not hold what was written: another program wrote without its lock",
            "Look at it with `dataaudit quarantine list`, then run the same command again.",
        )


@contextmanager
def _opened(path: Path, flags: int, kind: int) -> Iterator[tuple[int, bool]]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            descriptor = open_safely(path, flags, _MODE)
        except (NotAFileError, IsADirectoryError):
            raise QuarantineError(f"{path} is not a file, so it is no quarantine list") from None
        try:
            locked = _lock(descriptor, kind, deadline, path)
            if _still_there(descriptor, path):
                yield descriptor, locked
                return
        finally:
            os.close(descriptor)


def _lock(descriptor: int, kind: int, deadline: float, path: Path) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise QuarantineError(
                    f"another process has had the lock of {path} for {_PATIENCE_SECONDS:.0f} s",
                    "`lslocks` names it.",
                ) from None
            time.sleep(0.02)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
        else:
            return True


def _still_there(descriptor: int, path: Path) -> bool:
    """Return whether the file was not replaced (by a checkout, say) while its lock was waited for."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _whole(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    parts = []
    while part := os.read(descriptor, 1 << 22):
        parts.append(part)
    return b"".join(parts)


class Standing(StrEnum):
    """What became of an addition or a proposal."""

    HELD = "held"
    """In force: the target is left out."""
    PROPOSED = "proposed"
    """Waits for somebody to accept or lift it; not in force."""
    ACCEPTED = "accepted"
    """A proposal that an addition follows."""
    LIFTED = "lifted"
    EXPIRED = "expired"


OPEN = frozenset({Standing.HELD, Standing.PROPOSED})
"""What has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An addition or a proposal, and what became of it."""

    entry: Entry
    standing: Standing
    by: Entry | None = None
    """The lift, or the addition that accepts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """A list on a day."""

    on: dt.date
    records: tuple[Record, ...]
    """Every addition and proposal, in the file's order."""
    repeated: int
    """Lines whose id an earlier line has, as when two copies of a file were put together; they change nothing."""
    no_ops: int
    """Lifts and acceptances that change nothing: of what is not in the list, or what another one ended already."""

    def standing(self, *wanted: Standing) -> list[Entry]:
        """Return the entries with some standings."""
        return [record.entry for record in self.records if record.standing in wanted]


def fold(entries: Iterable[Entry], on: dt.date) -> Folded:
    """Return the state of every addition and proposal on a day, UTC, whatever the order of lines.

    A line that ends another names its id. An addition is in force unless some line lifts it, and through its last day;
    nothing lifts a lift, but the same target can be added again. A proposal that one branch accepted and another lifted
    is accepted: its target is left out until the addition is lifted.
    """
    first: dict[str, Entry] = {}
    lifted: dict[str, list[Entry]] = {}
    accepted: dict[str, list[Entry]] = {}
    repeated = 0
    for entry in entries:
        if entry.id in first:
            repeated += 1
            continue
        first[entry.id] = entry
        for name in entry.lifts or ():
            lifted.setdefault(name, []).append(entry)
        if entry.accepts is not None:
            accepted.setdefault(entry.accepts, []).append(entry)
    day, records = on.isoformat(), []
    for entry in first.values():
        if entry.action == Action.LIFT:
            continue
        state, by = Standing.HELD if entry.action == Action.ADD else Standing.PROPOSED, None
        if state == Standing.PROPOSED and entry.id in accepted:
            state, by = Standing.ACCEPTED, _earliest(accepted[entry.id])
        elif entry.id in lifted:
            state, by = Standing.LIFTED, _earliest(lifted[entry.id])
        elif entry.until is not None and entry.until < day:
            state = Standing.EXPIRED
        records.append(Record(entry=entry, standing=state, by=by))
    asked = sum(map(len, lifted.values())) + sum(map(len, accepted.values()))
    done = sum(record.by is not None for record in records)
    return Folded(on=on, records=tuple(records), repeated=repeated, no_ops=asked - done)


def _earliest(entries: Sequence[Entry]) -> Entry:
    return min(entries, key=lambda entry: (entry.when, entry.id))


SHORT = 12
"""Hex digits of an id that are shown."""
_ID = re.compile(r"(?:sha256:)?([0-9a-f]{6,64})")


def short_id(entry: Entry) -> str:
    """Return the id as it is shown."""
    return entry.id.removeprefix("sha256:")[:SHORT]


def target_name(entry: Entry) -> str:
    """Return ``split/uri:row``, or the digest where the entry names no file; as it is in the data."""
    target = entry.target
    if target is None:
        return ""
    if target.split is not None and target.uri is not None:
        name = f"{target.split}/{target.uri}"
    else:
        name = target.uri or (f"sha256:{target.sha256}" if target.sha256 else f"rows:{target.rows_digest}")
    return name if target.row is None else f"{name}:{target.row}"


def find_records(names: Sequence[str], folded: Folded) -> list[Record]:
    """Return the records that names mean, each once, in the file's order.

    A name of a target means all its open entries, or, when none is open, all that it ever had.
    """
    chosen = {record.entry.id for name in names for record in _find(name, folded)}
    return [record for record in folded.records if record.entry.id in chosen]


def starting(name: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that begin as a name does, with or without ``sha256:``."""
    match = _ID.fullmatch(name)
    return [] if match is None else [id_ for id_ in dict.fromkeys(ids) if id_[7:].startswith(match[1])]


def _find(name: str, folded: Folded) -> list[Record]:
    ids = starting(name, (record.entry.id for record in folded.records))
    if len(ids) > 1:
        raise QuarantineError(f"`{name}` is the beginning of {len(ids)} entries", "Give more of its digits.")
    records = [record for record in folded.records if record.entry.id in ids]
    records = records or [record for record in folded.records if name in _names(record.entry)]
    if not records:
        raise QuarantineError(
            f"no entry `{name}`",
            "Give the beginning of an entry's id, split/uri, or split/uri:row; `list --all` shows them.",
        )
    return records if ids else [record for record in records if record.standing in OPEN] or records


def _names(entry: Entry) -> set[str]:
    target = entry.target
    if target is None:
        return set()
    row = "" if target.row is None else f":{target.row}"
    digests = [f"sha256:{target.sha256}", str(target.sha256)] if target.sha256 else []
    digests += [f"rows:{target.rows_digest}"] if target.rows_digest else []
    return {target_name(entry), f"{target.uri}{row}", *(f"{digest}{row}" for digest in digests)}


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
    lines: tuple[str, ...]
    """Ids of all lines of the list, sorted."""
    _shards: _Index
    """Of shards, by either digest."""
    _documents: _Index
    """Of documents, by either digest of their shard."""

    def holds(self, *, sha256: str | None = None, rows_digest: str | None = None) -> bool:
        """Return whether a whole shard is left out."""
        return any(digest in self._shards for digest in _given(sha256, rows_digest))

    def shard_entries(self, *, sha256: str | None = None, rows_digest: str | None = None) -> tuple[Entry, ...]:
        """Return the entries that leave a whole shard out; arguments as of :meth:`holds`."""
        return _entries(self._shards, _given(sha256, rows_digest))

    def rows(self, *, sha256: str | None = None, rows_digest: str | None = None) -> frozenset[int]:
        """Return the single rows of a shard that are left out."""
        entries = self.document_entries(sha256=sha256, rows_digest=rows_digest)
        return frozenset(entry.target.row for entry in entries if entry.target and entry.target.row is not None)

    def document_entries(self, *, sha256: str | None = None, rows_digest: str | None = None) -> tuple[Entry, ...]:
        """Return the entries that leave single documents of a shard out; arguments as of :meth:`rows`."""
        return _entries(self._documents, _given(sha256, rows_digest))


def load_quarantine(
    path: Path, *, on: dt.date | None = None, ignore_bad_lines: bool = False, seen_by: Manifest | None = None
) -> Quarantine:
    """Read a list for a loader."""
    with no_collection():
        contents, folded = read_folded(path, on=on, ignore_bad_lines=ignore_bad_lines)
        if seen_by is not None:
            contents.check_seen(seen_by, str(path), "the manifest before")
        return in_force(folded.standing(Standing.HELD), digest=contents.digest, on=folded.on, lines=contents.lines)


def read_folded(path: Path, *, on: dt.date | None = None, ignore_bad_lines: bool = False) -> tuple[Contents, Folded]:
    """Read a list, and what is in force on a day; arguments and errors of :func:`load_quarantine`."""
    contents = read(path)
    if not ignore_bad_lines:
        contents.check(str(path))
    now = today()
    return contents, fold(contents.entries, min(on or now, now))


def in_force(entries: Iterable[Entry], *, digest: str, on: dt.date, lines: tuple[str, ...] = ()) -> Quarantine:
    """Return an index of entries that are in force."""
    entries = tuple(entries)
    shards = _index(entry for entry in entries if entry.target is not None and entry.target.kind == "shard")
    documents = _index(entry for entry in entries if entry.target is not None and entry.target.kind == "document")
    return Quarantine(digest=digest, on=on, entries=entries, lines=lines, _shards=shards, _documents=documents)


def _index(entries: Iterable[Entry]) -> _Index:
    """Return entries by each of their digests; most digests have a single entry, some documents' have very many."""
    first: dict[str, tuple[Entry, ...]] = {}
    many: dict[str, list[Entry]] = {}
    for entry in entries:
        assert entry.target is not None
        for name in {entry.target.sha256, entry.target.rows_digest}:
            if name is None:
                continue
            known = first.setdefault(name, (entry,))
            if known[0] is not entry:
                many.setdefault(name, [*known]).append(entry)
    return MappingProxyType(first | {name: tuple(several) for name, several in many.items()})


def today() -> dt.date:
    """Return the day, UTC."""
    return dt.datetime.now(dt.UTC).date()


def _given(sha256: str | None, rows_digest: str | None) -> list[str]:
    digests = [digest for digest in (sha256, rows_digest) if digest]
    if not digests:
        raise ValueError("a shard is named by its digests, found neither sha256 nor rows_digest")
    return digests


def _entries(index: _Index, digests: list[str]) -> tuple[Entry, ...]:
    return tuple({entry.id: entry for digest in digests for entry in index.get(digest, ())}.values())
