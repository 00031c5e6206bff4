"""Inference for builds without a config: splits from names, text and source from the first shard.

Every case is listed in ``docs/inference.md``, and what was inferred is printed. Nothing is guessed twice: what
is ambiguous is an error that names the choices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import orjson
import pyarrow as pa

from dataaudit.config import SourceRule, Split
from dataaudit.corpus.loss import ShardUnreadable
from dataaudit.corpus.readers.jsonl import open_stream
from dataaudit.corpus.readers.parquet import open_file
from dataaudit.corpus.shards import Compression, Format, Shard, expand
from dataaudit.errors import ConfigError

TEXT_NAMES = ("text", "content", "raw_content", "document", "body")
SOURCE_NAME = "source"
_SPLIT_WORDS = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test",
    "heldout": "heldout", "holdout": "heldout",
}  # fmt: skip
_PEEK_BYTES = 16 << 20
_FOLDER = r"(?:^|/)(?P<source>[^/]+)/[^/]+$"


def infer_splits(paths: Sequence[str], cwd: Path) -> dict[str, Split]:
    """Sort files into splits by the last word of their path that names one; without any, ``train``.

    Raises:
        ConfigError: A path matches nothing.
    """
    found: dict[str, list[str]] = {}
    for given in paths:
        files, _ = expand(given, cwd, where="paths")
        for path in files:
            found.setdefault(_split_of(os.path.relpath(path, cwd)), []).append(path)
    return {
        name: Split(paths=tuple(files), held_out=name != "train") for name, files in sorted(found.items())
    }


def _split_of(path: str) -> str:
    words = re.split(r"[^A-Za-z]+", path.lower())
    return next((_SPLIT_WORDS[word] for word in reversed(words) if word in _SPLIT_WORDS), "train")


def peek_columns(path: str, format_: Format, compression: Compression) -> dict[str, bool]:
    """Return the top-level columns of a shard, and whether each holds strings.

    Raises:
        ShardUnreadable: The shard cannot be read.
        LookupError: It holds no record.
    """
    if format_ == "parquet":
        with open_file(path) as file:
            schema = file.schema_arrow
        return {
            field.name: pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
            for field in schema
        }
    with open_stream(path, compression) as stream:
        for _ in range(1000):
            try:
                line = stream.readline(_PEEK_BYTES)
            except (EOFError, OSError):
                break
            if not line:
                break
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(record, dict):
                return {name: isinstance(value, str) for name, value in record.items()}
    raise LookupError(path)


def infer_text(split: str, columns: dict[str, bool]) -> str:
    """Return the column that holds the text.

    Raises:
        ConfigError: None, or more than one, could.
    """
    for name in TEXT_NAMES:
        if columns.get(name):
            return name
    strings = [name for name, is_string in columns.items() if is_string]
    if len(strings) == 1:
        return strings[0]
    raise ConfigError(
        f"splits.{split}.text: cannot tell which column is the text: {', '.join(sorted(columns)) or 'no columns'}",
        f"Name it in a config (splits.{split}.text) or with --text COLUMN.",
    )


def infer_source(shards: Sequence[Shard], columns: dict[str, bool]) -> SourceRule:
    """Return the rule for sources: a column ``source``, else the shard's folder when there are several."""
    if columns.get(SOURCE_NAME):
        return SourceRule(column=SOURCE_NAME)
    if len({os.path.dirname(shard.uri) for shard in shards}) > 1 and all("/" in s.uri for s in shards):  # noqa: PTH120
        return SourceRule(pattern=_FOLDER)
    return SourceRule(constant="all")


def peek(shard: Shard) -> dict[str, bool] | None:
    """Return the columns of a shard, or None when it cannot be read or is empty."""
    try:
        return peek_columns(shard.path, shard.format, shard.compression)
    except (ShardUnreadable, LookupError, FileNotFoundError, PermissionError):
        return None
