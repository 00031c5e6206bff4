r"""Lines of a stream, cut at byte offsets: a line belongs to the part that holds its first byte.

So every line is read by one part whatever the cut. The stream is read in blocks, and of a line that is too long
only the length is kept, so memory is bounded by the longest line that is allowed. A line ends at ``\n`` alone. A
byte order mark at the start of a file is skipped.

Cutting a large compressed file: at decoded offsets, each part decoding from the nearest member before it.

A file of many members (pzstd, bgzip, pbzip2, appended logs) costs little more in parts than whole. In a file of one
member every part decodes all that stands before it: n parts decode (n - 1) / 2 files more than one does. So there
are as many parts as keep this extra decoding below a quarter of the cost of scanning the file: 12 of zstd, 6 of
gzip, and one of xz and bzip2, which are hardly faster to decode than to scan.

The records of a file of lines or of text: good ones become batches of documents, bad ones are counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from dataaudit.corpus.batch import BatchBuilder, DocBatch
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers.part import END, Part, PartStats, ReadRequest, Restart
from dataaudit.corpus.readers.stream import ByteStream
from dataaudit.corpus.shards import Compression

BLANK = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20
Line = tuple[bytes | None, int, int]
"""(the line without its end, or None when it is too long; its length; where it begins)."""


def plan_lines(size: int, part_bytes: int) -> list[Part]:
    """Cut a plain file every ``part_bytes``."""
    if size <= part_bytes:
        return [Part(0, size)]
    return [Part(start, min(start + part_bytes, size)) for start in range(0, size, part_bytes)]


def lines(stream: ByteStream, part: Part, max_bytes: int, *, beyond: bool = False) -> Iterator[Line]:
    """Yield the lines whose first byte lies in a part.

    Args:
        stream: Where to read; at its start, or for a later part anywhere before the part.
        part: Bytes of the stream.
        max_bytes: Longest line that is kept.
        beyond: Go on with the lines after the part.
    """
    stream.read_until(part.stop)
    position, block, mark_bytes = _first_line(stream, part)
    if position >= part.stop:
        return
    held: list[bytes] = []  # the beginning of a line whose end has not been read
    held_bytes = 0
    while True:
        block = block or stream.read(_BLOCK_BYTES)
        if not block:
            if held_bytes:
                yield (b"".join(held) if held_bytes <= max_bytes else None), held_bytes, position
            return
        *ends, beginning = block.split(b"\n")
        block = b""
        for piece in ends:
            length = held_bytes + len(piece)
            line = b"".join([*held, piece]) if held and length <= max_bytes else piece
            held.clear()
            held_bytes = 0
            yield (line if length <= max_bytes else None), length, position
            position += mark_bytes + length + 1
            mark_bytes = 0
            if position >= part.stop and not beyond:
                return
        held_bytes += len(beginning)
        if held_bytes <= max_bytes:
            held.append(beginning)
        else:
            held.clear()  # too long in any case: only its length is still counted


def _first_line(stream: ByteStream, part: Part) -> tuple[int, bytes, int]:
    """Return where the part's first line begins, what has been read of it and on, and the mark's length.

    Without a line that begins in the part, the position is the part's end or beyond it. Only the part's own
    bytes are searched, so that many parts inside one long line cost no more than reading it once.
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
"""Cost of decoding a byte / cost of scanning one; measured: 690, 310, 105 and 14 MB/s beside 31 MB/s."""
_SLOW = 0.25
"""From here on a file of one member is not worth a pass that only finds that out."""
_LOOK_BYTES = 64 << 20


def plan_compressed(
    path: str, compression: Compression, size: int, part_bytes: int, on_stored: Callable[[bytes], None]
) -> list[Part]:
    """Decode a file once and cut it so that a part holds about ``part_bytes`` stored ones.

    A file that is damaged is one part: where it breaks off must not depend on how it is cut.

    Args:
        path: The file.
        compression: How it is compressed.
        size: Its stored bytes.
        part_bytes: Stored bytes of a part.
        on_stored: Gets every stored byte, damaged or not, in order.

    Raises:
        OSError: The file system fails.
    """
    with ByteStream(path, compression, on_stored=on_stored) as stream:
        try:
            while stream.read(_BLOCK_BYTES):
                one_member = len(stream.restarts) == 1 and stream.decoded_bytes > _LOOK_BYTES
                if one_member and DECODING[compression] > _SLOW:
                    return [WHOLE]
        except ShardUnreadable:
            return [WHOLE]
        finally:
            stream.drain()
        return _cut(stream.decoded_bytes, stream.restarts, -(-size // part_bytes), DECODING[compression])


def _cut(decoded: int, restarts: list[Restart], wanted: int, cost: float) -> list[Part]:
    """Return at most ``wanted`` parts of about the same size, fewer if reaching them costs too much."""
    number = min(wanted, max(1, decoded))
    offsets = [offset for _, offset in restarts]
    while number > 1:
        bounds = [decoded * index // number for index in range(number)]
        # A part looks at the byte before it, too.
        nearest = [restarts[max(0, bisect_right(offsets, start - 1) - 1)] for start in bounds]
        again = sum(max(0, start - offset) for start, (_, offset) in zip(bounds, nearest, strict=True))
        if again * cost <= EXTRA_DECODING * decoded:
            stops = [*bounds[1:], END]
            return [Part(*one) for one in zip(bounds, stops, nearest, strict=True)]
        number = number * 7 // 8 if number > 8 else number - 1
    return [WHOLE]


Record = tuple[str, str] | Reason | None
"""(text, source) of a document, or why there is none; None for one that was not asked for."""


def batches(
    request: ReadRequest,
    records: Callable[[ByteStream], Iterator[tuple[Record, int]]],
    losses: LossLog,
    stats: PartStats,
) -> Iterator[DocBatch]:
    """Stream the documents of one part.

    Args:
        request: The part.
        records: From the open file to (record, its bytes) of each record of the part, in order.
        losses: Where bad records are counted.
        stats: Where all are.

    Raises:
        ShardUnreadable: The file is damaged; the place says how many records came before.
    """
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
