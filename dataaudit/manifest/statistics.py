"""What the footer of a Parquet file says of its rows, held against the rows: other programs believe it.

A program that looks for values passes over a row group whose least and largest values say that there is none, and may
answer how many, the least and the largest from the footer alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def wrong_statistics(name: str, file: pq.ParquetFile) -> Iterator[str]:
    """Yield what the statistics of each column and row group say that its values do not.

    Bounds of strings may be wider than the values, as some writers cut them.

    Args:
        name: Of the file, for messages.
        file: Open.

    Raises:
        pa.ArrowException: It cannot be read.
        IndexError: A row group has fewer columns than the schema.
    """
    for group in range(file.num_row_groups):
        for index in range(file.metadata.row_group(group).num_columns):
            for said in _of_chunk(file, group, index):
                yield f"{name}: row group {group}, column {_path(file, group, index)}: {said}"


def _path(file: pq.ParquetFile, group: int, index: int) -> str:
    return str(file.metadata.row_group(group).column(index).path_in_schema)


def _of_chunk(file: pq.ParquetFile, group: int, index: int) -> Iterator[str]:
    chunk = file.metadata.row_group(group).column(index)
    if chunk.has_column_index:
        yield "it has a page index, which no build writes"
    stated = chunk.statistics
    if stated is None:
        return
    values, is_nested = _leaf(file.read_row_group(group, columns=[chunk.path_in_schema]))
    if stated.has_null_count and not is_nested and stated.null_count != values.null_count:
        yield f"the statistics say {stated.null_count} nulls, there are {values.null_count}"
    found = pc.min_max(values).as_py()
    if not stated.has_min_max or found["min"] is None:
        return
    wide = pa.types.is_string(values.type)
    least_holds = stated.min <= found["min"] if wide else stated.min == found["min"]
    most_holds = stated.max >= found["max"] if wide else stated.max == found["max"]
    if not least_holds or not most_holds:
        yield "the statistics say another least or largest value than it has"


def _leaf(table: pa.Table) -> tuple[pa.ChunkedArray, bool]:
    """Return the only leaf column of a table, and whether it lies in a list."""
    values, is_nested = table.column(0), False
    while pa.types.is_list(values.type) or pa.types.is_struct(values.type):
        is_list = pa.types.is_list(values.type)
        pieces = [chunk.flatten() if is_list else chunk.flatten()[0] for chunk in values.chunks]
        inner = values.type.value_type if is_list else values.type[0].type
        values, is_nested = pa.chunked_array(pieces, inner), is_nested or is_list
    return values, is_nested
