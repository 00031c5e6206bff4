"""The map of a token file: which document of which shard each of its tokens is from.

``FILE.map.parquet`` has a row for each document, in the file's order. What manifest, tokenizer and type of tokens it is
of stands in the metadata of its schema, so that a file and a manifest that do not belong together are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.atomic import replacing
from dataaudit.errors import ConfigError

MAP_SUFFIX = ".map.parquet"
VERSION = "1"
"""Of the form of a map. Maps without one are of this form, too."""
SCHEMA = pa.schema(
    [
        pa.field("start", pa.int64(), nullable=False),
        pa.field("stop", pa.int64(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
    ]
)
"""First token of a document in the file, the one after its last; ordinal of its shard in the manifest; record of the
shard, bad ones counted; place of its source among the manifest's, -1 for any other."""
_SAID = {"manifest", "dtype", "tokens"}


def map_path(path: Path) -> Path:
    """Return where the map of a file lies."""
    return path.with_name(path.name + MAP_SUFFIX)


def write_map(path: Path, tables: Iterable[pa.Table], said: Mapping[str, str]) -> None:
    """Write the map of a token file; it is there whole or not at all.

    Args:
        path: The token file.
        tables: Its documents in order, of :data:`SCHEMA`, in pieces; equal pieces give equal bytes.
        said: Of the file: ``manifest`` (its id), ``dtype``, ``tokens``, and what else is to be known.

    Raises:
        OSError: It cannot be written.
    """
    schema = SCHEMA.with_metadata({**said, "version": VERSION})
    with replacing(map_path(path)) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata))


def said_of(path: Path) -> dict[str, str]:
    """Return what the map of a token file says of it.

    Raises:
        ConfigError: There is none, or it is no map or of a newer version.
    """
    where = map_path(path)
    try:
        schema = pq.read_schema(where)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{where} cannot be read: {reason}", "`dataaudit tokenize` and `write_tokens` write it beside the file."
        ) from None
    said = {name.decode(): value.decode() for name, value in (schema.metadata or {}).items()}
    if said.get("version", VERSION) != VERSION or _SAID - set(said) or not schema.remove_metadata().equals(SCHEMA):
        raise ConfigError(
            f"{where} is no map of a token file, or one of a newer version",
            "`dataaudit tokenize` and `write_tokens` write one.",
        )
    return said


def read_map(path: Path) -> tuple[pa.Table, dict[str, str]]:
    """Return the map of a token file, and what it says of the file.

    Raises:
        ConfigError: As of :func:`said_of`, or it is damaged.
    """
    said = said_of(path)
    try:
        return pq.read_table(map_path(path)), said
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{map_path(path)} cannot be read: {reason}", "Write the file anew.") from None
