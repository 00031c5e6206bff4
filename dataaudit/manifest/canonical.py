"""Canonical forms: JSON by RFC 8785, and a digest of a table's rows that no encoding can change.

A table's digest is the sha256 of, in this order:

1. the RFC 8785 JSON of ``[[[name, type], ...], number_of_rows]`` and one line feed;
2. for every column, structs replaced by their fields (``scope.split``): one byte a row, 1 where there is
   a value and 0 where it is null; then the values:

   * numbers and booleans: little-endian, at their own width (booleans one byte), nulls as zeros,
   * strings, and bytes of a fixed length: their UTF-8 lengths as int64 (null 0), then all bytes one after another,
   * lists: their lengths as int64 (null 0), then the items of all rows, as columns like these.

Rows are sorted by the table's key, then by every other column that is not a list, ascending, nulls last,
strings by bytes. A float is never NaN or infinite, and -0.0 is 0.0; floats are rounded to 12 significant
digits before they get here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import rfc8785

from dataaudit.manifest.tables import TableSpec

_PART_ROWS = 1 << 16


def canonical_json(value: Any) -> bytes:
    """Return the RFC 8785 bytes of plain JSON values."""
    return rfc8785.dumps(value)


class RepeatedKeyError(Exception):
    """An object of JSON has this key twice."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; a repeated key is an error, as some readers take its first value, others its last."""
    plain = dict(pairs)
    if len(plain) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return plain


def digest_json(value: Any) -> str:
    """Return ``sha256:<hex>`` of the canonical JSON of ``value``."""
    return f"sha256:{hashlib.sha256(canonical_json(value)).hexdigest()}"


def sorted_table(table: pa.Table, spec: TableSpec) -> pa.Table:
    """Return the rows in canonical order with exactly the columns and types of ``spec``."""
    missing = [name for name in spec.schema.names if name not in table.column_names]
    if missing:
        raise ValueError(f"table {spec.name}: expected the columns {missing}, found none of that name")
    try:
        table = table.select(spec.schema.names).cast(spec.schema)
    except (ValueError, NotImplementedError) as error:  # the second where Arrow has no such cast
        raise ValueError(f"table {spec.name}: {error}") from None
    for index, field in enumerate(spec.schema):
        try:
            table = table.set_column(index, field, plain_floats(table.column(index), field))
        except ValueError as error:
            raise ValueError(f"table {spec.name}: {error}") from None
    if table.num_rows < 2 or is_sorted(spec, table.column):  # sorting copies all of it, twice
        return table
    flat = dict(flat_columns(table))
    order = _order(spec)
    keys = pa.table({name: flat[name] for name in order})
    indices = pc.sort_indices(keys, sort_keys=[(name, "ascending", "at_end") for name in order])
    return table.take(indices).combine_chunks()


def is_sorted(spec: TableSpec, column: Callable[[str], pa.ChunkedArray], *, unique: bool = False) -> bool:
    """Return whether rows are in canonical order, with one column in memory at a time."""
    tied: pa.Array | None = None  # of each row: whether it equals the row before in all columns so far
    for place, name in enumerate(_order(spec)):
        if place == len(spec.key) and unique:
            break
        whole, _, _ = name.partition(".")
        flat = dict(flat_columns(pa.table({whole: column(whole)})))[name]
        before, after = flat[:-1], flat[1:]
        less = pc.or_(pc.fill_null(pc.less(before, after), False), pc.and_(before.is_valid(), after.is_null()))
        same = pc.or_(pc.fill_null(pc.equal(before, after), False), pc.and_(before.is_null(), after.is_null()))
        allowed = pc.or_(less, same)
        if pc.all(allowed if tied is None else pc.or_(allowed, pc.invert(tied))).as_py() is False:
            return False
        tied = same if tied is None else pc.and_(tied, same)
        if not pc.any(tied).as_py():
            return True
    if unique and pc.any(tied).as_py():
        raise ValueError(f"{pc.sum(tied).as_py()} rows have the same ({', '.join(spec.key)}) as another")
    return True


def _order(spec: TableSpec) -> list[str]:
    """Return the dotted names of the columns that rows are ordered by: the key, then all that are no lists."""
    names = [name for name, leaf in flat_columns(spec.schema.empty_table()) if not pa.types.is_list(leaf.type)]
    return [*spec.key, *(name for name in names if name not in spec.key)]


