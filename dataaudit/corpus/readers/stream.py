"""Byte streams of plain and compressed files, in which every kind of damage has its own reason.

A compressed file is a row of members: gzip members, zstd frames, bzip2 streams, xz streams. Each can be decoded
without those before it, so decoding may begin at any of them.
"""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Any, Protocol, Self

from dataaudit.corpus.loss import Reason, ShardUnreadable
from dataaudit.corpus.readers.part import Restart
from dataaudit.corpus.shards import Compression
from dataaudit.corpus.storage.files import open_binary, read_until, stored_bytes

MAX_WINDOW_LOG = 27
"""A zstd frame may ask for a window of 2^27 bytes (128 MiB), which ``zstd`` allows by default, too."""
MAX_XZ_BYTES = 136 << 20
"""Memory of an xz decoder: a dictionary of 128 MiB and what goes with it; ``xz -9`` needs 65 MiB."""
MAX_EXPANSION = 10_000
"""Decoded bytes for each stored one; gzip cannot exceed 1,032, text in any format stays below 1,000."""
FREE_EXPANSION_BYTES = 1 << 30
"""Decoded bytes before the ratio counts."""
_REFUSED = {
    "too much memory": Reason.WINDOW,
    "Memory usage limit": Reason.WINDOW,
    "Dictionary mismatch": Reason.DICTIONARY,
}
"""What decoders say of streams that are whole."""
_STORED_BLOCK_BYTES = 1 << 17
_MAX_RESTARTS = 1 << 16
_XZ_PADDING = 4


class _Member(Protocol):
    """Decodes one member."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipMember:
    """A gzip member; zlib checks its header, checksum and length."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)
        self._tail = b""
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        block = self._decoder.decompress(self._tail + data if self._tail else data, max_length)
        self._tail = self._decoder.unconsumed_tail
        self.needs_input = not self._tail and len(block) < max_length
        return block


@cache
def load_zstd() -> Any:
    """Import the library, which is of the extra `build` before Python 3.14."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _zstd_member() -> Any:
    zstd = load_zstd()
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG})


def _xz_member() -> Any:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MAX_XZ_BYTES)


_MEMBERS: dict[Compression, Callable[[], Any]] = {
    "gzip": _GzipMember,
    "zstd": _zstd_member,
    "bzip2": bz2.BZ2Decompressor,
    "xz": _xz_member,
}


class ByteStream:
    """The decoded bytes of a file, read in blocks.

    All members are read. Zero bytes after a gzip member, and zero bytes in fours after an xz stream, are
    padding; anything else after the last member is damage. A compressed file without any byte is a truncated
    one.

    Args:
        path: The file.
        compression: How it is compressed.
        restart: Member to begin with, and where its first byte stands among the decoded ones.
        on_stored: Called with every block of stored bytes that is read.

    Raises:
        ShardUnreadable: From :meth:`read`, when the bytes cannot be trusted.
        OSError: When the file system fails.
    """

    def __init__(
        self,
        path: str,
        compression: Compression,
        *,
        restart: Restart = (0, 0),
        on_stored: Callable[[bytes], None] | None = None,
    ) -> None:
        self._plain: Any = open_binary(path)
        self._compression = compression
        self._stored = stored_bytes(self._plain)
        self._on_stored = on_stored
        self._taken, self._decoded = restart
        self._first = restart[1]
        self._held = b""  # stored bytes that are read and not decoded
        self._member: _Member | None = None
        self.restarts: list[Restart] = []
        """Where members began that were decoded; thinned out evenly when there are many."""
        self._every = 1
        self._begun = 0
        if restart[0]:
            self._plain.seek(restart[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._plain.close()

    @property
    def decoded_bytes(self) -> int:
        """Where the next byte of a compressed file stands among the decoded ones."""
        return self._decoded

    def seek(self, position: int) -> None:
        """Go to a byte of a plain file, or forward to a decoded one of a compressed file."""
        if self._compression == "none":
            self._plain.seek(position)
            return
        assert position >= self._decoded, "decoding goes forward only"
        while self._decoded < position and self.read(min(1 << 20, position - self._decoded)):
            pass

    def read_until(self, stop: int) -> None:
        """Say that a plain file is read to about this byte; of a compressed one nobody knows where it is stored."""
        if self._compression == "none":
            read_until(self._plain, stop)

    def read(self, num_bytes: int) -> bytes:
        """Return up to so many bytes; none at the end."""
        if self._compression == "none":
            plain: bytes = self._plain.read(num_bytes)
            return plain
        try:
            block = self._decode(num_bytes)
        except (load_zstd().ZstdError, lzma.LZMAError) as error:
            reasons = (why for said, why in _REFUSED.items() if said in str(error))
            raise ShardUnreadable(next(reasons, Reason.CORRUPT_STREAM)) from None
        except zlib.error:
            raise ShardUnreadable(Reason.CORRUPT_STREAM) from None
        self._decoded += len(block)
        if self._decoded - self._first > FREE_EXPANSION_BYTES + MAX_EXPANSION * self._stored:
            raise ShardUnreadable(Reason.EXPANSION)
        return block

    def drain(self) -> None:
        """Read the stored bytes that are left, decoding nothing."""
        while self._take():
            pass

    def _take(self) -> bytes:
        block: bytes = self._plain.read(_STORED_BLOCK_BYTES)
        self._taken += len(block)
        if self._on_stored is not None and block:
            self._on_stored(block)
        return block

    def _decode(self, num_bytes: int) -> bytes:
        while True:
            if self._member is None and not self._begin():
                return b""
            member = self._member
            assert member is not None
            if member.needs_input and not self._held:
                self._held = self._take()
                if not self._held:
                    raise ShardUnreadable(Reason.TRUNCATED)
            data, self._held = (self._held, b"") if member.needs_input else (b"", self._held)
            try:
                block: bytes = member.decompress(data, num_bytes)
            except OSError:  # bzip2 says so of damage
                raise ShardUnreadable(Reason.CORRUPT_STREAM) from None
            if member.eof:
                self._held = member.unused_data or self._held
                self._member = None
            if block:
                return block

    def _begin(self) -> bool:
        """Begin the next member; False at the end of the file."""
        padding = 0
        while True:
            self._held = self._held or self._take()
            if not self._held:
                break
            if not self._begun or self._compression in ("zstd", "bzip2"):
                break
            length = len(self._held)
            self._held = self._held.lstrip(b"\0")
            padding += length - len(self._held)
            if self._held:
                break
        if self._compression == "xz" and padding % _XZ_PADDING:
            raise ShardUnreadable(Reason.CORRUPT_STREAM)
        if not self._held:
            if not self._begun and self._taken == 0:
                raise ShardUnreadable(Reason.TRUNCATED)
            return False
        if self._begun % self._every == 0:
            self.restarts.append((self._taken - len(self._held), self._decoded))
            if len(self.restarts) > _MAX_RESTARTS:
                self.restarts = self.restarts[::2]
                self._every *= 2
        self._begun += 1
        self._member = _MEMBERS[self._compression]()
        return True
