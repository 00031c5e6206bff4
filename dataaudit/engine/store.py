"""Store of results by content: a key is the digest of everything that decides one, so it is either absent or right.

Each entry begins with the seal of its name and content (:mod:`dataaudit.base.sealing`); one that does not match counts
as absent. All files appear by rename. Several builds may share a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from dataaudit.base.errors import limit_hint
from dataaudit.base.files import DamagedFileError, write_whole
from dataaudit.base.sealing import seal
from dataaudit.engine.state_folder import StateFolderError, writing
from dataaudit.engine.store_packs import PACKS, Item, Packs, read_pack, stored_name, write_pack
from dataaudit.scan.link.keyed import Stored, is_keyed, is_sound, keyed_pieces
from dataaudit.scan.link.step import DamagedEntryError

STORE_VERSION = 5
"""Changes whenever the form of what lies under a key changes; part of every key."""
_DIGEST_BYTES = 32
_ALIGN = 64
IPC_OPTIONS = pa.ipc.IpcWriteOptions()
"""Arrow's present format, whatever the environment asks for: digests are of these bytes."""
_OTHERS = (".arrow", ".tmp")
"""Files that are written anew by every build that reads them, and those that are being written."""
_MAGIC = b"dataaudit partial 2\n".ljust(_ALIGN - _DIGEST_BYTES, b"\0")


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored result: a small JSON value and some tables."""

    meta: dict[str, Any]
    """Plain JSON values."""
    tables: dict[str, pa.Table]
    """Tables by name."""


@dataclass(frozen=True, slots=True)
class PartialStore:
    """A folder of entries, two levels deep: ``<kind>/<first two digits>/<key>``; those of scans in packs."""

    root: Path
    """The state folder."""
    packs: Packs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "packs", Packs(self.root / "partials" / PACKS))

    def path(self, kind: str, key: str) -> Path:
        """Return where an entry with a file of its own lies."""
        return self.root / f"partials/{kind}/{key[:2]}/{key}"

    def side_path(self, kind: str, key: str, name: str = "rows") -> Path:
        """Return where rows of a name lie, beside an entry with a file of its own."""
        return self.path(kind, f"{key}.{name}")

    def address(self, kind: str, key: str, name: str = "") -> str:
        """Return the address of an entry, or of its rows of a name: in a pack, or in a file of its own."""
        return str(self._find(kind, key, name) or self.path(kind, f"{key}.{name}" if name else key))

    def places(self, kind: str, keys: Sequence[str], name: str = "") -> list[Stored]:
        """Return where many entries, or their rows of a name, lie: each what :meth:`address` says as text."""
        return [
            found or Stored.at(self.address(kind, key, name))
            for key, found in zip(keys, self.packs.find_all(kind, keys, name), strict=True)
        ]

    def _find(self, kind: str, key: str, name: str = "") -> Stored | None:
        if self.packs.holds(kind) and (found := self.packs.find(kind, key, name)):
            return found
        path = self.path(kind, f"{key}.{name}" if name else key)
        return Stored.at(path) if path.is_file() else self.packs.find(kind, key, name)

    def has(self, kind: str, key: str) -> bool:
        """Tell whether an entry is there; its content is checked when it is read."""
        return self._find(kind, key) is not None

    def have(self, kind: str, keys: Sequence[str]) -> list[bool]:
        """Tell of many entries whether they are there; their content is checked when it is read."""
        found = self.packs.find_all(kind, keys)
        filed = (self.root / "partials" / kind).is_dir()
        return [item is not None or (filed and self.has(kind, key)) for key, item in zip(keys, found, strict=True)]

    def write(self, kind: str, key: str, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Write an entry; it appears whole or not at all."""
        self._write(self.path(kind, key), _pack(meta, tables))

    def read(self, kind: str, key: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged."""
        stored = self._find(kind, key)
        return None if stored is None else entry_at(str(stored))

    def write_rows(self, kind: str, key: str, data: bytes, name: str = "rows") -> None:
        """Write an entry's rows of a name, as bytes; they appear whole or not at all."""
        self._write(self.side_path(kind, key, name), data)

    def read_rows(self, kind: str, key: str, name: str = "rows") -> pa.Buffer | None:
        """Return an entry's rows of a name, or None when they are absent or damaged."""
        stored = self._find(kind, key, name)
        return None if stored is None else _read(stored)

    def write_items(self, items: Iterable[Item]) -> Path:
        """Write what a scan made of a part, as a pack; all of it appears or nothing."""
        with self.writing():
            return write_pack(self.packs.folder, items)

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry and its rows, so that they are computed again."""
        self.packs.drop(kind, key)
        with self.writing():
            path = self.path(kind, key)
            path.unlink(missing_ok=True)
            for side in path.parent.glob(f"{key}.*"):
                side.unlink(missing_ok=True)

    def remove_at(self, address: str) -> str:
        """Remove the entry that an address belongs to; return its ``kind/key``."""
        name = entry_of(address)
        self.remove(*name.split("/"))
        return name

    def file_of(self, kind: str, key: str) -> str:
        """Return the path below the state folder of the file that holds an entry, or held it."""
        return str((self.packs.holder(kind, key) or self.path(kind, key)).relative_to(self.root))

    def remove_damaged(self) -> list[str]:
        """Read every file and remove the entries that are not as they were written.

        For a build that met one: whatever harmed it may have harmed others, and each would cost a round of its own.
        """
        damaged = []
        for above, _, names in os.walk(self.root / "partials"):
            damaged += [path for name in names if not self._is_sound(path := Path(above) / name)]
        for path in damaged:
            if path.parent.parent == self.packs.folder:
                self._mend(path)
            else:
                self.remove_at(str(path))
        return sorted(str(path.relative_to(self.root)) for path in damaged)

    def _is_sound(self, path: Path) -> bool:
        if path.suffix in _OTHERS:
            return True
        try:
            if path.parent.parent == self.packs.folder:
                return all(map(_is_whole, read_pack(path)))
            return _is_whole(Stored.at(path)) or not path.exists()
        except DamagedFileError:
            return False
        except OSError:
            return True  # whoever needs it meets the error and says it

    def _mend(self, path: Path) -> None:
        """Put what is whole of a damaged pack into another one; an entry is whole with all its rows."""
        with self.writing(), suppress(FileNotFoundError):
            with suppress(DamagedFileError):
                every = read_pack(path)
                damaged = {entry_of(str(stored)) for stored in every if not _is_whole(stored)}
                if items := [Item.at(stored) for stored in every if entry_of(str(stored)) not in damaged]:
                    write_pack(self.packs.folder, items)
            path.unlink()

    def writing(self) -> AbstractContextManager[None]:
        """Turn what the file system refuses into an error that names the folder."""
        return writing(self.root)

    def _write(self, path: Path, body: bytes) -> None:
        with self.writing():
            write_whole(path, *_sealed(Stored.at(path).name, body))


def entry_item(kind: str, key: str, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Item:
    """Return an entry, to be written with others."""
    return Item(kind, key, "", _sealed(stored_name(kind, key), _pack(meta, tables)))


def rows_item(kind: str, key: str, data: bytes, name: str = "rows") -> Item:
    """Return an entry's rows of a name, as bytes, to be written with it."""
    return Item(kind, key, name, _sealed(stored_name(kind, key, name), data))


def keyed_item(kind: str, key: str, name: str, tables: Sequence[pa.Table], schema: pa.Schema) -> Item:
    """Return an entry's keyed rows of a name, to be written with it."""
    return Item(kind, key, name, keyed_pieces(stored_name(kind, key, name), tables, schema))


def entry_of(address: str) -> str:
    """Return ``kind/key`` of the entry that an address belongs to."""
    return Stored.at(address).name.partition(".")[0]


def entry_at(address: str) -> Entry | None:
    """Return the entry at an address, or None when it is absent or damaged."""
    body = read_at(address)
    return None if body is None else _unpack(body)


def read_at(address: str) -> pa.Buffer | None:
    """Return the content of an entry, or of rows in one piece; None when they are absent or damaged."""
    return _read(Stored.at(address))


def _read(stored: Stored) -> pa.Buffer | None:
    try:
        data = stored.read()
    except FileNotFoundError:
        return None
    view = memoryview(data)
    magic, digest = bytes(view[: len(_MAGIC)]), bytes(view[len(_MAGIC) : _ALIGN])
    if magic != _MAGIC or _digest(stored.name, view[_ALIGN:]) != digest:
        return None
    return data.slice(_ALIGN)


def _is_whole(stored: Stored) -> bool:
    return is_sound(stored) if is_keyed(stored) else _read(stored) is not None


def _sealed(name: str, body: bytes) -> list[bytes]:
    return [_MAGIC, _digest(name, body), body]


def _digest(name: str, body: bytes | memoryview) -> bytes:
    """Return the digest of a body in its place: an entry under another name is not that entry."""
    state = seal(f"{name}\n".encode())
    state.update(body)
    return state.digest()


def _pack(meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> bytes:
    packed = {}
    for name, table in tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=IPC_OPTIONS) as writer:
            writer.write_table(table)
        packed[name] = _padded(sink.getvalue().to_pybytes())
    sizes = [[name, len(body)] for name, body in packed.items()]
    header = orjson.dumps({"meta": dict(meta), "tables": sizes})
    return _padded(len(header).to_bytes(8, "little") + header) + b"".join(packed.values())


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGN)