def plain_floats(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return a column; of floats every zero has the same bits."""
    if not pa.types.is_floating(field.type):
        return column
    if pc.all(pc.is_finite(column)).as_py() is False:
        raise ValueError(f"NaN or an infinity in column {field.name}")
    return pc.add(column, 0.0) if any(map(_has_negative_zero, _parts(column.chunks))) else column


def _has_negative_zero(part: pa.Array) -> bool:
    values = pc.fill_null(part, 1.0).to_numpy(zero_copy_only=False)
    return bool(np.signbit(values[values == 0]).any())


def digest_table(table: pa.Table) -> str:
    """Return ``sha256:<hex>`` of a sorted table; the head of this file gives the exact bytes."""
    return digest_columns(table.schema, table.num_rows, table.column)


def digest_columns(schema: pa.Schema, num_rows: int, column: Callable[[str], pa.ChunkedArray]) -> str:
    """Return the digest of a table that is in canonical order already, with one column in memory at a time."""
    empty = flat_columns(schema.empty_table())
    state = hashlib.sha256(canonical_json([[[name, str(leaf.type)] for name, leaf in empty], num_rows]) + b"\n")
    for field in schema:
        for kind, leaf in _leaves(field.type, column(field.name).chunks):
            _update(state, kind, leaf)
    return f"sha256:{state.hexdigest()}"


def flat_columns(table: pa.Table) -> list[tuple[str, pa.Array]]:
    """Return (dotted name, array) of every leaf column, structs opened."""
    pending = [(name, one_chunk(table.column(name))) for name in table.column_names]
    flat: list[tuple[str, pa.Array]] = []
    while pending:
        name, array = pending.pop(0)
        if pa.types.is_struct(array.type):
            children = zip(array.type, array.flatten(), strict=True)
            pending[:0] = [(f"{name}.{field.name}", child) for field, child in children]
        else:
            flat.append((name, array))
    return flat


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return all values of a column as one array."""
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):  # pyarrow keeps a chunked array when there is no chunk
        return combined.chunk(0) if combined.num_chunks else pa.array([], column.type)
    return combined


def list_items(lists: pa.ListArray) -> pa.Array:
    """Return the items of all lists, one after another, without a copy where no null has any."""
    if len(lists) == 0:
        return lists.flatten()
    first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    none_hidden = (pc.sum(pc.list_value_length(lists)).as_py() or 0) == last - first
    return lists.values.slice(first, last - first) if none_hidden else lists.flatten()


def _leaves(kind: pa.DataType, chunks: list[pa.Array]) -> Iterator[tuple[pa.DataType, list[pa.Array]]]:
    """Yield type and chunks of every leaf of a column, structs opened."""
    if not pa.types.is_struct(kind):
        yield kind, chunks
        return
    opened = [chunk.flatten() for chunk in chunks]
    for index, field in enumerate(kind):
        yield from _leaves(field.type, [children[index] for children in opened])


def _update(state: Any, kind: pa.DataType, chunks: list[pa.Array]) -> None:
    """Feed one leaf column to a hash object, some rows at a time and without a copy of the whole."""
    for part in _parts(chunks):
        state.update(_valid(part))
    if pa.types.is_list(kind):
        for part in _parts(chunks):
            _update_numbers(state, pc.list_value_length(part), "<i8")
        for leaf_kind, leaf in _leaves(kind.value_type, [list_items(part) for part in _parts(chunks)]):
            _update(state, leaf_kind, leaf)
    elif pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind):
        for part in _parts(chunks):
            _update_numbers(state, pc.binary_length(part.cast(pa.large_binary())), "<i8")
        for part in _parts(chunks):
            state.update(_joined(_filled(part.cast(pa.large_binary()), b"")))
    else:
        for part in _parts(chunks):
            _update_numbers(state, part.cast(pa.uint8()) if pa.types.is_boolean(kind) else part, None)


def _parts(chunks: list[pa.Array]) -> Iterator[pa.Array]:
    """Yield some rows after others; of a dictionary its values."""
    for chunk in chunks:
        for start in range(0, len(chunk), _PART_ROWS):
            part = chunk.slice(start, _PART_ROWS)
            yield part.dictionary_decode() if pa.types.is_dictionary(part.type) else part


def _valid(part: pa.Array) -> np.ndarray:
    """Return uint8[n], 0 for null; without nulls no call of Arrow is needed, which is slow for few rows."""
    if part.null_count == 0:
        return np.ones(len(part), dtype=np.uint8)
    valid: np.ndarray = pc.cast(part.is_valid(), pa.uint8()).to_numpy(zero_copy_only=False)
    return valid


def _filled(part: pa.Array, value: object) -> pa.Array:
    return pc.fill_null(part, value) if part.null_count else part


def _update_numbers(state: Any, array: pa.Array, kind: str | None) -> None:
    """Feed numbers, little-endian, nulls as zeros."""
    values = _filled(array, 0).to_numpy(zero_copy_only=False)
    state.update(np.ascontiguousarray(values, dtype=kind or values.dtype.newbyteorder("<")))


def _joined(binary: pa.LargeBinaryArray) -> memoryview:
    """Return all bytes of an array without nulls, one value after another, without a copy."""
    _, offsets, values = binary.buffers()
    if len(binary) == 0 or values is None:
        return memoryview(b"")
    bounds = np.frombuffer(offsets, dtype=np.int64)[binary.offset : binary.offset + len(binary) + 1]
    return memoryview(values)[int(bounds[0]) : int(bounds[-1])]
