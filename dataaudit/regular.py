"""Regular files are opened, whole ones read: what is a folder, a pipe, a socket or a device is an error at once.

A pipe without a writer would hold its reader for ever, and whether a path is one can change after it was looked at: so
the descriptor is asked, and opening never waits.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class NotAFileError(OSError):
    """A path leads to something that is no regular file."""


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file and return its descriptor; for ``opener=`` of :func:`open`, too.

    Args:
        path: Of the file.
        flags: As of :func:`os.open`.
        mode: Of a file that is made.

    Raises:
        IsADirectoryError: It is a folder.
        NotAFileError: It is a pipe, a socket or a device.
        OSError: It cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe that would be written
            raise _not_a_file(path, os.stat(path).st_mode) from None
        raise
    try:
        found = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(found):
            raise IsADirectoryError(errno.EISDIR, _found(found), os.fspath(path))
        if not stat.S_ISREG(found):
            raise _not_a_file(path, found)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path) -> bytes:
    """Return all bytes of a regular file.

    Raises:
        IsADirectoryError: It is a folder.
        NotAFileError: It is a pipe, a socket or a device.
        OSError: It cannot be read.
    """
    with open(path, "rb", opener=open_regular) as file:
        return file.read()


def expect_regular(path: Path) -> None:
    """Hold that a path leads to a regular file, for what is opened by others.

    Raises:
        NotAFileError: It leads to a folder, a pipe, a socket or a device.
        OSError: It leads to nothing.
    """
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
