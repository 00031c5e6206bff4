"""Entries of the store, and packs: files that hold the entries of many parts.

An entry is a small JSON value and some tables, as Arrow streams. It begins with the seal of its name and content
(:mod:`dataaudit.base.sealing`). Rows beside an entry have a seal too.

A scan leaves what it made of a part in one pack, which appears whole or not at all; the small packs of a task are then
joined. So a million parts are some thousand files. A pack holds entries as they are, each at a multiple of 64 bytes,
then an entry that lists them, its index, and 8 bytes that say where that begins. It is named by the seal of its index.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from dataaudit.base.files import DamagedFileError, write_whole
from dataaudit.base.sealing import ALIGN, named_seal, padded
from dataaudit.engine.store_columns import SortedRows
from dataaudit.scan.cross_shard.keyed import Stored, is_keyed, is_sound, keyed_pieces

PACKS = "packs-2"
"""Folder of the packs, and kind of their indexes; named anew with their form, so that earlier ones are left alone."""
SMALL_BYTES = 4 << 20
"""Packs below this are joined."""
_JOINED_BYTES = 64 << 20
_DIGEST_BYTES = 32
_KEY_BYTES = 32
_MAGIC = b"dataaudit partial 2\n".ljust(ALIGN - _DIGEST_BYTES, b"\0")
IPC_OPTIONS = pa.ipc.IpcWriteOptions()
"""Arrow's present format, whatever the environment asks for: digests are of these bytes."""
_NAMES = pa.dictionary(pa.int16(), pa.string())
_INDEX = pa.schema(
    [
        ("key", pa.binary(_KEY_BYTES)),
        ("kind", _NAMES),
        ("suffix", _NAMES),
        ("offset", pa.int64()),
        ("size", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored result: a small JSON value and some tables."""

    meta: dict[str, Any]
    tables: dict[str, pa.Table]


class Item(NamedTuple):
    """An entry, or rows beside one, to be packed."""

    kind: str
    key: str
    """Hex of 32 bytes."""
    suffix: str
    """Name of the rows; empty for the entry itself."""
    pieces: Sequence[bytes]
    """What is stored, with its own seal."""

    @property
    def name(self) -> str:
        """What its seal knows it by."""
        return stored_name(self.kind, self.key, self.suffix)

    @classmethod
    def at(cls, stored: Stored) -> Item:
        """Return what is stored somewhere, as it is."""
        kind, _, rest = stored.name.partition("/")
        key, _, suffix = rest.partition(".")
        return cls(kind, key, suffix, [stored.read().to_pybytes()])


def stored_name(kind: str, key: str, suffix: str = "") -> str:
    """Return what seals know an entry, or rows beside it, by."""
    return f"{kind}/{key}.{suffix}" if suffix else f"{kind}/{key}"


def entry_item(kind: str, key: str, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Item:
    """Return an entry, to be written with others."""
    return Item(kind, key, "", sealed(stored_name(kind, key), packed_entry(meta, tables)))


def rows_item(kind: str, key: str, data: bytes, name: str = "rows") -> Item:
    """Return an entry's rows of a name, as bytes, to be written with it."""
    return Item(kind, key, name, sealed(stored_name(kind, key, name), data))


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
    return read_body(Stored.at(address))


def read_body(stored: Stored) -> pa.Buffer | None:
    """Return what was sealed, or None when it is absent or damaged."""
    try:
        return _body(stored.name, stored.read())
    except FileNotFoundError:
        return None


def is_whole(stored: Stored) -> bool:
    """Tell whether something stored is as it was written."""
    return is_sound(stored) if is_keyed(stored) else read_body(stored) is not None


def sealed(name: str, body: bytes) -> list[bytes]:
    """Return what is stored of a body, in pieces."""
    return [_MAGIC, named_seal(name, body), body]


def _body(name: str, data: pa.Buffer) -> pa.Buffer | None:
    """Return what was sealed under a name, or None when it is damaged."""
    view = memoryview(data)
    if bytes(view[:ALIGN]) != _MAGIC + named_seal(name, view[ALIGN:]):
        return None
    return data.slice(ALIGN)


def packed_entry(meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> bytes:
    """Return an entry as bytes."""
    bodies = [padded(stream_of(table)) for table in tables.values()]
    sizes = [[name, len(body)] for name, body in zip(tables, bodies, strict=True)]
    header = orjson.dumps({"meta": dict(meta), "tables": sizes})
    return b"".join([padded(len(header).to_bytes(8, "little") + header), *bodies])


def stream_of(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=IPC_OPTIONS) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _unpack(body: pa.Buffer) -> Entry:
    view = memoryview(body)
    length = int.from_bytes(view[:8], "little")
    header = orjson.loads(view[8 : 8 + length])
    position = 8 + length + -(8 + length) % ALIGN
    tables = {}
    for name, size in header["tables"]:
        tables[name] = pa.ipc.open_stream(body.slice(position, size)).read_all()
        position += size
    return Entry(meta=header["meta"], tables=tables)


def write_pack(folder: Path, items: Iterable[Item]) -> Path:
    """Write a pack; the same entries give the same file."""
    ordered = [item for _, item in sorted({item.name: item for item in items}.items())]
    pieces, position = [bytes(ALIGN)], ALIGN
    columns: list[list[Any]] = [[] for _ in _INDEX]
    for item in ordered:
        size = sum(map(len, item.pieces))
        row = (bytes.fromhex(item.key), item.kind, item.suffix, position, size)
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        pieces += [*item.pieces, bytes(-size % ALIGN)]
        position += size + -size % ALIGN
    index = sealed(PACKS, packed_entry({}, {"index": pa.table(columns, schema=_INDEX)}))
    name = index[1].hex()
    path = folder / name[:2] / name
    write_whole(path, *pieces, *index, position.to_bytes(8, "little"))
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
    num_bytes = 0
    for path in paths:
        size = path.stat().st_size if path.exists() else SMALL_BYTES
        if size < SMALL_BYTES:
            group.append(path)
            num_bytes += size
        if num_bytes >= _JOINED_BYTES:
            yield group
            group, num_bytes = [], 0
    yield group


def read_pack(path: Path) -> list[Stored]:
    """Return where the entries of a pack lie, by its index."""
    rows = read_index(path)[1].to_pylist()
    names = [stored_name(row["kind"], row["key"].hex(), row["suffix"]) for row in rows]
    return [Stored(str(path), name, row["offset"], row["size"]) for name, row in zip(names, rows, strict=True)]


_Identity = tuple[int, int, int]
"""What the file system says of a file: another one may have taken its name."""


def read_index(path: Path) -> tuple[_Identity, pa.Table]:
    """Return the identity of a pack and its index."""
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        file.seek(max(0, stat.st_size - 8))
        file.seek(min(int.from_bytes(file.read(), "little"), stat.st_size))
        body = _body(PACKS, pa.py_buffer(file.read()[:-8]))
    if body is None:
        raise DamagedFileError(str(path))
    return _identity(stat), _unpack(body).tables["index"].combine_chunks()


def _identity(stat: os.stat_result) -> _Identity:
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


class _Match(NamedTuple):
    """An entry in a pack."""

    path: str
    position: tuple[int, int]
    """Number of its pack, and offset there."""
    size: int
    suffix: int


class Packs:
    """All packs of a state folder, as one process knows them; of very many entries the index lies on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: list[str | None] = []
        """Of each pack that was seen; None when it is gone, or another file."""
        self._known: dict[str, tuple[int, _Identity]] = {}
        """Number and identity of those that are there."""
        self._names: dict[str, int] = {}
        self._entries = SortedRows(folder.parent.parent, _ENTRY)
        self._dropped: set[tuple[int, int]] = set()
        self._looked = False

    def refresh(self) -> None:
        """See which packs there are now; those that are known are not read again."""
        self._looked = True
        there, others = {}, []
        for path in _files(self.folder):
            with contextlib.suppress(FileNotFoundError):  # joined by another build
                known = self._known.get(path)
                if known is not None and known[1] == _identity(os.stat(path)):
                    there[path] = known
                else:
                    others.append(path)
        for path, known in self._known.items():
            if path not in there:
                self._paths[known[0]] = None
        self._known = there
        damaged: list[str] = []
        self._entries.add(self._read(others, damaged), self._are_there)
        if damaged:
            raise DamagedFileError(*damaged)

    def _read(self, paths: Iterable[str], damaged: list[str]) -> Iterator[np.ndarray]:
        """Yield the entries of packs, each a pack's; note these, and those that are damaged."""
        for path in paths:
            try:
                identity, index = read_index(Path(path))
            except FileNotFoundError:  # joined by another build
                continue
            except DamagedFileError:
                damaged.append(path)
                continue
            self._known[path] = len(self._paths), identity
            self._paths.append(path)
            yield self._compact(index, len(self._paths) - 1)

    def _compact(self, index: pa.Table, pack: int) -> np.ndarray:
        entries = np.zeros(len(index), dtype=_ENTRY)
        keys = np.frombuffer(index["key"].chunk(0).buffers()[1], dtype=">u8").reshape(-1, _KEY_BYTES // 8)
        entries["head"], entries["more"], entries["pack"] = keys[:, 0], keys[:, 1], pack
        for column in ("kind", "suffix"):
            codes = index[column].chunk(0)
            numbers = [self._names.setdefault(name, len(self._names)) for name in codes.dictionary.to_pylist()]
            entries[column] = np.array(numbers)[codes.indices]
        entries["offset"], entries["size"] = index["offset"].to_numpy() // ALIGN, index["size"].to_numpy()
        return entries

    def _are_there(self, entries: np.ndarray) -> np.ndarray:
        there = np.fromiter((path is not None for path in self._paths), dtype=bool, count=len(self._paths))
        return there.take(entries["pack"])

    def holds(self, kind: str) -> bool:
        """Tell whether any pack that was seen has entries of a kind."""
        return kind in self._names

    def find(self, kind: str, key: str, suffix: str = "") -> Stored | None:
        """Return where an entry, or rows beside it, lies; None when no pack holds it."""
        for match in self._matches(kind, key):
            if match.suffix == self._names.get(suffix):
                return Stored(match.path, stored_name(kind, key, suffix), match.position[1] * ALIGN, match.size)
        return None

    def find_all(self, kind: str, keys: Sequence[str], suffix: str = "") -> list[Stored | None]:
        """Return what :meth:`find` returns for each of many keys of 64 digits, at a fraction of its cost."""
        if not self._looked:
            self.refresh()
        matches: list[Stored | None] = [None] * len(keys)
        if kind not in self._names or suffix not in self._names:
            return matches
        words = np.frombuffer(bytes.fromhex("".join(keys)), dtype=">u8").reshape(-1, _KEY_BYTES // 8)
        heads, more = words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)
        wanted = self._names[kind], self._names[suffix]
        for which, entries in self._entries.at_all(heads):
            same = (entries["more"] == more[which]) & (entries["kind"] == wanted[0]) & (entries["suffix"] == wanted[1])
            columns = (which[same], *(entries[name][same] for name in ("pack", "offset", "size")))
            for place, pack, offset, size in zip(*(column.tolist() for column in columns), strict=True):
                path = self._paths[pack]
                if matches[place] is None and path is not None and (pack, offset) not in self._dropped:
                    matches[place] = Stored(path, stored_name(kind, keys[place], suffix), offset * ALIGN, size)
        return matches

    def drop(self, kind: str, key: str) -> None:
        """Forget an entry with its rows: it is damaged, and made anew by the next scan."""
        self._dropped.update(match.position for match in self._matches(kind, key))

    def holder(self, kind: str, key: str) -> Path | None:
        """Return the pack that holds an entry, also one that was dropped."""
        return next((Path(match.path) for match in self._matches(kind, key, dropped=True)), None)

    def _matches(self, kind: str, key: str, *, dropped: bool = False) -> Iterator[_Match]:
        if not self._looked:
            self.refresh()
        try:
            whole = bytes.fromhex(key)
        except ValueError:
            return
        head, more = (int.from_bytes(whole[start : start + 8], "big") for start in (0, 8))
        wanted = self._names.get(kind)
        for _, own, size, offset, pack, number, suffix in self._entries.at(head):
            path = self._paths[pack]
            same = own == more and number == wanted and path is not None
            if same and (dropped or (pack, offset) not in self._dropped):
                yield _Match(path, (pack, offset), size, suffix)


def _files(folder: Path) -> list[str]:
    """Return the packs of a folder, sorted."""
    files = [os.path.join(above, name) for above, _, names in os.walk(folder) for name in names]
    return sorted(path for path in files if not path.endswith(".tmp"))
