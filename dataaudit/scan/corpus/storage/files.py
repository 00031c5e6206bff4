"""How a shard is looked at and opened, wherever it lies; a remote file is read like a local one.

A remote file is read ahead when it is read as a whole, and asked for exact ranges when Arrow reads parts of it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import os
import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

import pyarrow as pa

from dataaudit.base.files import expect_regular, open_regular
from dataaudit.base.stores import run, submit
from dataaudit.manifest.locate import relative_path
from dataaudit.scan.corpus.storage.address import Access, RemotePath, RemoteStat, parse_address, scheme_of
from dataaudit.scan.corpus.storage.hub import RowsPath, stat_rows
from dataaudit.scan.corpus.storage.remote import open_object, stat_remote

_REMOTE_BUFFER_BYTES = 4 << 20


LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """What the file system, or the store, says of a file."""

    size: int
    mtime_ns: int
    ctime_ns: int
    """Of the last change of the file or of its inode; a program cannot set it back."""
    inode: int
    device: int
    validator: str = LOCAL
    """Of a remote file: what changes when its bytes do; empty when its store gives nothing of the kind."""


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
    found = Path(path).stat()
    return FileStat(
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        inode=found.st_ino,
        device=found.st_dev,
    )


def listed_stat(path: str) -> FileStat:
    """Return the stat of a file as its listing gave it, or ask for it when it gave none."""
    if isinstance(path, RemotePath) and path.seen is not None and path.seen.validator:
        return _of_remote(path.seen)
    return stat_file(path)


def _of_remote(found: RemoteStat) -> FileStat:
    return FileStat(size=found.size, mtime_ns=found.mtime_ns, ctime_ns=0, inode=0, device=0, validator=found.validator)


def open_binary(path: str, *, buffer_bytes: int = 0) -> BinaryIO:
    """Open a file for reading; without a buffer, reads go straight to the file system.

    A remote file is read ahead in blocks of its own size, whatever the buffer.
    """
    if isinstance(path, RemotePath):
        return cast("BinaryIO", RemoteFile(path, ahead=True))
    return open(path, "rb", buffering=buffer_bytes, opener=open_regular)


def stored_bytes(file: BinaryIO) -> int:
    """Return the size of an open file."""
    size = getattr(file, "size", None)
    return size if isinstance(size, int) else os.fstat(file.fileno()).st_size


def read_until(file: BinaryIO, stop: int) -> None:
    """Say that a file is read to about this byte: a remote one is read ahead no further."""
    limit = getattr(file, "read_until", None)
    if limit is not None:
        limit(stop)


def arrow_source(path: str) -> str | pa.NativeFile:
    """Return what Arrow opens: a path, or an open file for a remote one and for a name that is no UTF-8."""
    if isinstance(path, RemotePath):
        return pa.PythonFile(RemoteFile(path, ahead=False), mode="r")
    expect_regular(Path(path))
    try:
        path.encode()
    except UnicodeEncodeError:
        return pa.OSFile(os.fsencode(path))
    return path


def arrow_buffer_bytes(path: str, local: int) -> int:
    """Return how much of a column Arrow reads at once: of a remote file more, since each read is a request."""
    return _REMOTE_BUFFER_BYTES if isinstance(path, RemotePath) else local


if TYPE_CHECKING:
    from typing_extensions import Buffer

_FIRST_BLOCK_BYTES = 1 << 18
_LARGEST_BLOCK_BYTES = 8 << 20
_REST_BYTES = 1 << 16
"""First block behind the end of a part: mostly the rest of one line."""
_BLOCKS_AHEAD = 2
"""Blocks that are asked for before they are wanted: memory is bounded by one more than these."""


class RemoteFile(io.RawIOBase):
    """The bytes of a remote file.

    A file of a server that gives no ranges is copied to an unnamed temporary file first.

    Args:
        path: Its address.
        ahead: Read on in growing blocks while a block is worked on; else every read is one request for exactly
            the bytes it asks for.

    Raises:
        OSError: From every call, when the store fails; never is a short answer taken for the end.
    """

    def __init__(self, path: RemotePath, *, ahead: bool) -> None:
        super().__init__()
        self._ahead = ahead
        self._position = 0
        self._block, self._block_start = b"", 0
        self._end = 0
        self._next_bytes, self._in_a_row = _FIRST_BLOCK_BYTES, 0
        self._coming: deque[tuple[int, concurrent.futures.Future[bytes]]] = deque()
        self._held = contextlib.ExitStack()
        self._copy: IO[bytes] | None = None
        self._object = open_object(path)
        self.size = run(self._object.stat()).size
        """Stored bytes."""
        self._limit = self.size
        if self._object.copy is not None and self.size:
            with contextlib.ExitStack() as held:
                self._copy = held.enter_context(tempfile.TemporaryFile(prefix="dataaudit-"))
                run(self._object.copy(self._copy, self.size))
                self._held = held.pop_all()

    def read_until(self, stop: int) -> None:
        """Read ahead no further than this byte; what lies beyond is asked for when it is wanted."""
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

    def readinto(self, buffer: Buffer) -> int:
        """Read into a buffer."""
        target = memoryview(buffer).cast("B")
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)

    def read(self, num_bytes: int | None = -1) -> bytes:
        """Return so many bytes, fewer at the end of the file; read ahead, as many as are there, at least one."""
        left = max(0, self.size - self._position)
        wanted = left if num_bytes is None or num_bytes < 0 else min(num_bytes, left)
        if wanted == 0:
            return b""
        start = self._position
        if self._copy is not None:
            self._copy.seek(start)
            found = self._copy.read(wanted)
        elif self._ahead:
            found = self._from_block(start, wanted)
        else:
            found = run(self._object.fetch(start, start + wanted))
        self._position += len(found)
        return found

    def _from_block(self, start: int, wanted: int) -> bytes:
        offset = start - self._block_start
        if not 0 <= offset < len(self._block):
            self._turn_to(start)
            offset = 0
        return self._block[offset : offset + wanted]

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
        """Give up what is still on its way."""
        if not self.closed:
            self._forget()
            self._block = b""
            self._held.close()
        super().close()
