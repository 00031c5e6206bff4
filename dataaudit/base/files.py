"""Files that appear whole or not at all: written beside their place, then renamed; kills and other writers do no harm.

What is renamed is not forced to disk: stores are read by digests, and what a power failure took is made again. What is
published is prepared in a folder of its own, forced to disk file by file (:func:`write_synced`) and moved as a whole.

Regular files are opened, whole ones read: what is a folder, a pipe, a socket or a device is an error at once.

A pipe without a writer would hold its reader for ever, and whether a path is one can change after it was looked at: so
the descriptor is asked, and opening never waits.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dataaudit.base.sealing import named_seal

_NAME_BYTES = 64
_SEAL_BYTES = 65


class DamagedFileError(Exception):
    """Files that were written whole are absent, cut or altered: their content is not what its digest says."""

    def __init__(self, *paths: str) -> None:
        super().__init__(*paths)
        self.paths = paths


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file beside a path; after the block it has that name, after an error in it it is gone.

    The folder must be there. A link of that name is replaced, not followed.
    """
    begin = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    beside = path.with_name(f".{begin}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with beside.open("xb") as file:
            yield file
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_whole(path: Path, *pieces: bytes) -> None:
    """Write a file, its folders with it, so that others see all of it or nothing."""
    try:
        _write(path, pieces)
    except FileNotFoundError:  # of many files in few folders most find theirs
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, pieces)


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    with replacing(path) as file:
        file.writelines(pieces)


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file as :func:`write_whole` does, after a line with the seal of its name and its content."""
    write_whole(path, _seal(path, content), content)


def read_sealed(path: Path) -> bytes | None:
    """Return what :func:`write_sealed` wrote; None when that is absent, cut, altered or another file's."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    content = whole[_SEAL_BYTES:]
    return content if _seal(path, content) == whole[:_SEAL_BYTES] else None


def _seal(path: Path, content: bytes) -> bytes:
    return named_seal(path.name, content).hex().encode() + b"\n"


def write_changed(path: Path, content: bytes) -> None:
    """Write a file as :func:`write_whole` does; one that holds the same already is left alone."""
    if not (path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content):
        write_whole(path, content)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file, under its name from the first byte on, and force it to disk."""
    with path.open("wb") as file:
        file.write(data)
        sync_file(file)


def sync_file(file: BinaryIO) -> None:
    """Force an open file's content to disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk; some file systems cannot, and need not."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
            raise
    finally:
        os.close(descriptor)


class NotAFileError(OSError):
    """A path leads to something that is no regular file."""


def open_safely(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file and return its descriptor; for ``opener=`` of :func:`open`, too."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe that would be written
            raise _not_a_file(path, os.stat(path).st_mode) from None
        raise
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, _found(kind), os.fspath(path))
        if not stat.S_ISREG(kind):
            raise _not_a_file(path, kind)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_safely(path: Path) -> bytes:
    """Return all bytes of a regular file."""
    with open(path, "rb", opener=open_safely) as file:
        return file.read()


def expect_file(path: Path) -> None:
    """Hold that a path leads to a regular file, for what is opened by others."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise _not_a_file(path, mode)


def kind_of(mode: int) -> str:
    """Return in words what is no file: ``a folder``, ``a pipe``, ..."""
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a pipe"))
    return next((words for holds, words in kinds if holds(mode)), "a socket or a device")


def _not_a_file(path: str | os.PathLike[str], mode: int) -> NotAFileError:
    return NotAFileError(errno.EINVAL, _found(mode), os.fspath(path))


def _found(mode: int) -> str:
    return f"expected a file, found {kind_of(mode)}"


def lies_in(path: Path, folder: Path) -> bool:
    """Return whether a file lies in a folder, links followed."""
    return Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents
