r"""Byte streams of plain and compressed files, their lines, and their documents in batches.

**Damage.** Every kind has its own reason. A compressed file is a row of members: gzip members, zstd frames, bzip2
streams, xz streams. Decoding may begin at any of them.

**Lines** end at ``\n`` alone, and belong to the part with their first byte, so a single part reads each whatever the
cut. Of a line that is too long only the length is kept, so memory is bounded by the longest allowed line. A byte order
mark at the start of a file is skipped.

**Parts of a large compressed file** begin at decoded offsets, and decode from the nearest member before. A file of many
members (pzstd, bgzip, pbzip2, appended logs) costs little more in parts than whole. In a file of a single member
every part decodes all before it: n parts decode (n - 1) / 2 files more. So there are as many parts as keep this extra
decoding below a quarter of the cost of scanning: 12 of zstd, 6 of gzip, and one of xz and bzip2.
"""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Protocol, Self

from dataaudit.scan.corpus.batch import BatchBuilder, DocBatch
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers.part import END, Part, PartStats, ReadRequest, Restart
from dataaudit.scan.corpus.shards import Compression
from dataaudit.scan.corpus.storage.files import open_binary, read_until, stored_bytes

MAX_WINDOW_LOG = 27
"""A zstd frame may ask for a window of 2^27 bytes (128 MiB), as ``zstd`` allows by default."""
MAX_XZ_BYTES = 136 << 20
"""Memory of an xz decoder with a dictionary of 128 MiB; ``xz -9`` needs 65 MiB."""
MAX_EXPANSION = 10_000
"""Decoded bytes for each stored one; gzip cannot exceed 1,032, text in any format stays below 1,000."""
FREE_EXPANSION_BYTES = 1 << 30
"""Decoded bytes before the ratio counts."""
_REFUSED = {
    "too much memory": Reason.WINDOW,
    "Memory usage limit": Reason.WINDOW,
    "Dictionary mismatch": Reason.DICTIONARY,
}
"""Messages of decoders for streams that are whole."""
_FIRST_BYTES = {"gzip": b"\x1f", "zstd": b"\x28" + bytes(range(0x50, 0x60)), "bzip2": b"B", "xz": b"\xfd"}
"""Bytes that a member begins with. Decoders wait for more bytes after a few that are junk, as if a file were cut."""
_STORED_BLOCK_BYTES = 1 << 17
_MAX_RESTARTS = 1 << 16
_XZ_PADDING = 4


class _Member(Protocol):
    """Decodes a member."""

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


_MEMBERS: dict[Compression, Callable[[], Any]] = {
    "gzip": _GzipMember,
    "zstd": _zstd_member,
    "bzip2": bz2.BZ2Decompressor,
    "xz": partial(lzma.LZMADecompressor, format=lzma.FORMAT_XZ, memlimit=MAX_XZ_BYTES),
}


class ByteStream:
    """The decoded bytes of all members of a file, read in blocks, from the stored and decoded offset ``restart`` on.

    Zero bytes after a gzip member, and zero bytes in fours after an xz stream, are padding; anything else after the
    last member is damage. A compressed file without any byte is truncated. :meth:`read` raises :class:`ShardUnreadable`
    when the bytes cannot be trusted. ``on_stored`` gets every block of stored bytes.
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
        self._pending = b""  # stored bytes that are read and not decoded
        self._member: _Member | None = None
        self.restarts: list[Restart] = []
        """Starts of decoded members; thinned out evenly when there are many."""
        self._every = 1
        self._begun = 0
        if restart[0]:
            self._plain.seek(restart[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._plain.close()

    @property
    def decoded_bytes(self) -> int:
        """Decoded offset of the next byte of a compressed file."""
        return self._decoded

    def seek(self, position: int) -> None:
        """Go to a byte of a plain file, or forward to a decoded byte of a compressed file."""
        if self._compression == "none":
            self._plain.seek(position)
            return
        assert position >= self._decoded, "decoding goes forward only"
        while self._decoded < position and self.read(min(1 << 20, position - self._decoded)):
            pass

    def read_until(self, stop: int) -> None:
        """Limit the read-ahead of a plain file to about this byte."""
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
            reasons = (reason for message, reason in _REFUSED.items() if message in str(error))
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
            if member.needs_input and not self._pending:
                self._pending = self._take()
                if not self._pending:
                    raise ShardUnreadable(Reason.TRUNCATED)
            data, self._pending = (self._pending, b"") if member.needs_input else (b"", self._pending)
            try:
                block: bytes = member.decompress(data, num_bytes)
            except OSError:  # from bzip2
                raise ShardUnreadable(Reason.CORRUPT_STREAM) from None
            if member.eof:
                self._pending = member.unused_data or self._pending
                self._member = None
            if block:
                return block

    def _begin(self) -> bool:
        """Begin the next member; False at the end of the file."""
        padding = 0
        while True:
            self._pending = self._pending or self._take()
            if not self._pending:
                break
            if not self._begun or self._compression in ("zstd", "bzip2"):
                break
            length = len(self._pending)
            self._pending = self._pending.lstrip(b"\0")
            padding += length - len(self._pending)
            if self._pending:
                break
        misplaced = self._compression == "xz" and padding % _XZ_PADDING
        if misplaced or self._pending[:1] not in _FIRST_BYTES[self._compression]:
            raise ShardUnreadable(Reason.CORRUPT_STREAM)
        if not self._pending:
            if not self._begun and self._taken == 0:
                raise ShardUnreadable(Reason.TRUNCATED)
            return False
        if self._begun % self._every == 0:
            self.restarts.append((self._taken - len(self._pending), self._decoded))
            if len(self.restarts) > _MAX_RESTARTS:
                self.restarts = self.restarts[::2]
                self._every *= 2
        self._begun += 1
        self._member = _MEMBERS[self._compression]()
        return True


BLANK = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20
Line = tuple[bytes | None, int, int]
"""(the line without its end, None when it is too long; its length; where it begins)."""


def plan_lines(size: int, part_bytes: int) -> list[Part]:
    """Cut a plain file every ``part_bytes``."""
    return [Part(start, min(start + part_bytes, size)) for start in range(0, max(size, 1), part_bytes)]


def lines(stream: ByteStream, part: Part, max_bytes: int, *, beyond: bool = False) -> Iterator[Line]:
    """Yield the lines whose first byte lies in a part."""
    stream.read_until(part.stop)
    position, block, mark_bytes = _first_line(stream, part)
    if position >= part.stop:
        return
    begun: list[bytes] = []  # of a line whose end has not been read
    begun_bytes = 0
    while True:
        block = block or stream.read(_BLOCK_BYTES)
        if not block:
            if begun_bytes:
                yield (b"".join(begun) if begun_bytes <= max_bytes else None), begun_bytes, position
            return
        *ends, beginning = block.split(b"\n")
        block = b""
        for piece in ends:
            length = begun_bytes + len(piece)
            line = b"".join([*begun, piece]) if begun and length <= max_bytes else piece
            begun.clear()
            begun_bytes = 0
            yield (line if length <= max_bytes else None), length, position
            position += mark_bytes + length + 1
            mark_bytes = 0
            if position >= part.stop and not beyond:
                return
        begun_bytes += len(beginning)
        if begun_bytes <= max_bytes:
            begun.append(beginning)
        else:
            begun.clear()  # too long in any case: only its length is still counted


def _first_line(stream: ByteStream, part: Part) -> tuple[int, bytes, int]:
    """Return the start of the part's first line, the bytes read from there, and the length of the byte order mark.

    Without a line that begins in the part, the position is the part's end or beyond. Only the part's own bytes are
    searched, so that many parts inside a long line cost no more than reading it once.
    """
    if part.start == 0:
        head = stream.read(len(BOM))
        while 0 < len(head) < len(BOM) and (more := stream.read(len(BOM) - len(head))):
            head += more  # a compressed file may give less at once
        return (0, b"", len(BOM)) if head == BOM else (0, head, 0)
    # One byte before the part: when it ends a line, the part's first byte begins one.
    position = part.start - 1
    stream.seek(position)
    while position < part.stop - 1 and (block := stream.read(_BLOCK_BYTES)):
        end = block.find(b"\n")
        if end >= 0:
            return position + end + 1, block[end + 1 :], 0
        position += len(block)
    return part.stop, b"", 0


WHOLE = Part(0, END)
EXTRA_DECODING = 0.25
"""Cost of decoding again, at most, as a share of the cost of scanning."""
DECODING = {"zstd": 0.045, "gzip": 0.1, "xz": 0.3, "bzip2": 2.0}
"""Cost of decoding a byte / cost of scanning it; measured: 690, 310, 105 and 14 MB/s beside 31 MB/s."""
_SLOW = 0.25
"""Cost from which a single member is not worth a pass that only detects it, after ``_PROBE_BYTES`` decoded bytes."""
_PROBE_BYTES = 64 << 20


def plan_compressed(
    path: str, compression: Compression, size: int, part_bytes: int, on_stored: Callable[[bytes], None]
) -> list[Part]:
    """Decode a file once and cut it so that a part has about ``part_bytes`` stored bytes.

    A damaged file is a single part: where it breaks off must not depend on the cut.
    """
    with ByteStream(path, compression, on_stored=on_stored) as stream:
        try:
            while stream.read(_BLOCK_BYTES):
                one_member = len(stream.restarts) == 1 and stream.decoded_bytes > _PROBE_BYTES
                if one_member and DECODING[compression] > _SLOW:
                    return [WHOLE]
        except ShardUnreadable:
            return [WHOLE]
        finally:
            stream.drain()
        return _cut(stream.decoded_bytes, stream.restarts, -(-size // part_bytes), DECODING[compression])


def _cut(decoded: int, restarts: list[Restart], wanted: int, cost: float) -> list[Part]:
    """Return at most ``wanted`` parts of about the same size, fewer if decoding again costs too much."""
    number = min(wanted, max(1, decoded))
    offsets = [offset for _, offset in restarts]
    while number > 1:
        bounds = [decoded * index // number for index in range(number)]
        # A part reads the byte before it, too.
        nearest = [restarts[max(0, bisect_right(offsets, start - 1) - 1)] for start in bounds]
        again = sum(max(0, start - offset) for start, (_, offset) in zip(bounds, nearest, strict=True))
        if again * cost <= EXTRA_DECODING * decoded:
            stops = [*bounds[1:], END]
            return [Part(*item) for item in zip(bounds, stops, nearest, strict=True)]
        number = number * 7 // 8 if number > 8 else number - 1
    return [WHOLE]


Record = tuple[str, str] | Reason | None
"""(text, source) of a document, or the reason of its loss; None where it is not wanted."""


def batches(
    request: ReadRequest,
    records: Callable[[ByteStream], Iterator[tuple[Record, int]]],
    losses: LossLog,
    stats: PartStats,
) -> Iterator[DocBatch]:
    """Stream the documents of a part of lines or of text; bad records are counted."""
    builder = BatchBuilder(request.batch_bytes)
    row = -1
    try:
        with ByteStream(request.path, request.compression, restart=request.part.restart) as stream:
            for row, (record, length) in enumerate(records(stream)):
                stats.records = row + 1
                if isinstance(record, Reason):
                    losses.add(record, row, length)
                elif record is not None and builder.add(record[0], row, record[1], length):
                    yield builder.take()
    except ShardUnreadable as error:
        raise ShardUnreadable(error.reason, f"after {row + 1} records") from None
    if len(builder):
        yield builder.take()
