"""Readers: one file per format, each a stream of :class:`DocBatch` in bounded memory.

A reader cuts a large file into parts that can be read alone (:func:`plan_parts`), reads one part
(:func:`read_part`), counts every bad record in a :class:`LossLog` and raises :class:`ShardUnreadable` when
the file as a whole cannot be trusted. Transient input errors are left to the caller as ``OSError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.fields import FieldRule
from dataaudit.corpus.hub_dataset import RowsPath
from dataaudit.corpus.loss import LossLog
from dataaudit.corpus.readers import jsonl, parquet
from dataaudit.corpus.readers.hub_rows import read_rows
from dataaudit.corpus.readers.part import Part, PartStats
from dataaudit.corpus.shards import Compression, Format

READER_VERSION = "1"
__all__ = ["READER_VERSION", "Part", "PartStats", "ReadRequest", "plan_parts", "read_part"]


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


def plan_parts(path: str, format_: Format, compression: Compression, size: int, part_bytes: int) -> list[Part]:
    """Cut a file into parts; depends on its bytes and ``part_bytes`` only.

    Raises:
        ShardUnreadable: Its structure cannot be read.
    """
    if format_ == "parquet":
        return parquet.plan_parts(path, part_bytes)
    if format_ == "datasets":
        return [Part(0, 1)]
    return jsonl.plan_parts(compression, size, part_bytes)


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of one part; ``losses`` and ``stats`` are complete when it ends.

    Raises:
        ShardUnreadable: The file cannot be trusted.
    """
    if isinstance(request.path, RowsPath):
        return read_rows(request.path, request.fields, request.batch_bytes, losses, stats)
    if request.format == "parquet":
        return parquet.read_part(request.path, request.part, request.fields, request.batch_bytes, losses, stats)
    return jsonl.read_part(
        request.path, request.compression, request.part, request.fields, request.batch_bytes, losses, stats
    )