def _unpack(body: pa.Buffer) -> Entry:
    view = memoryview(body)
    length = int.from_bytes(bytes(view[:8]), "little")
    header = orjson.loads(view[8 : 8 + length])
    position = 8 + length + -(8 + length) % _ALIGN
    tables = {}
    for name, size in header["tables"]:
        tables[name] = pa.ipc.open_stream(body.slice(position, size)).read_all()
        position += size
    return Entry(meta=header["meta"], tables=tables)


@contextmanager
def _reading(path: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"{path()} cannot be read: {error.strerror or type(error).__name__}",
            limit_hint(error) or "Check the disk, or remove the file: what it holds is computed again.",
        ) from None


@dataclass(slots=True)
class Damage:
    """Reads entries; those that are absent or damaged are removed and told of together."""

    store: PartialStore
    """Where the entries are."""
    names: list[str] = field(default_factory=list)
    """``kind/key`` of what was removed."""

    def read(self, kind: str, key: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged."""
        with _reading(lambda: self.store.root / self.store.file_of(kind, key)):
            entry = self.store.read(kind, key)
        if entry is None:
            self.remove(kind, key)
        return entry

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry with its rows."""
        self.store.remove(kind, key)
        self.names.append(f"{kind}/{key}")

    def tell(self) -> None:
        """Raise when something was removed."""
        if self.names:
            raise DamagedEntryError(self.names)


@dataclass(slots=True)
class Missing:
    """Reads entries on a worker; notes those that are absent or damaged."""

    names: set[str] = field(default_factory=set)
    """``kind/key`` of each."""

    def read(self, address: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged."""
        with _reading(lambda: Stored.at(address).path):
            entry = entry_at(address)
        if entry is None:
            self.names.add(entry_of(address))
        return entry
