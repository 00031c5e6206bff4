"""Readers: one file per format, each a stream of :class:`DocBatch` in bounded memory.

A reader cuts a large file into parts that can be read alone (:func:`plan_parts`), reads one part
(:func:`read_part`), counts every bad record in a :class:`LossLog` and raises :class:`ShardUnreadable` when
the file as a whole cannot be trusted. Transient input errors are left to the caller as ``OSError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.fields import FieldRule
from dataaudit.corpus.hub_dataset import RowsPath
from dataaudit.corpus.loss import LossLog
from dataaudit.corpus.readers import arrow, jsonl, parquet, text
from dataaudit.corpus.readers.cut import WHOLE, plan_compressed
from dataaudit.corpus.readers.hub_rows import read_rows
from dataaudit.corpus.readers.lines import plan_lines
from dataaudit.corpus.readers.part import END, Part, PartStats
from dataaudit.corpus.shards import Compression, Format

READER_VERSION = "2"
NATIVE_FORMATS: frozenset[Format] = frozenset({"parquet", "arrow", "datasets"})
"""Formats whose parsers are native code with pointers into the bytes: hostile ones can crash them. A streamed
dataset is files of such formats."""
__all__ = [
    "END", "NATIVE_FORMATS", "READER_VERSION", "Part", "PartStats", "ReadRequest", "is_cut_by_decoding",
    "plan_compressed", "plan_parts", "read_part",
]  # fmt: skip


_COLUMNAR: dict[Format, Callable[..., Iterator[DocBatch]]] = {"parquet": parquet.read_part, "arrow": arrow.read_part}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """One part of one file and how to read it."""

    path: str
    """The file."""
    format: Format
    """How its records are stored."""
    compression: Compression
    """How its bytes are compressed."""
    part: Part
    """Which part of it."""
    fields: FieldRule
    """Where text and source are."""
    batch_bytes: int
    """Text bytes of a batch."""


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


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of one part; ``losses`` and ``stats`` are complete when it ends.

    Raises:
        ShardUnreadable: The file cannot be trusted.
    """
    if isinstance(request.path, RowsPath):
        return read_rows(request.path, request.fields, request.batch_bytes, losses, stats)
    if request.format in _COLUMNAR:
        columnar = _COLUMNAR[request.format]
        return columnar(request.path, request.part, request.fields, request.batch_bytes, losses, stats)
    by_line = text.read_part if request.format == "text" else jsonl.read_part
    return by_line(request.path, request.compression, request.part, request.fields, request.batch_bytes, losses, stats)
