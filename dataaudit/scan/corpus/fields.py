"""Resolves, once per shard, which field of a record is the text and which the source.

A dotted path ``meta.text`` is tried as a column of that exact name first, then as a field inside a nested record. A
source is a string; null or absent is the source :data:`NO_SOURCE`. Folders named ``key=value``, as Hive, Spark, DuckDB
and Arrow write them, are columns too; of a repeated key the innermost folder counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from dataaudit.base.errors import ConfigError
from dataaudit.config import SourceRule
from dataaudit.manifest.locate import decode_path
from dataaudit.scan.corpus.loss import Reason, ShardUnreadable

SOURCE_KEYS = ("source", "dataset", "subset", "domain", "language", "lang")
"""Keys that name sources, in the order in which they are looked for: not dates, numbers and buckets."""
PLAIN_FOLDER = r"(?:^|/)(?P<source>[^/=]+)(?:/[^/=]+=[^/]*)*/[^/]+$"
"""Pattern of sources: the innermost folder that is no ``key=value``."""
_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_columns(uri: str) -> dict[str, str]:
    """Return the columns that the folders of a URI give, percent-encoding undone; null is an empty text."""
    columns = {}
    for folder in decode_path(uri).split("/")[:-1]:
        key, sign, value = folder.encode("utf-8", "surrogateescape").decode("utf-8", "replace").partition("=")
        if key and sign:
            columns[unquote(key)] = "" if value == _NULL else unquote(value)
    return columns


def source_key(folders: Collection[str]) -> str | None:
    """Return the key that names the sources: one that all folders have, with several values unless it is the first."""
    columns = [partition_columns(f"{folder}/") for folder in folders]
    for key in SOURCE_KEYS:
        values = {column.get(key) for column in columns}
        if None not in values and (len(values) > 1 or key == SOURCE_KEYS[0]):
            return key
    return None


def plain_folder(folder: str) -> str | None:
    """Return the innermost folder of a URI of a folder that is no ``key=value``; None when all are."""
    match = re.search(PLAIN_FOLDER, f"{folder}/-")
    return match and match["source"]


NO_SOURCE = "(none)"
TEXT, MIXED, NOTHING = "text", "text and other values", "null"
"""Contents of a column, as far as it was peeked at; other contents are named by their type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    """How a reader reads a shard's columns; part of the key of its partials."""

    text: str
    """Column or dotted path of the text."""
    source_column: str | None
    """Column or dotted path of the source; None where the whole shard has the source ``source_constant``."""
    source_constant: str
    max_record_bytes: int
    text_document: str = ""
    """What is a document in a file of plain text; empty for other formats."""


def field_rule(text: str, source: SourceRule, uri: str, *, max_record_bytes: int, text_document: str = "") -> FieldRule:
    """Resolve a split's rules for one shard; a folder ``lang=de`` of its URI gives the column ``lang``."""
    constant, column = source.constant or NO_SOURCE, source.column
    if column is not None and (value := partition_columns(uri).get(column)) is not None:
        constant, column = value or NO_SOURCE, None
    if source.pattern is not None:
        match = re.search(source.pattern, uri)
        if match is None or not match.group("source"):
            raise ShardUnreadable(Reason.PATTERN_MISMATCH)
        constant = match.group("source")
    return FieldRule(
        text=text,
        source_column=column,
        source_constant=constant,
        max_record_bytes=max_record_bytes,
        text_document=text_document,
    )


def recorded_rule(config: Mapping[str, Any], split: str, uri: str, format_: str) -> FieldRule:
    """Return the rule that a build read a shard by, from the configuration that its manifest records."""
    try:
        columns, reader = config["splits"][split], config["reader"]
        text, source = columns["text"], SourceRule(**columns["source"])
        most, text_document = reader["max_line_bytes"], reader.get("text_document", "file")
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            f"the manifest's config does not say which columns of split {split} were read", "Build it again."
        ) from None
    return field_rule(
        text, source, uri, max_record_bytes=most, text_document=text_document if format_ == "text" else ""
    )


def look_up(record: dict[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None when it is absent."""
    if path in record or "." not in path:
        return record.get(path)
    current: Any = record
    for name in path.split("."):
        if not isinstance(current, dict):
            return None
        current = current.get(name)
    return current
