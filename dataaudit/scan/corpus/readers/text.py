r"""Reads plain text, compressed or not: a document is a file, a paragraph or a line.

An empty file has no document. Paragraphs stand between blank lines (of spaces, tabs and a ``\r`` at most). A line that
is not blank is a document without its end. A whole file keeps every byte but the byte order mark. There are no columns:
the source comes from a pattern or a constant.

A paragraph belongs to the part in which the blank line before it begins, so a single part reads it whatever the cut,
and no part has to look back.
"""

from __future__ import annotations

from collections.abc import Iterator

from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.fields import TEXT, FieldRule
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers.part import Part, PartStats, ReadRequest
from dataaudit.scan.corpus.readers.stream import BLANK, BOM, ByteStream, Record, batches, lines

COLUMN = "text"
"""Name of the only column."""
_BLOCK_BYTES = 1 << 20
_Piece = tuple[bytes | None, int]
"""(a document's bytes, None when they are too many; their number)."""


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of a part."""
    fields = request.fields
    if fields.source_column is not None:
        raise ShardUnreadable(Reason.SOURCE_COLUMN, fields.source_column)
    stats.see_layout((COLUMN,))

    def records(stream: ByteStream) -> Iterator[tuple[Record, int]]:
        for piece, length in _pieces(stream, request.part, fields):
            text = _decode(piece)
            yield (text if isinstance(text, Reason) else (text, fields.source_constant)), length

    yield from batches(request, records, losses, stats)


def peek_columns(_path: str) -> dict[str, str]:
    """Return the only column."""
    return {COLUMN: TEXT}


def _pieces(stream: ByteStream, part: Part, fields: FieldRule) -> Iterator[_Piece]:
    if fields.text_document == "line":
        return _lines(stream, part, fields.max_record_bytes)
    if fields.text_document == "paragraph":
        return _paragraphs(stream, part, fields.max_record_bytes)
    return _whole(stream, fields.max_record_bytes)


def _whole(stream: ByteStream, max_bytes: int) -> Iterator[_Piece]:
    blocks: list[bytes] = []
    length = 0
    while block := stream.read(_BLOCK_BYTES):
        length += len(block)
        if length <= max_bytes + len(BOM):
            blocks.append(block)
        else:
            blocks.clear()  # too long: only its length is still counted
    text = b"".join(blocks).removeprefix(BOM)
    length = len(text) if blocks else length
    if length:
        yield (text if length <= max_bytes else None), length


def _lines(stream: ByteStream, part: Part, max_bytes: int) -> Iterator[_Piece]:
    for line, length, _ in lines(stream, part, max_bytes):
        if line is None:
            yield None, length
        elif line.strip(BLANK):
            text = line.removesuffix(b"\r")
            yield text, len(text)


def _paragraphs(stream: ByteStream, part: Part, max_bytes: int) -> Iterator[_Piece]:
    owned = part.start == 0  # whether what comes next belongs to this part
    text = bytearray()
    length = 0  # of the paragraph so far, line ends between its lines included
    for line, line_bytes, begins in lines(stream, part, max_bytes, beyond=True):
        if line is not None and not line.strip(BLANK):
            if length:
                yield _paragraph(text, length, max_bytes)
                text.clear()
                length = 0
            if begins >= part.stop:
                return
            owned = True
        elif owned:
            length += line_bytes + (length > 0)
            if line is None or length > max_bytes:
                text.clear()  # as above
            else:
                text += b"\n" + line if text else line
        elif begins >= part.stop:
            return
    if length:
        yield _paragraph(text, length, max_bytes)


def _paragraph(text: bytearray, length: int, max_bytes: int) -> _Piece:
    if length > max_bytes:
        return None, length
    whole = bytes(text).removesuffix(b"\r")
    return whole, len(whole)


def _decode(piece: bytes | None) -> str | Reason:
    if piece is None:
        return Reason.OVERSIZE
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return Reason.INVALID_UTF8
