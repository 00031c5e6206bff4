"""Keyed rows on disk: sorted by key, in blocks by the first byte of the key.

A join that owns some first bytes reads only their blocks of every file, so no shuffle is needed, and memory is bounded
by the rows of those bytes. First bytes of few rows share a block. Every block has its sha256 in the head, and the head
is sealed with the name of the rows: rows that were cut, changed, lost or swapped are detected before they are counted.

The bytes are a file of their own, or lie in a pack, a file for many parts. Rows of many small parts can also be
merged, so that a join opens few files. Then the columns of :data:`PARTS` follow the key, the number of the part first,
so that rows of a key are in order of parts.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.files import DamagedFileError, write_whole
from dataaudit.base.sealing import padded, read_head, sealed_head
from dataaudit.manifest.locate import places_of
from dataaudit.scan.corpus.segments import changes

_IN_PACK = "\0"
"""Separates, in an address, the path of a pack from the position in it; no path has a NUL."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A range of bytes of a file. As text, its address: the path, in a pack with the position."""

    path: str
    name: str
    """The sealed name: ``<kind>/<key>``, with a suffix for rows beside an entry."""
    offset: int = 0
    size: int | None = None
    """None for the whole file."""

    def __str__(self) -> str:
        return self.path if self.size is None else f"{self.path}{_IN_PACK}{self.offset}:{self.size}:{self.name}"

    @classmethod
    def at(cls, address: str | Path) -> Stored:
        """Return the bytes at an address."""
        path, in_pack, position = str(address).partition(_IN_PACK)
        if not in_pack:
            own = Path(path)
            return cls(path=path, name=f"{own.parent.parent.name}/{own.name}")
        offset, size, name = position.split(":", 2)
        return cls(path=path, name=name, offset=int(offset), size=int(size))

    def num_bytes(self) -> int:
        """Return their number; 0 when their file is gone."""
        if self.size is not None:
            return self.size
        return os.stat(self.path).st_size if os.path.exists(self.path) else 0

    def open(self) -> pa.NativeFile:
        """Open the file where they begin."""
        source = pa.OSFile(os.fsencode(self.path), "rb")
        source.seek(self.offset)
        return source

    def read(self) -> pa.Buffer:
        """Return them, in aligned memory, as Arrow's kernels want it; fewer when the file is cut."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)  # a pa.OSFile costs three times as much
        try:
            size = os.fstat(descriptor).st_size - self.offset if self.size is None else self.size
            data = pa.allocate_buffer(max(size, 0))
            view, read = memoryview(data), 0
            while read < size and (more := os.preadv(descriptor, [view[read:]], self.offset + read)):
                read += more
        finally:
            os.close(descriptor)
        return data if read == size else data.slice(0, read)


NUM_BYTES = 256
KEYED_VERSION = 3
"""Changes with the form of the files."""
_MAGIC = f"dataaudit keyed rows {KEYED_VERSION}\n".encode().ljust(24, b"\0")
_MIN_ROWS = 64
"""A block with fewer takes the rows of the next first byte too, when these are no more."""


def write_keyed(path: Path, tables: Sequence[pa.Table], schema: pa.Schema) -> None:
    """Write keyed rows to a file of their own, the first column of ``schema`` being a fixed-size binary key."""
    write_whole(path, *keyed_pieces(Stored.at(path).name, tables, schema))


def keyed_pieces(name: str, tables: Sequence[pa.Table], schema: pa.Schema) -> list[bytes]:
    """Return the pieces of a file of keyed rows."""
    blocks = list(keyed_blocks(tables, schema, _MIN_ROWS))
    return [keyed_head(name, schema, [block for block, _ in blocks]), *(body for _, body in blocks)]


def keyed_blocks(
    tables: Sequence[pa.Table], schema: pa.Schema, min_rows: int = 0
) -> Iterator[tuple[KeyedBlock, bytes]]:
    """Yield the blocks of some rows, sorted, each with its bytes."""
    table = pa.concat_tables([schema.empty_table(), *(part.select(schema.names) for part in tables)]).combine_chunks()
    for first, last, body in _blocks(table.take(_order(table)) if table.num_rows > 1 else table, min_rows):
        yield KeyedBlock(first, last, len(body), _short_digest(body)), body


def keyed_head(name: str, schema: pa.Schema, blocks: Sequence[KeyedBlock]) -> bytes:
    """Return the bytes before the blocks of keyed rows, which follow in this order."""
    head = orjson.dumps({"schema": schema.serialize().to_pybytes().hex(), "blocks": [list(block) for block in blocks]})
    return sealed_head(_MAGIC, name, head)


def read_keyed(address: str | Path, start: int, stop: int) -> pa.Table:
    """Return the rows whose key's first byte is in [start, stop)."""
    stored = Stored.at(address)
    with _opened(stored) as source:
        schema, blocks, position = _head(stored, source)
        wanted = [block for block in blocks if start <= block.last and block.first < stop]
        source.seek(stored.offset + position + sum(block.size for block in blocks if block.last < start))
        data = source.read_buffer(sum(block.size for block in wanted))
    batches, position = [], 0
    for block in wanted:
        body = data.slice(position, min(block.size, data.size - position))
        if _short_digest(memoryview(body)) != block.digest:
            raise DamagedFileError(str(address))
        batch = pa.ipc.read_record_batch(body, schema)
        if block.first < start or block.last >= stop:
            own = np.searchsorted(key_matrix(batch.column(0))[:, 0], [start, stop]).tolist()
            batch = batch.slice(own[0], own[1] - own[0])
        batches.append(batch)
        position += block.size
    return pa.Table.from_batches(batches, schema=schema)


