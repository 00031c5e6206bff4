"""What tables are declared with: a spec, fields with their meaning, and the columns that name a place."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

STRING = pa.string()
COUNT = pa.int64()
RATIO = pa.float64()


def field(name: str, kind: pa.DataType, meaning: str, *, null: bool = False) -> pa.Field:
    """Return a column with its meaning."""
    return pa.field(name, kind, nullable=null, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """Name, schema and key of one table."""

    name: str
    """Name in the manifest; the file is ``<name>.parquet``."""
    schema: pa.Schema
    """Columns in their order; every field's metadata says what it means."""
    key: tuple[str, ...]
    """Columns (dotted into structs) that identify a row and sort the table."""
    about: str
    """One line for the format page."""


SHARD = field("shard", pa.int32(), "row of shards")
ROW = field("row", COUNT, "record of the shard, in reading order, bad records counted")
SPAN = [field("start", COUNT, "first byte"), field("end", COUNT, "byte after the last")]
