"""Content-keyed store of partials: what was computed once is found again, and nothing stale can be.

A key is the digest of everything that decides a result (see :mod:`dataaudit.engine.keys`), so a file is
either absent or right. Files appear by rename; each begins with the sha256 of its content, and one that
does not match is treated as absent. Several builds may share a store.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

_MAGIC = b"dataaudit partial 1\n"
_DIGEST_BYTES = 32
_ALIGN = 64


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
        return self.root / "partials" / kind / key[:2] / key

    def side_path(self, kind: str, key: str) -> Path:
        """Return where an entry's keyed rows lie."""
        return self.path(kind, f"{key}.rows")

    def has(self, kind: str, key: str) -> bool:
        """Tell whether an entry is there; its content is checked when it is read."""
        return self.path(kind, key).is_file()

    def write(self, kind: str, key: str, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Write an entry; it appears whole or not at all."""
        body = _pack(meta, tables)
        head = _MAGIC.ljust(_ALIGN - _DIGEST_BYTES, b"\0") + hashlib.sha256(body).digest()
        write_atomic(self.path(kind, key), head + body)

    def read(self, kind: str, key: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged."""
        try:
            with pa.OSFile(str(self.path(kind, key)), "rb") as source:
                data = source.read_buffer()  # aligned memory, as Arrow's kernels want it
        except FileNotFoundError:
            return None
        view = memoryview(data)
        magic, digest = bytes(view[: len(_MAGIC)]), bytes(view[_ALIGN - _DIGEST_BYTES : _ALIGN])
        if magic != _MAGIC or hashlib.sha256(view[_ALIGN:]).digest() != digest:
            return None
        return _unpack(data.slice(_ALIGN))


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file beside its place and rename it there; safe against kills and other writers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
