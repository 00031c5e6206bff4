"""The text and source columns of a columnar file, checked and made a :class:`DocBatch`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.fields import NO_SOURCE, NOTHING, TEXT, FieldRule
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers.part import PartStats, ReadRequest
from dataaudit.scan.corpus.segments import bounds_of, runs

_GOOD = len(Reason)
_REASONS = tuple(Reason)
_MAX_ROWS = 65_536
_NO_KEY = re.compile("Cannot decrypt|Could not read encrypted metadata")
"""Arrow's messages for Parquet that it has no key for: of the footer, or of a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Texts and, where a column holds them, sources of consecutive rows; not checked yet."""

    texts: pa.LargeStringArray
    sources: pa.LargeStringArray | None

    @classmethod
    def of(cls, columns: Sequence[pa.LargeStringArray]) -> Self:
        """Return the rows of one or two columns, text first."""
        return cls(texts=columns[0], sources=columns[1] if len(columns) > 1 else None)

    def columns(self) -> list[pa.LargeStringArray]:
        """Return the one or two columns."""
        return [self.texts] if self.sources is None else [self.texts, self.sources]

    def __len__(self) -> int:
        return len(self.texts)


def locate(schema: pa.Schema, path: str, missing: Reason) -> tuple[str, ...]:
    """Return the names that lead to a column: its exact name first, else the dotted path through structs."""
    wrong_type = Reason.SOURCE_TYPE if missing is Reason.SOURCE_COLUMN else Reason.TEXT_TYPE
    nested = tuple(path.split("."))
    names = (path,) if schema.get_all_field_indices(path) else nested
    fields: pa.Schema | pa.StructType = schema
    kind: pa.DataType = pa.null()
    for depth, name in enumerate(names):
        indices = fields.get_all_field_indices(name)
        if len(indices) > 1:
            raise ShardUnreadable(Reason.AMBIGUOUS_COLUMN, ".".join(names[: depth + 1]))
        if not indices:
            raise ShardUnreadable(missing, path)
        kind = fields.field(indices[0]).type
        if depth < len(names) - 1:
            if not pa.types.is_struct(kind):
                raise ShardUnreadable(wrong_type, _named(".".join(names[: depth + 1]), kind))
            fields = kind
    if not is_text(kind) and content(kind) != NOTHING:  # a column of nulls alone has no other type
        raise ShardUnreadable(wrong_type, _named(path, kind))
    return names


def locate_all(schema: pa.Schema, fields: FieldRule) -> list[tuple[str, ...]]:
    """Return the names that lead to the text and, where a column holds it, to the source; see :func:`locate`."""
    paths = [locate(schema, fields.text, Reason.TEXT_COLUMN)]
    if fields.source_column is not None:
        paths.append(locate(schema, fields.source_column, Reason.SOURCE_COLUMN))
    return paths


def is_text(kind: pa.DataType) -> bool:
    """Tell whether values of a type are strings, plain or as a dictionary."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value))


def content(kind: pa.DataType) -> str:
    """Return the content of a column of a type: text, or the name of the type."""
    return TEXT if is_text(kind) else _outermost(kind)


def contents(schema: pa.Schema) -> dict[str, str]:
    """Return the top-level columns and their contents."""
    return {column.name: content(column.type) for column in schema}


def layout(schema: pa.Schema) -> tuple[str, ...]:
    """Return name and type of each column."""
    return tuple(f"{column.name}: {column.type}" for column in schema)


def flat_column(batch: pa.RecordBatch, names: Sequence[str]) -> pa.LargeStringArray:
    """Return a column as large strings, which may not be UTF-8; a null struct means a null value."""
    return flat(checked_column(batch, names))


def checked_column(batch: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Return a column whose every offset and index has been checked, before any value is touched.

    The values are large strings, views, or a dictionary of large strings; that they are UTF-8 is not checked.
    """
    array = batch.column(batch.schema.get_field_index(names[0]))
    array.validate()  # sizes of buffers, in every child
    for name in names[1:]:
        array = pc.struct_field(array, name)
    if pa.types.is_dictionary(array.type):
        _check_indices(array)
        values = flat(_checked(array.dictionary))
        return pa.DictionaryArray.from_arrays(array.indices, values, safe=False)
    return _checked(array)


