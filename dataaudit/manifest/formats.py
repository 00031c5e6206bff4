"""Formats of shards: a row says by which suffixes a format is known, what reads it, and what other programs call it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How records are stored in a file."""

    name: str
    """As the table of shards says it."""
    reader: str
    """Module of :mod:`dataaudit.scan.corpus.readers` that reads it."""
    suffixes: tuple[str, ...] = ()
    """Ends of the names of its files, in small letters; none where a shard is no file."""
    lines: bool = False
    """Whether a file can be cut at any byte, and may be compressed as a whole."""
    has_text_document: bool = False
    """Whether ``reader.text_document`` says what a document is: perhaps the whole file."""
    native: bool = False
    """Whether its parser is native code with pointers into the bytes. A streamed dataset is files of such formats."""
    media_types: tuple[str, ...] = ()
    """Where there are two, the first is the registered one, the second what mlcroissant reads."""
    croissant_fields: tuple[str, ...] = ()
    """Compressions in which a Croissant field can name its columns and mlcroissant reads them."""


FORMATS = {
    row.name: row
    for row in (
        Format(
            name="parquet",
            reader="parquet",
            suffixes=(".parquet", ".pq"),
            native=True,
            media_types=("application/vnd.apache.parquet", "application/x-parquet"),
            croissant_fields=("none",),
        ),
        Format(
            name="arrow",
            reader="arrow",
            suffixes=(".arrow", ".arrows", ".feather", ".ipc"),
            native=True,
            media_types=("application/vnd.apache.arrow.file",),
        ),
        Format(
            name="jsonl",
            reader="jsonl",
            suffixes=(".jsonl", ".ndjson", ".json"),
            lines=True,
            media_types=("application/jsonlines",),
            croissant_fields=("none", "gzip"),
        ),
        Format(
            name="text",
            reader="text",
            suffixes=(".txt",),
            lines=True,
            has_text_document=True,
            media_types=("text/plain",),
        ),
        Format(name="datasets", reader="hub_rows", native=True),
    )
}
"""By name. A file of another suffix is of the format :data:`UNKNOWN`, and not read."""
UNKNOWN = "unknown"


def has_columns(name: str) -> bool:
    """Tell whether records of a format have fields with names; plain text has none."""
    return name in FORMATS and not FORMATS[name].has_text_document


def is_native(name: str) -> bool:
    """Tell whether hostile bytes of a format can crash what reads it."""
    return name in FORMATS and FORMATS[name].native
