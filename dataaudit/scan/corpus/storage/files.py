"""Stats and opens shards, local or remote.

A remote file is read ahead when it is read as a whole, and asked for exact ranges when Arrow reads parts of it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import io
import os
import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import pyarrow as pa

from dataaudit.base.files import expect_file, open_safely
from dataaudit.base.stores import run, submit
from dataaudit.manifest.locate import relative_path
from dataaudit.scan.corpus.storage.address import Access, RemotePath, RemoteStat, parse_address, scheme_of
from dataaudit.scan.corpus.storage.hub import RowsPath, stat_rows
from dataaudit.scan.corpus.storage.remote import open_object, stat_remote

_REMOTE_BUFFER_BYTES = 4 << 20
_FIRST_BLOCK_BYTES = 1 << 18
_LARGEST_BLOCK_BYTES = 8 << 20
_REST_BYTES = 1 << 16
"""First block behind the end of a part: mostly the rest of one line."""
_BLOCKS_AHEAD = 2
"""Blocks that are asked for in advance: memory is bounded by one more than these."""
LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """A file's stat, from the file system or the store."""

    size: int
    mtime_ns: int
    ctime_ns: int
    """Time of the last change of the file or its inode; a program cannot set it back."""
    inode: int
    device: int
    validator: str = LOCAL
    """See :class:`RemoteStat`."""


def file_of(root: str, uri: str) -> str | None:
    """Return the file of a shard; None when its URI is not below the root, which no build writes."""
    relative = relative_path(uri)
    if relative is None:
        return None
    if scheme_of(root):
        return parse_address(root, "root").below(relative).remote_path(Access())
    return os.path.join(root, relative)


def stat_file(path: str) -> FileStat:
    """Return the stat of a file, links followed."""
    if isinstance(path, RemotePath):
        return _of_remote(stat_remote(path))
    if isinstance(path, RowsPath):
        return _of_remote(stat_rows(path))
    try:
        stat = os.stat(path)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise FileNotFoundError(error.errno, error.strerror, path) from None  # a link or path that leads nowhere
    return FileStat(
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        ctime_ns=stat.st_ctime_ns,
        inode=stat.st_ino,
        device=stat.st_dev,
    )


def listed_stat(path: str) -> FileStat:
    """Return the stat of a file as its listing gave it, or ask for it when it gave none."""
    if isinstance(path, RemotePath) and path.seen is not None and path.seen.validator:
        return _of_remote(path.seen)
    return stat_file(path)


def _of_remote(stat: RemoteStat) -> FileStat:
    return FileStat(size=stat.size, mtime_ns=stat.mtime_ns, ctime_ns=0, inode=0, device=0, validator=stat.validator)


def open_binary(path: str) -> BinaryIO:
    """Open a file for reading, a local file without a buffer, a remote file with read-ahead."""
    if isinstance(path, RemotePath):
        return cast("BinaryIO", RemoteFile(path, ahead=True))
    return open(path, "rb", buffering=0, opener=open_safely)


def stored_bytes(file: BinaryIO) -> int:
    """Return the size of an open file."""
    return file.size if isinstance(file, RemoteFile) else os.fstat(file.fileno()).st_size


def read_until(file: BinaryIO, stop: int) -> None:
    """Limit the read-ahead of a remote file to this byte."""
    if isinstance(file, RemoteFile):
        file.read_until(stop)


def arrow_source(path: str) -> str | pa.NativeFile:
    """Return what Arrow opens: a path, or an open file where that is remote or no UTF-8."""
    if isinstance(path, RemotePath):
        return pa.PythonFile(RemoteFile(path, ahead=False), mode="r")
    expect_file(Path(path))
    try:
        path.encode()
    except UnicodeEncodeError:
        return pa.OSFile(os.fsencode(path))
    return path


def arrow_buffer_bytes(path: str, local: int) -> int:
    """Return how much of a column Arrow reads at once: more of a remote file, where each read is a request."""
    return _REMOTE_BUFFER_BYTES if isinstance(path, RemotePath) else local


class RemoteFile(io.RawIOBase):
    """The bytes of a remote file; every call raises ``OSError`` when the store fails or answers too little.

    A file of a server that gives no ranges is copied to an unnamed temporary file first. With ``ahead`` it reads on in
    growing blocks while a block is worked on; else every read is one request for exactly the bytes it asks for.
    """

    def __init__(self, path: RemotePath, *, ahead: bool) -> None:
        super().__init__()
        self._ahead = ahead
        self._position = 0
        self._block, self._block_start = b"", 0
        self._end = 0
        self._next_bytes, self._in_a_row = _FIRST_BLOCK_BYTES, 0
        self._coming: deque[tuple[int, concurrent.futures.Future[bytes]]] = deque()
        self._to_close = contextlib.ExitStack()
        self._copy: IO[bytes] | None = None
        self._object = open_object(path)
        self.size = self._limit = run(self._object.stat()).size
        if self._object.copy is not None and self.size:
            with contextlib.ExitStack() as stack:
                self._copy = stack.enter_context(tempfile.TemporaryFile(prefix="dataaudit-"))
                run(self._object.copy(self._copy, self.size))
                self._to_close = stack.pop_all()

    def read_until(self, stop: int) -> None:
        """Read ahead no further than this byte; what lies beyond is asked for on demand."""
        self._limit = min(stop, self.size)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, num_bytes: int | None = -1) -> bytes:
        """Return so many bytes, fewer at the end of the file; with read-ahead at least one."""
        left = max(0, self.size - self._position)
        wanted = left if num_bytes is None or num_bytes < 0 else min(num_bytes, left)
        if wanted == 0:
            return b""
        start = self._position
        if self._copy is not None:
            self._copy.seek(start)
            data = self._copy.read(wanted)
        elif self._ahead:
            if not 0 <= start - self._block_start < len(self._block):
                self._turn_to(start)
            offset = start - self._block_start
            data = self._block[offset : offset + wanted]
        else:
            data = run(self._object.fetch(start, start + wanted))
        self._position += len(data)
        return data

    def _turn_to(self, start: int) -> None:
        """Make the block that begins with this byte the current one, and ask for those after it."""
        self._block = b""
        if not self._coming or self._coming[0][0] != start:
            self._forget()
            if start != self._end:
                self._next_bytes, self._in_a_row = _FIRST_BLOCK_BYTES, 0
            self._ask(start)
        self._block_start, coming = self._coming.popleft()
        while len(self._coming) < min(self._in_a_row, _BLOCKS_AHEAD) and self._end < self._limit:
            self._ask(self._end)
        self._in_a_row += 1
        self._block = coming.result()

    def _ask(self, start: int) -> None:
        """Ask for a block that begins with this byte."""
        if start == self._limit:
            self._next_bytes = _REST_BYTES
        self._end = min(start + self._next_bytes, self._limit if start < self._limit else self.size)
        self._coming.append((start, submit(self._object.fetch(start, self._end))))
        self._next_bytes = min(2 * self._next_bytes, _LARGEST_BLOCK_BYTES)

    def _forget(self) -> None:
        for _, coming in self._coming:
            coming.cancel()
        self._coming.clear()

    def close(self) -> None:
        """Cancel what is still on its way."""
        if not self.closed:
            self._forget()
            self._block = b""
            self._to_close.close()
        super().close()
