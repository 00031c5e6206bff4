"""Joins of keyed rows: their files, the function that joins a partition (of keys or of shards), and the results."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import orjson
import pyarrow as pa

from dataaudit.base.lazy import LazySequence
from dataaudit.scan.corpus.segments import changes

ROWS_PER_PARTITION = 2_000_000
LINK_FILES = pa.schema([("path", pa.binary()), ("shard", pa.int32()), ("split", pa.int32()), ("first_row", pa.int64())])
"""A row for every part of every shard: the path of its keyed rows as the file system's bytes, its shard and split, and
the number of its first record. A part that two shards share (equal bytes) has a row for each. Shard and split are -1
where the keyed rows name their documents, -2 where they are of many parts (:mod:`dataaudit.scan.cross_shard.keyed`)."""


_COLUMNS = ("of_name", "keys", "shards", "splits", "first_rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The results of a partition."""

    tables: Mapping[str, pa.Table]
    """Small tables for the driver."""
    keyed: Mapping[str, pa.Table] = field(default_factory=dict)
    """Large tables for a further join, by name; the first column is a fixed-size binary key."""
    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    """Large tables for the driver, by name, which reads them from the store, a partition at a time."""


class JoinFunction(Protocol):
    """Joins all rows whose key's first byte is in [start, stop); picklable."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Join the rows of ``files``, :data:`LINK_FILES`; ``DamagedFileError`` names all that cannot be read."""


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
class KeyedFiles(LazySequence[KeyedFile]):
    """``n`` keyed files as columns, each an object only on demand: there may be a million."""

    names: tuple[tuple[str, str], ...]
    """Distinct kinds and names."""
    of_name: np.ndarray
    """int32[n] number of kind and name."""
    keys: np.ndarray
    """uint8[n, 32]"""
    shards: np.ndarray
    """int64[n], like ``splits`` and ``first_rows``."""
    splits: np.ndarray
    first_rows: np.ndarray

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
        """Return the keyed rows of parts: of the first name for all parts, then of the next."""
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
            shards=shards,
            splits=splits,
            first_rows=first_rows,
        )

    def __len__(self) -> int:
        return len(self.keys)

    def item(self, place: int) -> KeyedFile:
        """Return a file."""
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
        """Return the files of a range."""
        return replace(self, **{name: getattr(self, name)[start:stop] for name in _COLUMNS})

    def digest(self) -> str:
        """Return the digest of the list of files, hex."""
        state = hashlib.sha256(orjson.dumps(self.names))
        for name in _COLUMNS:
            state.update(np.ascontiguousarray(getattr(self, name)).data)
        return state.hexdigest()


@dataclass(frozen=True, slots=True)
class Numbered:
    """The ``k`` parts of ``n`` keyed files: files of equal content are the same part, listed several times."""

    numbers: np.ndarray
    """int64[n] number of each file's part, in the order of first listings."""
    firsts: np.ndarray
    """int64[k] the file where each part is listed first."""
    times: np.ndarray
    """int64[k] listings of each part."""

    @classmethod
    def of(cls, files: KeyedFiles) -> Numbered:
        """Number the parts of files, in any order."""
        order = np.lexsort((files.first_rows, files.shards))
        words = files.keys[order, :16].copy().view("<u8").reshape(-1, 2)
        columns = (words[:, 1], words[:, 0], files.of_name[order])
        by_content = np.lexsort(columns)  # stable, so the first of each part comes first
        new = changes(*(column[by_content] for column in columns))
        firsts = by_content[new]
        ranks = np.empty(len(firsts), dtype=np.int64)
        ranks[np.argsort(firsts)] = np.arange(len(firsts))
        numbers = np.empty(len(order), dtype=np.int64)
        numbers[order[by_content]] = ranks[np.cumsum(new) - 1]
        return cls(numbers, order[np.sort(firsts)], np.bincount(numbers, minlength=len(firsts)))

    def columns(self, files: KeyedFiles, chosen: Sequence[int]) -> list[np.ndarray]:
        """Return the columns of :data:`dataaudit.scan.cross_shard.keyed.PARTS` for some files."""
        places = np.asarray(chosen)
        numbers = self.numbers[places]
        times = np.where(self.firsts[numbers] == places, self.times[numbers], 0)
        return [numbers, times, files.shards[places], files.splits[places], files.first_rows[places]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A join that the workers run."""

    kind: str
    """Kind of its entries in the store."""
    function: JoinFunction
    identity: object
    """Plain JSON: version and parameters of the function."""
    files: Sequence[KeyedFile]
    rows: int
    """About how many rows there are; decides the number of partitions."""
    emits: Mapping[str, pa.Schema] = field(default_factory=dict)
    """Schemas of its keyed rows for a further join."""
    by_shard: bool = False
    """Whether a partition is all rows of some shards, whose files are consecutive, and not some keys of all shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedParts:
    """The results of all partitions, in order: store keys, and small tables."""

    keys: tuple[str, ...]
    tables: tuple[Mapping[str, pa.Table], ...]
    kind: str

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return the concatenated tables of a name."""
        return pa.concat_tables([schema.empty_table(), *(tables[name] for tables in self.tables)])

    def files(self, name: str) -> list[KeyedFile]:
        """Return the keyed rows of a name for a further join."""
        return [KeyedFile(kind=self.kind, key=key, name=name) for key in self.keys]
