"""Content-keyed store of partials: what was computed once is found again, and nothing stale can be.

A key is the digest of everything that decides a result (see :mod:`dataaudit.engine.keys`), so a file is
either absent or right. Files appear by rename; each begins with the sha256 of its name and content, and one
that does not match is treated as absent. Several builds may share a store.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from dataaudit.atomic import write_whole
from dataaudit.errors import ClusterError
from dataaudit.link.keyed import is_keyed, is_sound

STORE_VERSION = 4
"""Changes whenever the form of what lies under a key changes; part of every key."""
_DIGEST_BYTES = 32
_ALIGN = 64
_OTHERS = (".arrow", ".tmp")
"""Files that are written anew by every build that reads them, and those that are being written."""
_MAGIC = b"dataaudit partial 2\n".ljust(_ALIGN - _DIGEST_BYTES, b"\0")


class StateFolderError(ClusterError):
    """The state folder cannot be written; never the fault of a shard."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored result: a small JSON value and some tables."""

    meta: dict[str, Any]
    """Plain JSON values."""
    tables: dict[str, pa.Table]
    """Tables by name."""


@dataclass(frozen=True, slots=True)
class PartialStore:
    """A folder of entries, two levels deep: ``<kind>/<first two digits>/<key>``."""

    root: Path
    """The state folder."""

    def path(self, kind: str, key: str) -> Path:
        """Return where an entry lies."""
        return self.root / f"partials/{kind}/{key[:2]}/{key}"

    def side_path(self, kind: str, key: str, name: str = "rows") -> Path:
        """Return where an entry's rows of a name lie."""
        return self.path(kind, f"{key}.{name}")

    def has(self, kind: str, key: str) -> bool:
        """Tell whether an entry is there; its content is checked when it is read."""
        return self.path(kind, key).is_file()

    def write(self, kind: str, key: str, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Write an entry; it appears whole or not at all.

        Raises:
            StateFolderError: The folder cannot be written.
        """
        self._write(self.path(kind, key), _pack(meta, tables))

    def read(self, kind: str, key: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged."""
        body = self._read(self.path(kind, key))
        return None if body is None else _unpack(body)

    def write_rows(self, kind: str, key: str, data: bytes, name: str = "rows") -> None:
        """Write an entry's rows of a name, as bytes; they appear whole or not at all.

        Raises:
            StateFolderError: The folder cannot be written.
        """
        self._write(self.side_path(kind, key, name), data)

    def read_rows(self, kind: str, key: str, name: str = "rows") -> pa.Buffer | None:
        """Return what :meth:`write_rows` wrote, or None when it is absent or damaged."""
        return self._read(self.side_path(kind, key, name))

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry and its rows, so that they are computed again."""
        with self.writing():
            path = self.path(kind, key)
            path.unlink(missing_ok=True)
            for side in path.parent.glob(f"{key}.*"):
                side.unlink(missing_ok=True)

    def remove_of(self, path: str) -> str:
        """Remove the entry that a file belongs to; return its ``kind/key``."""
        name = entry_of(path)
        self.remove(*name.split("/"))
        return name

    def remove_damaged(self) -> list[str]:
        """Read every file and remove the entries of those that are not as they were written.

        For a build that met one: whatever harmed it may have harmed others, and each would cost a round of its own.

        Returns:
            Paths below the state folder of the damaged files, sorted.

        Raises:
            StateFolderError: One cannot be removed.
        """
        damaged = []
        for above, _, names in os.walk(self.root / "partials"):
            damaged += [path for name in names if not self._is_sound(path := Path(above) / name)]
        for path in damaged:
            self.remove_of(str(path))
        return sorted(str(path.relative_to(self.root)) for path in damaged)

    def _is_sound(self, path: Path) -> bool:
        if path.suffix in _OTHERS:
            return True
        try:
            return is_sound(path) if is_keyed(path) else self._read(path) is not None or not path.exists()
        except OSError:
            return True  # whoever needs it meets the error and says it

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn what the file system refuses into an error that names the folder.

        Raises:
            StateFolderError: Something inside raised an ``OSError``.
        """
        try:
            yield
        except OSError as error:
            raise StateFolderError(
                f"the state folder {self.root} cannot be written: {error.strerror or type(error).__name__}",
                "Free space there or name another folder (--state DIR, in Python state=DIR), then run the same command "
                "again: what was finished is kept.",
            ) from None

    def _write(self, path: Path, body: bytes) -> None:
        with self.writing():
            write_whole(path, _MAGIC, _digest(path, body), body)

    def _read(self, path: Path) -> pa.Buffer | None:
        try:
            with pa.OSFile(os.fsencode(path), "rb") as source:
                data = source.read_buffer()  # aligned memory, as Arrow's kernels want it
        except FileNotFoundError:
            return None
        view = memoryview(data)
        magic, digest = bytes(view[: len(_MAGIC)]), bytes(view[len(_MAGIC) : _ALIGN])
        if magic != _MAGIC or _digest(path, view[_ALIGN:]) != digest:
            return None
        return data.slice(_ALIGN)


def entry_of(path: str) -> str:
    """Return ``kind/key`` of the entry that a file of a store belongs to."""
    return f"{Path(path).parent.parent.name}/{Path(path).name.partition('.')[0]}"


def _digest(path: Path, body: bytes | memoryview) -> bytes:
    """Return the digest of a body in its place: an entry under another name is not that entry."""
    state = hashlib.sha256(f"{path.parent.parent.name}/{path.name}\n".encode())
    state.update(body)
    return state.digest()


def _pack(meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> bytes:
    packed = {}
    for name, table in tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
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
