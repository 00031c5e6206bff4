"""Readers: one file per format, each a stream of :class:`DocBatch` in bounded memory.

A reader cuts a large file into parts that can be read alone (:func:`plan_parts`), reads one part
(:func:`read_part`), counts every bad record in a :class:`LossLog` and raises :class:`ShardUnreadable` when
the file as a whole cannot be trusted. Transient input errors are left to the caller as ``OSError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.loss import LossLog
from dataaudit.corpus.readers import arrow, jsonl, parquet, text
from dataaudit.corpus.readers.hub_rows import read_rows
from dataaudit.corpus.readers.lines import WHOLE, plan_compressed, plan_lines
from dataaudit.corpus.readers.part import END, Part, PartStats, ReadRequest
from dataaudit.corpus.shards import Compression, Format
from dataaudit.corpus.storage.hub import RowsPath

READER_VERSION = "2"
NATIVE_FORMATS: frozenset[Format] = frozenset({"parquet", "arrow", "datasets"})
"""Formats whose parsers are native code with pointers into the bytes: hostile ones can crash them. A streamed
dataset is files of such formats."""
__all__ = [
    "END",
    "NATIVE_FORMATS",
    "READER_VERSION",
    "Part",
    "PartStats",
    "ReadRequest",
    "is_cut_by_decoding",
    "plan_compressed",
    "plan_parts",
    "read_part",
]


_READERS: dict[Format, Callable[[ReadRequest, LossLog, PartStats], Iterator[DocBatch]]] = {
    "parquet": parquet.read_part,
    "arrow": arrow.read_part,
    "jsonl": jsonl.read_part,
    "text": text.read_part,
}


def plan_parts(
    path: str, format_: Format, compression: Compression, size: int, part_bytes: int, text_document: str = "file"
) -> list[Part]:
    """Cut a file into parts; depends on its bytes and the arguments only.

    A compressed file is one part here; :func:`plan_compressed` cuts a large one.

    Raises:
        ShardUnreadable: Its structure cannot be read.
    """
    if format_ == "parquet":
        return parquet.plan_parts(path, part_bytes)
    if format_ == "arrow":
        return arrow.plan_parts(path, size, part_bytes)
    if format_ == "datasets":
        return [Part(0, 1)]
    if compression != "none" or (format_ == "text" and text_document == "file"):
        return [WHOLE]
    return plan_lines(size, part_bytes)


def is_cut_by_decoding(
    format_: Format, compression: Compression, size: int, part_bytes: int, text_document: str
) -> bool:
    """Tell whether a file is large, compressed, and made of lines that parts can share."""
    shared = format_ == "jsonl" or (format_ == "text" and text_document != "file")
    return shared and compression != "none" and size > part_bytes


def read_part(
    request: ReadRequest, losses: LossLog, stats: PartStats, only: frozenset[int] | None = None
) -> Iterator[DocBatch]:
    """Stream the documents of one part; ``losses`` and ``stats`` are complete when it ends.

    Args:
        request: The part.
        losses: Where bad records are counted.
        stats: Where all are.
        only: Records, by their number within the part, that are wanted: others may be left out unread, of documents,
            losses and stats, and the reading may end after the last. None: all.

    Raises:
        ShardUnreadable: The file cannot be trusted.
    """
    if isinstance(request.path, RowsPath):
        return read_rows(request.path, request.fields, request.batch_bytes, losses, stats)
    if only is not None and request.format == "jsonl":
        return jsonl.read_part(request, losses, stats, only)
    if only is not None and request.format == "parquet":
        return parquet.read_part(request, losses, stats, only)
    return _READERS[request.format](request, losses, stats)
