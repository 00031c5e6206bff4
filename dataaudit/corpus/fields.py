"""Which field of a record is the text and which the source: resolved once per shard.

A dotted path ``meta.text`` is tried as a column of that exact name first, then as a field inside a nested
record. A source is a string; null or absent is the source :data:`NO_SOURCE`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dataaudit.config import SourceRule
from dataaudit.corpus.hive import partition_columns
from dataaudit.corpus.loss import Reason, ShardUnreadable
from dataaudit.errors import ConfigError

NO_SOURCE = "(none)"
TEXT, MIXED, NOTHING = "text", "text and other values", "null"
"""What a column of a file holds, as far as it was looked at; of others the name of their type."""
_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    """What a reader needs to know of a shard's columns; part of the key of its partials."""

    text: str
    """Column or dotted path of the text."""
    source_column: str | None
    """Column or dotted path of the source, or None when it is the same for the whole shard."""
    source_constant: str
    """The source when there is no column for it."""
    max_record_bytes: int
    """Longest record that is read."""
    text_document: str = ""
    """What is a document in a file of plain text; empty for other formats."""


def field_rule(text: str, source: SourceRule, uri: str, *, max_record_bytes: int, text_document: str = "") -> FieldRule:
    """Resolve a split's rules for one shard; a folder ``lang=de`` of its URI gives the column ``lang``.

    Raises:
        ShardUnreadable: The URI does not match the pattern that should give the source.
    """
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
    """Return the rule that a build read a shard by, from the configuration that its manifest records.

    Args:
        config: ``core.config`` of the manifest.
        split: Of the shard.
        uri: Of the shard.
        format_: Of the shard: how its records are stored.

    Raises:
        ConfigError: The configuration says nothing of the split's columns.
        ShardUnreadable: The URI does not match the pattern that should give the source.
    """
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
    value = record.get(path, _MISSING)
    if value is not _MISSING or "." not in path:
        return None if value is _MISSING else value
    current: Any = record
    for name in path.split("."):
        if not isinstance(current, dict):
            return None
        current = current.get(name)
    return current
