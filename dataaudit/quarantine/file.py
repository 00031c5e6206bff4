"""The file: read whole, and added to so that two writers at once, or one that is killed, lose nothing.

A writer holds the file's lock (flock) while it reads the list, decides what to add, appends its lines with one write,
and forces them to disk; only then is anything said to be done. Under NFS the kernel turns flock into a lock of the
server. A file system without locks still gets whole lines of O_APPEND, which are read back; there, two writers may
both add the same entry.

A writer that is killed in the middle leaves part of a line. The next one begins with a line end, so that the rest is
one line that cannot be read, and its own line is whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dataaudit.atomic import sync_folder
from dataaudit.errors import QuarantineError
from dataaudit.quarantine.entry import Entry
from dataaudit.quarantine.lines import Contents, parse

Decide = Callable[[Contents], Sequence[Entry]]
DEFAULT = Path("quarantine.jsonl")
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_PATIENCE_SECONDS = 60.0
_MODE = 0o644


def read(path: Path) -> Contents:
    """Read a list; a writer at work is waited for.

    Raises:
        QuarantineError: There is no such file, it cannot be read, or it is of a newer version.
    """
    try:
        with _opened(path, os.O_RDONLY, fcntl.LOCK_SH) as (descriptor, _):
            data = _whole(descriptor)
    except FileNotFoundError:
        raise _absent(path) from None
    except OSError as error:
        raise QuarantineError(f"the quarantine list {path} cannot be read: {error.strerror or error}") from None
    return parse(data, str(path))


def update(path: Path, decide: Decide, *, create: bool) -> tuple[Entry, ...]:
    """Let ``decide`` look at the list and append what it returns; nobody else writes in between.

    Args:
        path: The file.
        decide: Gets the contents, returns the entries to add, perhaps none.
        create: Whether a file is made when there is none.

    Returns:
        The entries, which are on disk now.

    Raises:
        QuarantineError: The file cannot be written, is of a newer version, or is something else than such a list;
            then it is as it was.
    """
    flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
    made = create and not path.exists()
    try:
        with _opened(path, flags, fcntl.LOCK_EX) as (descriptor, locked):
            try:
                return _decided(descriptor, path, decide, locked=locked)
            finally:  # an empty file would be a list that holds nothing
                if made and locked and os.fstat(descriptor).st_size == 0:
                    path.unlink(missing_ok=True)
    except FileNotFoundError:
        raise _absent(path) from None
    except OSError as error:
        raise QuarantineError(
            f"the quarantine list {path} cannot be written: {error.strerror or error}; nothing was added",
            "Free space or name a file that may be written.",
        ) from None


def _decided(descriptor: int, path: Path, decide: Decide, *, locked: bool) -> tuple[Entry, ...]:
    """Read the open list, let ``decide`` look at it and append what it returns."""
    data = _whole(descriptor)
    contents = parse(data, str(path))
    _check_kind(contents, path)
    added = tuple(decide(contents))
    if added:
        if not data:
            sync_folder(path.absolute().parent)
        _append(descriptor, path, data, added, locked=locked)
    return added


def _absent(path: Path) -> QuarantineError:
    if not path.absolute().parent.is_dir():
        return QuarantineError(f"no quarantine list at {path}: there is no such folder", "Make the folder first.")
    return QuarantineError(
        f"no quarantine list at {path}",
        "`dataaudit quarantine add` begins one; an empty file is a list that holds nothing.",
    )


def _append(descriptor: int, path: Path, before: bytes, entries: Sequence[Entry], *, locked: bool) -> None:
    """Write lines in one go and wait for the disk.

    Raises:
        OSError: They could not be written; with a lock, what was written of them is taken back.
    """
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
    """Open and lock a file; yield its descriptor and whether the lock is held."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        descriptor = os.open(path, flags | os.O_CLOEXEC, _MODE)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise QuarantineError(f"{path} is not a file, so it is no quarantine list")
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
                    f"another process has held the lock of {path} for {_PATIENCE_SECONDS:.0f} s",
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
    """Tell whether the file was not replaced (by a checkout, say) while its lock was waited for."""
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


def _check_kind(contents: Contents, path: Path) -> None:
    """Refuse to add lines to a file of another kind: a shard of a corpus, named by mistake."""
    if not contents.entries and any(not line.ours for line in contents.bad):
        raise QuarantineError(f"{path} is no quarantine list: none of its lines is an entry", "Name another file.")