def _checked(array: pa.Array) -> pa.Array:
    if pa.types.is_null(array.type):
        return array.cast(pa.large_string())
    view = pa.types.is_string_view(array.type)
    large = pa.types.is_large_string(array.type)
    # As bytes: a value that is no UTF-8 costs one record, an offset that leads astray the whole file.
    binary = array.view(pa.binary_view() if view else pa.large_binary() if large else pa.binary())
    binary.validate(full=True)
    return binary if view else flat(binary)


def flat(array: pa.Array) -> pa.LargeStringArray:
    """Return a checked column as large strings."""
    if pa.types.is_dictionary(array.type):
        return array.dictionary.take(array.indices)
    if pa.types.is_large_string(array.type):
        return array
    return array.cast(pa.large_binary()).cast(pa.large_string(), safe=False)


def cut_column(columns: Sequence[pa.Array], batch_bytes: int) -> Iterator[Rows]:
    """Cut checked columns, text first, so that each piece has about ``batch_bytes``, and only then unfold it.

    A dictionary or views may hold a long value once for thousands of rows.
    """
    sizes: np.ndarray = np.sum([_unfolded_sizes(column) for column in columns], axis=0)
    for start, stop in runs(bounds_of(sizes), batch_bytes):
        yield Rows.of([flat(column.slice(start, stop - start)) for column in columns])


def _unfolded_sizes(column: pa.Array) -> np.ndarray:
    """int64[n] bytes of each value, 0 for a null."""
    if pa.types.is_binary_view(column.type):  # 16 bytes each, of which the first four are the length
        views = np.frombuffer(column.buffers()[1], dtype="<i4").reshape(-1, 4)
        lengths = views[column.offset : column.offset + len(column), 0].astype(np.int64)
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    if not pa.types.is_dictionary(column.type):
        return _sizes(column).astype(np.int64)
    lengths = pc.fill_null(pc.binary_length(column.dictionary), 0).take(column.indices)
    sizes: np.ndarray = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _check_indices(array: pa.DictionaryArray) -> None:
    """Raise ArrowInvalid for an index outside of the dictionary, which decoding would follow blindly."""
    bounds = pc.min_max(array.indices)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and not 0 <= low <= high < len(array.dictionary):
        raise pa.ArrowInvalid("an index is outside of its dictionary")


@contextmanager
def damage(reason: Reason, place: str) -> Iterator[None]:
    """Turn Arrow's errors on damaged bytes into a reason; errors of the file system pass."""
    try:
        yield
    except pa.ArrowMemoryError:
        raise  # damaged sizes and a full machine look the same; a trial alone tells them apart
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ShardUnreadable(Reason.ENCRYPTED if _NO_KEY.search(str(error)) else reason, place) from None


def joined(pieces: Iterator[Rows], batch_bytes: int) -> Iterator[Rows]:
    """Join small pieces and cut large ones, so that each has about ``batch_bytes`` of text."""
    waiting: list[Rows] = []
    num_rows = num_bytes = 0
    for piece in pieces:
        for rows in cut_rows(piece, batch_bytes):
            size = rows.texts.nbytes
            if waiting and (num_bytes + size > batch_bytes or num_rows + len(rows) > _MAX_ROWS):
                yield join_rows(waiting)
                waiting, num_rows, num_bytes = [], 0, 0
            waiting.append(rows)
            num_rows += len(rows)
            num_bytes += size
    if waiting:
        yield join_rows(waiting)


def cut_rows(rows: Rows, batch_bytes: int) -> Iterator[Rows]:
    """Cut rows so that each piece has at most ``batch_bytes`` of text, or is a single row."""
    if rows.texts.nbytes <= batch_bytes:
        yield rows
        return
    for start, stop in runs(bounds_of(_sizes(rows.texts)), batch_bytes):
        yield Rows.of([column.slice(start, stop - start) for column in rows.columns()])


