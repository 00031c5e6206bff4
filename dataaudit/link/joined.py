"""What joins one partition of keyed rows, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

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

    Raises ``DamagedRowsError`` with all files that are absent or damaged.
    """

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Join the rows of some files, of schema :data:`LINK_FILES`."""
        ...
