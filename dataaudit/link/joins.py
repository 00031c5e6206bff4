"""Joins of keyed rows: what is joined, what joins one partition of the key space, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

ROWS_PER_PARTITION = 2_000_000
LINK_FILES = pa.schema([("path", pa.binary()), ("shard", pa.int32()), ("split", pa.int32()), ("first_row", pa.int64())])
"""A row for every part of every shard: the path of its keyed rows as the file system's bytes, its shard and split, and
the number of its first record. A part that two shards share (equal bytes) has a row for each. Of rows that name their
documents themselves, shard and split are -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The result for one partition."""

    tables: Mapping[str, pa.Table]
    """Small tables for the driver."""
    keyed: Mapping[str, pa.Table] = field(default_factory=dict)
    """Large ones for a further join, by name; the first column is a fixed-size binary key."""


class JoinFunction(Protocol):
    """Joins all rows whose key's first byte is in [start, stop); picklable.

    Raises ``DamagedFileError`` with all files that are absent or damaged.
    """

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Join the rows of some files, of schema :data:`LINK_FILES`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedFile:
    """Keyed rows in the store: of a part of a shard, or of an earlier join."""

    kind: str
    key: str
    name: str
    shard: int = -1
    split: int = -1
    first_row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """What is joined, and how."""

    kind: str
    """Kind of its entries in the store."""
    function: JoinFunction
    """Runs on the workers."""
    identity: object
    """Plain JSON: version and parameters of the function."""
    files: Sequence[KeyedFile]
    """What is joined."""
    rows: int
    """About how many rows there are; decides the number of partitions."""
    emits: Mapping[str, pa.Schema] = field(default_factory=dict)
    """Schemas of the keyed rows that it makes for a further join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedParts:
    """The results of all partitions, in order of their keys."""

    keys: tuple[str, ...]
    """Keys in the store."""
    tables: tuple[Mapping[str, pa.Table], ...]
    """Small tables of each partition."""
    kind: str

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return a table of all partitions, one after the other."""
        return pa.concat_tables([schema.empty_table(), *(tables[name] for tables in self.tables)])

    def files(self, name: str) -> list[KeyedFile]:
        """Return the keyed rows of a name for a further join."""
        return [KeyedFile(kind=self.kind, key=key, name=name) for key in self.keys]
