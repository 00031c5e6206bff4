"""Byte streams of plain and compressed files, in which every kind of damage has its own reason."""

from __future__ import annotations

import gzip
import sys
import zlib
from types import TracebackType
from typing import Any, Self

from dataaudit.corpus.files import open_binary, read_until, stored_bytes
from dataaudit.corpus.loss import Reason, ShardUnreadable
from dataaudit.corpus.shards import Compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_WINDOW_LOG = 27
"""A zstd frame may ask for a window of 2^27 bytes (128 MiB), which ``zstd`` allows by default, too."""
MAX_EXPANSION = 10_000
"""Decoded bytes for each stored one; gzip cannot exceed 1,032, text in zstd stays below 1,000."""
FREE_EXPANSION_BYTES = 1 << 30
"""Decoded bytes before the ratio counts."""
_STORED_BLOCK_BYTES = 1 << 18


class ByteStream:
    """The decoded bytes of a file, read in blocks.

    All gzip members and all zstd frames are read. Zero bytes after the last gzip member are padding; anything
    else after the last member or frame is damage. A compressed file without any byte is a truncated one.

    Raises:
        ShardUnreadable: From :meth:`read`, when the bytes cannot be trusted.
        OSError: When the file system fails.
    """

    def __init__(self, path: str, compression: Compression) -> None:
        buffering = 0 if compression == "none" else _STORED_BLOCK_BYTES
        self._plain: Any = open_binary(path, buffer_bytes=buffering)
        self._compression = compression
        self._stored = stored_bytes(self._plain)
        self._decoded = 0
        self._stream: Any = self._plain
        if compression == "gzip":
            self._stream = gzip.GzipFile(fileobj=self._plain, mode="rb")
        elif compression == "zstd":
            options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
            self._stream = zstd.ZstdFile(self._plain, "rb", options=options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._plain.close()

    def seek(self, position: int) -> None:
        """Go to a byte of a plain file."""
        self._plain.seek(position)

    def read_until(self, stop: int) -> None:
        """Say that a plain file is read to about this byte."""
        read_until(self._plain, stop)

    def read(self, num_bytes: int) -> bytes:
        """Return up to so many bytes; none at the end."""
        if self._compression != "none" and self._stored == 0:
            raise ShardUnreadable(Reason.TRUNCATED)
        try:
            block: bytes = self._stream.read(num_bytes)
        except EOFError:
            raise ShardUnreadable(Reason.TRUNCATED) from None
        except zstd.ZstdError as error:
            window = "too much memory" in str(error)
            raise ShardUnreadable(Reason.WINDOW if window else Reason.CORRUPT_STREAM) from None
        except (gzip.BadGzipFile, zlib.error):
            raise ShardUnreadable(Reason.CORRUPT_STREAM) from None
        self._decoded += len(block)
        if self._compression != "none" and self._decoded > FREE_EXPANSION_BYTES + MAX_EXPANSION * self._stored:
            raise ShardUnreadable(Reason.EXPANSION)
        return block
