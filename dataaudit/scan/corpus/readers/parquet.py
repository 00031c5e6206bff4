"""Reads Parquet: cut at row groups, page checksums verified, every batch validated before it is used.

A row group that cannot be decoded, or whose number of rows is not the footer's, makes the whole shard unreadable: a
file that is damaged in one place is not to be trusted in others. Column chunks are read through a small buffer and
decoded a few rows at a time, so memory does not grow with the size of a row group or of a file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.parquet as pq

from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers.columns import (
    Rows,
    batches,
    contents,
    damage,
    flat_column,
    joined,
    layout,
    locate_all,
)
from dataaudit.scan.corpus.readers.part import Part, PartStats, ReadRequest, cut_by_size
from dataaudit.scan.corpus.storage.files import arrow_buffer_bytes, arrow_source

_ROWS_AT_ONCE = 256
_BUFFER_BYTES = 1 << 18


def plan_parts(path: str, _size: int, part_bytes: int) -> list[Part]:
    """Cut at row groups so that a part holds about ``part_bytes`` (uncompressed); no rows are one part."""
    with open_file(path) as file, damage(Reason.NOT_PARQUET, ""):
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        sizes = [max(0, group.total_byte_size) for group in groups]
    return cut_by_size(sizes, part_bytes)


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of the part's row groups, or of those that hold wanted records."""
    with open_file(request.path) as file:
        with damage(Reason.NOT_PARQUET, "schema"):
            schema = file.schema_arrow
            stats.see_layout(layout(schema))
        wanted = locate_all(schema, request.fields)
        for skipped, groups in _runs(file, request):
            stats.records += skipped
            pieces = (rows for group in groups for rows in _group_rows(file, group, wanted, request.batch_bytes))
            yield from batches(joined(pieces, request.batch_bytes), request, losses, stats)


def peek_columns(path: str) -> dict[str, str]:
    """Return the top-level columns and their contents."""
    with open_file(path) as file:
        return contents(file.schema_arrow)


def open_file(path: str) -> pq.ParquetFile:
    """Open a Parquet file with page checksums verified."""
    with damage(Reason.NOT_PARQUET, ""):
        return pq.ParquetFile(
            arrow_source(path),
            page_checksum_verification=True,
            pre_buffer=False,
            buffer_size=arrow_buffer_bytes(path, _BUFFER_BYTES),
        )


def _runs(file: pq.ParquetFile, request: ReadRequest) -> Iterator[tuple[int, list[int]]]:
    """Yield (rows that are skipped before, row groups) of each run of consecutive row groups that are read."""
    skipped, run, first_row = 0, [], 0
    for group in range(request.part.start, request.part.stop):
        if request.only is None:
            run.append(group)
            continue
        with damage(Reason.CORRUPT_PARQUET, f"row group {group}"):
            num_rows = file.metadata.row_group(group).num_rows
        start, stop = np.searchsorted(request.only, [first_row, first_row + num_rows]).tolist()
        if start == stop:
            if run:
                yield skipped, run
                skipped, run = 0, []
            skipped += num_rows
        else:
            run.append(group)
        first_row += num_rows
    yield skipped, run


def _group_rows(file: pq.ParquetFile, group: int, wanted: list[tuple[str, ...]], batch_bytes: int) -> Iterator[Rows]:
    """Yield the text and source columns of a row group, a few rows at a time."""
    columns = [".".join(names) for names in wanted]
    seen = 0
    with damage(Reason.CORRUPT_PARQUET, f"row group {group}"):
        metadata = file.metadata.row_group(group)
        if metadata.num_rows == 0:
            return
        decoded = file.iter_batches(
            batch_size=_rows_at_once(metadata, batch_bytes),
            row_groups=[group],
            columns=columns,
            use_threads=False,
        )
    while True:
        with damage(Reason.CORRUPT_PARQUET, f"row group {group}"):
            batch = next(decoded, None)
            if batch is None:
                break
            rows = Rows.of([flat_column(batch, names) for names in wanted])
        seen += batch.num_rows
        yield rows
    if seen != metadata.num_rows:
        raise ShardUnreadable(Reason.CORRUPT_PARQUET, f"row group {group}")


def _rows_at_once(metadata: pq.RowGroupMetaData, batch_bytes: int) -> int:
    """Return how many rows of about the mean size make a batch, at most 256: a dictionary may hide long values.

    The mean is of the encoded bytes of all columns: a damaged footer, asked for a single column, can end the process.
    """
    mean = max(1, metadata.total_byte_size // max(1, metadata.num_rows))
    return int(min(_ROWS_AT_ONCE, max(1, batch_bytes // mean)))
