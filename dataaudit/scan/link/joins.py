"""Joins of keyed rows: what is joined, what joins one partition, of the keys or of the shards, and what comes of it."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import orjson
import pyarrow as pa

from dataaudit.base.lazy import OnDemand

ROWS_PER_PARTITION = 2_000_000
LINK_FILES = pa.schema([("path", pa.binary()), ("shard", pa.int32()), ("split", pa.int32()), ("first_row", pa.int64())])
"""A row for every part of every shard: the path of its keyed rows as the file system's bytes, its shard and split, and
the number of its first record. A part that two shards share (equal bytes) has a row for each. Of rows that name their
documents themselves, shard and split are -1; of rows of many parts (:mod:`dataaudit.scan.link.keyed`) they are -2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The result for one partition."""

    tables: Mapping[str, pa.Table]
    """Small tables for the driver."""
    keyed: Mapping[str, pa.Table] = field(default_factory=dict)
    """Large ones for a further join, by name; the first column is a fixed-size binary key."""
    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    """Large ones for the driver, by name, which reads those of one partition at a time from the store."""


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyedFiles(OnDemand[KeyedFile]):
    """``n`` keyed files as columns, each made an object when it is asked for: a list of a million is long."""

    names: tuple[tuple[str, str], ...]
    """Kind and name of those that there are."""
    of_name: np.ndarray
    """int32[n] number of kind and name."""
    keys: np.ndarray
    """uint8[n, 32]"""
    shards: np.ndarray
    """int64[n]"""
    splits: np.ndarray
    """int64[n]"""
    first_rows: np.ndarray
    """int64[n]"""

    @classmethod
    def of(cls, files: Iterable[KeyedFile]) -> KeyedFiles:
        """Return files as columns."""
        if isinstance(files, cls):
            return files
        names: dict[tuple[str, str], int] = {}
        keys, rows = bytearray(), array("q")
        for file in files:
            keys += bytes.fromhex(file.key)
            name = names.setdefault((file.kind, file.name), len(names))
            rows.extend((name, file.shard, file.split, file.first_row))
        return cls._of_rows(tuple(names), keys, np.frombuffer(rows, dtype=np.int64).reshape(-1, 4))

    @classmethod
    def of_parts(cls, kind: str, names: Sequence[str], parts: Iterable[tuple[str, int, int, int]]) -> KeyedFiles:
        """Return the keyed rows of some names of parts: those of the first for all parts, then of the next."""
        keys, rows = bytearray(), array("q")
        for key, *numbers in parts:
            keys += bytes.fromhex(key)
            rows.extend((0, *numbers))
        values = np.frombuffer(rows, dtype=np.int64).reshape(-1, 4)
        every = np.tile(values, (len(names), 1))
        every[:, 0] = np.repeat(np.arange(len(names)), len(values))
        return cls._of_rows(tuple((kind, name) for name in names), keys * len(names), every)

    @classmethod
    def _of_rows(cls, names: tuple[tuple[str, str], ...], keys: bytearray, rows: np.ndarray) -> KeyedFiles:
        of_name, shards, splits, first_rows = rows.T
        return cls(
            names=names,
            of_name=of_name.astype(np.int32),
            keys=np.frombuffer(keys, dtype=np.uint8).reshape(-1, 32),
            shards=shards.copy(),
            splits=splits.copy(),
            first_rows=first_rows.copy(),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def item(self, place: int) -> KeyedFile:
        """Make one."""
        kind, name = self.names[self.of_name[place]]
        return KeyedFile(
            kind=kind,
            key=self.keys[place].tobytes().hex(),
            name=name,
            shard=int(self.shards[place]),
            split=int(self.splits[place]),
            first_row=int(self.first_rows[place]),
        )

    def between(self, start: int, stop: int) -> KeyedFiles:
        """Return those from one place to another."""
        return KeyedFiles(
            names=self.names,
            of_name=self.of_name[start:stop],
            keys=self.keys[start:stop],
            shards=self.shards[start:stop],
            splits=self.splits[start:stop],
            first_rows=self.first_rows[start:stop],
        )

    def digest(self) -> str:
        """Return the digest of what the list of files means, hex."""
        state = hashlib.sha256(orjson.dumps(self.names))
        for column in (self.of_name, self.keys, self.shards, self.splits, self.first_rows):
            state.update(np.ascontiguousarray(column).data)
        return state.hexdigest()


@dataclass(frozen=True, slots=True)
class Numbered:
    """The parts of ``n`` keyed files: equal content is one part, listed several times."""

    numbers: np.ndarray
    """int64[n] number of each file's part: its place in the order of where each of ``k`` parts is listed first."""
    firsts: np.ndarray
    """int64[k] the file where each part is listed first."""
    times: np.ndarray
    """int64[k] how often it is listed."""

    @classmethod
    def of(cls, files: KeyedFiles) -> Numbered:
        """Number the parts of files, in whatever order these are."""
        order = np.lexsort((files.first_rows, files.shards))
        words = files.keys[order, :16].copy().view("<u8").reshape(-1, 2)
        columns = (words[:, 1], words[:, 0], files.of_name[order])
        by_content = np.lexsort(columns)  # stable, so the first of each part comes first
        new = np.ones(len(order), dtype=bool)
        new[1:] = np.any([column[by_content][1:] != column[by_content][:-1] for column in columns], axis=0)
        firsts = by_content[new]
        ranks = np.empty(len(firsts), dtype=np.int64)
        ranks[np.argsort(firsts)] = np.arange(len(firsts))
        numbers = np.empty(len(order), dtype=np.int64)
        numbers[order[by_content]] = ranks[np.cumsum(new) - 1]
        return cls(numbers, order[np.sort(firsts)], np.bincount(numbers, minlength=len(firsts)))

    def columns(self, files: KeyedFiles, chosen: Sequence[int]) -> list[np.ndarray]:
        """Return of some files the columns of :data:`dataaudit.scan.link.keyed.PARTS`."""
        places = np.asarray(chosen)
        numbers = self.numbers[places]
        times = np.where(self.firsts[numbers] == places, self.times[numbers], 0)
        return [numbers, times, files.shards[places], files.splits[places], files.first_rows[places]]


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
    by_shard: bool = False
    """Whether a partition is all rows of some shards, whose files follow each other, and not some keys of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedParts:
    """The results of all partitions, in order: of keys, or of shards."""

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