def stored_bytes(address: str | Path, start: int, stop: int) -> int:
    """Return the bytes of the blocks that begin in [start, stop), from the head alone."""
    stored = Stored.at(address)
    with _opened(stored) as source:
        _, blocks, _ = _head(stored, source)
    return sum(block.size for block in blocks if start <= block.first < stop)


def _opened(stored: Stored) -> pa.NativeFile:
    try:
        return stored.open()
    except FileNotFoundError:
        raise DamagedFileError(str(stored)) from None


def is_keyed(stored: Stored) -> bool:
    """Tell whether they are keyed rows, by their first bytes."""
    with stored.open() as source:
        return bytes(source.read(len(_MAGIC))) == _MAGIC


def is_sound(stored: Stored) -> bool:
    """Tell whether keyed rows are complete and unchanged."""
    try:
        read_keyed(str(stored), 0, NUM_BYTES)
    except DamagedFileError:
        return False
    return True


def key_matrix(array: pa.FixedSizeBinaryArray) -> np.ndarray:
    """Return uint8[n, width] of the keys, without copying."""
    width = array.type.byte_width
    if len(array) == 0:
        return np.zeros((0, width), dtype=np.uint8)
    values = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return values[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def _order(table: pa.Table) -> pa.Array:
    """Return the stable order by key, then by the second column.

    Keys are mostly hashes: few are equal in their first eight bytes, and only these are compared further, in a sixth of
    the time of Arrow's sort, which remains for other columns. Few rows are sorted by Python.
    """
    first, second = table.column(0), table.column(1)
    if table.num_rows <= _MIN_ROWS and not first.null_count + second.null_count:
        pairs = [*zip(first.to_pylist(), second.to_pylist(), strict=True)]
        return pa.array(sorted(range(len(pairs)), key=pairs.__getitem__), pa.int64())
    if table.num_rows < 2 or not pa.types.is_integer(second.type) or second.null_count:
        return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names[:2]])
    keys = np.concatenate([key_matrix(chunk) for chunk in first.chunks])
    heads = np.zeros((len(keys), 8), dtype=np.uint8)
    heads[:, : min(8, keys.shape[1])] = keys[:, :8]
    values = heads.view(">u8").reshape(-1).astype(np.uint64)
    order = np.argsort(values)
    same = ~changes(values[order])
    tied = np.flatnonzero(same | np.append(same[1:], False))
    chosen = order[tied]
    further = [keys[chosen, column] for column in range(keys.shape[1] - 1, 7, -1)]
    order[tied] = chosen[np.lexsort((chosen, second.to_numpy()[chosen], *further, values[chosen]))]
    return pa.array(order)


