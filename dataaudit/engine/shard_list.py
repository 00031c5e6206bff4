"""The shards of a build on disk, in order: their names alone would be hundreds of bytes each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit.corpus.loss import Reason
from dataaudit.corpus.shards import Shard
from dataaudit.corpus.storage.address import Access, RemotePath, RemoteStat
from dataaudit.corpus.storage.hub import RowsPath
from dataaudit.engine.spool import Codes, RowWriter, TextWriter, Values, first_of_equal, packed
from dataaudit.on_demand import OnDemand

_LIGHT = np.dtype([("split", "<u4"), ("size", "<i8"), ("read", "?"), ("file", "<u8", (2,))])
"""Number of its split, stored bytes, whether it is to be read, and the beginning of the digest of its path."""


class ShardList(OnDemand[Shard]):
    """Shards in order.

    Args:
        shards: Their places are their ordinals.
        folder: Where they are written, below the state folder.

    Raises:
        StateFolderError: The folder cannot be written.
    """

    def __init__(self, shards: Iterable[Shard], folder: Path) -> None:
        self._access, self._rows, self._splits = Codes[Access](), Codes[RowsPath](), Codes[str]()
        self._secret = Codes[str]()  # addresses with secrets stay in memory: nothing of these goes to disk
        texts, light = TextWriter(folder), RowWriter(folder, _LIGHT)
        for shard in shards:
            texts.append(packed(self._plain(shard)))
            file = hashlib.blake2b(os.fsencode(shard.path), digest_size=16).digest()
            split = self._splits.of(shard.split)
            light.append((split, shard.size, shard.skip is None, (int.from_bytes(file[:8]), int.from_bytes(file[8:]))))
        self._shards = Values(texts.done(), self._made)
        self.light = light.done()
        """Of each, of a structured dtype, ``size`` int64 and ``read`` bool: nothing says that it is not to be read."""

    def __len__(self) -> int:
        return len(self._shards)

    def item(self, place: int) -> Shard:
        """Make one."""
        return self._shards[place]

    def of_split(self, split: str) -> Iterator[Shard]:
        """Yield the shards of a split that are to be read."""
        wanted = self.light["read"] & (self.light["split"] == self._splits.of(split))
        return map(self._shards.__getitem__, np.flatnonzero(wanted).tolist())

    def of_splits(self, splits: Iterable[str]) -> list[Shard]:
        """Return all shards of some splits."""
        wanted = np.isin(self.light["split"], list(map(self._splits.of, splits)))
        return [self._shards[ordinal] for ordinal in np.flatnonzero(wanted).tolist()]

    def files(self) -> np.ndarray:
        """Return int64[n]: of each shard, the first one of the same file, before all others one that is to be read."""
        return first_of_equal(self.light["file"], ~self.light["read"])

    def paths(self) -> Mapping[int, str]:
        """Return where each shard is, by ordinal."""
        return _Paths(self)

    def _plain(self, shard: Shard) -> tuple[Any, ...]:
        path: Any = shard.path
        if isinstance(shard.path, RowsPath):
            path = self._rows.of(shard.path)
        elif isinstance(shard.path, RemotePath):
            stat = shard.path.seen
            seen = None if stat is None else (stat.size, stat.validator, str(stat.mtime_ns))
            public, full = str(shard.path), shard.path.full
            path = (public, None if full == public else self._secret.of(full), self._access.of(shard.path.access), seen)
        skip = None if shard.skip is None else str(shard.skip)
        return (shard.ordinal, shard.split, shard.uri, path, shard.format, shard.compression, skip, shard.size)

    def _made(self, plain: tuple[Any, ...]) -> Shard:
        ordinal, split, uri, path, format_, compression, skip, size = plain
        if isinstance(path, int):
            path = self._rows.values[path]
        elif isinstance(path, tuple):
            public, secret, access, seen = path
            full = public if secret is None else self._secret.values[secret]
            stat = None if seen is None else RemoteStat(size=seen[0], validator=seen[1], mtime_ns=int(seen[2]))
            path = RemotePath(public, full, self._access.values[access], stat)
        return Shard(
            ordinal=ordinal,
            split=split,
            uri=uri,
            path=path,
            format=format_,
            compression=compression,
            skip=None if skip is None else Reason(skip),
            size=size,
        )


class _Paths(Mapping[int, str]):
    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def __getitem__(self, ordinal: int) -> str:
        if not 0 <= ordinal < len(self._shards):
            raise KeyError(ordinal)
        return self._shards[ordinal].path

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._shards)))

    def __len__(self) -> int:
        return len(self._shards)