def join_rows(pieces: Sequence[Rows]) -> Rows:
    """Join consecutive pieces."""
    if len(pieces) == 1:
        return pieces[0]
    return Rows.of([pa.concat_arrays(columns) for columns in zip(*(rows.columns() for rows in pieces), strict=True)])


def batches(pieces: Iterable[Rows], request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Yield the good documents of consecutive rows, and count all rows in ``stats``."""
    for rows in pieces:
        batch = documents(rows, request.fields, stats.records, losses)
        stats.records += len(rows)
        if len(batch):
            yield batch


def documents(rows: Rows, fields: FieldRule, first_row: int, losses: LossLog) -> DocBatch:
    """Return the good documents among some rows, and count the others in ``losses``.

    A row with several faults counts for the first of: missing, oversize, text no UTF-8, source no UTF-8.
    """
    texts, sources = rows.texts, rows.sources
    sizes = _sizes(texts)
    fault = np.full(len(rows), _GOOD, dtype=np.int8)
    if sources is not None:
        _mark(fault, _invalid_utf8(sources), Reason.INVALID_UTF8)
    _mark(fault, _invalid_utf8(texts), Reason.INVALID_UTF8)
    _mark(fault, sizes > fields.max_record_bytes, Reason.OVERSIZE)
    _mark(fault, texts.is_null().to_numpy(zero_copy_only=False), Reason.TEXT_MISSING)
    good = fault == _GOOD
    for index in np.flatnonzero(~good):
        losses.add(_REASONS[fault[index]], first_row + int(index), int(sizes[index]))
    numbers = first_row + np.flatnonzero(good)
    if not good.all():
        mask = pa.array(good)
        texts = texts.filter(mask)
        sources = None if sources is None else sources.filter(mask)
    codes, names = _encode_sources(sources, len(texts), fields)
    return DocBatch(texts=_from_zero(texts), rows=numbers, source_codes=codes, source_names=names)


def _mark(fault: np.ndarray, where: np.ndarray, reason: Reason) -> None:
    fault[where] = _REASONS.index(reason)


def _sizes(texts: pa.LargeStringArray) -> np.ndarray:
    """int64[n] bytes of each text, 0 for a null."""
    sizes: np.ndarray = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    return sizes


def _invalid_utf8(array: pa.LargeStringArray) -> np.ndarray:
    """bool[n]: values that are not UTF-8; mostly one check of the whole array."""
    invalid = np.zeros(len(array), dtype=bool)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        invalid[:] = [not _is_utf8(value) for value in array.cast(pa.large_binary())]
    return invalid


def _is_utf8(value: pa.LargeBinaryScalar) -> bool:
    try:
        if value.is_valid:
            str(value.as_buffer(), "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _from_zero(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return texts whose buffers start with the first of them, as kernels on the buffers expect."""
    if len(texts) == 0:
        return pa.array([], pa.large_string())
    first = np.frombuffer(texts.buffers()[1], dtype=np.int64, count=1)[0]
    if texts.offset or first:
        return pa.concat_arrays([texts, texts.slice(0, 0)])  # copies
    return texts


def _encode_sources(
    sources: pa.LargeStringArray | None, num_documents: int, fields: FieldRule
) -> tuple[np.ndarray, tuple[str, ...]]:
    if sources is None or num_documents == 0:
        names = (fields.source_constant,) if num_documents else ()
        return np.zeros(num_documents, dtype=np.int32), names
    encoded = pc.fill_null(sources, NO_SOURCE).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    return codes, tuple(encoded.dictionary.to_pylist())


def _named(path: str, kind: pa.DataType) -> str:
    return f"{path}: {_outermost(kind)}"


def _outermost(kind: pa.DataType) -> str:
    """Return the name of a type; of a nested one the outermost, since names of fields may hold text."""
    if pa.types.is_dictionary(kind):
        value = _outermost(kind.value_type)
        return value if value == NOTHING else f"dictionary of {value}"
    return str(kind).partition("<")[0].partition("[")[0][:80]
