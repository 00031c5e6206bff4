"""Parquet: cut at row groups, page checksums verified, every batch validated before it is used.

A row group that cannot be decoded makes the whole shard unreadable (its place names the last good one):
a file that is damaged in one place is not to be trusted in others.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.fields import NO_SOURCE, FieldRule
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers.part import Part, PartStats

_MAX_ROWS = 65_536


def plan_parts(path: str, part_bytes: int) -> list[Part]:
    """Cut at row groups so that a part holds about ``part_bytes`` (uncompressed); an empty file is one part."""
    with open_file(path) as file:
        metadata = file.metadata
        sizes = [metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)]
    parts: list[Part] = []
    start = held = 0
    for index, size in enumerate(sizes):
        if index > start and held + size > part_bytes:
            parts.append(Part(start, index))
            start, held = index, 0
        held += size
    return [*parts, Part(start, len(sizes))]


def read_part(
    path: str, part: Part, fields: FieldRule, batch_bytes: int, losses: LossLog, stats: PartStats
) -> Iterator[DocBatch]:
    """Stream the documents of the part's row groups."""
    with open_file(path) as file:
        schema = file.schema_arrow
        stats.columns.update(f"{field.name}: {field.type}" for field in schema)
        wanted = [_locate(schema, fields.text, Reason.TEXT_COLUMN)]
        if fields.source_column is not None:
            wanted.append(_locate(schema, fields.source_column, Reason.SOURCE_COLUMN))
        row = 0
        for group in range(part.start, part.stop):
            try:
                for batch in _batches(file, group, wanted, batch_bytes):
                    stats.records = row + batch.num_rows
                    document_batch = _documents(batch, wanted, fields, row, losses)
                    row += batch.num_rows
                    if len(document_batch):
                        yield document_batch
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # the file system's fault, perhaps a passing one
                raise ShardUnreadable(Reason.CORRUPT_PARQUET, f"row group {group}") from None


def open_file(path: str) -> pq.ParquetFile:
    """Open a Parquet file with page checksums verified.

    Raises:
        ShardUnreadable: It has no readable footer.
    """
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ShardUnreadable(Reason.NOT_PARQUET) from None


def _locate(schema: pa.Schema, path: str, missing: Reason) -> tuple[str, ...]:
    """Return the names that lead to a column, its exact name first, else the dotted path.

    Raises:
        ShardUnreadable: No such column, two of them, or one of another type.
    """
    for names in ((path,), tuple(path.split("."))):
        indices = schema.get_all_field_indices(names[0])
        if len(indices) > 1:
            raise ShardUnreadable(Reason.AMBIGUOUS_COLUMN, names[0])
        if not indices:
            continue
        kind = schema.field(indices[0]).type
        for name in names[1:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                break
            kind = kind.field(name).type
        else:
            value = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (
                pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)
            ):
                source = missing is Reason.SOURCE_COLUMN
                raise ShardUnreadable(Reason.SOURCE_TYPE if source else Reason.TEXT_TYPE, f"{path}: {kind}")
            return names
    raise ShardUnreadable(missing, path)


def _batches(
    file: pq.ParquetFile, group: int, wanted: list[tuple[str, ...]], batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    metadata = file.metadata.row_group(group)
    if metadata.num_rows == 0:
        return
    columns = [".".join(names) for names in wanted]
    mean = max(1, metadata.total_byte_size // metadata.num_rows)
    rows = int(min(_MAX_ROWS, max(16, batch_bytes // mean)))
    yield from file.iter_batches(batch_size=rows, row_groups=[group], columns=columns, use_threads=False)


def _documents(
    batch: pa.RecordBatch, wanted: list[tuple[str, ...]], fields: FieldRule, first_row: int, losses: LossLog
) -> DocBatch:
    texts = _column(batch, wanted[0])
    sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    bad = np.full(len(texts), "", dtype=object)
    bad[texts.is_null().to_numpy(zero_copy_only=False)] = Reason.TEXT_MISSING
    bad[sizes > fields.max_record_bytes] = Reason.OVERSIZE
    for index in _invalid_utf8(texts):
        bad[index] = Reason.INVALID_UTF8
    sources: pa.Array | None = None
    if fields.source_column is not None:
        sources = _column(batch, wanted[1])
        for index in _invalid_utf8(sources):
            bad[index] = Reason.INVALID_UTF8
    keep = bad == ""
    for index in np.flatnonzero(~keep):
        losses.add(Reason(bad[index]), first_row + int(index), int(sizes[index]))
    rows = first_row + np.arange(len(texts), dtype=np.int64)
    if not keep.all():
        mask = pa.array(keep)
        texts = texts.filter(mask)
        rows = rows[keep]
        sources = None if sources is None else sources.filter(mask)
    codes, names = _encode_sources(sources, len(texts), fields)
    if texts.offset:
        texts = pa.concat_arrays([texts, texts.slice(0, 0)])  # copies, so that the offsets start at 0
    return DocBatch(texts=texts, rows=rows, source_codes=codes, source_names=names)


def _column(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.LargeStringArray:
    array = batch.column(names[0])
    for name in names[1:]:
        array = pc.struct_field(array, name)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.large_binary()).cast(pa.large_string(), safe=False)


def _invalid_utf8(array: pa.LargeStringArray) -> list[int]:
    """Return the indices of values that are not UTF-8; a whole batch is checked at once."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return [index for index in range(len(array)) if not _is_utf8(array[index])]
    return []


def _is_utf8(value: pa.LargeStringScalar) -> bool:
    try:
        if value.is_valid:
            value.as_buffer().to_pybytes().decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _encode_sources(
    sources: pa.LargeStringArray | None, num_documents: int, fields: FieldRule
) -> tuple[np.ndarray, tuple[str, ...]]:
    if sources is None or num_documents == 0:
        names = (fields.source_constant,) if num_documents else ()
        return np.zeros(num_documents, dtype=np.int32), names
    encoded = pc.fill_null(sources, NO_SOURCE).dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32), tuple(
        encoded.dictionary.to_pylist()
    )
