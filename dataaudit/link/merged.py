"""Keyed rows of many small parts in one file, each row with its part: a join then opens few files, however many parts.

The key stays the first column. Then comes the number of the part, so that rows of one key are ordered by part and keep
their order in it; then what else :data:`dataaudit.link.joins.LINK_FILES` says of a part, and the columns of the rows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.atomic import DamagedFileError
from dataaudit.link.keyed import NUM_BYTES, read_keyed

MERGED = -2
"""Stands for the shard of a file of :data:`dataaudit.link.joins.LINK_FILES` that holds the rows of many parts."""
PARTS = pa.schema(
    [
        ("part_number", pa.int32()),
        ("part_times", pa.int32()),
        ("part_shard", pa.int32()),
        ("part_split", pa.int32()),
        ("part_first_row", pa.int64()),
    ]
)
"""Of each row: the number of its part, in the order in which parts are listed first; how often the part is listed, in
the rows of its first listing, and 0 in those of the others; then where it is listed."""


def merge_rows(listed: pa.Table) -> pa.Table:
    """Return the keyed rows of parts, those of one that is listed again for each listing.

    Args:
        listed: ``path`` of the rows of a part, then the columns of :data:`PARTS`.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
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
    """Yield of each file its shard, the number of its first record and its rows; see :func:`each_table`.

    Args:
        files: Of schema :data:`dataaudit.link.joins.LINK_FILES`.
        start: First value of the key's first byte.
        stop: Value after the last.
    """
    listed = zip(files["shard"].to_pylist(), files["first_row"].to_pylist(), strict=True)
    for table in each_table(files["path"].to_pylist(), start, stop):  # once a file is damaged there are no more
        yield *next(listed), table


def each_table(
    paths: list[bytes], start: int, stop: int, chosen: Callable[[pa.Table], pa.Table] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of each file whose key's first byte is in [start, stop); a file that is named again is read once.

    Args:
        paths: Addresses as the file system's bytes.
        start: First value of the first byte.
        stop: Value after the last.
        chosen: Returns the rows to keep of a file's.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
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
