"""Reads the keyed rows of a partition with the places of their documents, in several passes where it is large."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.base.files import DamagedFileError
from dataaudit.manifest.locate import places_of
from dataaudit.scan.corpus.segments import changes
from dataaudit.scan.link.keyed import MERGED, NUM_BYTES, each_table, key_matrix, stored_bytes

Choose = Callable[[pa.Table], pa.Table]
MOST_BYTES = 1 << 28
"""Stored rows that are joined at once: sorting takes some six times as much memory."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Keyed rows of a partition, of all shards, with shard, record and split of their document."""

    table: pa.Table
    """The rows as they were emitted."""
    shards: np.ndarray
    """int32[n]"""
    rows: np.ndarray
    """int64[n]"""
    splits: np.ndarray
    """int32[n]"""

    @property
    def places(self) -> np.ndarray:
        """int64[n] place of their document in the manifest."""
        return places_of(self.shards, self.rows)


@dataclass(frozen=True, slots=True)
class Pass:
    """Pass ``number``, from 0, of several over a large partition: some rows, by the second byte of their keys."""

    number: int = 0
    of: int = 1

    def rows(self, table: pa.Table) -> pa.Table:
        """Return the rows of this pass."""
        if self.of == 1:
            return table
        second = np.concatenate([np.zeros(0, np.uint8), *(key_matrix(chunk)[:, 1] for chunk in table.column(0).chunks)])
        return table.filter(pa.array(second.astype(np.int64) * self.of >> 8 == self.number))


def passes(files: pa.Table, start: int, stop: int, most_bytes: int = MOST_BYTES, most: int = NUM_BYTES) -> list[Pass]:
    """Cut a partition into passes whose rows stay below a size, if keys are evenly spread."""
    total, damaged = 0, set[str]()
    for path in files["path"].to_pylist():
        try:
            total += stored_bytes(Path(os.fsdecode(path)), start, stop)
        except DamagedFileError as error:
            damaged.update(error.paths)
    if damaged:
        raise DamagedFileError(*sorted(damaged))
    number = min(most, 1 << max(0, -(-total // most_bytes) - 1).bit_length())
    return [Pass(index, number) for index in range(number)]


def read_placed(files: pa.Table, schema: pa.Schema, start: int, stop: int, chosen: Choose = Pass().rows) -> Placed:
    """Read the keyed rows whose key's first byte is in [start, stop)."""
    tables = list(each_table(files["path"].to_pylist(), start, stop, chosen))
    sizes = [table.num_rows for table in tables]
    shards, splits, first_rows = (np.repeat(files[name].to_numpy(), sizes) for name in ("shard", "split", "first_row"))
    bounds = np.cumsum([0, *sizes]).tolist()
    for index in np.flatnonzero(files["shard"].to_numpy() == MERGED).tolist():
        own = slice(bounds[index], bounds[index + 1])
        for values, name in ((shards, "part_shard"), (splits, "part_split"), (first_rows, "part_first_row")):
            values[own] = tables[index][name].to_numpy()
    merged = pa.concat_tables([schema.empty_table(), *(table.select(schema.names) for table in tables)])
    rows = first_rows + merged[schema.names[1]].to_numpy()
    return Placed(merged, shards.astype(np.int32), rows, splits.astype(np.int32))


def named(files: pa.Table, name: str) -> pa.Table:
    """Return the files of a name, of a join of several kinds of rows."""
    suffix = b"." + name.encode()
    return files.filter(pa.array([path.endswith(suffix) for path in files["path"].to_pylist()], pa.bool_()))


def read_all(files: pa.Table, schema: pa.Schema, start: int, stop: int, chosen: Choose = Pass().rows) -> pa.Table:
    """Read keyed rows that name their documents; see :func:`read_placed`."""
    paths = files["path"].to_pylist()
    return pa.concat_tables([schema.empty_table(), *each_table(paths, start, stop, chosen)])


def keys_of(table: pa.Table) -> np.ndarray:
    """Return uint64[n] of a table's first column, 8-byte keys, in the order of the bytes."""
    chunks = [key_matrix(chunk) for chunk in table.column(0).chunks]
    matrix = np.concatenate([np.zeros((0, 8), dtype=np.uint8), *chunks])
    return np.ascontiguousarray(matrix).view(">u8").reshape(-1).astype(np.uint64)


def key_array(keys: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return uint64[n] as an Arrow array of 8-byte keys."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(keys), [None, pa.py_buffer(keys.astype(">u8"))])


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct values, ascending; much faster than ``np.unique``, which hashes them."""
    ordered = np.sort(values)
    return np.asarray(ordered[changes(ordered)])


def spread(places: np.ndarray) -> np.ndarray:
    """Return uint64[n] hashes of places, which spread evenly over partitions."""
    value = places.astype(np.uint64)
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(value ^ (value >> np.uint64(32)))
