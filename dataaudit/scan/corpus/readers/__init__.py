"""Readers: a module for each format of :data:`dataaudit.manifest.formats.FORMATS`, in bounded memory.

A reader cuts a large file into parts (:func:`plan_parts`) and streams the documents of a part (:func:`read_part`). It
counts every bad record in a :class:`LossLog`, and raises :class:`ShardUnreadable` when the file as a whole cannot be
trusted. Transient input errors are left to the caller as ``OSError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Protocol, cast

from dataaudit.manifest.formats import FORMATS
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.loss import LossLog
from dataaudit.scan.corpus.readers.part import END, Part, PartStats, ReadRequest
from dataaudit.scan.corpus.readers.stream import WHOLE, plan_compressed, plan_lines
from dataaudit.scan.corpus.shards import Compression

READER_VERSION = "6"
__all__ = [
    "END",
    "READER_VERSION",
    "Part",
    "PartStats",
    "ReadRequest",
    "is_cut_by_decoding",
    "plan_compressed",
    "plan_parts",
    "read_part",
    "reader_of",
]


class Reader(Protocol):
    """A module that reads a format; a format of lines needs no ``plan_parts``."""

    def plan_parts(self, path: str, size: int, part_bytes: int, /) -> list[Part]:
        """Cut a file into parts."""

    def read_part(self, request: ReadRequest, losses: LossLog, stats: PartStats, /) -> Iterator[DocBatch]:
        """Stream the documents of a part."""

    def peek_columns(self, path: str, /) -> dict[str, str]:
        """Return the top-level columns of a file and their contents."""


def reader_of(format_: str) -> Reader:
    """Return the reader of a format that is not ``unknown``."""
    return cast(Reader, import_module(f"{__name__}.{FORMATS[format_].reader}"))


def plan_parts(
    path: str, format_: str, compression: Compression, size: int, part_bytes: int, text_document: str = "file"
) -> list[Part]:
    """Cut a file into parts; depends on its bytes and the arguments only.

    A compressed file is one part here; :func:`plan_compressed` cuts a large one.
    """
    if not FORMATS[format_].lines:
        return reader_of(format_).plan_parts(path, size, part_bytes)
    if compression != "none" or not _has_many(format_, text_document):
        return [WHOLE]
    return plan_lines(size, part_bytes)


def is_cut_by_decoding(format_: str, compression: Compression, size: int, part_bytes: int, text_document: str) -> bool:
    """Tell whether only decoding shows where to cut a file: it is large, compressed, and has many documents."""
    return compression != "none" and size > part_bytes and _has_many(format_, text_document)


def _has_many(format_: str, text_document: str) -> bool:
    """Tell whether a file of lines may hold many documents."""
    return not FORMATS[format_].has_text_document or text_document != "file"


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of a part; ``losses`` and ``stats`` are complete when it ends."""
    for batch in reader_of(request.format).read_part(request, losses, stats):
        stats.text_bytes += int(batch.byte_offsets()[-1])
        yield batch
