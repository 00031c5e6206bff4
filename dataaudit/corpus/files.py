"""How a shard's bytes are opened: the one place that knows what a path may be, local or remote."""

from __future__ import annotations

import os
from typing import BinaryIO, cast

import pyarrow as pa

from dataaudit.corpus.address import RemotePath

_REMOTE_BUFFER_BYTES = 4 << 20


def open_binary(path: str, *, buffer_bytes: int = 0) -> BinaryIO:
    """Open a file for reading; without a buffer, reads go straight to the file system.

    A remote file is read ahead in blocks of its own size, whatever the buffer.

    Raises:
        OSError: It cannot be opened.
    """
    if isinstance(path, RemotePath):
        from dataaudit.corpus.remote import RemoteFile

        return cast("BinaryIO", RemoteFile(path, ahead=True))
    return open(path, "rb", buffering=buffer_bytes)


def stored_bytes(file: BinaryIO) -> int:
    """Return the size of an open file."""
    size = getattr(file, "size", None)
    return size if isinstance(size, int) else os.fstat(file.fileno()).st_size


def read_fully(file: BinaryIO, num_bytes: int) -> bytes:
    """Return the next bytes of a file, fewer only at its end: one ``read`` may give less of what is there."""
    found = file.read(num_bytes)
    if len(found) == num_bytes or not found:
        return found
    pieces = [found]
    missing = num_bytes - len(found)
    while missing and (piece := file.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def read_until(file: BinaryIO, stop: int) -> None:
    """Say that a file is read to about this byte: a remote one is read ahead no further."""
    limit = getattr(file, "read_until", None)
    if limit is not None:
        limit(stop)


def arrow_source(path: str) -> str | pa.NativeFile:
    """Return what Arrow opens: a path, or an open file for a remote one and for a name that is no UTF-8."""
    if isinstance(path, RemotePath):
        from dataaudit.corpus.remote import RemoteFile

        return pa.PythonFile(RemoteFile(path, ahead=False), mode="r")
    try:
        path.encode()
    except UnicodeEncodeError:
        return pa.OSFile(os.fsencode(path))
    return path


def arrow_buffer_bytes(path: str, local: int) -> int:
    """Return how much of a column Arrow reads at once: of a remote file more, since each read is a request."""
    return _REMOTE_BUFFER_BYTES if isinstance(path, RemotePath) else local
