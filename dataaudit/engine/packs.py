"""Packs: files of the state folder that each hold the entries of many parts, with an index at the end.

A scan leaves what it made of a part in one pack, which appears whole or not at all; the small packs of a task are then
joined. So a million parts are some thousand files. Entries keep their own digests, which know nothing of packs: they
are copied from pack to pack as they are. A pack is named by the digest of its index.

The form: a magic number; the entries, each at a multiple of 64 bytes; the index, records of :data:`_RECORD` in order of
their keys; the names of kinds and suffixes, JSON; 64 bytes that say where the index begins, how long the names are,
and the sha256 of both.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from dataaudit.atomic import DamagedFileError, write_whole
from dataaudit.link.stored import Stored

PACKS = "packs"
"""Kind of the entries that are packs, and the folder of these."""
SMALL_BYTES = 4 << 20
"""Packs below this are joined."""
_JOINED_BYTES = 64 << 20
_ALIGN = 64
_MAGIC = b"dataaudit pack 1\n".ljust(_ALIGN, b"\0")
_RECORD = np.dtype([("key", "u1", (32,)), ("kind", "<u2"), ("suffix", "<u2"), ("offset", "<u8"), ("size", "<u8")])
_TAIL_BYTES = _ALIGN
_DIGEST_BYTES = 32


class Item(NamedTuple):
    """An entry, or rows beside one, to be packed."""

    kind: str
    key: str
    """Hex of 32 bytes."""
    suffix: str
    """Name of the rows; empty for the entry itself."""
    pieces: Sequence[bytes]
    """What is stored, with its own digest."""

    @property
    def name(self) -> str:
        """What its digest knows it by."""
        return stored_name(self.kind, self.key, self.suffix)

    @classmethod
    def at(cls, stored: Stored) -> Item:
        """Return what is stored somewhere, as it is.

        Raises:
            OSError: It cannot be read.
        """
        kind, _, rest = stored.name.partition("/")
        key, _, suffix = rest.partition(".")
        return cls(kind, key, suffix, [stored.read().to_pybytes()])


def stored_name(kind: str, key: str, suffix: str = "") -> str:
    """Return what digests know an entry, or rows beside it, by."""
    return f"{kind}/{key}.{suffix}" if suffix else f"{kind}/{key}"


def write_pack(folder: Path, items: Iterable[Item]) -> Path:
    """Write a pack; the same entries give the same file.

    Args:
        folder: The folder of packs.
        items: What it holds; of several of one name the last.

    Raises:
        OSError: It cannot be written.
    """
    ordered = [item for _, item in sorted({item.name: item for item in items}.items())]
    kinds, suffixes = (sorted(set(values)) for values in zip(*((one.kind, one.suffix) for one in ordered), strict=True))
    records = np.zeros(len(ordered), dtype=_RECORD)
    pieces: list[bytes] = [_MAGIC]
    position = len(_MAGIC)
    for record, item in zip(records, ordered, strict=True):
        size = sum(len(piece) for piece in item.pieces)
        record["key"] = np.frombuffer(bytes.fromhex(item.key), dtype=np.uint8)
        record["kind"], record["suffix"] = kinds.index(item.kind), suffixes.index(item.suffix)
        record["offset"], record["size"] = position, size
        pieces += [*item.pieces, bytes(-size % _ALIGN)]
        position += size + -size % _ALIGN
    index = records[np.lexsort((records["suffix"], records["kind"], *records["key"].T[::-1]))].tobytes()
    names = orjson.dumps([kinds, suffixes])
    sizes = position.to_bytes(8, "little") + len(names).to_bytes(8, "little") + bytes(16)
    digest = hashlib.sha256(sizes + index + names).digest()
    path = folder / digest.hex()[:2] / digest.hex()
    write_whole(path, *pieces, index, names, sizes + digest)
    return path


def join_packs(folder: Path, paths: Iterable[Path]) -> None:
    """Join small packs, as far as they are there and whole.

    Raises:
        OSError: They cannot be read or written; no entry is lost.
    """
    for group in _groups(paths):
        whole = {}
        for path in group:
            with contextlib.suppress(FileNotFoundError, DamagedFileError):  # another build may have joined it
                whole[path] = list(map(Item.at, read_pack(path)))
        if len(whole) > 1:
            joined = write_pack(folder, (item for items in whole.values() for item in items))
            for path in whole.keys() - {joined}:
                path.unlink(missing_ok=True)


def _groups(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield small packs, some together."""
    group: list[Path] = []
    held = 0
    for path in paths:
        size = path.stat().st_size if path.exists() else SMALL_BYTES
        if size < SMALL_BYTES:
            group.append(path)
            held += size
        if held >= _JOINED_BYTES:
            yield group
            group, held = [], 0
    yield group


def read_pack(path: Path) -> list[Stored]:
    """Return where the entries of a pack lie, by its index.

    Raises:
        DamagedFileError: The index is damaged.
        OSError: The pack cannot be read.
    """
    index = _Index.read(path)
    return list(map(index.stored, range(len(index.records))))


