r"""Lines of a stream, cut at byte offsets: a line belongs to the part that holds its first byte.

So every line is read by one part whatever the cut. The stream is read in blocks, and of a line that is too long
only the length is kept, so memory is bounded by the longest line that is allowed. A line ends at ``\n`` alone. A
byte order mark at the start of a file is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from dataaudit.corpus.readers.part import Part
from dataaudit.corpus.readers.stream import ByteStream

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