class KeyedBlock(NamedTuple):
    """A block in the head: least and greatest first byte of its keys, size and digest of its bytes."""

    first: int
    last: int
    size: int
    digest: str


def _blocks(table: pa.Table, min_rows: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (least, greatest first byte, record batch as a message) of a sorted table; a byte may have several."""
    for batch in table.to_batches():
        firsts = key_matrix(batch.column(0))[:, 0]
        ends = [*(np.flatnonzero(firsts[1:] != firsts[:-1]) + 1).tolist(), len(firsts)] if len(firsts) else []
        begin = 0
        for end, following in zip_longest(ends, ends[1:]):
            if following is not None and end - begin < min_rows and following - end < min_rows:
                continue
            piece = batch.slice(begin, end - begin)
            yield int(firsts[begin]), int(firsts[end - 1]), padded(piece.serialize().to_pybytes())
            begin = end


def _head(stored: Stored, source: pa.NativeFile) -> tuple[pa.Schema, list[KeyedBlock], int]:
    """Return the checked schema and blocks, and the offset of the first block."""
    if (found := read_head(_MAGIC, stored.name, source.read, source.size())) is None:
        raise DamagedFileError(str(stored))
    value = orjson.loads(found[0])
    schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(value["schema"])))
    return schema, [KeyedBlock(*block) for block in value["blocks"]], found[1]


def _short_digest(body: bytes | memoryview) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


MERGED = -2
"""Shard of a file with rows of many parts in :data:`dataaudit.scan.cross_shard.joins.LINK_FILES`."""
PARTS = pa.schema(
    [
        ("part_number", pa.int32()),
        ("part_times", pa.int32()),
        ("part_shard", pa.int32()),
        ("part_split", pa.int32()),
        ("part_first_row", pa.int64()),
    ]
)
"""Columns of merged rows: the number of the part, in the order of first listings; its listings, 0 in all rows but those
of the first; then shard, split and first record of the listing."""


def merge_rows(listed: pa.Table) -> pa.Table:
    """Return the keyed rows of parts, repeated for each listing of a part."""
    pieces, sizes = [], []
    for table in each_table(listed["path"].to_pylist(), 0, NUM_BYTES):
        pieces.append(table)
        sizes.append(table.num_rows)
    rows = pa.concat_tables(pieces)
    columns = [pa.array(np.repeat(listed[name].to_numpy(), sizes), PARTS.field(name).type) for name in PARTS.names]
    return pa.table(
        [rows.column(0), *columns, *rows.columns[1:]],
        names=[rows.column_names[0], *PARTS.names, *rows.column_names[1:]],
    )


def each_listed(files: pa.Table, start: int, stop: int) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield shard, number of the first record, and rows of each file; see :func:`each_table`."""
    listed = zip(files["shard"].to_pylist(), files["first_row"].to_pylist(), strict=True)
    for table in each_table(files["path"].to_pylist(), start, stop):  # once a file is damaged there are no more
        yield *next(listed), table


def each_table(
    paths: list[bytes], start: int, stop: int, chosen: Callable[[pa.Table], pa.Table] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of each file whose key's first byte is in [start, stop); a repeated file is read once.

    ``DamagedFileError`` names all files that cannot be read; none is yielded after the first of them.
    """
    listings, known = Counter(paths), dict[bytes, pa.Table]()
    damaged: set[str] = set()
    for path in paths:
        table = known.get(path)
        try:
            if table is None:
                table = read_keyed(Path(os.fsdecode(path)), start, stop)
                table = table if chosen is None else chosen(table)
        except DamagedFileError as error:
            damaged.update(error.paths)
            continue
        if listings[path] > 1:
            known[path] = table
        if not damaged:
            yield table
    if damaged:
        raise DamagedFileError(*sorted(damaged))


Choose = Callable[[pa.Table], pa.Table]
MOST_BYTES = 1 << 28
"""Stored rows that are joined at once: sorting takes some six times as much memory."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Keyed rows of a partition, of all shards, with shard, record and split of their document."""

    table: pa.Table
    """The rows as they were emitted."""
    shards: np.ndarray
    """int32[n]"""
    rows: np.ndarray
    """int64[n]"""
    splits: np.ndarray
    """int32[n]"""

    @property
    def places(self) -> np.ndarray:
        """int64[n] place of their document in the manifest."""
        return places_of(self.shards, self.rows)


@dataclass(frozen=True, slots=True)
class Pass:
    """Pass ``number``, from 0, of several over a large partition: some rows, by the second byte of their keys."""

    number: int = 0
    of: int = 1

    def rows(self, table: pa.Table) -> pa.Table:
        """Return the rows of this pass."""
        if self.of == 1:
            return table
        second = np.concatenate([np.zeros(0, np.uint8), *(key_matrix(chunk)[:, 1] for chunk in table.column(0).chunks)])
        return table.filter(pa.array(second.astype(np.int64) * self.of >> 8 == self.number))


def passes(files: pa.Table, start: int, stop: int, most_bytes: int = MOST_BYTES, most: int = NUM_BYTES) -> list[Pass]:
    """Cut a partition into passes whose rows stay below a size, if keys are evenly spread."""
    total, damaged = 0, set[str]()
    for path in files["path"].to_pylist():
        try:
            total += stored_bytes(Path(os.fsdecode(path)), start, stop)
        except DamagedFileError as error:
            damaged.update(error.paths)
    if damaged:
        raise DamagedFileError(*sorted(damaged))
    number = min(most, 1 << max(0, -(-total // most_bytes) - 1).bit_length())
    return [Pass(index, number) for index in range(number)]


def read_placed(files: pa.Table, schema: pa.Schema, start: int, stop: int, chosen: Choose = Pass().rows) -> Placed:
    """Read the keyed rows whose key's first byte is in [start, stop)."""
    tables = list(each_table(files["path"].to_pylist(), start, stop, chosen))
    sizes = [table.num_rows for table in tables]
    shards, splits, first_rows = (np.repeat(files[name].to_numpy(), sizes) for name in ("shard", "split", "first_row"))
    bounds = np.cumsum([0, *sizes]).tolist()
    for index in np.flatnonzero(files["shard"].to_numpy() == MERGED).tolist():
        own = slice(bounds[index], bounds[index + 1])
        for values, name in ((shards, "part_shard"), (splits, "part_split"), (first_rows, "part_first_row")):
            values[own] = tables[index][name].to_numpy()
    merged = pa.concat_tables([schema.empty_table(), *(table.select(schema.names) for table in tables)])
    rows = first_rows + merged[schema.names[1]].to_numpy()
    return Placed(merged, shards.astype(np.int32), rows, splits.astype(np.int32))


def named(files: pa.Table, name: str) -> pa.Table:
    """Return the files of a name, of a join of several kinds of rows."""
    suffix = b"." + name.encode()
    return files.filter(pa.array([path.endswith(suffix) for path in files["path"].to_pylist()], pa.bool_()))


def read_all(files: pa.Table, schema: pa.Schema, start: int, stop: int, chosen: Choose = Pass().rows) -> pa.Table:
    """Read keyed rows that name their documents; see :func:`read_placed`."""
    paths = files["path"].to_pylist()
    return pa.concat_tables([schema.empty_table(), *each_table(paths, start, stop, chosen)])


def keys_of(table: pa.Table) -> np.ndarray:
    """Return uint64[n] of a table's first column, 8-byte keys, in the order of the bytes."""
    chunks = [key_matrix(chunk) for chunk in table.column(0).chunks]
    matrix = np.concatenate([np.zeros((0, 8), dtype=np.uint8), *chunks])
    return np.ascontiguousarray(matrix).view(">u8").reshape(-1).astype(np.uint64)


def key_array(keys: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return uint64[n] as an Arrow array of 8-byte keys."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(keys), [None, pa.py_buffer(keys.astype(">u8"))])


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct values, ascending; much faster than ``np.unique``, which hashes them."""
    ordered = np.sort(values)
    return np.asarray(ordered[changes(ordered)])


def spread(places: np.ndarray) -> np.ndarray:
    """Return uint64[n] hashes of places, which spread evenly over partitions."""
    value = places.astype(np.uint64)
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(value ^ (value >> np.uint64(32)))