@dataclass(slots=True)
class _Index:
    """The index of a pack."""

    path: Path
    identity: tuple[int, int, int]
    """What the file system says of the file: another one may have taken its name."""
    kinds: list[str]
    suffixes: list[str]
    records: np.ndarray
    """Of :data:`_RECORD`, by key."""
    dropped: set[int] = field(default_factory=set)
    """Records that are not to be read any more."""
    text: str = field(init=False)
    """The path."""
    keys: np.ndarray = field(init=False)
    """Column of the records, as are those that follow: a record as a whole takes long to look at."""
    kind_of: np.ndarray = field(init=False)
    suffix_of: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.text = str(self.path)
        self.keys, self.kind_of, self.suffix_of = (self.records[name] for name in ("key", "kind", "suffix"))

    @classmethod
    def read(cls, path: Path) -> _Index:
        """Read the index of a pack.

        Raises:
            DamagedFileError: It is damaged.
            OSError: The pack cannot be read.
        """
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            file.seek(max(0, stat.st_size - _TAIL_BYTES))
            tail = file.read()
            start, length = (int.from_bytes(tail[place : place + 8], "little") for place in (0, 8))
            file.seek(min(start, stat.st_size))
            body = file.read()[:-_TAIL_BYTES]
        if len(body) < length or hashlib.sha256(tail[:-_DIGEST_BYTES] + body).digest() != tail[-_DIGEST_BYTES:]:
            raise DamagedFileError(str(path))
        kinds, suffixes = orjson.loads(body[len(body) - length :])
        records = np.frombuffer(body[: len(body) - length], dtype=_RECORD)
        return cls(path=path, identity=_identity(stat), kinds=kinds, suffixes=suffixes, records=records)

    def stored(self, row: int) -> Stored:
        """Return where the entry of a record lies."""
        kind, suffix = self.kinds[self.kind_of[row]], self.suffixes[self.suffix_of[row]]
        name = stored_name(kind, self.keys[row].tobytes().hex(), suffix)
        return Stored(self.text, name, int(self.records["offset"][row]), int(self.records["size"][row]))


def _identity(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class Packs:
    """All packs of a state folder, as one process knows them.

    Args:
        folder: The folder of packs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, _Index] = {}
        self._indexes: list[_Index] = []
        self._heads = np.zeros(0, dtype=np.uint64)
        self._places = np.zeros((0, 2), dtype=np.uint32)
        self._kinds: frozenset[str] = frozenset()
        self._looked = False

    def refresh(self) -> None:
        """See which packs there are now.

        Raises:
            DamagedFileError: The indexes of some are damaged; what these hold cannot be found.
        """
        self._looked = True
        damaged, found = [], {}
        for path in _files(self.folder):
            with contextlib.suppress(FileNotFoundError):  # joined by another build
                known = self._known.get(str(path))
                if known is None or known.identity != _identity(path.stat()):
                    try:
                        known = _Index.read(path)
                    except DamagedFileError:
                        damaged.append(str(path))
                        continue
                found[str(path)] = known
        self._known, self._indexes = found, list(found.values())
        self._kinds = frozenset(kind for one in self._indexes for kind in one.kinds)
        numbers = np.repeat(np.arange(len(self._indexes)), [len(one.records) for one in self._indexes])
        rows = [np.arange(len(one.records)) for one in self._indexes]
        heads = [one.records["key"][:, :8].copy().view(">u8").reshape(-1) for one in self._indexes]
        every = np.concatenate([np.zeros(0, np.uint64), *heads]).astype(np.uint64)
        order = np.argsort(every, kind="stable")
        self._heads = every[order]
        self._places = np.stack([numbers, np.concatenate([np.zeros(0, np.int64), *rows])], axis=1)[order].astype("u4")
        if damaged:
            raise DamagedFileError(*damaged)

    def holds(self, kind: str) -> bool:
        """Tell whether any pack that was seen has entries of a kind."""
        return kind in self._kinds

    def find(self, kind: str, key: str, suffix: str = "") -> Stored | None:
        """Return where an entry, or rows beside it, lies; None when no pack holds it."""
        return next((index.stored(row) for index, row in self._found(kind, key) if self._has(index, row, suffix)), None)

    def drop(self, kind: str, key: str) -> None:
        """Forget an entry with its rows: it is damaged, and made anew by the next scan."""
        for index, row in self._found(kind, key):
            index.dropped.add(row)

    def holder(self, kind: str, key: str) -> Path | None:
        """Return the pack that holds an entry, also one that was dropped."""
        return next((index.path for index, _ in self._found(kind, key, dropped=True)), None)

    @staticmethod
    def _has(index: _Index, row: int, suffix: str) -> bool:
        return bool(index.suffixes[index.suffix_of[row]] == suffix)

    def _found(self, kind: str, key: str, *, dropped: bool = False) -> Iterator[tuple[_Index, int]]:
        if not self._looked:
            self.refresh()
        try:
            whole = bytes.fromhex(key)
        except ValueError:
            return
        head = np.uint64(int.from_bytes(whole[:8], "big"))
        place = int(np.searchsorted(self._heads, head))
        while place < len(self._heads) and self._heads[place] == head:
            number, row = self._places[place].tolist()
            index = self._indexes[number]
            same = index.keys[row].tobytes() == whole and index.kinds[index.kind_of[row]] == kind
            if same and (dropped or row not in index.dropped):
                yield index, row
            place += 1


def _files(folder: Path) -> list[Path]:
    """Return the packs of a folder, sorted."""
    found = [Path(above) / name for above, _, names in os.walk(folder) for name in names if not name.endswith(".tmp")]
    return sorted(found)
