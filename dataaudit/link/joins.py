"""Joins of keyed rows: what is joined, what joins one partition of the key space, and what comes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol, overload

import numpy as np
import pyarrow as pa

ROWS_PER_PARTITION = 2_000_000
LINK_FILES = pa.schema([("path", pa.binary()), ("shard", pa.int32()), ("split", pa.int32()), ("first_row", pa.int64())])
"""A row for every part of every shard: the path of its keyed rows as the file system's bytes, its shard and split, and
the number of its first record. A part that two shards share (equal bytes) has a row for each. Of rows that name their
documents themselves, shard and split are -1; of rows of many parts (:mod:`dataaudit.link.merged`) they are -2."""


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


class PartOwner(Protocol):
    """A shard with parts."""

    @property
    def ordinal(self) -> int:
        """Return its row in the table of shards."""
        ...

    @property
    def split(self) -> str:
        """Return its split."""
        ...

    @property
    def first_rows(self) -> Sequence[int]:
        """Return the number of the first record of each part."""
        ...

    def part_key(self, stage: str, part: int) -> str:
        """Return the key of a stage's rows of a part in the store."""
        ...

    def keys(self, stage: str) -> Iterator[tuple[str, int]]:
        """Yield of each part the key of a stage's rows in the store, and the number of its first record."""
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


class PartFiles(Sequence[KeyedFile]):
    """The keyed rows of one name of all parts of shards, made when they are asked for: a list of a million is long.

    Args:
        kind: The stage that emitted them.
        names: Names of the rows: those of the first for all parts, then of the next.
        shards: Shards that the stage has looked at.
        splits: Number of each split.
    """

    def __init__(self, kind: str, names: Sequence[str], shards: Sequence[PartOwner], splits: Mapping[str, int]) -> None:
        self._kind, self._names, self._shards, self._splits = kind, tuple(names), shards, splits
        self._ends = np.cumsum([len(shard.first_rows) for shard in shards], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._names) * self._parts

    @overload
    def __getitem__(self, place: int) -> KeyedFile: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[KeyedFile]: ...
    def __getitem__(self, place: int | slice) -> KeyedFile | Sequence[KeyedFile]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        name, part = divmod(range(len(self))[place], self._parts)
        shard = int(np.searchsorted(self._ends, part, side="right"))
        owner = self._shards[shard]
        index = part - int(self._ends[shard]) + len(owner.first_rows)
        return self._file(name, owner, owner.part_key(self._kind, index), owner.first_rows[index])

    def __iter__(self) -> Iterator[KeyedFile]:
        for name in range(len(self._names)):
            for owner in self._shards:
                for key, first_row in owner.keys(self._kind):
                    yield self._file(name, owner, key, first_row)

    @property
    def _parts(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def _file(self, name: int, owner: PartOwner, key: str, first_row: int) -> KeyedFile:
        return KeyedFile(
            kind=self._kind,
            key=key,
            name=self._names[name],
            shard=owner.ordinal,
            split=self._splits[owner.split],
            first_row=first_row,
        )


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
    def of(cls, files: Sequence[KeyedFile]) -> Numbered:
        """Number the parts of files, in whatever order these are."""
        digests = bytearray()
        for file in files:
            digests += hashlib.blake2b(f"{file.key}.{file.name}".encode(), digest_size=16).digest()
        order = np.lexsort((_column(files, _FIRST_ROW), _column(files, _SHARD)))
        words = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)[order]
        ranked = np.lexsort((words[:, 1], words[:, 0]))  # stable: of equal ones the first comes first
        words = words[ranked]
        new = np.append(True, (words[1:] != words[:-1]).any(axis=1))[: len(ranked)]
        firsts = ranked[new]
        parts = np.empty(len(files), dtype=np.int64)
        parts[ranked] = np.cumsum(new) - 1
        ranks = np.empty(len(firsts), dtype=np.int64)
        ranks[np.argsort(firsts)] = np.arange(len(firsts))
        numbers = np.empty(len(files), dtype=np.int64)
        numbers[order] = ranks[parts]
        return cls(numbers, order[np.sort(firsts)], np.bincount(numbers, minlength=len(firsts)))

    def columns(self, files: Sequence[KeyedFile], chosen: Sequence[int]) -> list[np.ndarray]:
        """Return of some files the columns of :data:`dataaudit.link.merged.PARTS`."""
        numbers = self.numbers[list(chosen)]
        times = np.where(self.firsts[numbers] == np.asarray(chosen), self.times[numbers], 0)
        some = [files[place] for place in chosen]
        return [numbers, times, *(_column(some, value) for value in (_SHARD, _SPLIT, _FIRST_ROW))]


def _column(files: Sequence[KeyedFile], value: Callable[[KeyedFile], int]) -> np.ndarray:
    return np.fromiter(map(value, files), dtype=np.int64, count=len(files))


_SHARD, _SPLIT, _FIRST_ROW = map(attrgetter, ("shard", "split", "first_row"))


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
