"""Segment files of the store: each holds the entries of many parts, with an index at the end.

A scan leaves what it made of a part in one pack, which appears whole or not at all; the small packs of a task are then
joined. So a million parts are some thousand files. Entries keep their own digests, which know nothing of packs: they
are copied from pack to pack as they are. A pack is named by the digest of its index.

The form: a magic number; the entries, each at a multiple of 64 bytes; the index, records of :data:`_RECORD` in order of
their keys; the names of kinds and suffixes, JSON; 64 bytes that say where the index begins, how long the names are,
and the seal of both.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from dataaudit.base.files import DamagedFileError, write_whole
from dataaudit.base.sealing import seal
from dataaudit.engine.store_columns import SortedRows
from dataaudit.scan.link.keyed import Stored

PACKS = "packs"
"""Kind of the entries that are packs, and the folder of these."""
SMALL_BYTES = 4 << 20
"""Packs below this are joined."""
_JOINED_BYTES = 64 << 20
_ALIGN = 64
_PACK_MAGIC = b"dataaudit pack 1\n".ljust(_ALIGN, b"\0")
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
        """Return what is stored somewhere, as it is."""
        kind, _, rest = stored.name.partition("/")
        key, _, suffix = rest.partition(".")
        return cls(kind, key, suffix, [stored.read().to_pybytes()])


def stored_name(kind: str, key: str, suffix: str = "") -> str:
    """Return what digests know an entry, or rows beside it, by."""
    return f"{kind}/{key}.{suffix}" if suffix else f"{kind}/{key}"


def write_pack(folder: Path, items: Iterable[Item]) -> Path:
    """Write a pack; the same entries give the same file."""
    ordered = [item for _, item in sorted({item.name: item for item in items}.items())]
    kinds, suffixes = (
        sorted(set(values)) for values in zip(*((entry.kind, entry.suffix) for entry in ordered), strict=True)
    )
    numbers = [{name: at for at, name in enumerate(names)} for names in (kinds, suffixes)]
    pieces: list[bytes] = [_PACK_MAGIC]
    position, offsets, lengths = len(_PACK_MAGIC), [], []
    for item in ordered:
        size = sum(map(len, item.pieces))
        pieces += [*item.pieces, bytes(-size % _ALIGN)]
        offsets.append(position)
        lengths.append(size)
        position += size + -size % _ALIGN
    records = np.zeros(len(ordered), dtype=_RECORD)
    keys = np.frombuffer(bytes.fromhex("".join(item.key for item in ordered)), dtype=np.uint8)
    records["key"] = keys.reshape(len(ordered), -1)
    records["kind"] = [numbers[0][item.kind] for item in ordered]
    records["suffix"] = [numbers[1][item.suffix] for item in ordered]
    records["offset"], records["size"] = offsets, lengths
    index = records[np.lexsort((records["suffix"], records["kind"], *records["key"].T[::-1]))].tobytes()
    names = orjson.dumps([kinds, suffixes])
    sizes = position.to_bytes(8, "little") + len(names).to_bytes(8, "little") + bytes(16)
    digest = seal(sizes + index + names).digest()
    path = folder / digest.hex()[:2] / digest.hex()
    write_whole(path, *pieces, index, names, sizes + digest)
    return path


def join_packs(folder: Path, paths: Iterable[Path]) -> None:
    """Join small packs, as far as they are there and whole."""
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
    """Return where the entries of a pack lie, by its index."""
    return list(_Index.read(path).every())


@dataclass(frozen=True, slots=True)
class _Index:
    """The index of a pack, as it is stored."""

    path: Path
    identity: tuple[int, int, int]
    """What the file system says of the file: another one may have taken its name."""
    kinds: list[str]
    suffixes: list[str]
    records: np.ndarray
    """Of :data:`_RECORD`, by key."""

    @classmethod
    def read(cls, path: Path) -> _Index:
        """Read the index of a pack."""
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            file.seek(max(0, stat.st_size - _TAIL_BYTES))
            tail = file.read()
            start, length = (int.from_bytes(tail[place : place + 8], "little") for place in (0, 8))
            file.seek(min(start, stat.st_size))
            body = file.read()[:-_TAIL_BYTES]
        if len(body) < length or seal(tail[:-_DIGEST_BYTES] + body).digest() != tail[-_DIGEST_BYTES:]:
            raise DamagedFileError(str(path))
        kinds, suffixes = orjson.loads(body[len(body) - length :])
        records = np.frombuffer(body[: len(body) - length], dtype=_RECORD)
        return cls(path=path, identity=_identity(stat), kinds=kinds, suffixes=suffixes, records=records)

    def every(self) -> Iterator[Stored]:
        """Yield where each entry lies."""
        path, names = str(self.path), ("key", "kind", "suffix", "offset", "size")
        keys, *columns = (self.records[name] for name in names)
        for key, kind, suffix, offset, size in zip(keys, *(column.tolist() for column in columns), strict=True):
            name = stored_name(self.kinds[kind], key.tobytes().hex(), self.suffixes[suffix])
            yield Stored(path, name, offset, size)


def _identity(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


_ENTRY = np.dtype(
    [
        ("head", "u8"),
        ("more", "u8"),
        ("size", "u8"),
        ("offset", "u4"),
        ("pack", "u4"),
        ("kind", "u2"),
        ("suffix", "u2"),
    ],
    align=True,
)
"""What is kept of an entry, 40 bytes: of its key the first 16, which no two of one kind will share."""


class Packs:
    """All packs of a state folder, as one process knows them; of very many entries the index lies on disk.

    Args:
        folder: The folder of packs, ``partials/packs`` of a state folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: list[str | None] = []
        """Of each pack that was seen; None when it is gone, or another file."""
        self._known: dict[str, tuple[int, tuple[int, int, int]]] = {}
        """Number and identity of those that are there."""
        self._names: dict[str, int] = {}
        self._entries = SortedRows(folder.parent.parent, _ENTRY)
        self._dropped: set[tuple[int, int]] = set()
        """Pack and offset of entries."""
        self._looked = False

    def refresh(self) -> None:
        """See which packs there are now; those that are known are not read again."""
        self._looked = True
        kept: dict[str, tuple[int, tuple[int, int, int]]] = {}
        others = []
        for path in _files(self.folder):
            with contextlib.suppress(FileNotFoundError):  # joined by another build
                known = self._known.get(path)
                if known is not None and known[1] == _identity(os.stat(path)):
                    kept[path] = known
                else:
                    others.append(path)
        for path, known in self._known.items():
            if path not in kept:
                self._paths[known[0]] = None
        self._known = kept
        fresh: dict[str, tuple[int, tuple[int, int, int]]] = {}
        damaged: list[str] = []
        self._entries.add(self._read(others, fresh, damaged), self._are_there)
        self._known |= fresh
        if damaged:
            raise DamagedFileError(*damaged)

    def _read(
        self, paths: Iterable[str], fresh: dict[str, tuple[int, tuple[int, int, int]]], damaged: list[str]
    ) -> Iterator[np.ndarray]:
        """Yield the entries of packs, each a pack's; note these, and those that are damaged."""
        for path in paths:
            try:
                index = _Index.read(Path(path))
            except FileNotFoundError:  # joined by another build
                continue
            except DamagedFileError:
                damaged.append(path)
                continue
            fresh[path] = len(self._paths), index.identity
            self._paths.append(path)
            yield self._compact(index, fresh[path][0])

    def _compact(self, index: _Index, pack: int) -> np.ndarray:
        records = index.records
        words = np.ascontiguousarray(records["key"][:, :16]).view(">u8")
        numbers = [
            np.array([self._names.setdefault(name, len(self._names)) for name in names], dtype=np.uint16)
            for names in (index.kinds, index.suffixes)
        ]
        entries = np.zeros(len(records), dtype=_ENTRY)
        entries["head"], entries["more"], entries["pack"] = words[:, 0], words[:, 1], pack
        entries["kind"], entries["suffix"] = numbers[0][records["kind"]], numbers[1][records["suffix"]]
        entries["offset"], entries["size"] = records["offset"] // _ALIGN, records["size"]
        return entries

    def _are_there(self, entries: np.ndarray) -> np.ndarray:
        there = np.fromiter((path is not None for path in self._paths), dtype=bool, count=len(self._paths))
        return there.take(entries["pack"])

    def holds(self, kind: str) -> bool:
        """Tell whether any pack that was seen has entries of a kind."""
        return kind in self._names

    def find(self, kind: str, key: str, suffix: str = "") -> Stored | None:
        """Return where an entry, or rows beside it, lies; None when no pack holds it."""
        for found in self._found(kind, key):
            if found.suffix == self._names.get(suffix):
                return Stored(found.path, stored_name(kind, key, suffix), found.place[1] * _ALIGN, found.size)
        return None

    def find_all(self, kind: str, keys: Sequence[str], suffix: str = "") -> list[Stored | None]:
        """Return what :meth:`find` returns for each of many keys of 64 digits, at a fraction of its cost."""
        if not self._looked:
            self.refresh()
        found: list[Stored | None] = [None] * len(keys)
        if kind not in self._names or suffix not in self._names:
            return found
        words = np.frombuffer(bytes.fromhex("".join(keys)), dtype=">u8").reshape(-1, 4)
        heads, more = words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)
        wanted = self._names[kind], self._names[suffix]
        for which, entries in self._entries.at_all(heads):
            same = (entries["more"] == more[which]) & (entries["kind"] == wanted[0]) & (entries["suffix"] == wanted[1])
            columns = (which[same], *(entries[name][same] for name in ("pack", "offset", "size")))
            for place, pack, offset, size in zip(*(column.tolist() for column in columns), strict=True):
                path = self._paths[pack]
                if found[place] is None and path is not None and (pack, offset) not in self._dropped:
                    found[place] = Stored(path, stored_name(kind, keys[place], suffix), offset * _ALIGN, size)
        return found

    def drop(self, kind: str, key: str) -> None:
        """Forget an entry with its rows: it is damaged, and made anew by the next scan."""
        self._dropped.update(found.place for found in self._found(kind, key))

    def holder(self, kind: str, key: str) -> Path | None:
        """Return the pack that holds an entry, also one that was dropped."""
        return next((Path(found.path) for found in self._found(kind, key, dropped=True)), None)

    def _found(self, kind: str, key: str, *, dropped: bool = False) -> Iterator[_Found]:
        if not self._looked:
            self.refresh()
        try:
            whole = bytes.fromhex(key)
        except ValueError:
            return
        head, more = (int.from_bytes(whole[place : place + 8], "big") for place in (0, 8))
        wanted = self._names.get(kind)
        for _, own, size, offset, pack, number, suffix in self._entries.at(head):
            path = self._paths[pack]
            same = own == more and number == wanted and path is not None
            if same and (dropped or (pack, offset) not in self._dropped):
                yield _Found(path, (pack, offset), size, suffix)


class _Found(NamedTuple):
    """An entry that was found."""

    path: str
    place: tuple[int, int]
    """Number of its pack, and offset there."""
    size: int
    suffix: int


def _files(folder: Path) -> list[str]:
    """Return the packs of a folder, sorted."""
    found = [os.path.join(above, name) for above, _, names in os.walk(folder) for name in names]
    return sorted(path for path in found if not path.endswith(".tmp"))
