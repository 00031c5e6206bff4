"""Store of results by content: a key is the digest of everything that decides one, so it is either absent or right.

An entry that does not match its seal counts as absent. What scans made of parts lies in packs
(:mod:`dataaudit.engine.store_entries`), all else in files of its own. All files appear by rename. Several builds may
share a store.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataaudit.base.errors import limit_hint
from dataaudit.base.files import DamagedFileError, write_whole
from dataaudit.engine.state_folder import StateFolderError, writing
from dataaudit.engine.store_entries import (
    PACKS,
    Entry,
    Item,
    Packs,
    entry_at,
    entry_of,
    is_whole,
    packed_entry,
    read_body,
    read_pack,
    sealed,
    write_pack,
)
from dataaudit.scan.cross_shard.keyed import Stored
from dataaudit.scan.cross_shard.step import DamagedEntryError

STORE_VERSION = 6
"""Changes whenever the form of what lies under a key changes; part of every key."""
_OTHERS = (".arrow", ".tmp")


@dataclass(frozen=True, slots=True)
class PartialStore:
    """A folder of entries, two levels deep: ``<kind>/<first two digits>/<key>``; those of scans in packs."""

    root: Path
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
        matches = self.packs.find_all(kind, keys)
        filed = (self.root / "partials" / kind).is_dir()
        return [item is not None or (filed and self.has(kind, key)) for key, item in zip(keys, matches, strict=True)]

    def write(self, kind: str, key: str, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Write an entry; it appears whole or not at all."""
        self._write(self.path(kind, key), packed_entry(meta, tables))

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
        return None if stored is None else read_body(stored)

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
        """Return the path below the state folder of the file that has an entry, or had it."""
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
                return all(map(is_whole, read_pack(path)))
            return is_whole(Stored.at(path)) or not path.exists()
        except DamagedFileError:
            return False
        except OSError:
            return True  # whoever needs it meets the error and says it

    def _mend(self, path: Path) -> None:
        """Put what is whole of a damaged pack into another one; an entry is whole with all its rows."""
        with self.writing(), contextlib.suppress(FileNotFoundError):
            with contextlib.suppress(DamagedFileError):
                every = read_pack(path)
                damaged = {entry_of(str(stored)) for stored in every if not is_whole(stored)}
                if items := [Item.at(stored) for stored in every if entry_of(str(stored)) not in damaged]:
                    write_pack(self.packs.folder, items)
            path.unlink()

    def writing(self) -> AbstractContextManager[None]:
        """Turn what the file system refuses into an error that names the folder."""
        return writing(self.root)

    def _write(self, path: Path, body: bytes) -> None:
        with self.writing():
            write_whole(path, *sealed(Stored.at(path).name, body))


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
    """Reads entries; those that are absent or damaged are removed and reported together."""

    store: PartialStore
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

    def read(self, address: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged."""
        with _reading(lambda: Stored.at(address).path):
            entry = entry_at(address)
        if entry is None:
            self.names.add(entry_of(address))
        return entry
